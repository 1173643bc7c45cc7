"""A pytest plugin that writes to a file what became of each test, for `run_tests`.

``pytest -p hack.ci.outcomes --outcomes=FILE`` appends one JSON object a line: ``{"passed": node}``,
``{"failed": node, "text": ...}``, and at the end ``{"seconds": {file: ...}}``, what the tests of
each file took with their set-ups, ``{"cpu": seconds}`` of this process and of those that it waited
for, clusters included, and ``{"complete": ...}``, which is false where tests that were selected did
not run. A run that dies leaves no such lines.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

TAIL = 15
"""Lines of a failure that are kept."""
WIDTH = 300


class Failure(NamedTuple):
    """A test that failed, and the end of what pytest says of it."""

    node: str
    text: str


class Outcomes(NamedTuple):
    """Contents of the file."""

    passed: frozenset[str]
    failed: tuple[Failure, ...]
    complete: bool
    seconds: Mapping[str, float] = MappingProxyType({})
    cpu_s: float = 0.0


def read(file: Path) -> Outcomes:
    """Read what a run has written so far."""
    lines = file.read_text().splitlines() if file.exists() else []
    entries = [json.loads(line) for line in lines]
    failed: dict[str, Failure] = {}
    for entry in entries:
        if "failed" in entry:  # a test may fail twice: itself, and what takes its fixtures down
            failed.setdefault(entry["failed"], Failure(entry["failed"], entry["text"]))
    passed = {entry["passed"] for entry in entries if "passed" in entry} - failed.keys()
    complete = any(entry.get("complete") for entry in entries)
    seconds = next((entry["seconds"] for entry in entries if "seconds" in entry), {})
    cpu_s = next((entry["cpu"] for entry in entries if "cpu" in entry), 0.0)
    return Outcomes(frozenset(passed), tuple(failed.values()), complete, seconds, cpu_s)


class _Writer:
    """Hooks that write the file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of a test is over."""
        self._seconds[report.nodeid.partition("::")[0]] += report.duration
        if report.failed:
            self._write({"failed": report.nodeid, "text": tail(report)})
        elif report.passed and report.when == "call":
            self._write({"passed": report.nodeid})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file or folder was looked through."""
        if report.failed:
            self._write({"failed": report.nodeid, "text": tail(report)})

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """All is over; an option such as ``-x`` may have ended it early."""
        ended = (
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        )
        early = session.shouldfail or session.shouldstop
        self._write({"seconds": {file: round(took, 1) for file, took in self._seconds.items()}})
        self._write({"cpu": round(sum(os.times()[:4]), 1)})
        self._write({"complete": exitstatus in ended and not early})

    def _write(self, entry: dict[str, Any]) -> None:
        with self._file.open("a") as out:
            out.write(json.dumps(entry) + "\n")


def tail(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Where it failed and by what, then the last lines of the report."""
    return "\n".join(line[:WIDTH] for line in _tail(report))


def _tail(report: pytest.TestReport | pytest.CollectReport) -> Iterator[str]:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        yield f"{crash.path}:{crash.lineno}: {crash.message}".partition("\n")[0]
    yield from report.longreprtext.rstrip().splitlines()[-TAIL:]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--outcomes", metavar="FILE", help="append what becomes of each test to FILE")


def pytest_configure(config: pytest.Config) -> None:
    """Write, where there is a file to write to."""
    if file := config.getoption("outcomes"):
        config.pluginmanager.register(_Writer(Path(file)), "jobsetpy-outcomes")
