"""The agent as a process, over TLS, against the fake API server and its faults."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from jobsetpy.agent.protocol.wire_types import JobSet
from jobsetpy.api.meta import ResourceInfo
from jobsetpy.testing import FakeApiServer, make_jobset, make_pod
from support import patience
from support.patience import eventually

EPOCH = "jobset.sigs.k8s.io/epoch"
JOBSETS = ResourceInfo("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
EXIT_CODE = 42


class Process:
    """One run of the agent."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    async def read_log(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(json.loads(line))

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.lines]

    async def logged(self, event: str) -> dict[str, Any]:
        """Wait for a line; the line."""
        await eventually(lambda: event in self.events, seconds=20)
        return next(line for line in self.lines if line["event"] == event)

    async def probe(self) -> int:
        """The status that the kubelet's probe gets."""
        port = (await self.logged("started"))["port"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /barrier-is-lifted HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            return int((await reader.read()).split()[1])
        finally:
            writer.close()
            await writer.wait_closed()

    async def exit_code(self) -> int:
        async with patience.timeout(20):
            return await self.process.wait()


class Pod:
    """One pod of a JobSet on a fake API server, whose agent can be run again and again."""

    def __init__(self, server: FakeApiServer, account: Path) -> None:
        self.server = server
        self.account = account

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Process]:
        environ = {
            "NAMESPACE": "default",
            "POD_NAME": "p-0",
            "JOBSET_NAME": "js",
            "RESTART_POD_IN_PLACE_EXIT_CODE": str(EXIT_CODE),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.server.port),
            "SERVICE_ACCOUNT_DIR": str(self.account),
            "BARRIER_BIND_ADDRESS": "127.0.0.1",
            "BARRIER_PORT": "0",
            "ARRIVAL_FILE": str(self.account / "arrival"),
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "jobsetpy.agent", env=environ, stderr=asyncio.subprocess.PIPE
        )
        agent = Process(process)
        reading = asyncio.create_task(agent.read_log())
        try:
            yield agent
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            await reading

    def status(self, **epochs: int) -> None:
        self.server.set_status(JOBSETS, "js", **epochs)

    @property
    def epoch(self) -> str | None:
        pod = self.server.get("pods", "p-0")
        assert pod is not None
        found: str | None = pod["metadata"].get("annotations", {}).get(EPOCH)
        return found

    async def at(self, epoch: int) -> None:
        """Wait until the annotation shows the epoch."""
        await eventually(lambda: self.epoch == str(epoch), seconds=20)


@pytest.fixture
async def pod(account: Path) -> AsyncIterator[Pod]:
    """A pod and its JobSet."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(account / "api.crt", account / "api.key")
    async with FakeApiServer(tls=context, token="pod-token") as server:
        server.register(JOBSETS)
        server.create(JOBSETS, make_jobset("js").in_place_restart().build())
        server.create("pods", make_pod("p-0").build())
        yield Pod(server, account)


def test_the_slice_is_of_the_same_kind() -> None:
    """The agent's own resource is the manager's."""
    ours = JobSet.RESOURCE

    assert (ours.group, ours.version, ours.kind, ours.plural) == (
        JOBSETS.group,
        JOBSETS.version,
        JOBSETS.kind,
        JOBSETS.plural,
    )


async def test_two_lives_of_one_pod(pod: Pod) -> None:
    """Join, lift, end; the next run of the same pod joins one epoch higher."""
    async with pod.run() as first:
        await pod.at(1)
        assert await first.probe() == 503
        pod.status(syncedEpoch=1)
        await first.logged("barrier lifted")
        assert await first.probe() == 200
        pod.status(deprecatedEpoch=1)
        assert await first.exit_code() == EXIT_CODE
    async with pod.run() as second:
        await pod.at(2)
        assert await second.probe() == 503
        pod.status(syncedEpoch=2)
        await second.logged("barrier lifted")

    assert pod.server.requests.count("watch", "jobsets") == 2
    assert pod.server.requests.count("patch", "pods") == 2
    assert len(pod.server.requests) == 4


async def test_an_api_server_in_trouble(pod: Pod) -> None:
    """Refusals, lost answers and cut streams delay the agent and change nothing else."""
    pod.server.faults.status(503, verb="watch", count=2)
    pod.server.faults.status(429, retry_after=1, verb="patch", count=1)
    pod.server.faults.lose_answer(verb="patch")
    async with pod.run() as agent:
        await pod.at(1)
        pod.server.faults.cut(verb="watch", reset=True)
        pod.status(syncedEpoch=1)
        await agent.logged("barrier lifted")
        pod.server.expire()
        pod.server.faults.fail_watches(410)
        pod.status(deprecatedEpoch=1)

        assert await agent.exit_code() == EXIT_CODE


async def test_an_api_server_that_goes_away(pod: Pod) -> None:
    """The agent starts before its API server does, and outlives a restart of it."""
    await pod.server.stop()
    async with pod.run() as agent:
        await agent.logged("cannot watch the JobSet")
        await pod.server.start()
        await pod.at(1)
        await pod.server.stop()
        pod.status(syncedEpoch=1)
        await pod.server.start()
        await agent.logged("barrier lifted")

        assert await agent.probe() == 200


async def test_missing_permissions(pod: Pod) -> None:
    """Each missing permission is named, and granting it is enough."""
    watch = pod.server.faults.status(403, verb="watch")
    listing = pod.server.faults.status(403, verb="list")
    patch = pod.server.faults.status(403, verb="patch")
    async with pod.run() as agent:
        line = await agent.logged("cannot watch the JobSet")
        assert "list and watch on jobsets.jobset.x-k8s.io" in line["hint"]
        watch.lift()
        listing.lift()
        line = await agent.logged("epoch not stored")
        assert "patch on pods in default" in line["hint"]
        patch.lift()
        await pod.at(1)


async def test_a_jobset_recreated_under_the_same_name(pod: Pod) -> None:
    """The new JobSet's epochs are not ours."""
    async with pod.run() as agent:
        await pod.at(1)
        pod.server.delete(JOBSETS, "js")
        await agent.logged("no JobSet of this name; waiting")
        pod.server.create(JOBSETS, make_jobset("js").in_place_restart().build())
        pod.status(syncedEpoch=1, deprecatedEpoch=1)
        await agent.logged("ignoring another JobSet of this name")

        assert await agent.probe() == 503
        assert agent.process.returncode is None
