"""What a manager starts and stops."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any


class Runnable:
    """Anything that lives inside a manager: an async context manager factory.

    A subclass has a ``name``, shown in logs, and ``running``; the rest does nothing by default.
    """

    name: str

    on_every_replica: bool = False
    """With leader election: whether it runs on replicas that do not lead as well. Such ones start
    before those that need leadership."""

    @property
    def waits_for(self) -> str:
        """What ``running`` waits for before it has begun, for the message that it did not."""
        return ""

    def prepare(self, *, held: bool) -> None:
        """It was added, and no informer runs yet.

        Args:
            held: another process may lead until ``running`` is entered.
        """

    def running(self) -> AbstractAsyncContextManager[Any]:
        """Started and ready on entry, stopped on exit."""
        raise NotImplementedError

    def drain(self) -> float:
        """An orderly stop begins; for how many seconds it has to go on for those that call it."""
        return 0.0

    def abandon(self) -> None:
        """Leadership is lost: ``running`` is left at once, and gets no grace."""
