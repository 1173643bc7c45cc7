"""All tests in parallel with types, import contracts and generated files, as CI runs them.

Tests with servers wait for kubelets, back-offs and timeouts most of the time: xdist distributes
them to `PROCESSES`, each with its own clusters (`units`), and their output is shown immediately.
They begin when all programs are there, which a new machine builds in many minutes. Tests without
servers use the remaining CPU time from the start on, in `PLAIN_PROCESSES` with lower priority;
their output, and that of the checks, is shown when they have ended. Some groups are skipped if
nothing changed that they depend on (`unchanged`).

If tests failed in a few files only, they are run again, alone, after all others. A test that passes
then is unsteady: a defect that is reported in the last lines, but does not fail the run.

Arguments are passed to pytest; with any, failed tests are not run again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from hack.ci import unchanged, units
from hack.images.project import TEST_RUN

PROCESSES = 6
PLAIN_PROCESSES = 2
"""Enough to use both cores of a small machine after the tests with servers."""
SERVERS = ("test/e2e", "test/contract", "test/integration")
PLAIN = ("test/architecture", "test/property", "test/unit", f"--ignore={unchanged.CLUSTER.place}")
CHECKS = ("make", "--no-print-directory", "types", "verify")
PROGRAMS = ("make", "--no-print-directory", "binaries")
"""Download or build of servers and tools, which uses one core while it links."""
ELSEWHERE = "not foreign and not releases"
"""Marker expression that excludes tests with make targets of their own."""
FAILED, NO_TESTS = 1, 5  # pytest's exit codes: a test failed; no test was selected
WAIT_AFTER_INTERRUPT_S = 60.0
ENVIRONMENT = {"JOBSETPY_PATIENCE_LEAST": "4", "GOGC": "400", "GOMEMLIMIT": "700MiB"}
"""Longer timeouts, since all processes load a machine that is idle when they start. The servers,
written in Go, collect garbage a quarter as often: more memory, less CPU."""
FEW = 8
"""Maximum number of files whose failed tests are run again; more are not a coincidence. Files are
counted, since one cause, such as a server that stalls, fails many tests of a cluster."""


class Tests(NamedTuple):
    """Command that runs some tests, and pytest's cache."""

    command: Sequence[str]
    cache: Path

    def failed(self) -> set[str]:
        """Names of the tests that failed in the last run."""
        return set(self._read("cache/lastfailed"))

    def passed(self) -> set[str]:
        """Names of the tests that passed when the failed ones were run again."""
        return set(self._read(units.PASSED))

    def _read(self, name: str) -> Iterable[str]:
        file = self.cache / "v" / name
        return json.loads(file.read_text()) if file.exists() else ()


def tests(places: Iterable[str], cache: Path, argv: Sequence[str], *, processes: int) -> Tests:
    """Return the command for the tests in some folders; ``processes`` of xdist, 0 for none."""
    command = [sys.executable, "-m", "pytest", "-p", units.__name__, "-q", "-m", ELSEWHERE]
    command += [f"-n{processes}", "--dist=loadscope", "--no-loadscope-reorder"]
    command += ["--max-worker-restart=0"]  # xdist may hang after it has replaced a worker
    command += [f"-ocache_dir={cache}", *places, *argv]
    return Tests(command, cache)


@contextlib.contextmanager
def behind(command: Sequence[str], log: IO[str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in the background; interrupt it if the block ends first.

    Args:
        command: program and arguments.
        log: file for its output; that of this process if absent.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(WAIT_AFTER_INTERRUPT_S)


def compile_all(groups: Iterable[Iterable[str]], folder: Path) -> None:
    """Compile some groups of tests and everything that they import, in parallel.

    On a clean checkout, each process of xdist would otherwise compile all of it: they start
    simultaneously and find no bytecode. Errors are reported later, when the tests run.
    """
    commands = [tests(places, folder / "none", ["--co"], processes=0).command for places in groups]
    with contextlib.ExitStack() as stack, Path(os.devnull).open("w") as log:
        for process in [stack.enter_context(behind(command, log)) for command in commands]:
            process.wait()


def code_of(ran: Tests, code: int, *, again: bool) -> int:
    """Run failed tests again and print their outcome; return the resulting exit code."""
    failed = ran.failed() if code == FAILED else set()
    unsteady: set[str] = set()
    if again and 0 < len({test.partition("::")[0] for test in failed}) <= FEW:
        print("== failed tests, again and alone", flush=True)
        subprocess.run([*ran.command, "--last-failed", "-n0"], check=False)
        unsteady = ran.passed() & failed
    for test in sorted(failed - unsteady):
        print(f"== FAILED {test}")
    for test in sorted(unsteady):
        print(f"== UNSTEADY: passed at the second try; fix it: {test}", flush=True)
    if code not in (0, NO_TESTS) and not failed:
        print(f"== pytest exited with {code}, see above", flush=True)
    return 0 if code == NO_TESTS or (failed and failed == unsteady) else code


def main(argv: Sequence[str]) -> int:
    """Run everything; return the exit code of the first part that failed."""
    begin = time.monotonic()
    os.environ.update(ENVIRONMENT)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ[TEST_RUN] = str(folder)
        groups = {}
        for each in unchanged.GROUPS:
            if not (reason := each.why_not()):
                groups[each] = each.fingerprint()
            print(f"== {each.title} {reason or 'are included'}", flush=True)
        places = (*(each.place for each in groups), *SERVERS)
        servers = tests(places, folder / "servers", argv, processes=PROCESSES)
        plain = tests(PLAIN, folder / "plain", argv, processes=PLAIN_PROCESSES)
        started = []

        def start(what: str, command: Sequence[str]) -> None:
            log = stack.enter_context(tempfile.TemporaryFile("w+"))
            started.append((what, log, stack.enter_context(behind(command, log))))

        programs = stack.enter_context(behind(PROGRAMS))
        start("types, contracts, generated files", CHECKS)
        if not argv:
            compile_all([places, PLAIN], folder)
        start("tests without servers", ["nice", "-n5", *plain.command])
        if code := programs.wait():
            print("== FAILED: programs are missing, see above", flush=True)
            return code
        print(f"== programs are there after {time.monotonic() - begin:.0f} s", flush=True)
        codes = [subprocess.run(servers.command, check=False).returncode]
        for what, log, process in started:
            codes.append(process.wait())
            print(f"== {what} (shown at {time.monotonic() - begin:.0f} s)", flush=True)
            log.seek(0)
            sys.stdout.write(log.read())
        if not argv and codes[0] in (0, FAILED):
            for each, state in groups.items():
                if not any(test.startswith(each.place) for test in servers.failed()):
                    each.remember(state)
        print(f"== all tests took {time.monotonic() - begin:.0f} s", flush=True)
        if codes[1]:
            print(f"== FAILED types, contracts or generated files: {codes[1]}, see above")
        ends = [
            code_of(ran, code, again=not argv)
            for ran, code in ((plain, codes[2]), (servers, codes[0]))
        ]
    return next(filter(None, (*ends, codes[1])), 0)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
