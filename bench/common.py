"""Parts that benchmarks share: a cluster, a manager process with its figures, and a table."""

from __future__ import annotations

import asyncio
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from support.cluster.install import create_namespace, install_crd  # noqa: F401 - for the benchmarks
from support.cluster.manager_process import manager_process  # noqa: F401 - for the benchmarks

ROOT = Path(__file__).resolve().parent.parent


console = Console(highlight=False, width=110 if not sys.stdout.isatty() else None)


def say(text: str) -> None:
    """Print a line of progress."""
    console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {text}")


def counting_instructions(report: Path) -> list[str]:
    """Return the command before a program's that counts its instructions.

    Times of two versions cannot be compared to 5 % on a machine that others share; this can. The
    program takes 10 to 20 times as long, and time that the kernel takes for it does not count.
    """
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    return [*tool, f"--log-file={report}"]


def instructions(report: Path) -> int:
    """Return the number of instructions that an ended program has executed."""
    found = re.search(r"I\s+refs:\s+([\d,]+)", report.read_text())
    if found is None:
        raise SystemExit(f"no count of instructions: {report.read_text()[-500:]}")
    return int(found[1].replace(",", ""))


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
