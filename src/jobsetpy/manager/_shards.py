"""Election of several processes that share the work, each by its own Lease.

Each of ``N`` shards has a Lease, ``NAME-shard-I-of-N``. A process holds one of them, whichever is
free, and may hold it while its caches are filled. A process that finds none free stands by for all.

Two shard counts must never work at the same time, nor shards and a manager without. Therefore the
holder of a shard renews the Lease ``NAME`` as well, with an identity that all processes of one
count share: ``N shards``. That Lease elects managers without shards, of any release, and the Go
controller: they treat it as held, and so does any other count. A process writes while both its
claims last, which work as for any leader (``_leader``); its fence is open for the same time.

* A process that waits for ``NAME`` keeps its shard: no other count has that Lease, and it starts
  work immediately when the last process of the other count has ended.
* The last process of a count gives ``NAME`` back: it reads it, then all shards, and writes only if
  ``NAME`` was not changed after that read. A process that joins changes it before it works. A shard
  whose holder was killed is not free: ``NAME`` then expires, as any Lease does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import blake2b
from typing import Any, Never

import attrs

from jobsetpy import aio
from jobsetpy.client import Client, WriteFence
from jobsetpy.errors import LeadershipLostError
from jobsetpy.informers import Assignment
from jobsetpy.manager._leader import LeaderElectionSettings, LeaderElector, unique
from jobsetpy.observability import metrics
from jobsetpy.observability.logging import get_logger

MOST_SHARDS = 64
"""Maximum number of shards; a process that waits for a free one reads each."""
REPORT_INTERVAL_S = 60.0
"""Interval between log lines of a process that waits, in seconds."""


@attrs.frozen
class Shards:
    """Number of shards, and the assignment of objects to them.

    Args:
        count: number of shards, each with its share of all objects.
        key: for a class, returns the function from an object's metadata to the name that decides
            its share, together with the namespace. If that name is "", the object is in every
            share.
        peek: for a class, returns a model of the fields that ``key`` reads (see ``KeyedShard``),
            or ``None``.

    Raises:
        ValueError: the count is out of range.
    """

    count: int = attrs.field()
    key: Callable[[type[Any]], Callable[[Any], str]]
    peek: Callable[[type[Any]], type[Any] | None] = lambda _: None

    @count.validator
    def _check_count(self, _: object, count: int) -> None:
        if not 2 <= count <= MOST_SHARDS:
            raise ValueError(f"number of shards: {count}: must be from 2 to {MOST_SHARDS}")


def lease_of(name: str, index: int, count: int) -> str:
    """Return the name of the Lease of one shard."""
    return f"{name}-shard-{index}-of-{count}"


class ShardElector:
    """One contender for any shard; has the same interface for its manager as a ``LeaderElector``.

    ``assigned`` is set when it holds a shard, given by ``assignment``, and ``leading`` while it
    may work; ``fence`` is open for as long as it may write.

    Args:
        client, on_lost, clock, now, rand: as for a ``LeaderElector``.
        settings: settings whose name is that of the Lease that all processes hold together.
        count: number of shards.
    """

    def __init__(
        self,
        client: Client,
        settings: LeaderElectionSettings,
        count: int,
        *,
        on_lost: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = aio.steady,
        now: Callable[[], datetime] = lambda: aio.LoopClock().now(),
        rand: Callable[[], float] = random.random,
    ) -> None:
        self.settings = settings
        self.assignment = Assignment(count)
        self.identity = unique(settings.identity)
        self.leading = asyncio.Event()
        self.assigned = asyncio.Event()
        self._news = asyncio.Event()
        self._ready = asyncio.Event()
        self._on_lost = on_lost
        self._log = get_logger("leader")
        self._reported: tuple[tuple[str, ...], float] | None = None

        def elector(name: str, identity: str, *, together: bool = False) -> LeaderElector:
            return LeaderElector(
                client,
                attrs.evolve(settings, name=name),
                on_lost=self._lose,
                clock=clock,
                now=now,
                rand=rand,
                identity=identity,
                together=together,
                news=self._news,
                report=lambda _: None,
            )

        names = [lease_of(settings.name, index, count) for index in range(count)]
        self.shards = tuple(elector(name, self.identity) for name in names)
        self.number = elector(settings.name, f"{count} shards", together=True)
        self.fence: WriteFence = _JointFence(self.shards, self.number)
        self._report()

    @property
    def electors(self) -> tuple[LeaderElector, ...]:
        """Electors of all Leases that it reads; handlers of their informers."""
        return (*self.shards, self.number)

    def contend(self) -> None:
        """Contend for a shard from now on."""
        self._ready.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Contend, and hold a shard, within the block; give it back on exit.

        Raises:
            LeadershipLostError: the shard was lost; the block was cancelled.
        """
        try:
            async with aio.supervise() as tasks:
                tasks.start(self._run(), name="shard-election")
                yield
        finally:
            # All tasks that write have ended by now.
            self.leading.clear()
            self._report()
            for one in self.shards:
                await one.give_back()
            await self.number.give_back(self._nobody_has_a_shard)

    # ---- lifecycle --------------------------------------------------------------------------

    async def _run(self) -> None:
        await self._ready.wait()
        index = await self._take_one()
        try:
            async with aio.supervise() as tasks:
                tasks.start(self.shards[index].lead(), name=f"shard-{index}")
                self.assignment.index = index
                self.assigned.set()
                self._log.info("has a shard", shard=index, of=self.assignment.count)
                await self._join()
        except BaseExceptionGroup as failures:
            # Both Leases may be lost at the same time.
            lost, others = failures.split(LeadershipLostError)
            if lost is None or others is not None:
                raise
            raise LeadershipLostError("neither the shard nor the number is held") from lost

    async def _take_one(self) -> int:
        """Wait until a shard is held; return its index."""
        count = self.assignment.count
        # Processes that start together begin with different shards.
        first = int.from_bytes(blake2b(self.identity.encode(), digest_size=8).digest(), "big")
        order = [(first + step) % count for step in range(count)]
        while True:
            for index in order:
                if await self.shards[index].attempt():
                    return index
            self._report_waiting("waits for a shard", self.shards)
            self._news.clear()
            await aio.sleep_or(self._news, min(one.pause_s() for one in self.shards))

    async def _join(self) -> Never:
        """Work as soon as no other shard count does."""
        while not await self.number.attempt():
            if self.number.holder == self.number.identity:
                # Another process of this count was faster, which does not exclude this one.
                await asyncio.sleep(self.settings.retry_period_s / 8)
                continue
            self._report_waiting(
                "holds a shard; waiting for managers with a different shard count to stop",
                [self.number],
            )
            self._news.clear()
            await aio.sleep_or(self._news, self.number.pause_s())
        self.leading.set()
        self._report()
        await self.number.lead()
        raise AssertionError("leading ends only with an exception")

    async def _nobody_has_a_shard(self) -> bool:
        for one in self.shards:
            if not await one.is_free():
                return False
        return True

    def _lose(self) -> None:
        self.fence.close()
        self.leading.clear()
        self._report()
        self._on_lost()

    # ---- reports ----------------------------------------------------------------------------

    def _report(self) -> None:
        """Set the metric: the shard's Lease that this process works with."""
        works = self.leading.is_set()
        for index, one in enumerate(self.shards):
            mine = works and index == self.assignment.index
            metrics.leader(one.settings.name, leading=mine)

    def _report_waiting(self, what: str, waits_for: Any) -> None:
        """Log the holders that this process waits for, when they change and periodically."""
        holders = tuple(one.holder for one in waits_for)
        now = asyncio.get_running_loop().time()
        reported = self._reported
        if (
            reported is not None
            and reported[0] == holders
            and now - reported[1] < REPORT_INTERVAL_S
        ):
            return
        self._reported = (holders, now)
        since = {
            one.settings.name: f"{one.holder or 'no manager'} since {one.held_since}"
            for one in waits_for
        }
        self._log.info(what, identity=self.identity, held_by=since)


class _JointFence(WriteFence):
    """Fence that is open while both the claim of a shard and the joint claim last."""

    __slots__ = ("_number", "_shards")

    def __init__(self, shards: tuple[LeaderElector, ...], number: LeaderElector) -> None:
        super().__init__(aio.steady, grace_s=number.fence.grace_s)
        self._shards = tuple(one.fence for one in shards)
        self._number = number.fence

    def close(self) -> None:
        """Close immediately."""
        for fence in (*self._shards, self._number):
            fence.close()

    def remaining_s(self) -> float:
        """Return the seconds until it closes; 0 or less when it is closed."""
        shard_s = max(fence.remaining_s() for fence in self._shards)
        return min(shard_s, self._number.remaining_s())
