"""``wait-for-group``: by watch, by mount, and the end of patience, in virtual time."""

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

ENVIRON = {"NAMESPACE": "ns", "JOBSET_NAME": "js", "JOBSET_UID": "u", "GROUP_ATTEMPT": "3"}
FORBIDDEN = ForbiddenError(403, "Forbidden", "no", verb="watch", target="configmaps")


class Lines(list):
    """Collects log lines."""

    def __call__(self, event, /, *, level="info", **fields):
        self.append((event, fields))

    @property
    def events(self):
        """Their texts."""
        return [event for event, _ in self]


class ScriptedClient:
    """A watch that never says anything, or is refused; lists hold what the test put there."""

    def __init__(self, data=None, refuse=False):
        self.data = data
        self.refuse = refuse
        self.asked = 0
        self.selectors = set()

    @asynccontextmanager
    async def watch(self, cls, namespace="", **how):
        self.asked += 1
        self.selectors.add((namespace, how["field_selector"]))
        if self.refuse or how["send_initial_events"]:
            raise FORBIDDEN
        yield self

    async def read(self):
        await asyncio.Event().wait()

    async def list_page(self, cls, namespace="", **how):
        self.asked += 1
        if self.refuse:
            raise FORBIDDEN
        body = {"metadata": {"name": "js-group-scheduling"}, "data": self.data}
        return Page([msgspec.convert(body, ConfigMap)], "1", "")


@pytest.fixture
def settings(tmp_path):
    """For a mount in a folder of the test's own."""
    return msgspec.structs.replace(
        load(ENVIRON), mount=str(tmp_path), termination_log=str(tmp_path / "log"), timeout_s=60
    )


@pytest.mark.looptime
async def test_the_watch_reports(settings):
    """The container ends with 0 as soon as the watch shows the value."""
    client, log = ScriptedClient({"started": "u 3\n"}), Lines()

    assert await GroupWait(settings, client, log=log).run() == 0
    assert client.selectors == {("ns", "metadata.name=js-group-scheduling")}
    assert ("released", {"path": "watch"}) in log


@pytest.mark.looptime
@pytest.mark.parametrize("refused", [True, False])
async def test_the_mount_reports(settings, tmp_path, refused):
    """Without the right to watch, and also while the watch is silent; a refusal is told once."""
    client, log = ScriptedClient({"started": "u 2\n"}, refuse=refused), Lines()
    async with supervise() as tasks:
        waiting = tasks.start(GroupWait(settings, client, log=log).run(), name="wait")
        await asyncio.sleep(30)
        assert not waiting.done()
        (tmp_path / "started").write_text("u 3\n")
        await asyncio.sleep(1.1)
        assert waiting.result() == 0

    assert ("released", {"path": "volume"}) in log
    assert log.events.count("cannot watch the ConfigMap") <= 3
    assert client.asked < 40


@pytest.mark.looptime
async def test_patience_ends(settings, tmp_path):
    """With a message of how far the group was, by whichever way it came."""
    client, log = ScriptedClient({"started": "u 2\n", "waiting": "u 3 7 8 noon\n"}), Lines()
    began = asyncio.get_running_loop().time()

    assert await GroupWait(settings, client, log=log).run() == EXIT_TIMED_OUT
    assert asyncio.get_running_loop().time() - began == pytest.approx(60, abs=0.1)
    said = "group scheduling timed out after 60 s: 7 of 8 pods had started at noon"
    assert (tmp_path / "log").read_text() == said


@pytest.mark.looptime
async def test_without_an_api_server_the_mount_reports(settings, tmp_path):
    """As for pods without a token."""
    (tmp_path / "started").write_text("u 4")

    assert connect(settings) is None
    assert await GroupWait(settings, None, log=Lines()).run() == 0


@pytest.mark.looptime
async def test_there_may_be_no_place_for_last_words(settings):
    """The pod fails all the same."""
    lost = msgspec.structs.replace(settings, termination_log="/nowhere/log", timeout_s=1)
    log = Lines()

    assert await GroupWait(lost, None, log=log).run() == EXIT_TIMED_OUT
    assert "no termination log" in log.events


@pytest.mark.parametrize("name", ENVIRON)
def test_what_is_required(name):
    """Each missing variable is named."""
    with pytest.raises(ConfigurationError, match=name):
        load({**ENVIRON, name: ""})


def test_settings_from_the_environment():
    """Whole numbers, and an absent timeout is none."""
    given = load({**ENVIRON, "GROUP_TIMEOUT": "5", "GROUP_SIZE": "8"})

    assert (given.attempt, given.timeout_s, given.size) == (3, 5, "8")
    assert load(ENVIRON).timeout_s is None
    with pytest.raises(ConfigurationError, match="GROUP_TIMEOUT"):
        load({**ENVIRON, "GROUP_TIMEOUT": "five"})
    assert isinstance(given, Settings)


def run(environ):
    """The subcommand as a process."""
    return subprocess.run(
        [sys.executable, "-m", "jobsetpy.agent", "wait-for-group"],
        env=environ,
        capture_output=True,
        timeout=patience.scaled(20),
        check=False,
    )


def test_the_process(tmp_path):
    """A container that runs again after the release ends at once; one that is wrong says so."""
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
