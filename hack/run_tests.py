"""All tests, in four processes side by side, each with clusters of its own.

Tests with a node and those of faults wait for kubelets, back-offs and time-outs most of the time.
Those with a control plane are shown as they go; the others are shown when they are done. Those that
need no cluster use the time that is left, with lower priority. Arguments go to all of them. Those
with other projects' clients come last, if anything changed that they depend on (`client_tests`).
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

from hack import client_tests


class Tests(NamedTuple):
    """Some of the tests: what they are called, their marks, and how much they give way."""

    what: str
    marks: str
    nice: int = 0


SHOWN = Tests("with a control plane", "cluster and not (node or faults or clients)")
BEHIND = (
    Tests("with a node", "node and not clients"),
    Tests("of faults", "faults and not (node or clients)"),
    Tests("without a cluster", "not (cluster or node or faults or clients)", nice=5),
)
NO_TESTS = 5  # pytest's exit code where arguments select none
WAIT_AFTER_INTERRUPT_S = 60.0


class Behind:
    """Tests in the background, their output in a file."""

    def __init__(self, tests: Tests, argv: Sequence[str], log: IO[str]) -> None:
        self.tests = tests
        self._log = log
        # The cache of last failures belongs to those in the foreground.
        self._process = subprocess.Popen(
            [*command(tests, argv), "-pno:cacheprovider"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    def end(self) -> None:
        """Ask them to end, as from a terminal: pytest ends its clusters on this signal only."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(WAIT_AFTER_INTERRUPT_S)

    def show(self, begin: float) -> int:
        """Wait for them, and show what they said; their exit code."""
        code = self._process.wait()
        print(f"== tests {self.tests.what} (seen at {time.monotonic() - begin:.0f} s)", flush=True)
        self._log.seek(0)
        sys.stdout.write(self._log.read())
        return code


def command(tests: Tests, argv: Sequence[str]) -> list[str]:
    """What runs some of the tests."""
    pytest = [sys.executable, "-m", "pytest", *argv]
    return ["nice", f"-n{tests.nice}", *pytest, "-m", tests.marks]


@contextlib.contextmanager
def in_background(tests: Tests, argv: Sequence[str]) -> Iterator[Behind]:
    """Start them; they are asked to end where the block is left before they are through."""
    with tempfile.TemporaryFile("w+") as log:
        running = Behind(tests, argv, log)
        try:
            yield running
        finally:
            running.end()


def with_clients(argv: Sequence[str]) -> int:
    """Tests with other projects' clients, or the reason why not; their exit code."""
    if reason := client_tests.why_not():
        print(f"== tests with other projects' clients {reason}", flush=True)
        return NO_TESTS
    print("== tests with other projects' clients", flush=True)
    return client_tests.run(argv)


def main(argv: Sequence[str]) -> int:
    """Run them; the exit code is that of the first that failed."""
    begin = time.monotonic()
    for tests in BEHIND:
        print(f"== tests {tests.what}: in the background, shown at the end", flush=True)
    with contextlib.ExitStack() as stack:
        behind = [stack.enter_context(in_background(tests, argv)) for tests in BEHIND]
        print(f"== tests {SHOWN.what}", flush=True)
        codes = [subprocess.run(command(SHOWN, argv), check=False).returncode]
        print(f"== done by {time.monotonic() - begin:.0f} s", flush=True)
        codes += [each.show(begin) for each in behind]
    codes.append(with_clients(argv))
    print(f"== all tests took {time.monotonic() - begin:.0f} s", flush=True)
    ran = [code for code in codes if code != NO_TESTS]
    return next((code for code in ran if code), 0) if ran else NO_TESTS


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
