"""A manager in its own process, as it is deployed, for tests of faults and for benchmarks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from jobsetpy.client import Client
from support import patience
from support.cluster.account import manager_kubeconfig

CLOCK_TICK = os.sysconf("SC_CLK_TCK")
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0


def configured(file: Path, **fields: Any) -> tuple[str, str]:
    """Write a configuration file; return the flags with which a manager reads it."""
    kind = {"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration"}
    file.write_text(json.dumps({**kind, **fields}))
    return "--config", str(file)


class ManagerProcess:
    """``jobsetpy manager`` for the cluster of a kubeconfig.

    Args:
        kubeconfig: of the cluster.
        log: file to which its log is appended.
        arguments: further flags.
        metrics: True if it serves metrics without TLS, for ``scrape``.
        environ: variables in addition to those of this process.
        prefix: a command that runs the manager's.
        python: the interpreter.
    """

    COMMAND = "manager"
    PLAIN = ("--metrics-secure=false",)

    def __init__(
        self,
        kubeconfig: str | Path,
        log: Path,
        *arguments: str,
        metrics: bool = False,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        python: Sequence[str] = (sys.executable,),
    ) -> None:
        self.kubeconfig = str(kubeconfig)
        self.log = log
        self.arguments = arguments
        self.health_port = free_port()
        self.metrics_port = free_port() if metrics else 0
        self._environ = {**os.environ, **(environ or {})}
        self._prefix = prefix
        self._python = python
        self.process: asyncio.subprocess.Process | None = None
        self._cpu = 0.0

    async def start(self, *, wait: bool = True) -> None:
        """Start the process; with ``wait``, return when it is ready."""
        with self.log.open("ab") as out:
            self.process = await asyncio.create_subprocess_exec(
                *self._prefix, *self._python, "-m", "jobsetpy.app.main", self.COMMAND,
                "--kubeconfig", self.kubeconfig,
                "--metrics-bind-address",
                f"127.0.0.1:{self.metrics_port}" if self.metrics_port else "0",
                *self.PLAIN,
                "--health-probe-bind-address", f"127.0.0.1:{self.health_port}",
                "--log-format", "json", *self.arguments,
                stdout=out, stderr=out, env=self._environ,
            )  # fmt: skip
        self._cpu = 0.0
        if wait:
            await self.wait_ready()

    async def wait_ready(self) -> None:
        """Return when it is ready; raise with the end of the log if it is not in time."""
        deadline = time.monotonic() + patience.scaled(READY_TIMEOUT_S)
        while not await asyncio.to_thread(self.ready):
            ended = self.process is None or self.process.returncode is not None
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"the manager is not ready:\n{self.log.read_text()[-3000:]}")
            await asyncio.sleep(0.05)

    def ready(self) -> bool:
        """Return whether ``/readyz`` answers 200 now."""
        return self.readiness()[0] == 200

    def readiness(self) -> tuple[int, str]:
        """Return status and text of ``/readyz``; 0 without an answer."""
        url = f"http://127.0.0.1:{self.health_port}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=patience.scaled(1)) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()
        except OSError:
            return 0, ""

    def scrape(self) -> dict[str, float]:
        """Return its metrics by name and labels, as they are written."""
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=patience.scaled(10)) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {series: float(value) for series, _, value in pairs}

    async def kill(self) -> None:
        """End it with SIGKILL, like a crash or a lost node."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        """End it with SIGTERM, if it runs; return its exit code, 0 if it never ran."""
        if self.process is None:
            return 0
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                async with patience.timeout(STOP_TIMEOUT_S):
                    await self.process.wait()
            except TimeoutError:
                await self.kill()
        return self.process.returncode or 0

    @property
    def pid(self) -> int:
        """Process id."""
        assert self.process is not None
        return self.process.pid

    def mark(self) -> None:
        """Start measuring CPU time."""
        self._cpu = cpu_seconds(self.pid)

    def cpu(self) -> float:
        """Return CPU seconds since ``mark``."""
        return cpu_seconds(self.pid) - self._cpu

    def peak_mb(self) -> float:
        """Return the largest resident size so far, in MB."""
        return memory_mb(self.pid, "VmHWM")

    def rss_mb(self) -> float:
        """Return the current resident size, in MB."""
        return memory_mb(self.pid, "VmRSS")


P = TypeVar("P", bound=ManagerProcess)


class ProgramProcess(ManagerProcess):
    """``jobsetpy run`` with a program in a folder; the first argument is ``MODULE:FUNCTION``."""

    COMMAND = "run"
    PLAIN = ()

    def __init__(self, folder: Path, kubeconfig: str | Path, log: Path, *arguments: str) -> None:
        environ = {"PYTHONPATH": str(folder)}
        super().__init__(kubeconfig, log, *arguments, environ=environ)


@contextlib.asynccontextmanager
async def stopping(*processes: ManagerProcess) -> AsyncIterator[None]:
    """Stop processes at the end of the block, those that were started."""
    try:
        yield
    finally:
        for one in processes:
            await one.stop()


@contextlib.asynccontextmanager
async def running(process: P) -> AsyncIterator[P]:
    """Run a process, which is ready on entry and stopped on exit."""
    async with stopping(process):
        await process.start()
        yield process


def manager_process(
    kubeconfig: str | Path, log: Path, *arguments: str, **given: Any
) -> contextlib.AbstractAsyncContextManager[ManagerProcess]:
    """Run a manager; arguments of ``ManagerProcess``."""
    return running(ManagerProcess(kubeconfig, log, *arguments, **given))


@contextlib.asynccontextmanager
async def own_manager(
    client: Client, kubeconfig: str | Path, folder: Path, *arguments: str
) -> AsyncIterator[ManagerProcess]:
    """Run a manager with its own account, as ``manager_process`` does.

    Args:
        client: an administrator's.
        kubeconfig: of the API server.
        folder: for its kubeconfig and its log.
    """
    own = await manager_kubeconfig(client, kubeconfig, folder)
    async with manager_process(own, folder / "manager.log", *arguments) as manager:
        yield manager


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICK


def memory_mb(pid: int, field: str) -> float:
    """Return a size from ``/proc/PID/status`` in MB, such as ``VmRSS``; 0 if it has ended."""
    found = Path(f"/proc/{pid}/status").read_text().partition(f"{field}:")[2].split()
    return int(found[0]) * 1024 / 1e6 if found else 0.0


def free_port() -> int:
    """Return a free port of the loopback device, of those that no connection gets by itself."""
    while True:
        port = 10_000 + secrets.randbelow(10_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
