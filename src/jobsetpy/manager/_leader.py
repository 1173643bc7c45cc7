"""Leader election on a Lease: one of several managers works, the others stand by.

The record in the Lease is that of client-go's elections, so a manager of this project and the Go
controller exclude each other when they use the same name.

Two managers can never write at the same time, whatever the network and the processes do:

* A holder's claim starts *before* it sends the write that renews it, and ends after
  ``renew_deadline_s``. The fence in its client refuses writes from then on.
* A rival counts from the moment at which it *saw* the result of that write, which is later, and
  waits for ``leaseDurationSeconds`` of the record, which is longer.
* Each reads only its own monotonic clock. The times in the record are for people: wall clocks of
  two machines differ, and jump.
* Identities are unique: each elector adds a random part to its own. Two managers that were given
  one name by mistake, or a pod's process and its predecessor, exclude each other.

* A rival that has seen the Lease and finds it deleted waits for the same time from then on before
  it creates another: the holder may not know yet.
* So does one that has just started and never saw the Lease, if it may have existed: every leader
  first creates another Lease, the *mark*, which is never written again. Without a mark there has
  never been a leader, and the first start of an installation does not wait.
* A request sent before the fence closed arrives within the difference of the two times, or never:
  its connection is aborted then, and data in the kernel's buffers discarded (``client/_fence.py``).

Not covered: a request that the API server, or a proxy in front of it, received in time and carries
out more than ``lease_duration_s - renew_deadline_s`` later; clocks whose speeds differ by that
much; and a contender that starts between the manual deletion of both Leases and the holder's next
renewal. A holder of another kind (the Go controller) creates no mark.
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
"""Suffix of the name of the Lease that records that there has been a leader."""
RELEASE_TIMEOUT_S = 2.0
"""Timeout for giving back the Lease, in seconds; after that it expires by itself."""
_MARK_TEXT = "A leader was elected here: if the Lease next to this one is missing, wait."
_RELEASED_S = 1
"""``leaseDurationSeconds`` of a Lease that was given back, as client-go writes it."""


@attrs.frozen(kw_only=True)
class LeaderElectionSettings:
    """Lease and timing of a leader election.

    Args:
        namespace, name: the Lease; created if it is missing.
        identity: name of this process, for readers of the Lease; the elector makes it unique.
        lease_duration_s: time that rivals wait after the last renewal that they saw.
        renew_deadline_s: time for which a leader may write after its last successful renewal.
        retry_period_s: interval between two attempts.

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
        """Reject times that allow two leaders, or none for long."""
        lease, renew, retry = self.lease_duration_s, self.renew_deadline_s, self.retry_period_s
        if not lease > renew > 1.2 * retry > 0:
            raise ValueError(
                f"leader election needs leaseDuration > renewDeadline > 1.2 retryPeriod > 0, "
                f"not {lease:g} s, {renew:g} s and {retry:g} s"
            )


@attrs.define
class _Seen:
    """Last record seen, with the time at which it was first seen in this state, or found deleted.

    ``missed_at`` is the time of the last failed read.
    """

    lease: Lease
    since: float
    deleted: bool = False
    missed_at: float = 0.0


