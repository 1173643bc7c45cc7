"""All tests, in seven processes side by side, each with clusters of its own.

Tests with a node and those of faults wait for kubelets, back-offs and time-outs most of the time.
Those with a control plane are three processes, those with a node two. The first is shown as it
goes; the others are shown when they are done. Those that need no cluster use the time that is left,
with lower priority. Arguments go to all of them. Those with other projects' clients take the place
of the process that was shown, if anything changed that they depend on (`client_tests`). Types,
import contracts and generated files are checked meanwhile.

A few tests that failed are run once more, by themselves, when all others are done. One that passes
then is unsteady: a defect that is reported in the last lines, but does not fail the run. The output
ends with the files that took longest, all that failed, each with the end of its report, and a list
of their names.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from hack.ci import client_tests, groups, outcomes
from hack.ci.groups import Group


class Result(NamedTuple):
    """Result of a group of tests: pytest's exit code, and the outcome of each test."""

    tests: Group
    code: int
    outcomes: outcomes.Outcomes

    @property
    def only_tests_failed(self) -> bool:
        """Return True if all ran, so that the failed tests are the only problem."""
        return self.code == FAILED and self.outcomes.complete


WAITING = (
    "test/integration/agents",
    "test/integration/manager/test_leaving_pods_real.py",
    "test/integration/manager/test_migration_real.py",
)
"""Tests with a control plane that wait most of the time: for back-offs, slow servers, time-outs."""
FIRST = (
    "test/contract",
    *("test/integration/admission", "test/integration/api"),
    *("test/integration/charts", "test/integration/coscheduling"),
)
"""Folders with a third of the tests with a control plane, by time: tests with other projects'
clients follow them."""
CONTROL_PLANE = Group(
    "tests with a control plane",
    wants=("cluster",),
    without=("node", "faults", "clients", "releases"),
)
NODE = Group("tests with a node", wants=("node",), without=("clients",))
NODE_FIRST = (
    "test/e2e/test_lost_nodes.py",
    "test/e2e/test_documentation_node.py",
    "test/e2e/test_deployed_replicas.py",
)
"""Files with half of the tests with a node, by time."""
SHOWN = CONTROL_PLANE._replace(what="tests with a control plane, first part", inside=FIRST)
BEHIND = (
    CONTROL_PLANE._replace(
        what="tests with a control plane, second part", outside=(*FIRST, *WAITING)
    ),
    CONTROL_PLANE._replace(what="tests with a control plane that wait", inside=WAITING),
    NODE._replace(what="tests with a node, first part", inside=NODE_FIRST),
    NODE._replace(what="tests with a node, second part", outside=NODE_FIRST),
    Group("tests of faults", wants=("faults",), without=("node", "clients")),
    Group("tests without a cluster", without=groups.MARKS, nice=5),
)
CLIENTS = Group("tests with other projects' clients", wants=(client_tests.MARKS,))
CHECKS = Group("types, import contracts, generated files")
CHECKS_COMMAND = ("make", "--no-print-directory", "types", "verify")
FAILED, NO_TESTS = 1, 5  # pytest's exit codes where a test failed, where arguments select none
WAIT_AFTER_INTERRUPT_S = 60.0
LEAST_PATIENCE = {"JOBSETPY_PATIENCE_LEAST": "4"}
"""Seven processes with their servers are to come on a machine that is idle when they start."""
FEW = 8
"""As many failed tests are run once more; where more failed, it is not by chance."""

SLOWEST = 10
"""Number of the slowest files of each group that are listed, if they took `LONG_S` at least."""
LONG_S = 5.0


class Behind:
    """Tests in the background, their output in a file."""

    def __init__(self, tests: Group, argv: Sequence[str], log: IO[str], record: Path) -> None:
        self.tests = tests
        self._log = log
        self._record = record
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    def end(self) -> None:
        """Ask them to end, as from a terminal: pytest ends its clusters on this signal only."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(WAIT_AFTER_INTERRUPT_S)

    def show(self, begin: float) -> Result:
        """Wait for them, and show what they said."""
        code = self._process.wait()
        print(f"== {self.tests.what} (seen at {time.monotonic() - begin:.0f} s)", flush=True)
        self._log.seek(0)
        sys.stdout.write(self._log.read())
        return Result(self.tests, code, outcomes.read(self._record))


def pytest(record: Path) -> list[str]:
    """Pytest's command, with a file for what becomes of the tests."""
    return [sys.executable, "-m", "pytest", "-p", outcomes.__name__, f"--outcomes={record}"]


def command(tests: Group, argv: Sequence[str], record: Path) -> list[str]:
    """Return the command that runs a group of tests."""
    return ["nice", f"-n{tests.nice}", *pytest(record), *argv, *tests.arguments]


def command_behind(tests: Group, argv: Sequence[str], record: Path) -> list[str]:
    """Return the command that runs them next to others, without the cache of last failures."""
    return [*command(tests, argv, record), "-pno:cacheprovider"]


