"""A call that is due later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timer:
    """Calls a function once, after a time; each start replaces the one before."""

    __slots__ = ("_handle",)

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None

    @property
    def runs(self) -> bool:
        """Return True if the call is still due."""
        return self._handle is not None

    def start(self, seconds: float, then: Callable[..., object], *args: object) -> None:
        """Call a function of the event loop after a number of seconds."""
        self.cancel()
        self._handle = asyncio.get_running_loop().call_later(seconds, self._due, then, args)

    def cancel(self) -> None:
        """Do not call it; harmless if nothing is due."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _due(self, then: Callable[..., object], args: tuple[object, ...]) -> None:
        self._handle = None
        then(*args)
