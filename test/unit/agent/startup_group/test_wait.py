"""``wait-for-group``: watch, mounted volume, and timeout, in virtual time."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import asynccontextmanager

import msgspec
import pytest

from jobsetpy.agent.protocol.settings import ConfigurationError
from jobsetpy.agent.startup_group.wait import (
    EXIT_TIMED_OUT,
    ConfigMap,
    GroupWait,
    Settings,
    connect,
    load,
)
from jobsetpy.aio import supervise
from jobsetpy.client import Page
from jobsetpy.errors import ForbiddenError
from support import patience
from support.agents.agent_process import AgentLog

pytestmark = pytest.mark.looptime

ENVIRON = {"NAMESPACE": "ns", "JOBSET_NAME": "js", "JOBSET_UID": "u", "GROUP_ATTEMPT": "3"}
FORBIDDEN = ForbiddenError(403, "Forbidden", "no", verb="watch", target="configmaps")


class ScriptedClient:
    """A watch that is silent or refused, and lists with the test's data."""

    def __init__(self, data=None, refuse=False):
        self.data = data
        self.refuse = refuse
        self.requests = 0
        self.selectors = set()

    @asynccontextmanager
    async def watch(self, cls, namespace="", **how):
        self.requests += 1
        self.selectors.add((namespace, how["field_selector"]))
        if self.refuse or how["send_initial_events"]:
            raise FORBIDDEN
        yield self

    async def read(self):
        await asyncio.Event().wait()

    async def list_page(self, cls, namespace="", **how):
        self.requests += 1
        if self.refuse:
            raise FORBIDDEN
        body = {"metadata": {"name": "js-group-scheduling"}, "data": self.data}
        return Page([msgspec.convert(body, ConfigMap)], "1", "")


@pytest.fixture
def settings(tmp_path):
    """Settings with a mount in a temporary folder."""
    return msgspec.structs.replace(
        load(ENVIRON), mount=str(tmp_path), termination_log=str(tmp_path / "log"), timeout_s=60
    )


async def test_container_ends_when_the_watch_shows_the_release(settings):
    """Its exit code is 0."""
    client, log = ScriptedClient({"started": "u 3\n"}), AgentLog()

    assert await GroupWait(settings, client, log=log).run() == 0
    assert client.selectors == {("ns", "metadata.name=js-group-scheduling")}
    assert ("released", {"path": "watch"}) in log.lines


@pytest.mark.parametrize("refused", [True, False])
async def test_container_ends_when_the_mount_shows_the_release(settings, tmp_path, refused):
    """Without the right to watch, which is logged once, and while the watch is silent."""
    client, log = ScriptedClient({"started": "u 2\n"}, refuse=refused), AgentLog()
    async with supervise() as tasks:
        waiting = tasks.start(GroupWait(settings, client, log=log).run(), name="wait")
        await asyncio.sleep(30)
        assert not waiting.done()
        (tmp_path / "started").write_text("u 3\n")
        await asyncio.sleep(1.1)
        assert waiting.result() == 0

    assert ("released", {"path": "volume"}) in log.lines
    assert log.events.count("cannot watch the ConfigMap") <= 3
    assert client.requests < 40


async def test_container_fails_when_its_time_is_over(settings, tmp_path):
    """Its message says how many pods had started, by whichever way that came."""
    client, log = ScriptedClient({"started": "u 2\n", "waiting": "u 3 7 8 noon\n"}), AgentLog()
    began = asyncio.get_running_loop().time()

    assert await GroupWait(settings, client, log=log).run() == EXIT_TIMED_OUT
    assert asyncio.get_running_loop().time() - began == pytest.approx(60, abs=0.1)
    message = "group scheduling timed out after 60 s: 7 of 8 pods had started at noon"
    assert (tmp_path / "log").read_text() == message


async def test_mount_is_enough_without_an_api_server(settings, tmp_path):
    """Pods may have no token."""
    (tmp_path / "started").write_text("u 4")

    assert connect(settings) is None
    assert await GroupWait(settings, None, log=AgentLog()).run() == 0


async def test_container_fails_when_its_message_cannot_be_written(settings):
    """The log has a line about the file."""
    lost = msgspec.structs.replace(settings, termination_log="/nowhere/log", timeout_s=1)
    log = AgentLog()

    assert await GroupWait(lost, None, log=log).run() == EXIT_TIMED_OUT
    assert "no termination log" in log.events


@pytest.mark.parametrize("name", ENVIRON)
def test_missing_variable_is_named(name):
    """All of them are required."""
    with pytest.raises(ConfigurationError, match=name):
        load({**ENVIRON, name: ""})


def test_settings_are_read_from_the_environment():
    """Without a timeout there is no limit."""
    given = load({**ENVIRON, "GROUP_TIMEOUT": "5", "GROUP_SIZE": "8"})

    assert (given.attempt, given.timeout_s, given.size) == (3, 5, "8")
    assert load(ENVIRON).timeout_s is None
    with pytest.raises(ConfigurationError, match="GROUP_TIMEOUT"):
        load({**ENVIRON, "GROUP_TIMEOUT": "five"})
    assert isinstance(given, Settings)


def run(environ):
    """Run the subcommand as a process."""
    return subprocess.run(
        [sys.executable, "-m", "jobsetpy.agent", "wait-for-group"],
        env=environ,
        capture_output=True,
        timeout=patience.scaled(20),
        check=False,
    )


def test_process_ends_immediately_after_the_release_or_with_its_timeout(tmp_path):
    """A container may run again after the release; wrong settings have an exit code of their own."""
    (tmp_path / "started").write_text("u 3\n")
    again = run({**ENVIRON, "GROUP_MOUNT": str(tmp_path)})
    assert again.returncode == 0
    assert json.loads(again.stderr)["event"] == "released"

    log = tmp_path / "log"
    late = run({**ENVIRON, "GROUP_ATTEMPT": "4", "GROUP_MOUNT": str(tmp_path),
                "GROUP_TIMEOUT": "1", "TERMINATION_LOG": str(log)})  # fmt: skip
    assert late.returncode == EXIT_TIMED_OUT
    assert "fewer than all pods" in log.read_text()
    assert run({}).returncode == 2
