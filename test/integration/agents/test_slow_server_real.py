"""A supervisor whose API server is slow, or refuses its token for a while, with real tokens.

Its pod has a lost-node deadline, so that it starts no worker before the API server has confirmed the pod.
"""

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from support.agents.agent_account import agent_environ
from support.cluster.account import token_of
from support.cluster.bare_pods import POD_SPEC
from support.cluster.json_api import exchange
from support.cluster.objects import in_place_jobset
from support.faults.tcp_proxy import TcpProxy
from support.patience import eventually, timeout

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

WORKER = "trap 'echo saved; exit 0' TERM; echo started; while :; do sleep 0.1; done"


class Agent:
    """A supervisor with its worker, and the output of both."""

    def __init__(self, process):
        self.process = process
        self.out = []
        self.lines = []

    async def read(self):
        """Collect both streams until they end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(self.process.stdout, self.out.append))
            group.create_task(self._read(self.process.stderr, self._line))

    async def _read(self, stream, take):
        async for line in stream:
            take(line.decode().strip())

    def _line(self, text):
        if text.startswith("{"):
            self.lines.append(json.loads(text))

    def events(self, event):
        """Return the lines of the log with this event."""
        return [line for line in self.lines if line["event"] == event]


@asynccontextmanager
async def supervised(environ):
    """Run a supervisor as a process; it ends with all processes that it has started."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "jobsetpy.agent", "supervise", "--", "sh", "-c", WORKER),
        env=environ, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    agent = Agent(process)
    reading = asyncio.create_task(agent.read())
    try:
        yield agent
    except BaseException as error:
        error.add_note(f"printed: {agent.out}, logged: {agent.lines}")
        raise
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with timeout(20):
            await process.wait()
            await reading


@pytest.fixture
async def pod(cluster, client, namespace, tmp_path):
    """A JobSet, its pod with a deadline, and a proxy to the API server; yields it with an environment."""
    await client.create(JobSet, namespace, in_place_jobset("gang", jobs=1, pods=1))
    environ = await agent_environ(client, cluster.kubeconfig, tmp_path, namespace, "gang")
    metadata = {"name": "p-0", "annotations": {keys.LOST_NODE_DEADLINE_ANNOTATION: "30s"}}
    await client.create(Pod, namespace, {"metadata": metadata, "spec": POD_SPEC})
    target = environ["KUBERNETES_SERVICE_HOST"], int(environ["KUBERNETES_SERVICE_PORT"])
    async with TcpProxy(*target).serving() as proxy:
        own = {
            "POD_NAME": "p-0", "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(proxy.port),
            "JOBSET_PROGRESS_FILE": str(tmp_path / "progress"), "PYTHONPATH": os.pathsep.join(sys.path),
        }  # fmt: skip
        yield proxy, environ | own


async def synced(client, namespace, epoch):
    """Wait until the pod reports an epoch, then set it as synced, as the manager would."""

    async def reported():
        found = await client.get(Pod, namespace, "p-0")
        return found.metadata.annotations.get(keys.EPOCH_ANNOTATION) == str(epoch)

    await eventually(reported, 90)
    body = {"status": {"syncedEpoch": epoch}}
    await client.merge_patch(JobSet, namespace, "gang", body, subresource="status")


async def test_worker_starts_when_each_patch_takes_longer_than_5_s(client, namespace, pod):
    """3 s in each direction: two patches for the start, and a log line."""
    proxy, environ = pod
    proxy.delay_s = 3.0  # a connection then takes 6 s, and each request on it as long
    async with supervised(environ) as agent:
        await synced(client, namespace, 1)
        await eventually(lambda: "started" in agent.out, 60)
        await asyncio.sleep(15)  # a closed loop would patch twice
        proxy.delay_s = 0.0

        assert len(agent.events("epoch patched")) == 2
        assert len(agent.events("the API server is slow to patch the pod")) >= 1


async def test_worker_runs_on_when_its_token_is_refused_for_half_a_minute(client, namespace, pod):
    """The account is deleted and recreated, as if keys were rotated; the new token is accepted."""
    proxy, environ = pod
    async with supervised(environ) as agent:
        await synced(client, namespace, 1)
        await eventually(lambda: "started" in agent.out, 30)
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        await exchange(client, "DELETE", path)  # the controller manager recreates it

        def refused():
            proxy.cut()
            return any("401" in line["error"] for line in agent.events("cannot watch the JobSet"))

        await eventually(refused, 60, poll_s=1)
        await asyncio.sleep(40)
        assert agent.out == ["started"]
        token = await token_of(client, namespace, "default")
        Path(environ["SERVICE_ACCOUNT_DIR"], "token").write_text(token)
        body = {"status": {"deprecatedEpoch": 1}}
        await client.merge_patch(JobSet, namespace, "gang", body, subresource="status")
        await eventually(lambda: "saved" in agent.out, 90)
        await synced(client, namespace, 2)
        await eventually(lambda: agent.out.count("started") == 2, 30)
