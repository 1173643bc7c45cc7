"""The work queue: decides which key a worker takes next, and when.

Every method that changes state is a plain ``def`` without ``await`` and therefore atomic on the
event loop; only waiting for work is ``async``. No locks are needed.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from jobsetpy.aio import Clock, LoopClock
from jobsetpy.errors import LifecycleError
from jobsetpy.workqueue._delaying import DelayHeap
from jobsetpy.workqueue._ratelimiters import RateLimiter, RetryDelays

if TYPE_CHECKING:
    from jobsetpy.observability.metrics import QueueMetrics

K = TypeVar("K", bound=Hashable)

_TIMER_SLACK_S = 1e-5
"""Remaining time, in seconds, below which a deadline has passed: a timer may fire a clock tick
early and must not fire twice."""

_SHORTEST_TIMER_S = 0.001
"""Shortest timer in seconds. uvloop's clock has a resolution of 1 ms: a shorter timer would fire
immediately, again and again."""


class QueueShutDown(LifecycleError):  # noqa: N818 - named like asyncio.QueueShutDown
    """``get`` was called on a queue that is shut down and empty."""


class Processing(NamedTuple):
    """State of an item that a worker has taken.

    ``priority`` is the priority it was taken with, ``waited_s`` its seconds in the queue (delays
    not counted), ``since`` the monotonic time at which it was taken.
    """

    priority: int
    waited_s: float
    since: float


class WorkQueue(Generic[K]):
    """A queue of keys for level-based controllers.

    Its laws (client-go's, plus priorities):

    1. **Merging.** An item is queued at most once: adding a queued item changes nothing, except
       that a higher priority replaces a lower one. The queue is therefore bounded by the number of
       keys.
    2. **One worker per key.** An item that a worker has taken is given to no other until ``done``.
    3. **No lost items.** An item added while it is processed is queued again at ``done``, once,
       with the highest priority it was added with meanwhile.
    4. **Order.** Higher priority first; within a priority, first in, first out. An item that
       returns goes to the end, so a key that changes all the time cannot delay others.
    5. **No starvation.** Every ``fair_every``-th item taken is the one that has been queued
       longest, whatever its priority. An item with *p* older ones before it waits for at most
       ``fair_every * (p + 1)`` other takes, however many items of higher priority are added.
    6. **Delays.** ``add_after`` adds the item when its delay is over, never earlier (except for a
       tick of the loop's clock). An item with two deadlines keeps the earlier one; an ``add``
       meanwhile does not cancel the delay.
    7. **Shutdown.** After ``shut_down`` no item is accepted and delayed items are dropped. ``get``
       returns the queued items (none with ``drain=False``), then raises :class:`QueueShutDown`.

    Not guaranteed: an order between items added by different delays that end in the same tick.

    Args:
        rate_limiter: delays of ``add_rate_limited``; :class:`RetryDelays` when absent.
        fair_every: interval, in items, of law 5; 1 ignores priorities.
        clock: source of time. Timers always run on the event loop; with a clock that is not the
            loop's, a delay ends at the first ``get`` or ``poll`` after its deadline.
        metrics: counts adds, takes, retries and durations.
    """

    __slots__ = (
        *("_clock", "_delayed", "_dirty", "_fair_every", "_levels", "_limiter", "_metrics"),
        *("_order", "_processing", "_queued", "_taken", "_timer", "_timer_due", "_waiters"),
        "shutting_down",
    )

    def __init__(
        self,
        *,
        rate_limiter: RateLimiter[K] | None = None,
        fair_every: int = 10,
        clock: Clock | None = None,
        metrics: QueueMetrics | None = None,
    ) -> None:
        if fair_every < 1:
            raise ValueError(f"fair_every must be at least 1, not {fair_every}")
        self._clock: Clock = clock or LoopClock()
        self._limiter: RateLimiter[K] = rate_limiter or RetryDelays(clock=self._clock)
        self._metrics = metrics
        self._fair_every = fair_every
        self._taken = 0
        # Queued items with (priority, queued since), the longest queued first. OrderedDicts, since
        # taking the first key of a plain dict slows down with the keys deleted before it.
        self._queued: OrderedDict[K, tuple[int, float]] = OrderedDict()
        # The same items by priority, each level in order; no empty levels.
        self._levels: dict[int, OrderedDict[K, None]] = {}
        self._order: list[int] = []  # the keys of _levels, ascending
        self._processing: dict[K, Processing] = {}
        self._dirty: dict[K, int] = {}  # added while processed, with the highest priority
        self._delayed: DelayHeap[K] = DelayHeap()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.shutting_down = False
        """True once ``shut_down`` was called."""

    def __len__(self) -> int:
        """Number of items that could be taken now (neither processed nor delayed)."""
        return len(self._queued)

    @property
    def waiting(self) -> int:
        """Number of delayed items."""
        return len(self._delayed)

    def depths(self) -> dict[int, int]:
        """Return the number of queued items at each priority, without empty priorities."""
        return {priority: len(level) for priority, level in self._levels.items()}

    def processing(self, item: K) -> Processing | None:
        """Return the state of an item that a worker has taken; ``None`` if it is not taken."""
        return self._processing.get(item)

    def working_seconds(self) -> list[float]:
        """Return, for each item being processed, the seconds since it was taken."""
        now = self._clock.monotonic()
        return [now - taken.since for taken in self._processing.values()]

    # Adding

    def add(self, item: K, *, priority: int = 0) -> None:
        """Queue ``item`` (laws 1 to 3). O(1)."""
        if self.shutting_down:
            return
        if item in self._processing:
            if self._dirty.get(item, priority) <= priority:
                self._dirty[item] = priority
            return
        self._enqueue(item, priority)

    def add_after(self, item: K, delay_s: float, *, priority: int = 0) -> None:
        """Queue ``item`` in ``delay_s`` seconds (law 6); immediately if not positive."""
        if self.shutting_down:
            return
        if delay_s <= 0:
            self.add(item, priority=priority)
            return
        self._delayed.put(item, self._clock.monotonic() + delay_s, priority)
        self._set_timer()

    def add_rate_limited(
        self, item: K, *, priority: int | None = None, at_least_s: float = 0.0
    ) -> float:
        """Queue ``item`` again after a failure, when the rate limiter allows.

        Args:
            item: usually one being processed.
            priority: priority to add it with; ``None`` for the one with which it was taken.
            at_least_s: minimum delay in seconds, such as a server's Retry-After.

        Returns:
            The delay in seconds.
        """
        if priority is None:
            taken = self._processing.get(item)
            priority = 0 if taken is None else taken.priority
        delay_s = max(self._limiter.when(item), at_least_s)
        if not self.shutting_down:
            if self._metrics is not None:
                self._metrics.on_retry()
            self.add_after(item, delay_s, priority=priority)
        return delay_s

    def forget(self, item: K) -> None:
        """Reset the failures of ``item``, after success or when giving up."""
        self._limiter.forget(item)

    def num_requeues(self, item: K) -> int:
        """Return the number of rate-limited adds of ``item`` since ``forget``."""
        return self._limiter.num_requeues(item)

    # Taking

    async def get(self) -> K:
        """Wait for an item and take it; call ``done`` with it afterwards, whatever happens.

        Cancelling a waiting ``get`` loses nothing.

        Raises:
            QueueShutDown: the queue is shut down and empty.
        """
        while True:
            self.poll()
            if self._queued:
                return self._take()
            if self.shutting_down:
                raise QueueShutDown("the queue is shut down")
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter.done() and not waiter.cancelled():
                    # This call was woken for an item and cannot take it: wake another waiter.
                    self._wake()
                elif waiter in self._waiters:
                    self._waiters.remove(waiter)
                raise

    def get_nowait(self) -> K:
        """Take an item without waiting.

        Raises:
            asyncio.QueueEmpty: no item is queued now.
            QueueShutDown: the queue is shut down and empty.
        """
        self.poll()
        if self._queued:
            return self._take()
        if self.shutting_down:
            raise QueueShutDown("the queue is shut down")
        raise asyncio.QueueEmpty

    def done(self, item: K) -> None:
        """Return an item that was taken; it is queued again if it was added meanwhile.

        Raises:
            ValueError: ``item`` is not being processed.
        """
        taken = self._processing.pop(item, None)
        if taken is None:
            raise ValueError(f"done() without get(): {item}")
        if self._metrics is not None:
            self._metrics.on_done(self._clock.monotonic() - taken.since)
        priority = self._dirty.pop(item, None)
        if priority is not None:
            self._enqueue(item, priority)

    def poll(self) -> None:
        """Queue the items whose delay is over. Called by timers and by ``get``."""
        if not self._delayed:
            return
        for item, priority in self._delayed.pop_due(self._clock.monotonic() + _TIMER_SLACK_S):
            self.add(item, priority=priority)
        self._set_timer()

    def shut_down(self, *, drain: bool = True) -> None:
        """Stop accepting items (law 7); may be called more than once.

        Args:
            drain: return the queued items before ``get`` raises; otherwise drop them, so that
                workers finish the items they are processing and stop.
        """
        self.shutting_down = True
        self._delayed.clear()
        self._set_timer()
        if not drain:
            self._queued.clear()
            self._levels.clear()
            self._order.clear()
            self._dirty.clear()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    # Inside

    def _enqueue(self, item: K, priority: int) -> None:
        queued = self._queued.get(item)
        if queued is not None:
            if priority <= queued[0]:
                return
            # Last in the new level, but its time in the queue (law 5) continues.
            self._remove_from_level(item, queued[0])
            self._queued[item] = (priority, queued[1])
            self._append_to_level(item, priority)
            return
        self._queued[item] = (priority, self._clock.monotonic())
        self._append_to_level(item, priority)
        if self._metrics is not None:
            self._metrics.on_add()
        if self._waiters:
            self._wake()

    def _append_to_level(self, item: K, priority: int) -> None:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = OrderedDict()
            insort(self._order, priority)
        level[item] = None

    def _remove_from_level(self, item: K, priority: int) -> None:
        level = self._levels[priority]
        del level[item]
        if not level:
            del self._levels[priority]
            self._order.remove(priority)

    def _take(self) -> K:
        self._taken += 1
        if self._taken >= self._fair_every:
            self._taken = 0
            item = next(iter(self._queued))
        else:
            item = next(iter(self._levels[self._order[-1]]))
        priority, since = self._queued.pop(item)
        self._remove_from_level(item, priority)
        now = self._clock.monotonic()
        waited_s = now - since
        self._processing[item] = Processing(priority, waited_s, now)
        if self._metrics is not None:
            self._metrics.on_get(waited_s)
        return item

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _set_timer(self) -> None:
        """Schedule ``poll`` for the earliest deadline. Outside a loop, ``get`` calls it."""
        due = self._delayed.next_due()
        if self._timer is not None:
            if due == self._timer_due:
                return
            self._timer.cancel()
            self._timer = None
        if due is None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._timer_due = due
        delay_s = max(_SHORTEST_TIMER_S, due - self._clock.monotonic())
        self._timer = loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.poll()
