"""A pytest plugin for `run_tests`: tests that stay in one process, and the cost of each file.

Under ``--dist loadgroup`` a unit goes to one of xdist's processes as a whole: a file, or a folder
with an ``__init__.py``, whose tests share a cluster. A test that has an ``xdist_group`` keeps it.
Units that take long come first, so that none of them is begun when the others are done.

At the end stand the files that took longest, with seconds of CPU: those of pytest and of all
processes that ended meanwhile, servers among them.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

LONGEST = (
    "test/clients",
    "test/e2e",
    "test/integration/manager/test_leaving_pods_real.py",
    "test/integration/coscheduling",
    "test/integration/agents",
    "test/integration/manager/test_restart_faults_real.py",
    "test/integration/manager/test_migration_real.py",
    "test/integration/admission/test_typed_clients_real.py",
    "test/integration/manager",
    "test/integration/docs",
    "test/integration/examples",
)
"""Folders and files that are begun before others, in this order."""
SHOWN = 60
"""Number of files in the list, if they took `LONG_S` at least."""
LONG_S = 5.0
PASSED = "jobsetpy/passed"
"""Name in pytest's cache under which tests that passed in a run with ``--last-failed`` are kept."""


def unit_of(path: Path, root: Path) -> str:
    """Name of what stays together: the folder if it is a package, else the file."""
    package = (path.parent / "__init__.py").exists()
    return (path.parent if package else path).relative_to(root).as_posix()


def order(test: str) -> int:
    """Place of a test among the others."""
    return next((at for at, each in enumerate(LONGEST) if test.startswith(each)), len(LONGEST))


def name(test: str) -> str:
    """Name of a test without its unit, which xdist puts behind an @."""
    return re.sub(r"@[^@\]]*$", "", test)


class _Units:
    """Hooks that group tests by unit, and add up what they cost."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._before = 0.0
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._cpu: defaultdict[str, float] = defaultdict(float)
        self._passed: set[str] = set()
        self._failed: set[str] = set()
        self._died = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark and sort them, before xdist reads the marks."""
        for item in items:
            if item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(unit_of(item.path, self._config.rootpath)))
        items.sort(key=lambda item: order(item.nodeid))
        self._before = _cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to the last report of a test what it cost; xdist sends it to the first process."""
        report = yield
        if call.when == "teardown":
            now = _cpu_s()
            vars(report)["cpu_s"], self._before = now - self._before, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of a test is over."""
        file = report.nodeid.partition("::")[0]
        self._seconds[file] += report.duration
        self._cpu[file] += getattr(report, "cpu_s", 0.0)
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.passed and report.when == "call":
            self._passed.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        """One of xdist's processes has ended; its other tests do not run."""
        self._died = self._died or bool(error)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep what passed at the second try: pytest itself takes one that is skipped as good."""
        if self._died:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        cache = getattr(self._config, "cache", None)
        if cache and self._config.option.lf and not hasattr(self._config, "workerinput"):
            cache.set(PASSED, sorted(self._passed - self._failed))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the files that took longest."""
        if not self._cpu:
            return
        total, cpu = sum(self._seconds.values()), sum(self._cpu.values())
        terminalreporter.section(f"{total:.0f} s of tests, {cpu:.0f} s of CPU; the longest files")
        for file in sorted(self._seconds, key=self._seconds.__getitem__, reverse=True)[:SHOWN]:
            if self._seconds[file] >= LONG_S:
                line = f"{self._seconds[file]:6.0f} s {self._cpu[file]:6.1f} s of CPU  {file}"
                terminalreporter.line(line)


def _cpu_s() -> float:
    return sum(os.times()[:4])


def pytest_configure(config: pytest.Config) -> None:
    """Add the hooks, and the mark where xdist is not loaded."""
    config.addinivalue_line("markers", "xdist_group(name): tests that stay in one process")
    config.pluginmanager.register(_Units(config), "jobsetpy-units")
