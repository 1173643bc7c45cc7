"""Calls of apt-get that wait while another process uses the package database."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from typing import Final

from ._errors import ClusterError

TIMEOUT_S: Final = 600.0
"""Maximum time in seconds for one call, the wait for other processes included."""
PAUSE_S: Final = 1.0
"""Interval in seconds between attempts while a lock is held."""
_LOCKED: Final = "Could not get lock"


def apt_get(words: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
    """Run apt-get; wait while another process holds one of its locks.

    apt-get itself can wait for the lock of dpkg only (``DPkg::Lock::Timeout``), not for those of
    package lists and downloaded archives, so a call that found one of these is repeated.

    Args:
        words: arguments, such as ``("install", "-y", "nftables")``.
        timeout_s: maximum time in seconds.

    Raises:
        ClusterError: the command failed, or a lock is still held after ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    wait = f"DPkg::Lock::Timeout={timeout_s:.0f}"
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    while True:
        done = subprocess.run(
            ["apt-get", "-o", wait, *words],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        if done.returncode == 0:
            return
        output = (done.stderr or done.stdout).strip()
        if _LOCKED not in output or time.monotonic() >= deadline:
            raise ClusterError(f"`apt-get {' '.join(words)}` failed\n{output[-1000:]}")
        time.sleep(PAUSE_S)
