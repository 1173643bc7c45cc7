"""Record of the writes made in a block, for a single log line.

This module is on the agent's start-up path: standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

SHOWN: Final = 3


class Writes:
    """Successful writes; the first ``SHOWN`` by name."""

    __slots__ = ("count", "shown")

    def __init__(self) -> None:
        self.count = 0
        self.shown: list[str] = []

    def __str__(self) -> str:
        """Text such as ``patch jobs default/a, create pods in default and 7 more``; "" for none."""
        more = self.count - len(self.shown)
        return ", ".join(self.shown) + (f" and {more} more" if more else "")


_current: ContextVar[Writes | None] = ContextVar("writes", default=None)


@contextmanager
def noted_writes() -> Iterator[Writes]:
    """Record the writes made within the block, and by tasks that it starts."""
    writes = Writes()
    token = _current.set(writes)
    try:
        yield writes
    finally:
        _current.reset(token)


def written() -> Writes | None:
    """Return the current record of writes; ``None`` outside of ``noted_writes``."""
    return _current.get()
