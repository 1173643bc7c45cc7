"""An agent as a process, in a pod of a JobSet on a fake API server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from jobsetpy.api.meta import ResourceInfo
from jobsetpy.testing import FakeApiServer, make_jobset, make_pod
from support import patience
from support.patience import eventually

EPOCH = "jobset.sigs.k8s.io/epoch"
JOBSETS = ResourceInfo("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
WAIT_S = 20


class AgentLog:
    """Log of an agent that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: str, /, **fields: Any) -> None:
        self.lines.append((event, fields))

    @property
    def events(self) -> list[str]:
        """Texts of the lines."""
        return [event for event, _ in self.lines]

    def fields(self, event: str) -> dict[str, Any]:
        """Return the fields of the first line with a text."""
        return next(fields for name, fields in self.lines if name == event)


def free_udp_port() -> int:
    """Return a port that is free at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    """One run of the supervisor, with the lines of the worker and of the agent's log."""

    def __init__(self, pod: Pod, process: asyncio.subprocess.Process) -> None:
        self.pod = pod
        self.process = process
        self.out: list[str] = []
        self.lines: list[dict[str, Any]] = []

    async def read(self) -> None:
        """Collect both streams until they end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_out())
            group.create_task(self._read_log())

    async def _read_out(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.out.append(line.decode().rstrip("\n"))

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if line.startswith(b"{"):
                self.lines.append(json.loads(line))

    async def _until(self, condition: Callable[[], bool]) -> None:
        try:
            await eventually(condition, seconds=WAIT_S)
        except BaseException as error:
            error.add_note(f"printed: {self.out}, logged: {self.lines}")
            raise

    async def printed(self, text: str, times: int = 1) -> None:
        """Wait until ``times`` lines of the worker begin with ``text``."""
        await self._until(lambda: sum(line.startswith(text) for line in self.out) >= times)

    async def started(self, epoch: int, text: str = "started", times: int = 1) -> None:
        """Lift the barrier of an epoch and wait for a line of its worker."""
        await self.pod.lift(epoch)
        await self.printed(text, times)

    async def restarted(self, epoch: int, text: str = "started", times: int = 1) -> None:
        """Deprecate the epoch before this one, then do as `started`."""
        self.pod.status(deprecatedEpoch=epoch - 1)
        await self.started(epoch, text, times)

    async def logged(self, event: str) -> dict[str, Any]:
        """Wait for a line of the log."""
        await self._until(lambda: self.logs(event) > 0)
        return next(line for line in self.lines if line["event"] == event)

    def logs(self, event: str) -> int:
        """Return how often an event was logged."""
        return sum(line["event"] == event for line in self.lines)

    async def probe(self) -> int:
        """Return the status that the kubelet's probe of a sidecar gets."""
        port = (await self.logged("started"))["port"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /barrier-is-lifted HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            return int((await reader.read()).split()[1])
        finally:
            writer.close()
            await writer.wait_closed()

    async def exit_code(self) -> int:
        """Wait for the end and return the exit code."""
        async with patience.timeout(WAIT_S):
            return await self.process.wait()


class Pod:
    """One pod of a JobSet on a fake API server, in supervisor mode."""

    def __init__(self, server: FakeApiServer, account: Path, arrival: Path) -> None:
        self.server = server
        self.environ = {
            "ARRIVAL_FILE": str(arrival),
            "JOBSET_PROGRESS_FILE": str(arrival.with_name("progress")),
            "JOBSET_EPOCH_FILE": str(arrival.with_name("epoch")),
            "WORKER_IMPORTS_FILE": str(arrival.with_name("imports")),
            "NAMESPACE": "default",
            "POD_NAME": "p-0",
            "JOBSET_NAME": "js",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "SERVICE_ACCOUNT_DIR": str(account),
            "PATH": os.environ["PATH"],
        }

    @asynccontextmanager
    async def run(
        self,
        *command: str,
        first: Sequence[str] = (),
        python: Sequence[str] = (sys.executable, "-I"),
        cwd: str = "/",
        **environ: str,
    ) -> AsyncIterator[Process]:
        """Run the supervisor with a command, or the sidecar if there is none."""
        process = await asyncio.create_subprocess_exec(
            *first,
            *(*python, "-m", "jobsetpy.agent"),
            *(("supervise", "--", *command) if command else ()),
            env={**self.environ, **environ},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
        )
        agent = Process(self, process)
        reading = asyncio.create_task(agent.read())
        try:
            yield agent
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            if not first:  # otherwise they have ended with the namespace
                while left := self.left():
                    for pid in left:
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    await asyncio.sleep(0.01)
            async with patience.timeout(WAIT_S):
                await process.wait()  # for the streams' ends, too
                await reading

    def left(self) -> list[int]:
        """Return the processes left of this agent, found by a variable that they all inherit."""
        mark, found = f"ARRIVAL_FILE={self.environ['ARRIVAL_FILE']}".encode(), []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in environ.read_bytes():
                    found.append(int(environ.parent.name))
        return found

    @property
    def annotations(self) -> dict[str, str]:
        """The pod's annotations."""
        return dict(self.server.get("pods", "p-0")["metadata"].get("annotations", {}))

    def status(self, **epochs: Any) -> None:
        """Play the controller: set fields of the JobSet's status."""
        self.server.set_status(JOBSETS, "js", **epochs)

    async def at(self, epoch: int) -> None:
        """Wait until the pod's annotation shows the epoch."""
        await eventually(lambda: self.epoch == str(epoch), seconds=WAIT_S)

    async def lift(self, epoch: int) -> None:
        """Wait for the epoch and lift its barrier."""
        await self.at(epoch)
        self.status(syncedEpoch=epoch)

    @property
    def epoch(self) -> str | None:
        """The epoch in the pod's annotation."""
        return self.annotations.get(EPOCH)


def write_account(folder: Path) -> None:
    """Write a service account's files, and the key and certificate of its API server."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *curve, "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", *curve, "-subj", "/CN=api", "-keyout", "api.key", "-out", "api.csr")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signing = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"]
    openssl("x509", "-req", "-in", "api.csr", *signing, "-out", "api.crt")
    (folder / "token").write_text("pod-token")


@asynccontextmanager
async def served_pod(account: Path, arrival: Path) -> AsyncIterator[Pod]:
    """A pod and its JobSet on a server with TLS, for an account of :func:`write_account`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(account / "api.crt", account / "api.key")
    async with FakeApiServer(tls=context, token="pod-token") as server:
        server.register(JOBSETS)
        server.create(JOBSETS, make_jobset("js").in_place_restart().build())
        server.create("pods", make_pod("p-0").build())
        yield Pod(server, account, arrival)
