"""What informers have to tell whoever comes late, some at a time.

An informer tells a new handler of all that is there before it returns: with thousands of pods that
would hold up the loop for seconds, the renewal of the Lease included. So it is put aside and told
in slices; what changes meanwhile waits behind it, so that the order stays.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

from jobsetpy.informers import Handler

T = TypeVar("T")

_SLICE: Final = 20
"""So many are told without a pause."""


class Backlog:
    """Handlers of several informers that hear everything in one order."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self.told = asyncio.Event()
        """Set when nothing waits any more: from then on handlers hear all at once."""

    def before(self, handler: Handler[T]) -> Handler[T]:
        """A handler that tells this one, when it is time."""
        return _Later(handler, self.call)

    def call(self, function: Callable[[], None]) -> None:
        """Call it, after all that came before."""
        if self.told.is_set():
            function()
        else:
            self._calls.append(function)

    async def tell(self) -> None:
        """Until nothing waits; others have their turn in between."""
        while self._calls:
            for _ in range(min(_SLICE, len(self._calls))):
                self._calls.popleft()()
            await asyncio.sleep(0)
        self.told.set()


class _Later(Generic[T]):
    def __init__(self, handler: Handler[T], call: Callable[[Callable[[], None]], None]) -> None:
        self._handler = handler
        self._call = call

    def on_add(self, obj: T, *, initial: bool) -> None:
        self._call(partial(self._handler.on_add, obj, initial=initial))

    def on_update(self, old: T, new: T) -> None:
        self._call(partial(self._handler.on_update, old, new))

    def on_delete(self, obj: T, *, final_state_known: bool) -> None:
        self._call(partial(self._handler.on_delete, obj, final_state_known=final_state_known))
