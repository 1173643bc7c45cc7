"""All tests, in three processes side by side: with a node, with a control plane only, and others.

The first two wait for kubelets and API servers most of the time. One of them is shown as it goes;
the others are shown when they are done. Those that need no cluster use the time that is left, with
lower priority. Arguments go to all of them.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import IO

WITH_A_NODE = ("with a node", "node", 0)
WITH_A_CONTROL_PLANE = ("with a control plane", "cluster and not node", 0)
WITHOUT_A_CLUSTER = ("without a cluster", "not (cluster or node)", 5)
NO_TESTS = 5  # pytest's exit code where arguments select none
WAIT_AFTER_INTERRUPT_S = 60.0


@contextlib.contextmanager
def in_background(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], IO[str]]]:
    """Run ``command``, its output in a file; it is asked to end where the block fails."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield process, log
        except BaseException:
            # As from a terminal: pytest ends its clusters on this signal only.
            process.send_signal(signal.SIGINT)
            process.wait(WAIT_AFTER_INTERRUPT_S)
            raise


def show(what: str, process: subprocess.Popen[bytes], log: IO[str], begin: float) -> int:
    """Wait for tests in the background, and show what they said; their exit code."""
    code = process.wait()
    print(f"== tests {what} (done by {time.monotonic() - begin:.0f} s)", flush=True)
    log.seek(0)
    sys.stdout.write(log.read())
    return code


def main(argv: Sequence[str]) -> int:
    """Run them; the exit code is that of the first that failed."""
    begin = time.monotonic()

    def command(tests: tuple[str, str, int]) -> list[str]:
        _, marks, nice = tests
        # The cache of last failures belongs to the one in the foreground.
        cache = [] if tests is WITH_A_CONTROL_PLANE else ["-pno:cacheprovider"]
        pytest = [sys.executable, "-m", "pytest", *argv, *cache]
        return ["nice", f"-n{nice}", *pytest, "-m", marks]

    print("== tests with a node, and without a cluster: in the background, shown at the end")
    with (
        in_background(command(WITH_A_NODE)) as with_a_node,
        in_background(command(WITHOUT_A_CLUSTER)) as without_a_cluster,
    ):
        print("== tests with a control plane", flush=True)
        codes = [subprocess.run(command(WITH_A_CONTROL_PLANE), check=False).returncode]
        print(f"== done by {time.monotonic() - begin:.0f} s", flush=True)
        codes.append(show(WITH_A_NODE[0], *with_a_node, begin))
        codes.append(show(WITHOUT_A_CLUSTER[0], *without_a_cluster, begin))
    print(f"== all tests took {time.monotonic() - begin:.0f} s", flush=True)
    ran = [code for code in codes if code != NO_TESTS]
    return next((code for code in ran if code), 0) if ran else NO_TESTS


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
