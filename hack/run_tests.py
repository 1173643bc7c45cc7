"""All tests, in two processes side by side: those that need a cluster, and all others.

The former wait for kubelets and API servers most of the time. They are shown as they go; the others
use the time that is left, with lower priority, and are shown when they are done. Arguments go to
both.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

NEEDS_CLUSTER = "cluster or node"
NICE = 5
NO_TESTS = 5  # pytest's exit code where arguments select none
WAIT_AFTER_INTERRUPT_S = 30.0


def main(argv: Sequence[str]) -> int:
    """Run them; the exit code is that of the first that failed."""
    pytest = [sys.executable, "-m", "pytest", *argv]
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        print("== tests without a cluster: in the background, shown at the end", flush=True)
        background = subprocess.Popen(
            # The cache of last failures belongs to the one in the foreground.
            ["nice", f"-n{NICE}", *pytest, "-m", f"not ({NEEDS_CLUSTER})", "-pno:cacheprovider"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        print("== tests with a cluster", flush=True)
        try:
            codes = [subprocess.run([*pytest, "-m", NEEDS_CLUSTER], check=False).returncode]
            print("== tests without a cluster", flush=True)
            codes.append(background.wait())
        except BaseException:
            background.terminate()
            background.wait(WAIT_AFTER_INTERRUPT_S)
            raise
        log.seek(0)
        sys.stdout.write(log.read())
    print(f"== all tests took {time.monotonic() - begin:.0f} s", flush=True)
    ran = [code for code in codes if code != NO_TESTS]
    return next((code for code in ran if code), 0) if ran else NO_TESTS


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
