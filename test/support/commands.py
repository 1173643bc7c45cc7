"""Programs that tests run to their end."""

from __future__ import annotations

import subprocess
from typing import Any

from support import patience


def run(*words: Any, timeout_s: float = 60.0, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return its exit code and its output as text.

    Args:
        *words: program and arguments.
        timeout_s: time limit on an idle machine, in seconds.
        **options: options of ``subprocess.run``; ``check=True`` raises if the program fails.
    """
    options = {"capture_output": True, "text": True, "check": False} | options
    command = [str(word) for word in words]
    return subprocess.run(command, timeout=patience.scaled(timeout_s), **options)
