"""What the benchmarks share: a cluster, a manager process with its figures, and a table."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "hack"))

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from install import create_namespace, install_crd  # noqa: E402, F401 - for the benchmarks

CLOCK_TICK = os.sysconf("SC_CLK_TCK")
console = Console(highlight=False, width=110 if not sys.stdout.isatty() else None)


def say(text: str) -> None:
    """One line of progress."""
    console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {text}")


def cpu_seconds(pid: int) -> float:
    """User plus system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICK


def peak_memory_mb(pid: int) -> float:
    """Largest resident size of a process so far, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1000
    return 0.0


class ManagerProcess:
    """A manager in a process of its own, as it is deployed."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log
        self._cpu = 0.0

    @property
    def pid(self) -> int:
        return self.process.pid

    def mark(self) -> None:
        """Start counting CPU from here."""
        self._cpu = cpu_seconds(self.pid)

    def cpu(self) -> float:
        """CPU seconds since ``mark``."""
        return cpu_seconds(self.pid) - self._cpu

    def peak_mb(self) -> float:
        return peak_memory_mb(self.pid)

    def rss_mb(self) -> float:
        """Resident size now, in MB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 1e6


@contextlib.asynccontextmanager
async def manager_process(
    kubeconfig: str | Path, log: Path, *arguments: str, metrics_port: int = 0
) -> AsyncIterator[ManagerProcess]:
    """``jobsetpy manager`` against the cluster of ``kubeconfig``, ready, ended with the block."""
    port = metrics_port or free_port()
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "jobsetpy.app.main", "manager",
            "--kubeconfig", str(kubeconfig),
            "--metrics-bind-address", "0",
            "--health-probe-bind-address", f"127.0.0.1:{port}",
            "--log-format", "json", *arguments,
            stdout=out, stderr=out,
        )  # fmt: skip
    try:
        await until(lambda: ready(port, process, log), 60, "the manager to be ready")
        yield ManagerProcess(process, log)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(20):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def ready(port: int, process: asyncio.subprocess.Process, log: Path) -> bool:
    """Whether ``/readyz`` on the port says ok; raises when the process is gone."""
    import urllib.error
    import urllib.request

    if process.returncode is not None:
        raise SystemExit(f"the manager ended with {process.returncode}:\n{log.read_text()[-3000:]}")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    """A port of loopback that nothing listens on just now."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def until(
    condition: Callable[[], bool], timeout_s: float, what: str, period_s: float = 0.1
) -> float:
    """Wait until ``condition()`` is true; the seconds it took."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > timeout_s:
            raise SystemExit(f"waited {timeout_s:.0f} s in vain for {what}")
        await asyncio.sleep(period_s)
    return time.monotonic() - start


async def in_parallel(limit: int, jobs: Iterable[Callable[[], object]]) -> None:
    """Run coroutine functions, at most ``limit`` at a time, as a bare loop would."""
    todo = iter(jobs)

    async def worker() -> None:
        for job in todo:
            await job()

    async with asyncio.TaskGroup() as group:
        for _ in range(limit):
            group.create_task(worker())


def spread(values: Sequence[float], unit: str = "", digits: int = 2) -> str:
    """``min / median / max``."""
    middle = statistics.median(values)
    return " / ".join(f"{v:.{digits}f}" for v in (min(values), middle, max(values))) + unit


def table(title: str, rows: Sequence[tuple[str, str, str]]) -> None:
    """Print figures: what, measured, aim."""
    out = Table(title=title, title_justify="left")
    for column in ("figure", "measured", "aim"):
        out.add_column(column)
    for row in rows:
        out.add_row(*row)
    console.print(out)