class LeaderElector:
    """One contender of a leader election.

    ``leading`` is set while it leads; ``fence`` is open for as long as it may write. ``identity``
    is its unique name in the Lease. Use :meth:`running` around everything that writes, and
    :meth:`contend` when ready to lead.

    Args:
        client: client without the fence, with its own connections (``Client.unpooled``).
        settings: Lease and timing.
        on_lost: called immediately when leadership is lost, before any task is cancelled.
        clock: seconds as required by ``WriteFence``.
        now: the wall clock, for the record.
        rand: uniform numbers in [0, 1) for jitter.
        identity: identity in the Lease; a new unique one when absent.
        together: other processes have the same identity and renew the Lease as well. Each of
            them holds it for as long as its own claim lasts.
        news: set when the Lease may have become free; a new event when absent.
        report: called with True or False when leadership changes; sets the metric when absent.
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

    # ---- called by others -------------------------------------------------------------------

    def contend(self) -> None:
        """Contend for leadership from now on."""
        self._ready.set()

    def on_add(self, obj: Lease, *, initial: bool) -> None:
        """Handle an event of the Lease's informer: it only makes the next attempt come sooner."""
        del initial
        self._hear(obj)

    def on_update(self, old: Lease, new: Lease) -> None:
        """Like ``on_add``."""
        del old
        self._hear(new)

    def on_delete(self, obj: Lease, *, final_state_known: bool) -> None:
        """Like ``on_add``."""
        del obj, final_state_known
        self._news.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Contend, and lead, within the block; give back the Lease on exit.

        Raises:
            LeadershipLostError: leadership was lost; the block was cancelled.
        """
        try:
            async with aio.supervise() as tasks:
                tasks.start(self._run(), name="leader-election")
                yield
        finally:
            # All tasks that write have ended by now.
            await self.give_back()

    # ---- lifecycle --------------------------------------------------------------------------

    async def _run(self) -> None:
        await self._ready.wait()
        self._log.info("standing by", lease=self._target, identity=self.identity)
        while not await self.attempt():
            self._news.clear()
            await aio.sleep_or(self._news, self.pause_s())
        await self.lead()

    async def lead(self) -> Never:
        """Keep the Lease that is held, for as long as possible.

        Raises:
            LeadershipLostError: it is no longer held.
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
        """Renew for as long as possible."""
        period_s = self.settings.retry_period_s
        failed = False
        while True:
            # Sooner after a failure: a retry is cheap, the end of leadership is not.
            pause_s = period_s * (0.25 if failed else 1.0) * (0.8 + 0.2 * self._rand())
            # At least one tick of the clock.
            await asyncio.sleep(max(0.001, min(pause_s, self.fence.remaining_s())))
            if self.fence.remaining_s() <= 0:
                msg = f"not renewed for {self.settings.renew_deadline_s:g} s: {self._complaint}"
                raise LeadershipLostError(msg)
            failed = not await self.attempt()
            if failed and self.holder != self.identity:
                raise LeadershipLostError(f"the Lease is held by {self.holder!r}")

    def _lose(self) -> None:
        self._unsure = False
        self.fence.close()
        self.leading.clear()
        self._report(False)
        self._on_lost()

    async def give_back(self, alone: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Let the next contender lead immediately. Best effort: otherwise the Lease expires.

        Args:
            alone: returns whether no other process holds the Lease with the same identity. It is
                called after a read of the Lease, which is not given back if it changed after that.
        """
        # Unsure: a claim was interrupted, and the API server may have received it.
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
                lease = await self._get()
                if alone is not None and not await alone():
                    return
                if _holder(lease) == self.identity:
                    await self._patch(lease, spec, RELEASE_TIMEOUT_S)
        except (JobSetPyError, TimeoutError) as error:
            self._log.warning("the Lease could not be given back", error=str(error))
        else:
            self._log.info("gave the Lease back", lease=self._target)

    # ---- one attempt ------------------------------------------------------------------------

    async def attempt(self) -> bool:
        """Renew or take the Lease; return True if it is certainly held: call :meth:`lead` then.

        An attempt takes at most a quarter of the deadline, and less when less is left: an API call
        that hangs must leave time for another one.
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
        """Renew the last version seen without reading it; return False if it was changed."""
        seen = self._seen
        if seen is None or _holder(seen.lease) != self.identity or self._together:
            return False  # several processes renew the Lease: the version may be outdated
        try:
            await self._claim(seen.lease, limit_s)
        except (ConflictError, NotFoundError):
            return False
        return True

    async def _take(self, limit_s: float) -> bool:
        """Read the Lease, and take it if it is free."""
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
            return False  # given back, or expired: no longer held by this process
        await self._mark(limit_s)
        try:
            await self._claim(lease, limit_s)
        except (ConflictError, NotFoundError):
            return False  # a rival was faster; the next read shows it
        return True

    async def _mark(self, limit_s: float) -> None:
        """Create the mark; one that existed means that there may be another leader."""
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
            self._log.warning("the marker next to the Lease could not be created", error=str(error))
        self._marked = True

    def _may_make(self) -> bool:
        """Return whether no other process can lead although there is no Lease."""
        seen = self._seen
        if self.leading.is_set() or seen is None:
            return True
        now, settings = self._clock(), self.settings
        # Between two reads it may have been recreated and deleted again.
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
        """Record that the write that began at ``started`` made this process the holder."""
        self._unsure = False
        self._seen = _Seen(lease, self._clock())
        self.fence.open_until(started + self.settings.renew_deadline_s)

    def _record(self, old: LeaseSpec) -> dict[str, object]:
        settings, stamp = self.settings, micros_text(self._now())
        record: dict[str, object] = {
            "holderIdentity": self.identity,
            # Whole seconds, rounded up so that rivals rather wait too long.
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
        # A patch, to preserve fields of others; the version makes it a compare-and-swap.
        version = lease.metadata.resource_version
        body = {"metadata": {"resourceVersion": version}, "spec": spec}
        settings = self.settings
        return await self._client.merge_patch(
            Lease, settings.namespace, settings.name, body, timeout_s=limit_s
        )

    # ---- observed state ---------------------------------------------------------------------

    @property
    def holder(self) -> str:
        """Holder of the Lease when it was last seen; "" if it was free."""
        return "" if self._seen is None else _holder(self._seen.lease)

    @property
    def held_since(self) -> datetime | None:
        """Time since when it is held, by the holder's clock."""
        return None if self._seen is None else self._seen.lease.spec.acquire_time

    async def is_free(self) -> bool:
        """Read the Lease and return whether it is free.

        Raises:
            JobSetPyError: it cannot be read.
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
            # A late event only makes the wait longer.
            self._seen = _Seen(lease, self._clock())
        else:
            seen.lease = lease

    def _lapses_in_s(self) -> float:
        """Seconds until the Lease as last seen may be taken over."""
        seen = self._seen
        if seen is None:
            return 0.0
        own_s = self.settings.lease_duration_s
        held_for_s = seen.lease.spec.lease_duration_seconds or own_s
        # The last holder of a deleted Lease, and its duration, are not known for sure.
        wait_s = max(held_for_s, own_s) if seen.deleted else held_for_s
        return seen.since + wait_s - self._clock()

    def pause_s(self) -> float:
        """Seconds until the next attempt: in time for the expiry of the holder's claim."""
        pause_s = self.settings.retry_period_s * (1.0 + 0.2 * self._rand())
        lapses_in_s = self._lapses_in_s()
        deleted = self._seen is not None and self._seen.deleted
        if 0 < lapses_in_s < pause_s and (deleted or self.holder):
            pause_s = lapses_in_s + 0.05 * self._rand() * self.settings.retry_period_s
        return max(0.005, pause_s)

    def _complain(self, problem: str) -> None:
        """Log each different problem once."""
        if problem != self._complaint:
            self._complaint = problem
            self._log.warning("the Lease could not be read or written", error=problem)


def unique(identity: str) -> str:
    """Return an identity that no other process has, even if it was given the same name."""
    return f"{identity}_{uuid.uuid4()}"


def _holder(lease: Lease) -> str:
    return lease.spec.holder_identity or ""
