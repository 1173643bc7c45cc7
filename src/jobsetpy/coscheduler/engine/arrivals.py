"""Objects that a request of the scheduler names before they are in the cache."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from jobsetpy import aio


class Arrivals:
    """Waits for objects that are not yet in the cache; remembers nothing once they are over."""

    def __init__(self) -> None:
        self._expected: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    async def expect(self, name: str, timeout_s: float) -> None:
        """Wait until an object is seen, at most for a time."""
        await aio.sleep_or(self._expected.setdefault(name, asyncio.Event()), timeout_s)

    def seen(self, name: str) -> None:
        """End the waits for an object."""
        shown = self._expected.get(name)
        if shown is not None:
            shown.set()
