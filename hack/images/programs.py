"""Runs the programs that build images."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIMIT_S = 1200


def run(
    words: Sequence[str | Path],
    *,
    check: bool = True,
    error: type[Exception] = RuntimeError,
    **options: Any,
) -> str:
    """Run a program; return its output.

    Args:
        words: program and arguments.
        check: if true, an exit code other than 0 is an error.
        error: class of that error; its message has the end of the output.
        **options: further options of ``subprocess.run``.
    """
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=LIMIT_S, **options
        )
    except FileNotFoundError as missing:
        raise FileNotFoundError(f"{words[0]} is needed: install it") from missing
    if check and done.returncode:
        output = (done.stdout + done.stderr).strip()[-2000:]
        raise error(f"{' '.join(map(str, words[:3]))}: {output}")
    return done.stdout
