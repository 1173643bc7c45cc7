"""Programs that tests run to their end."""

from __future__ import annotations

import subprocess
from typing import Any

from support import patience


def run(
    *words: Any, timeout_s: float = 60.0, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return its exit code and its output as text.

    Args:
        *words: program and arguments.
        timeout_s: time limit on an idle machine, in seconds.
        check: raise an error if the program fails.
        **options: further options of ``subprocess.run``.
    """
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=check,
        timeout=patience.scaled(timeout_s),
        **options,
    )