@contextlib.contextmanager
def in_background(tests: Group, argv: Sequence[str], record: Path) -> Iterator[Behind]:
    """Start a command; it is asked to end where the block is left before it is through."""
    with tempfile.TemporaryFile("w+") as log:
        running = Behind(tests, argv, log, record)
        try:
            yield running
        finally:
            running.end()


def in_foreground(tests: Group, argv: Sequence[str], record: Path) -> Result:
    """Run them, and show them as they go."""
    print(f"== {tests.what}", flush=True)
    code = subprocess.run(command(tests, argv, record), check=False).returncode
    return Result(tests, code, outcomes.read(record))


def with_clients(argv: Sequence[str], record: Path) -> Result:
    """Tests with other projects' clients, or the reason why not."""
    if reason := client_tests.why_not():
        print(f"== {CLIENTS.what} {reason}", flush=True)
        return Result(CLIENTS, NO_TESTS, outcomes.read(record))
    print(f"== {CLIENTS.what}", flush=True)
    code = client_tests.run(argv, pytest=[*pytest(record), *CLIENTS.arguments])
    return Result(CLIENTS, code, outcomes.read(record))


def second_try(results: Sequence[Result], folder: Path) -> frozenset[str]:
    """Run those that failed once more, if they are few; names of those that pass now."""
    retried = [each for each in results if each.outcomes.failed]
    count = sum(len(each.outcomes.failed) for each in retried)
    if not 0 < count <= FEW:
        return frozenset()
    passed: set[str] = set()
    for at, each in enumerate(retried):
        print(f"== {each.tests.what} that failed, once more by themselves", flush=True)
        record, failed = folder / f"again-{at}", {failure.node for failure in each.outcomes.failed}
        argv = [*pytest(record), "-pno:cacheprovider", *sorted(failed)]
        subprocess.run(argv, check=False)
        passed |= outcomes.read(record).passed & failed
    return frozenset(passed)


def conclude(results: Sequence[Result], unsteady: frozenset[str]) -> int:
    """Print what took long and what failed, at last the names; the first exit code of a failure.

    Args:
        results: of all; where none but `CHECKS` had anything to do, the code says so.
        unsteady: names of tests that passed at the second try.
    """
    for each in results:
        show_slowest(each)
    failures = [failure for each in results for failure in each.outcomes.failed]
    for failure in failures:
        print(f"-- {failure.node}\n{failure.text}")
    for failure in failures:
        if failure.node not in unsteady:
            print(f"== FAILED {failure.node}")
    for node in sorted(unsteady):
        print(f"== UNSTEADY: passed at the second try; mend it: {node}", flush=True)
    ran = [each for each in results if each.code != NO_TESTS]
    for each in ran:
        if each.code and not each.outcomes.failed:
            print(f"== FAILED {each.tests.what}: exit code {each.code}, see above", flush=True)
    if all(each.tests is CHECKS and not each.code for each in ran):
        return NO_TESTS
    return next((each.code for each in ran if each.code and not _excused(each, unsteady)), 0)


def show_slowest(result: Result) -> None:
    """Print the files that took longest, if any took long."""
    longest = sorted(result.outcomes.seconds.items(), key=lambda each: -each[1])[:SLOWEST]
    if shown := [(file, seconds) for file, seconds in longest if seconds >= LONG_S]:
        total = sum(result.outcomes.seconds.values())
        cpu = f"{result.outcomes.cpu_s:.0f} s of CPU"
        print(f"== {result.tests.what}: {total:.0f} s, {cpu}; the longest files:")
        for file, seconds in shown:
            print(f"   {seconds:5.0f} s  {file}")


def _excused(result: Result, unsteady: frozenset[str]) -> bool:
    names = {failure.node for failure in result.outcomes.failed}
    return result.only_tests_failed and bool(names) and names <= unsteady


def main(argv: Sequence[str]) -> int:
    """Run them; the exit code is that of the first that failed."""
    begin = time.monotonic()
    os.environ.update(LEAST_PATIENCE)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def start(tests: Group, record: Path, command: Sequence[str]) -> Behind:
            print(f"== {tests.what}: in the background, shown at the end", flush=True)
            return stack.enter_context(in_background(tests, command, record))

        behind = [start(CHECKS, folder / "checks", CHECKS_COMMAND)]
        for at, tests in enumerate(BEHIND):
            record = folder / f"behind-{at}"
            behind.append(start(tests, record, command_behind(tests, argv, record)))
        results = [in_foreground(SHOWN, argv, folder / "shown")]
        print(f"== done by {time.monotonic() - begin:.0f} s", flush=True)
        results.append(with_clients(argv, folder / "clients"))
        results += [each.show(begin) for each in behind]
        unsteady = second_try(results, folder)
    print(f"== all tests took {time.monotonic() - begin:.0f} s", flush=True)
    return conclude(results, unsteady)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
