"""Leader election on a Lease: of several managers one works, and the others stand by.

The record in the Lease is the one that client-go's elections keep, so a manager of ours and
today's controller exclude each other when they use the same name.

Why two can never write at the same time, whatever the network and the processes do:

* A holder's claim is counted from the moment *before* it sent the write that renewed it, and ends
  after ``renew_deadline_s``. The fence in its client refuses writes from then on.
* A rival counts from the moment at which it *saw* that write's result, which is later, and waits
  for ``leaseDurationSeconds`` of the record, which is longer.
* Each reads its own monotonic clock only. The times in the record are for people: wall clocks of
  two machines differ, and jump.
* No two bear the same name: each elector adds a random part to its own. Two managers that were
  given one name by mistake, or one pod's process and the one before it, exclude each other.

* A rival that has seen the Lease and finds it deleted waits as long, from then on, before it makes
  another: the holder may not know yet.
* So does one that has just started and never saw it, where it may have been there: whoever takes
  the Lease makes another one before that, the *mark*, which is never written again. Without a mark
  nobody has ever led, and the first start of an installation waits for nothing.
* What was sent before the fence closed arrives within the difference of the two times, or never:
  the connection is cut then, and what is in the kernel's hands is discarded (``client/_cut.py``).

What is left to luck is a request that the API server, or a proxy before it, received in time and
carries out more than ``lease_duration_s - renew_deadline_s`` later, clocks that run at speeds so
different, and a contender that starts between the deletion of both Leases by hand and the holder's
next renewal. A holder of another kind (today's controller) makes no mark.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Never

import attrs

from jobsetpy import aio
from jobsetpy.api.coordination import Lease, LeaseSpec
from jobsetpy.api.timestamps import micros_text
from jobsetpy.client import Client, WriteFence
from jobsetpy.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    JobSetPyError,
    LeadershipLostError,
    NotFoundError,
)
from jobsetpy.observability import metrics
from jobsetpy.observability.logging import get_logger

MARK_SUFFIX = "-mark"
"""Of the name of the Lease that says that somebody has led."""
RELEASE_TIMEOUT_S = 2.0
"""How long giving the Lease back may take; after that it lapses by itself."""
_MARK_TEXT = "A leader was elected here: if the Lease beside this one is missing, wait."
_RELEASED_S = 1
"""``leaseDurationSeconds`` of a Lease that was given back, as client-go writes it."""


@attrs.frozen(kw_only=True)
class LeaderElectionSettings:
    """Which Lease is contended for, and how fast.

    Args:
        namespace, name: of the Lease; made if it is missing.
        identity: of this process, for people who read the Lease; the elector makes it unique.
        lease_duration_s: how long others wait after the last renewal that they saw.
        renew_deadline_s: how long a leader writes after the last renewal that succeeded.
        retry_period_s: pause between two tries.

    Raises:
        ValueError: not ``lease_duration_s > renew_deadline_s > 1.2 retry_period_s > 0``.
    """

    namespace: str
    name: str
    identity: str = attrs.field(factory=socket.gethostname)
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0

    def __attrs_post_init__(self) -> None:
        """Refuse times under which two could lead, or none for long."""
        lease, renew, retry = self.lease_duration_s, self.renew_deadline_s, self.retry_period_s
        if not lease > renew > 1.2 * retry > 0:
            msg = (
                f"leader election needs leaseDuration > renewDeadline > 1.2 retryPeriod > 0, "
                f"not {lease:g} s, {renew:g} s and {retry:g} s"
            )
            raise ValueError(msg)


@attrs.define
class _Seen:
    """The record as it was last seen, and when it was first seen so, or seen to be deleted.

    ``missed_at`` is when it was last looked for in vain.
    """

    lease: Lease
    since: float
    deleted: bool = False
    missed_at: float = 0.0


class LeaderElector:
    """One contender.

    ``leading`` is set while it leads; ``fence`` is open for as long as it may write. ``identity``
    is its name in the Lease, which no other elector has. Use :meth:`running` around everything that
    writes, and :meth:`contend` when ready to lead.

    Args:
        client: not behind the fence, and with connections of its own (``Client.unpooled``).
        settings: see there.
        on_lost: called at once when leadership is lost, before anybody is cancelled.
        clock: seconds as ``WriteFence`` needs them.
        now: the wall clock, for the record.
        rand: uniform numbers in [0, 1) for jitter.
        identity: in the Lease; one that nobody else has when absent.
        together: others bear the same identity, and renew the Lease as well. Each of them holds it
            for as long as its own claim lasts.
        news: set when the Lease may have become free; one of its own when absent.
        report: told whether it leads; for the metric when absent.
    """

    def __init__(  # noqa: PLR0913 - what several electors of a process have in common comes last
        self,
        client: Client,
        settings: LeaderElectionSettings,
        *,
        on_lost: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = aio.steady,
        now: Callable[[], datetime] = lambda: aio.LoopClock().now(),
        rand: Callable[[], float] = random.random,
        identity: str = "",
        together: bool = False,
        news: asyncio.Event | None = None,
        report: Callable[[bool], None] | None = None,
    ) -> None:
        self.settings = settings
        self.identity = identity or unique(settings.identity)
        self.leading = asyncio.Event()
        margin_s = settings.lease_duration_s - settings.renew_deadline_s
        self.fence = WriteFence(clock, grace_s=margin_s)
        self._client = client
        self._on_lost = on_lost
        self._clock = clock
        self._now = now
        self._rand = rand
        self._ready = asyncio.Event()
        self._together = together
        self._news = news or asyncio.Event()
        self._report = report or (lambda leads: metrics.leader(settings.name, leading=leads))
        self._seen: _Seen | None = None
        self._complaint = ""
        self._unsure = False
        self._marked = False
        self._log = get_logger("leader")
        self._report(False)

    # ---- what others call -------------------------------------------------------------------

    def contend(self) -> None:
        """Be ready to lead from now on."""
        self._ready.set()

    def on_add(self, obj: Lease, *, initial: bool) -> None:
        """Handler of an informer of the Lease: it only makes the next try come sooner."""
        del initial
        self._hear(obj)

    def on_update(self, old: Lease, new: Lease) -> None:
        """See ``on_add``."""
        del old
        self._hear(new)

    def on_delete(self, obj: Lease, *, final_state_known: bool) -> None:
        """See ``on_add``."""
        del obj, final_state_known
        self._news.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Contend, and lead, within the block; on the way out the Lease is given back.

        Raises:
            LeadershipLostError: it led and does not any more; the block was cancelled.
        """
        try:
            async with aio.supervise() as tasks:
                tasks.start(self._run(), name="leader-election")
                yield
        finally:
            # Whoever wanted to write has ended by now.
            await self.give_back()

    # ---- the course of it -------------------------------------------------------------------

    async def _run(self) -> None:
        await self._ready.wait()
        self._log.info("standing by", lease=self._target, identity=self.identity)
        while not await self.attempt():
            self._news.clear()
            await aio.sleep_or(self._news, self.pause_s())
        await self.lead()

    async def lead(self) -> Never:
        """Keep the Lease that is held, until that is not possible any more.

        Raises:
            LeadershipLostError: it is not.
        """
        self._log.info("leading", lease=self._target, identity=self.identity)
        self._report(True)
        self.leading.set()
        try:
            await self._keep()
        except LeadershipLostError as lost:
            self._lose()
            self._log.error("leadership lost", lease=self._target, why=str(lost))
            raise

    async def _keep(self) -> Never:
        """Renew until that is not possible any more."""
        period_s = self.settings.retry_period_s
        failed = False
        while True:
            # Sooner after a failure: a second chance costs little, the end of leadership much.
            pause_s = period_s * (0.25 if failed else 1.0) * (0.8 + 0.2 * self._rand())
            # A clock's ticks are not endlessly fine: never sleep for less than one.
            await asyncio.sleep(max(0.001, min(pause_s, self.fence.remaining_s())))
            if self.fence.remaining_s() <= 0:
                msg = f"not renewed for {self.settings.renew_deadline_s:g} s: {self._complaint}"
                raise LeadershipLostError(msg)
            failed = not await self.attempt()
            holder = self._holder()
            if failed and holder != self.identity:
                msg = f"the Lease is held by {holder!r}"
                raise LeadershipLostError(msg)

    def _lose(self) -> None:
        self._unsure = False
        self.fence.close()
        self.leading.clear()
        self._report(False)
        self._on_lost()

    async def give_back(self, alone: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Let the next one lead at once. Best effort: a Lease that stays lapses by itself.

        Args:
            alone: whether nobody else holds the Lease with the same identity. It is asked after a
                look at the Lease, which is not given back if it was changed after that look.
        """
        # Unsure: a claim was cut short, and the API server may have it.
        if not self.leading.is_set() and not self._unsure:
            return
        self.fence.close()
        self.leading.clear()
        self._report(False)
        stamp = micros_text(self._now())
        spec = {
            "holderIdentity": "",
            "leaseDurationSeconds": _RELEASED_S,
            "acquireTime": stamp,
            "renewTime": stamp,
        }
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                if alone is not None or self._unsure or not await self._released(spec):
                    lease = await self._get()
                    if alone is not None and not await alone():
                        return
                    if _holder(lease) == self.identity:
                        await self._patch(lease, spec, RELEASE_TIMEOUT_S)
        except (JobSetPyError, TimeoutError) as error:
            self._log.warning("the Lease could not be given back", error=str(error))
        else:
            self._log.info("gave the Lease back", lease=self._target)

    async def _released(self, spec: dict[str, object]) -> bool:
        """Give it back without a look at it; ``False`` if somebody has changed it."""
        if self._seen is None:
            return False
        try:
            await self._patch(self._seen.lease, spec, RELEASE_TIMEOUT_S)
        except ConflictError:
            return False
        return True

    # ---- one try ----------------------------------------------------------------------------

    async def attempt(self) -> bool:
        """Renew or take the Lease; whether it is held with certainty: then :meth:`lead` at once.

        A try takes a quarter of the deadline at most, and less when less is left: an API call that
        hangs must leave time for another one.
        """
        limit_s = self.settings.renew_deadline_s / 4
        if self.leading.is_set():
            limit_s = min(limit_s, max(0.001, self.fence.remaining_s()))
        try:
            async with asyncio.timeout(limit_s):
                held = await self._renew(limit_s) if self.leading.is_set() else False
                held = held or await self._take(limit_s)
        except (JobSetPyError, TimeoutError) as error:
            self._complain(str(error) or f"no answer in {limit_s:.3g} s")
            return False
        self._complaint = ""
        return held

    async def _renew(self, limit_s: float) -> bool:
        """Renew what was seen last, without a look at it; whether nobody has changed it."""
        seen = self._seen
        if seen is None or _holder(seen.lease) != self.identity or self._together:
            return False  # of what several renew, the version that was seen last is not the last
        try:
            await self._claim(seen.lease, limit_s)
        except (ConflictError, NotFoundError):
            return False
        return True

    async def _take(self, limit_s: float) -> bool:
        """Look, and take it if nobody else holds it."""
        try:
            lease = await self._get(limit_s)
        except NotFoundError:
            await self._mark(limit_s)
            return self._may_make() and await self._make(limit_s)
        self._observe(lease)
        holder = _holder(lease)
        if holder not in {"", self.identity} and self._lapses_in_s() > 0:
            return False
        if self.leading.is_set() and holder != self.identity:
            return False  # given to nobody, or lapsed: we are not the one any more
        await self._mark(limit_s)
        try:
            await self._claim(lease, limit_s)
        except (ConflictError, NotFoundError):
            return False  # a rival was faster; the next look will tell
        return True

    async def _mark(self, limit_s: float) -> None:
        """See to it that there is a mark; one that was there means that somebody may lead."""
        if self._marked:
            return
        settings = self.settings
        body = {
            "metadata": {
                "name": f"{settings.name}{MARK_SUFFIX}",
                "namespace": settings.namespace,
                "annotations": {"kubernetes.io/description": _MARK_TEXT},
            },
            "spec": {},
        }
        try:
            await self._client.create(Lease, settings.namespace, body, timeout_s=limit_s)
        except AlreadyExistsError:
            if self._seen is None:
                self._seen = _Seen(Lease(), self._clock(), deleted=True)
        except ForbiddenError as error:
            self._log.warning("the mark beside the Lease could not be made", error=str(error))
        self._marked = True

    def _may_make(self) -> bool:
        """Whether nobody else can lead although there is no Lease."""
        seen = self._seen
        if self.leading.is_set() or seen is None:
            return True
        now, settings = self._clock(), self.settings
        # Between two looks it may have been made again, and deleted again.
        blind_s = settings.lease_duration_s - settings.renew_deadline_s
        if not seen.deleted or now - seen.missed_at > blind_s:
            seen = self._seen = _Seen(seen.lease, now, deleted=True)
        seen.missed_at = now
        return self._lapses_in_s() <= 0

    async def _make(self, limit_s: float) -> bool:
        settings, started = self.settings, self._clock()
        body = {
            "metadata": {"name": settings.name, "namespace": settings.namespace},
            "spec": self._record(LeaseSpec()) | {"leaseTransitions": 0},
        }
        self._unsure = True
        try:
            lease = await self._client.create(Lease, settings.namespace, body, timeout_s=limit_s)
        except (AlreadyExistsError, ConflictError):
            return False
        self._held(lease, started)
        return True

    async def _claim(self, lease: Lease, limit_s: float) -> None:
        started = self._clock()
        self._unsure = True
        self._held(await self._patch(lease, self._record(lease.spec), limit_s), started)

    def _held(self, lease: Lease, started: float) -> None:
        """The write that began at ``started`` made us the holder."""
        self._unsure = False
        self._seen = _Seen(lease, self._clock())
        self.fence.open_until(started + self.settings.renew_deadline_s)

    def _record(self, old: LeaseSpec) -> dict[str, object]:
        settings, stamp = self.settings, micros_text(self._now())
        record: dict[str, object] = {
            "holderIdentity": self.identity,
            # Whole seconds, rounded so that others wait rather too long.
            "leaseDurationSeconds": math.ceil(settings.lease_duration_s),
            "renewTime": stamp,
        }
        if old.holder_identity != self.identity:
            record["acquireTime"] = stamp
            record["leaseTransitions"] = (old.lease_transitions or 0) + 1
        return record

    async def _get(self, limit_s: float = RELEASE_TIMEOUT_S) -> Lease:
        settings = self.settings
        return await self._client.get(Lease, settings.namespace, settings.name, timeout_s=limit_s)

    async def _patch(self, lease: Lease, spec: dict[str, object], limit_s: float) -> Lease:
        # A patch, for what others keep in the object; the version makes it a compare-and-swap.
        version = lease.metadata.resource_version
        body = {"metadata": {"resourceVersion": version}, "spec": spec}
        settings = self.settings
        return await self._client.merge_patch(
            Lease, settings.namespace, settings.name, body, timeout_s=limit_s
        )

    # ---- what is seen -----------------------------------------------------------------------

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last seen; "" for nobody."""
        return self._holder()

    @property
    def held_since(self) -> datetime | None:
        """Since when, by the holder's clock."""
        return None if self._seen is None else self._seen.lease.spec.acquire_time

    async def is_free(self) -> bool:
        """Look whether nobody holds the Lease.

        Raises:
            JobSetPyError: that cannot be seen.
        """
        try:
            return not _holder(await self._get())
        except NotFoundError:
            return True

    @property
    def _target(self) -> str:
        return f"{self.settings.namespace}/{self.settings.name}"

    def _hear(self, lease: Lease) -> None:
        if self.leading.is_set():
            return
        self._observe(lease)
        if not _holder(lease):
            self._news.set()

    def _observe(self, lease: Lease) -> None:
        seen = self._seen
        if seen is None or seen.deleted or seen.lease.spec != lease.spec:
            # Old news that come late only make the wait longer.
            self._seen = _Seen(lease, self._clock())
        else:
            seen.lease = lease

    def _holder(self) -> str:
        return "" if self._seen is None else _holder(self._seen.lease)

    def _lapses_in_s(self) -> float:
        """Seconds until what was seen last may be taken over."""
        seen = self._seen
        if seen is None:
            return 0.0
        own_s = self.settings.lease_duration_s
        told_s = seen.lease.spec.lease_duration_seconds or own_s
        # Who held a Lease when it was deleted, and for how long, is not known for sure.
        wait_s = max(told_s, own_s) if seen.deleted else told_s
        return seen.since + wait_s - self._clock()

    def pause_s(self) -> float:
        """Until the next try: in time for the moment at which the holder's claim lapses."""
        pause_s = self.settings.retry_period_s * (1.0 + 0.2 * self._rand())
        lapses_in_s = self._lapses_in_s()
        deleted = self._seen is not None and self._seen.deleted
        if 0 < lapses_in_s < pause_s and (deleted or self._holder()):
            pause_s = lapses_in_s + 0.05 * self._rand() * self.settings.retry_period_s
        return max(0.005, pause_s)

    def _complain(self, problem: str) -> None:
        """Once for each different problem."""
        if problem != self._complaint:
            self._complaint = problem
            self._log.warning("the Lease could not be read or written", error=problem)


def unique(identity: str) -> str:
    """An identity that no other process has, though it be given the same name."""
    return f"{identity}_{uuid.uuid4()}"


def _holder(lease: Lease) -> str:
    return lease.spec.holder_identity or ""
