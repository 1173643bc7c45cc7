"""A process with many agents, or with bare clients instead, each with its own connections.

``bench/agents.py`` starts it with one argument, ``agents`` or ``bare``, and the environment of an
agent with ``POD_NAMES``. It reads commands as JSON lines from standard input (``sidecar`` on or
off, ``mark``, ``fail``, ``figures``), and writes lines when all are connected, when all have
reported an epoch, when all may run at an epoch, and with figures since the mark: bytes and changes
of the JobSet that were sent to all of them, opened watches, and seconds of CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import ssl
import sys
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from jobsetpy import aio
from jobsetpy.agent.protocol.barrier import Lift, PatchEpoch, Restart
from jobsetpy.agent.protocol.follower import Follower, connect
from jobsetpy.agent.protocol.settings import Settings, load
from jobsetpy.client import ByteStream, Client, HttpRequest, HttpResponse, Transport

CONNECTING = 32
BARE_ANNOTATION = "bench.invalid/epoch"
CHANGED = b'"type":"MODIFIED"'
NUMBERS = [re.compile(rb'"%s":(\d+)' % name) for name in (b"syncedEpoch", b"deprecatedEpoch")]


def silent(_event: str, /, *, level: str = "info", **_fields: object) -> None:
    """A log that discards its entries."""


def say(**what: object) -> None:
    """Send a line to the benchmark."""
    print(json.dumps({**what, "at": time.time()}), flush=True)


class Crowd:
    """Number of agents and counters that both kinds share."""

    def __init__(self, pods: Sequence[str], tasks: aio.Supervisor) -> None:
        self.pods = pods
        self.tasks = tasks
        self.sidecar = False
        self.bytes = self.changes = self.watches = 0
        self.spent = 0.0
        self._counts: dict[tuple[str, int], int] = {}
        self.turns = asyncio.Semaphore(CONNECTING)

    def count_bytes(self, data: bytes) -> None:
        """Count bytes of a watch."""
        self.bytes += len(data)
        self.changes += data.count(CHANGED)

    def connected(self, epoch: int) -> None:
        """Count an agent that has seen the JobSet; at the start they connect in sequence."""
        if epoch == 1:
            self.turns.release()

    def count(self, what: str, epoch: int) -> None:
        """Count an agent that has reached a step; report when all have."""
        key = what, epoch
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] == len(self.pods):
            say(**{what: epoch})

    def obey(self, command: dict[str, Any]) -> None:
        """Handle a line of standard input."""
        match command:
            case {"sidecar": on}:
                self.sidecar = on
            case {"mark": _}:
                self.bytes = self.changes = self.watches = 0
                self.spent = time.process_time()
            case {"figures": _}:
                say(
                    figures={
                        "bytes": self.bytes,
                        "changes": self.changes,
                        "watches": self.watches,
                        "cpu": time.process_time() - self.spent,
                    }
                )
            case {"fail": _}:
                self.fail()

    def fail(self) -> None:
        """Let the first agent's worker fail."""
        raise NotImplementedError


# ---- agents --------------------------------------------------------------------------------------


class Counted:
    """A transport that counts the bytes of its watches."""

    def __init__(self, transport: Transport, crowd: Crowd) -> None:
        self.transport = transport
        self.crowd = crowd

    async def request(self, request: HttpRequest) -> HttpResponse:
        return await self.transport.request(request)

    @contextlib.asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[ByteStream]:
        self.crowd.watches += 1
        async with self.transport.stream(request) as stream:
            yield CountedStream(stream, self.crowd)

    async def refresh_credentials(self) -> None:
        await self.transport.refresh_credentials()

    async def aclose(self) -> None:
        await self.transport.aclose()


class CountedStream:
    """A stream of `Counted`."""

    def __init__(self, stream: ByteStream, crowd: Crowd) -> None:
        self.stream = stream
        self.crowd = crowd
        self.status = stream.status
        self.headers = stream.headers

    async def read(self) -> bytes:
        data = await self.stream.read()
        self.crowd.count_bytes(data)
        return data


class Agent:
    """A pod's agent without processes: workers start and stop immediately."""

    def __init__(self, crowd: Agents, pod: str) -> None:
        self.crowd = crowd
        self.settings: Settings = load({**os.environ, "POD_NAME": pod})
        self.life: asyncio.Task[None] | None = None
        self.begin()

    def begin(self) -> None:
        """Start again, with new connections."""
        if self.life is not None:
            self.life.cancel()
        self.life = self.crowd.tasks.start(self.live(), name="agent")

    async def live(self) -> None:
        client = Client(Counted(connect(self.settings).transport, self.crowd))
        self.follower = Follower(self.settings, client, log=silent, act=self.act)
        try:
            async with aio.supervise() as tasks:
                self.follower.start(tasks)
                await asyncio.Event().wait()
        finally:
            await client.aclose()

    def act(self, action: PatchEpoch | Lift | Restart) -> None:
        match action:
            case PatchEpoch(epoch):
                self.crowd.connected(epoch)
                self.follower.reporter.report(epoch)
            case Lift(epoch):
                lifted = partial(self.crowd.count, "lifted", epoch)
                self.follower.reporter.when_confirmed(epoch, lifted)
            case Restart():
                self.fail()

    def fail(self) -> None:
        """The worker ended, by itself or because its epoch is deprecated."""
        if self.crowd.sidecar:
            self.begin()
        else:
            self.follower.next_round()


