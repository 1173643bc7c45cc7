"""Initial objects of informers, delivered to new handlers in slices.

An informer calls a new handler for all existing objects before it returns: with thousands of pods
that would block the loop for seconds, including the renewal of the Lease. So the calls are queued
and made in slices; changes meanwhile are queued behind them, which preserves the order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from jobsetpy.informers import Handler

T = TypeVar("T")
Change = Callable[[T | None, T | None], None]
"""Function of an object before and after a change; ``None`` if it did not or does not exist."""

_SLICE: Final = 20
"""Maximum number of calls without a pause."""


class Backlog:
    """Changes of the objects of several informers, in one common order."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self.empty = asyncio.Event()
        """Set when the queue is empty: from then on handlers are called immediately."""

    def before(self, see: Change[T]) -> Handler[T]:
        """Return a handler that calls a function in order."""
        return _Later(see, self.call)

    def call(self, function: Callable[[], None]) -> None:
        """Call the function after all earlier calls."""
        if self.empty.is_set():
            function()
        else:
            self._calls.append(function)

    async def forward(self) -> None:
        """Make the queued calls until none is left; other tasks run in between."""
        while self._calls:
            for _ in range(min(_SLICE, len(self._calls))):
                self._calls.popleft()()
            await asyncio.sleep(0)
        self.empty.set()


class _Later(Generic[T]):
    def __init__(self, see: Change[T], call: Callable[[Callable[[], None]], None]) -> None:
        self._see = see
        self._call = call

    def on_add(self, obj: T, *, initial: bool) -> None:  # noqa: ARG002 - protocol
        self._call(partial(self._see, None, obj))

    def on_update(self, old: T, new: T) -> None:
        self._call(partial(self._see, old, new))

    def on_delete(self, obj: T, *, final_state_known: bool) -> None:  # noqa: ARG002 - protocol
        self._call(partial(self._see, obj, None))
