"""Output of commands: for people with colours on a terminal, for programs as JSON or YAML.

Trees and tables are drawn here: they are simple, and a library that can do more takes longer to
import than a plugin may take to start.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, Final, NamedTuple

STYLES: Final = {
    "Running": "green",
    "Completed": "green",
    "Restarting": "yellow",
    "Waiting": "yellow",
    "Suspended": "blue",
    "Failed": "red",
    "Interrupted": "red",
}
_CODES: Final = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_GAP: Final = "   "
_NARROWEST: Final = 8


class Branch(NamedTuple):
    """A line of a tree, with its branches."""

    text: str
    branches: list[Branch]


def coloured() -> bool:
    """Return True if standard output shows colours."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def paint(text: str, style: str) -> str:
    """Return a text in a style if the output shows colours; an unknown style changes nothing."""
    code = _CODES.get(style)
    return text if code is None or not coloured() else f"\x1b[{code}m{text}\x1b[0m"


def clean(text: str) -> str:
    """Return a text from the cluster on one line, without control characters."""
    return _CONTROL.sub(" ", text)


def tree(top: Branch) -> Iterator[str]:
    """The lines of a tree."""
    yield top.text
    yield from _hung(top.branches, "")


def _hung(branches: Sequence[Branch], before: str) -> Iterator[str]:
    for branch in branches:
        last = branch is branches[-1]
        yield f"{before}{'└── ' if last else '├── '}{branch.text}"
        yield from _hung(branch.branches, before + ("    " if last else "│   "))


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = (), most: int = 0
) -> Iterator[str]:
    """The lines of a table; where a terminal is too narrow, wide columns are folded.

    Args:
        columns: their titles.
        rows: their cells.
        styles: of the rows.
        most: width for files and programs; 0 for any.
    """
    everything = [list(columns), *([clean(cell) for cell in row] for row in rows)]
    by_column = list(zip(*everything, strict=True))
    widths = [max(map(len, cells)) for cells in by_column]
    if room := shutil.get_terminal_size().columns if sys.stdout.isatty() else most:
        room -= len(_GAP) * (len(columns) - 1)
        whole = [max(map(len, " ".join(cells).split()), default=0) for cells in by_column]
        while sum(widths) > room and max(widths) > _NARROWEST:
            # Words stay whole as long as gaps are left to fold at, and then those of the first.
            order = [(widths[at] > whole[at], at > 0, widths[at], at) for at in range(len(widths))]
            widths[max(order)[-1]] -= 1
    for row, style in zip(everything, ("bold", *styles, *[""] * len(everything)), strict=False):
        cut = zip(row, widths, strict=True)
        folded = [textwrap.wrap(cell, width or 1, break_on_hyphens=False) for cell, width in cut]
        for parts in zip_longest(*folded, fillvalue=""):
            line = _GAP.join(part.ljust(width) for part, width in zip(parts, widths, strict=True))
            yield paint(line.rstrip(), style)


def write(data: Any, form: str) -> None:
    """Print data as JSON or YAML."""
    if form == "json":
        print(json.dumps(data, indent=2))  # noqa: T201
    else:
        import yaml

        yaml.safe_dump(data, sys.stdout, sort_keys=False, allow_unicode=True)


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of a flag with a whole number that has a minimum."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least}")
        return int(text)

    return number


def parse_time(text: str | None) -> datetime | None:
    """Parse a time from the API server; ``None`` if there is none."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def ago(text: str | None, now: datetime) -> str:
    """Return the age of a time, in the form of kubectl."""
    then = parse_time(text)
    return "" if then is None else duration((now - then).total_seconds())


def duration(seconds: float) -> str:
    """Return a duration in the form of kubectl: two units at most."""
    seconds = max(0, int(seconds))
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10 and seconds % 60:
        return f"{minutes}m{seconds % 60}s"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 48:
        return f"{hours}h{minutes % 60}m" if hours < 8 and minutes % 60 else f"{hours}h"
    return f"{hours // 24}d"


def millis(value: int | None) -> str:
    """Milliseconds, in the shortest form."""
    if value is None:
        return ""
    if value >= 100_000:
        return duration(value / 1000)
    return f"{value} ms" if value < 1000 else f"{value / 1000:.3g} s"
