"""A pytest plugin for `run_tests`: groups tests by process, reports the cost of each file.

With ``--dist loadscope``, all tests of a unit run in the same process of xdist. A unit is a file,
or a folder with an ``__init__.py``, whose tests share a cluster. Tests with nodes are three units:
with more of them simultaneously, kubelets delay each other beyond the tests' timeouts. In files
that take minutes and whose tests share nothing, each test is a unit. Long units start first, so
that none of them starts when the others have ended.

The summary lists the files that took longest, with seconds of CPU: those of pytest and of all
processes that ended meanwhile, including servers.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

NODES = "test/e2e"
NODES_FIRST = (
    *("test_documentation_node.py", "test_deployed_replicas.py", "test_chart_node.py"),
    *("test_unfit_nodes.py", "test_kep467.py", "test_network_policies_node.py"),
)
NODES_APART = ("test_lost_nodes.py", "test_fencing.py", "test_heartbeats_node.py")
"""Files of two of the three units with nodes; each takes a third of the time."""
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
    "test/unit/agent/supervisor",
    "test/property/test_restart_in_place_schedules.py",
)
"""Folders and files that start before others, in this order."""
DIVIDED = ("test/property/test_restart_in_place_exhaustive.py",)
"""Files in which each test is a unit. These tests only compute, so they start last: they use the
CPU time that waiting tests leave."""
SHOWN = 60
"""Maximum number of files in the list; only files that took at least `LONG_S` are listed."""
LONG_S = 5.0
PASSED = "jobsetpy/passed"
"""Key in pytest's cache of the tests that passed in a run with ``--last-failed``."""


def unit_of(test: str, root: Path) -> str:
    """Name of a test's unit: its folder if that is a package, else its file.

    A test of a divided file is its own unit.
    """
    if test.startswith(DIVIDED):
        return test
    file = root / test.partition("::")[0]
    package = (file.parent / "__init__.py").exists()
    unit = (file.parent if package else file).relative_to(root).as_posix()
    if unit != NODES:
        return unit
    parts = {"apart": NODES_APART, "first": NODES_FIRST}
    return f"{unit}, {next((part for part in parts if file.name in parts[part]), 'last')}"


def order(test: str) -> int:
    """Sort key of a test."""
    if test.startswith(DIVIDED):
        return len(LONGEST) + 1
    return next((at for at, each in enumerate(LONGEST) if test.startswith(each)), len(LONGEST))


class _Scheduling(LoadScopeScheduling):
    """Distributes units."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid, self.config.rootpath)


class _Units:
    """Hooks that group tests by unit, and add up their cost."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._before = 0.0
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._cpu: defaultdict[str, float] = defaultdict(float)
        self._passed: set[str] = set()
        self._failed: set[str] = set()
        self._died = False

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort the tests; units stay together, since their tests have the same sort key."""
        items.sort(key=lambda item: order(item.nodeid))
        self._before = _cpu_s()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> LoadScopeScheduling:
        """Distribute the tests by unit."""
        return _Scheduling(config, log)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the CPU time of a test to its last report, which xdist sends to the first process."""
        report = yield
        if call.when == "teardown":
            now = _cpu_s()
            vars(report)["cpu_s"], self._before = now - self._before, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the cost of one phase of a test."""
        file = report.nodeid.partition("::")[0]
        self._seconds[file] += report.duration
        self._cpu[file] += getattr(report, "cpu_s", 0.0)
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.passed and report.when == "call":
            self._passed.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        """Note that a process of xdist has crashed; its remaining tests do not run."""
        self._died = self._died or bool(error)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Save the tests that passed when run again: pytest counts skipped tests as passed."""
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
    """Add the hooks."""
    config.pluginmanager.register(_Units(config), "jobsetpy-units")
