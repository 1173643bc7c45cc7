"""A buffer between a watch and a consumer that may be slow, bounded by the number of objects.

Reading the watch must never wait for the consumer: the API server ends watches that are not
drained. The buffer therefore accepts every event immediately, and keeps for each object only what
the consumer still needs: the latest state wins, a deletion is kept. It holds at most two events for
each object in each of four segments (changes, a complete list, changes since, a list in progress),
however long the consumer sleeps.

This module is on the agent's start-up path: standard library and msgspec only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from jobsetpy.informers._events import (
    Applied,
    Bookmark,
    Deleted,
    ListCompleted,
    Listed,
    ListStarted,
    Unreadable,
    WatchEvent,
)

T = TypeVar("T")

_Identity = tuple[str, str]


def _identity(event: Any) -> _Identity:
    meta = event if isinstance(event, Unreadable) else event.obj.metadata
    return meta.namespace, meta.name


class _Segment(Generic[T]):
    """Changes, or one list: ``opening``, then the events of each object, then ``closing``."""

    __slots__ = ("bookmark", "closing", "is_list", "opening", "slots")

    def __init__(self, opening: ListStarted | None = None) -> None:
        self.is_list = opening is not None
        self.opening = opening
        self.slots: dict[_Identity, list[WatchEvent[T]]] = {}
        self.closing: ListCompleted | None = None
        self.bookmark: Bookmark | None = None

    def put(self, event: Applied[T] | Listed[T] | Deleted[T] | Unreadable) -> None:
        """Merge an event into the pending events of the same object, in that object's place."""
        identity = _identity(event)
        waiting = self.slots.get(identity)
        if waiting is None:
            self.slots[identity] = [event]
        elif isinstance(event, Deleted):
            # Earlier events are obsolete: the consumer only needs to know that the object is gone.
            waiting[:] = [event]
        elif isinstance(waiting[-1], Deleted):
            # Deleted and recreated: both matter, the consumer may know the old one by uid.
            waiting.append(event)
        else:
            waiting[-1] = event
        self.bookmark = None  # it does not cover this event; a later bookmark will

    def pop(self) -> WatchEvent[T] | None:
        """Remove and return the next event, or return ``None`` if none is pending."""
        if self.opening is not None:
            opening, self.opening = self.opening, None
            return opening
        if self.slots:
            identity = next(iter(self.slots))
            waiting = self.slots[identity]
            if len(waiting) > 1:
                return waiting.pop(0)
            del self.slots[identity]
            return waiting[0]
        if self.closing is not None:
            closing, self.closing = self.closing, None
            return closing
        bookmark, self.bookmark = self.bookmark, None
        return bookmark


class CoalescingBuffer(Generic[T]):
    """Buffer with a synchronous ``put`` that never waits, read as an endless async iterator.

    One task may iterate. An object keeps its place when its state is replaced, so that an object
    that changes all the time is not delayed for ever. A complete list discards the events before
    it.
    """

    __slots__ = ("_segments", "_wake")

    def __init__(self) -> None:
        self._segments: deque[_Segment[T]] = deque()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Number of pending objects, counted once for each segment that contains them."""
        return sum(len(segment.slots) for segment in self._segments)

    def put(self, events: Iterable[WatchEvent[T]]) -> None:
        """Add events, in the order in which they were received."""
        for event in events:
            match event:
                case ListStarted():
                    last = self._segments[-1] if self._segments else None
                    if last is not None and last.is_list and last.closing is None:
                        self._segments.pop()  # the list was restarted
                    self._segments.append(_Segment(event))
                case ListCompleted():
                    segment = self._segments[-1]
                    segment.closing = event
                    self._segments.clear()
                    self._segments.append(segment)
                    # Later events must not be merged into the list.
                    self._segments.append(_Segment())
                case Bookmark():
                    self._current().bookmark = event
                case _:
                    self._current().put(event)
        self._wake.set()

    def _current(self) -> _Segment[T]:
        if not self._segments:
            self._segments.append(_Segment())
        return self._segments[-1]

    def pop(self) -> WatchEvent[T] | None:
        """Remove and return the next event, or return ``None``; never waits."""
        while self._segments:
            segment = self._segments[0]
            event = segment.pop()
            if event is not None:
                return event
            if len(self._segments) == 1:
                return None
            self._segments.popleft()
        return None

    def __aiter__(self) -> CoalescingBuffer[T]:
        return self

    async def __anext__(self) -> WatchEvent[T]:
        while True:
            event = self.pop()
            if event is not None:
                return event
            self._wake.clear()
            await self._wake.wait()
