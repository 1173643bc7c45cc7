"""Durations in annotations and in the configuration file."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|m|s|us|µs|ns)")


def parse_duration(text: str) -> float:
    """Return the seconds of a duration in Go's form: ``15s``, ``1m30s``, ``0``.

    Raises:
        ValueError: the text is not a duration, or is negative.
    """
    if text == "0":
        return 0.0
    seconds, end = 0.0, 0
    for part in _PART.finditer(text):
        if part.start() != end:
            break
        seconds += float(part[1]) * _UNITS[part[2]]
        end = part.end()
    if not text or end != len(text):
        raise ValueError(f"{text!r} is no duration such as 15s or 1m30s")
    return seconds


def in_words(seconds: float) -> str:
    """Format a duration for messages, in its largest unit: ``8 s``, ``4 min``, ``36 h``."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size or seconds == size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if 0 < seconds < 1 else f"{seconds:.0f} s"