class Agents(Crowd):
    """The agents' own core."""

    async def start(self) -> None:
        self.agents = []
        for pod in self.pods:
            await self.turns.acquire()
            self.agents.append(Agent(self, pod))

    def fail(self) -> None:
        self.agents[0].fail()


# ---- the same requests, bare ---------------------------------------------------------------------


class Bare(Crowd):
    """Connections that send the requests of agents, and search answers for two numbers."""

    async def start(self) -> None:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        folder = os.environ["SERVICE_ACCOUNT_DIR"]
        self.address = host, int(port)
        self.token = Path(folder, "token").read_text().strip()
        self.tls = ssl.create_default_context(cafile=f"{folder}/ca.crt")
        self.namespace, self.name = os.environ["NAMESPACE"], os.environ["JOBSET_NAME"]
        self.all = [BareAgent(self, pod) for pod in self.pods]
        for agent in self.all:
            await self.turns.acquire()
            self.tasks.start(agent.live(), name="bare")

    def fail(self) -> None:
        self.all[0].fail()

    def head(self, method: str, path: str, body: bytes = b"") -> bytes:
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self.address[0]}",
            "Accept: application/json",
            f"Authorization: Bearer {self.token}",
        ]
        if body:
            lines += ["Content-Type: application/merge-patch+json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body


class BareAgent:
    """One pod's connections: a watch, and one for patches."""

    def __init__(self, crowd: Bare, pod: str) -> None:
        self.crowd = crowd
        self.pod = pod
        self.epoch = 0
        self.lifted = False
        self.again = asyncio.Event()
        self.patches: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def live(self) -> None:
        while True:
            self.again.clear()
            async with aio.supervise() as tasks:
                tasks.start(self.watch(), name="watch")
                await self.again.wait()
                tasks.cancel_all()
            if self.patches is not None:
                self.patches[1].transport.abort()
                self.patches = None

    def fail(self) -> None:
        """Join the next epoch, as a new agent or as the same one."""
        if self.crowd.sidecar:
            self.epoch = 0
            self.again.set()
        else:
            self.join(self.epoch + 1)

    def join(self, epoch: int) -> None:
        self.crowd.connected(epoch)
        self.epoch, self.lifted = epoch, False
        self.crowd.tasks.start(self.report(epoch), name="patch")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.crowd.address
        return await asyncio.open_connection(host, port, ssl=self.crowd.tls)

    async def watch(self) -> None:
        crowd = self.crowd
        crowd.watches += 1
        reader, writer = await self.connect()
        path = (
            f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{crowd.namespace}/jobsets?watch=1"
            f"&fieldSelector=metadata.name%3D{crowd.name}&sendInitialEvents=true"
            "&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        )
        try:
            writer.write(crowd.head("GET", path))
            answer = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in answer.partition(b"\r\n")[0]:
                raise RuntimeError(answer)
            line = b""
            while data := await reader.read(1 << 16):
                crowd.count_bytes(data)
                *whole, line = (line + data).split(b"\n")
                for each in whole:
                    self.see(each)
            raise RuntimeError("a watch has ended")
        finally:
            writer.transport.abort()

    def see(self, line: bytes) -> None:
        if b'"syncedEpoch"' not in line or b'"type":"BOOKMARK"' in line:
            return
        synced, deprecated = (int(m[1]) if (m := e.search(line)) else 0 for e in NUMBERS)
        if not self.epoch:
            self.join(synced + 1)
        elif deprecated >= self.epoch:
            self.fail()
        elif synced == self.epoch and not self.lifted:
            self.lifted = True
            self.crowd.count("lifted", synced)

    async def report(self, epoch: int) -> None:
        crowd = self.crowd
        if self.patches is None:
            self.patches = await self.connect()
        reader, writer = self.patches
        body = b'{"metadata":{"annotations":{"%s":"%d"}}}' % (BARE_ANNOTATION.encode(), epoch)
        path = f"/api/v1/namespaces/{crowd.namespace}/pods/{self.pod}"
        writer.write(crowd.head("PATCH", path, body))
        answer = await reader.readuntil(b"\r\n\r\n")
        if b"chunked" in answer:
            await reader.readuntil(b"\r\n0\r\n\r\n")
        else:
            length = re.search(rb"(?i)content-length: (\d+)", answer)
            await reader.readexactly(int(length[1]) if length else 0)
        if b" 429 " in answer.partition(b"\r\n")[0]:
            await asyncio.sleep(1.0)
            await self.report(epoch)
        elif b" 200 " in answer.partition(b"\r\n")[0]:
            crowd.count("reported", epoch)
        else:
            raise RuntimeError(answer)


async def main() -> None:
    """Start, and handle commands."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    kind = {"agents": Agents, "bare": Bare}[sys.argv[1]]
    async with aio.supervise() as tasks:
        crowd = kind(os.environ["POD_NAMES"].split(), tasks)
        await crowd.start()
        while line := await reader.readline():
            crowd.obey(json.loads(line))
        tasks.cancel_all()


if __name__ == "__main__":
    uvloop.run(main())
