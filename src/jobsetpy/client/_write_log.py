"""Which writes a piece of work made, for one line of its log.

This module is on the agent's start-up path: standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

SHOWN: Final = 3


class Writes:
    """Writes that succeeded; the first few by name."""

    __slots__ = ("count", "shown")

    def __init__(self) -> None:
        self.count = 0
        self.shown: list[str] = []

    def __str__(self) -> str:
        """Such as ``patch jobs default/a, create pods in default and 7 more``; "" for none."""
        more = self.count - len(self.shown)
        return ", ".join(self.shown) + (f" and {more} more" if more else "")


_current: ContextVar[Writes | None] = ContextVar("writes", default=None)


@contextmanager
def noted_writes() -> Iterator[Writes]:
    """Notes the writes of what is awaited within the block, and of tasks that it starts."""
    writes = Writes()
    token = _current.set(writes)
    try:
        yield writes
    finally:
        _current.reset(token)


def written() -> Writes | None:
    """Where a write is to be noted; ``None`` if nobody asks."""
    return _current.get()
