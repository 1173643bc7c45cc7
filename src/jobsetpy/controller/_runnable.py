"""Base class of the parts that a manager starts and stops."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any


class Runnable:
    """Part of a manager with a lifetime: an async context manager factory.

    A subclass has a ``name``, shown in logs, and ``running``; the rest does nothing by default.
    """

    name: str

    on_every_replica: bool = False
    """With leader election: also run on replicas that do not lead. Such runnables start before
    those that need leadership."""

    @property
    def waits_for(self) -> str:
        """Description of what delays the start, for the message of a start timeout."""
        return ""

    def prepare(self, *, held: bool) -> None:
        """Prepare after being added, before any informer runs.

        Args:
            held: another process may lead until ``running`` is entered.
        """

    def running(self) -> AbstractAsyncContextManager[Any]:
        """Return a context manager: started and ready on entry, stopped on exit."""
        raise NotImplementedError

    def drain(self) -> float:
        """Begin an orderly stop; return for how many seconds callers must still be served."""
        return 0.0

    def abandon(self) -> None:
        """Stop without grace: leadership is lost, and ``running`` is left immediately."""
