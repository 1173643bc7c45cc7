"""Decision on restarts in place and on lifting the barrier (KEP-467).

It needs only a histogram of epochs, never the pods themselves. ``barrier`` has the rule of the
epochs, ``budget`` that of ``maxRestarts``, ``other_limits`` the other reasons to give up,
``seating`` the use of spares, ``resizing`` that of groups that continue with fewer pods.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Any, TypeAlias

import attrs

from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet, RestartPacing
from jobsetpy.reconcilers.restart_in_place.epochs import (
    barrier,
    other_limits,
    resizing,
    seating,
    texts,
)
from jobsetpy.reconcilers.restart_in_place.epochs.budget import EpochCharge, account, over_budget
from jobsetpy.reconcilers.restart_in_place.epochs.record import on_crash, on_deprecate, on_sync
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause, FailureKind
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import GroupCounts
from jobsetpy.reconcilers.restart_in_place.spares.assign_job import Seating
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import restart_budget
from jobsetpy.reconcilers.rules.backoff import UNPACED, Pace, restarts_in_place
from jobsetpy.reconcilers.rules.barrier_state import next_epoch
from jobsetpy.reconcilers.rules.plan import EmitEvent


@attrs.frozen(kw_only=True)
class Change:
    """Change of the status.

    Args:
        record: new ``inPlaceRestart``, or ``None`` to leave it.
        pacing: new ``restartPacing``, or ``None`` to leave it.
        conditions: conditions to set, by the update rule of conditions, without events.
        events: further events once the change is stored.
    """

    record: InPlaceRestartStatus | None = None
    pacing: RestartPacing | None = None
    conditions: tuple[cond.DesiredCondition, ...] = ()
    events: tuple[EmitEvent, ...] = ()

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the status that change, besides conditions."""
        found = {"in_place_restart": self.record, "restart_pacing": self.pacing}
        return {name: value for name, value in found.items() if value is not None}


@attrs.frozen(kw_only=True)
class Sync(Change):
    """Workers of the epoch that ``charge`` names may run: all pods have come.

    Args:
        seats_taken: number of seats that spares take over.
        resized: True if the group becomes smaller or larger.
    """

    charge: EpochCharge
    seats_taken: int = 0
    resized: bool = False

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the status that change, besides conditions."""
        return {"synced_epoch": self.charge.epoch, **super().fields}


@attrs.frozen(kw_only=True)
class Deprecate(Change):
    """Workers of an epoch, and of all before it, have to restart.

    Args:
        epoch: newest epoch that is over.
        charge: charge of the epoch that is opened; ``None`` if no running pod restarts.
    """

    epoch: int
    charge: EpochCharge | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the status that change, besides conditions."""
        return {"deprecated_epoch": self.epoch, **super().fields}


@attrs.frozen(kw_only=True)
class Fail(Change):
    """The JobSet fails; ``failure`` is the condition, whose setting has an event of its own."""

    failure: cond.DesiredCondition


@attrs.frozen(kw_only=True)
class Record(Change):
    """The record changes, and no epoch."""


@attrs.frozen(kw_only=True)
class Wait:
    """Nothing is written.

    Args:
        backoff_s: seconds that workers have to wait although all pods have arrived, or 0.
        holder_wait_s: seconds until spares take over the seats of missing pods, or 0.
    """

    backoff_s: float = 0.0
    holder_wait_s: float = 0.0


Write: TypeAlias = Sync | Deprecate | Fail | Record
EpochDecision: TypeAlias = Write | Wait


def needs_decision(jobset: JobSet, pods: GroupCounts, cause: Cause | None = None) -> bool:
    """Return True if the counts of a group require another status; called at each event.

    A budget spent by other causes shows in the JobSet, whose own events lead to a decision.

    Args:
        jobset: the JobSet.
        pods: counts of its group.
        cause: detected cause for the end of an epoch.
    """
    return (
        barrier.next_move(jobset, pods, cause) != (None, None)
        or seating.may_be_filled(jobset, pods)
        or seating.spares_changed(jobset, pods)
        or other_limits.has_crashed(jobset, pods)
        or resizing.needs_decision(jobset, pods)
        or barrier.has_shrunk(jobset, pods)
    )


def decide_epochs(
    jobset: JobSet,
    pods: GroupCounts,
    cause: Cause | None = None,
    pace: Pace = UNPACED,
    waited_s: float = inf,
    silent: Collection[str] = (),
) -> EpochDecision:
    """Decide on the epochs of a JobSet.

    * All expected pods, without those that succeeded, at one epoch, and none of them being
      deleted: that epoch is synced.
    * Otherwise every epoch before the newest is deprecated, and the synced one after a failure.
    * More restarts that count than ``maxRestarts``: the JobSet fails.
    * After restarts in quick succession an epoch is synced only after a pause.

    Args:
        jobset: JobSet with the current numbers.
        pods: pods of the current attempt's Jobs; pods of other Jobs, failed ones, and those without
            a valid annotation are not in its epochs.
        cause: failure that was detected before the failed pod's agent reported it.
        pace: back-off of restarts, and the window in which they are counted.
        waited_s: seconds since the restart began, for the last call for missing pods.
        silent: UIDs of pods that get no seat, since their heartbeats are missing.
    """
    policy = jobset.spec.failure_policy
    if policy is None or not barrier.takes_part(jobset):
        return Wait()
    expected = barrier.group_size(jobset, pods)
    synced, deprecated = barrier.next_move(jobset, pods, cause)
    seats = None
    if deprecated is None:
        seats = seating.plan_seats(jobset, pods, waited_s, silent)
    if seats is not None and seats.sizes and not seats.complete and synced is not None:
        seats = None  # the group is as it was; only pods that it does without are on their way
    # Spares complete the group without the pods that are missing, which ``next_move`` waits for.
    if seats is not None and seats.complete and synced is None:
        synced = next_epoch(jobset.status, pods.epochs)
    opened = synced or (deprecated or 0) + 1
    uncounted = cause is not None and cause.epoch + 1 == opened and not cause.counted
    newest = max(opened, jobset.status.synced_epoch, *pods.epochs)
    charged = account(jobset, newest, expected, uncounted_cause=uncounted)
    case = _Case(jobset, pods, expected, charged, cause, pace, seats, policy.max_restarts)
    if (no_more := case.give_up(opened)) is not None:
        return no_more
    if synced is not None:
        return case.sync()
    return case.record() if deprecated is None else case.deprecate(deprecated)


@attrs.frozen
class _Case:
    """Group whose next move is known.

    Args:
        jobset: JobSet with the current numbers.
        pods: counts of its pods.
        expected: number of pods that the group needs.
        charged: charge for the newest epoch.
        cause: failure that was detected early.
        pace: back-off and window.
        seats: assignment of seats, if there are spares.
        allowed: ``maxRestarts``.
    """

    jobset: JobSet
    pods: GroupCounts
    expected: int
    charged: EpochCharge
    cause: Cause | None
    pace: Pace
    seats: Seating | None
    allowed: int

    def give_up(self, opened: int) -> Fail | Wait | None:
        """Return the decision to fail a JobSet whose budget is spent, or to wait for that."""
        jobset, status, pace, epochs = self.jobset, self.jobset.status, self.pace, self.pods.epochs
        allowed = self.allowed
        if pace.used(status, self.charged.spent) > allowed:
            before = account(jobset, status.synced_epoch, self.expected).spent
            # A failure that was detected early has opened no epoch yet: none of its pods is at one.
            early = opened > max(status.synced_epoch, *epochs, 0)
            if early and pace.used(status, before) <= allowed:
                # Failing the JobSet is not urgent: the pod's agent will report the failure.
                return Wait()
            return Fail(failure=over_budget(pace))
        if (failed := other_limits.failed_by_rule(jobset, self.cause, opened)) is not None:
            return Fail(failure=failed)
        crash = other_limits.worst_crash(jobset, self.pods)
        if crash.times > allowed:
            return Fail(failure=other_limits.crash_loop(crash, next_epoch(status, epochs)))
        return None

    def record(self) -> Record | Wait:
        """Return the decision to record what no change of an epoch will record."""
        jobset = self.jobset
        crash = other_limits.worst_crash(jobset, self.pods)
        record = barrier.record_of(jobset)
        if crash.times > record.crashes:
            # The next manager must not start counting from zero.
            return Record(record=on_crash(jobset, crash))
        if (sizes := resizing.done_sizes(jobset, self.pods)) != record.job_sizes:
            return Record(record=evolve(record, job_sizes=sizes))
        if barrier.has_shrunk(jobset, self.pods):
            return Record(record=evolve(record, pods=self.expected))
        if not seating.spares_changed(jobset, self.pods):
            return Wait(holder_wait_s=0.0 if self.seats is None else self.seats.wait_s)
        return Record(record=evolve(record, ready_spares=self.pods.spares.ready))

    def deprecate(self, deprecated: int) -> Deprecate:
        """Deprecate an epoch, and all before it."""
        jobset, pods, charged, pace = self.jobset, self.pods, self.charged, self.pace
        # Before the first start pods may come at different epochs; no worker of theirs has run.
        if not deprecated + 1 > jobset.status.synced_epoch > 0:
            # No worker runs yet, or all have run for long.
            return Deprecate(epoch=deprecated)
        record = on_deprecate(jobset, charged, max(pods.restarts, default=0))
        cause = self.cause
        if cause is not None and cause.epoch != deprecated:
            cause = None
        if cause is not None and cause.kind is FailureKind.GROUP_GROWS:
            record = resizing.on_growth(record, pace.now)
        if charged.renewal:
            said = texts.uncounted_begun(charged, cause, pods)
            pacing = None
        else:
            begun = self._pacing()
            pacing = self._remembered(begun, record)
            said = texts.restart_begun(charged, cause, pods, pace.explain(begun))
        return Deprecate(
            epoch=deprecated,
            record=record,
            pacing=pacing,
            conditions=said.conditions,
            charge=charged if said.events else None,
            events=said.events,
        )

    def _pacing(self) -> RestartPacing | None:
        """Return the delay of the restart that opens the epoch, whether stored yet or not."""
        status = self.jobset.status
        if self.charged.renewal or status.synced_epoch == 0:
            # Nothing has failed in place. If Jobs were recreated, that was delayed already.
            known = status.restart_pacing
            return None if known is None else evolve(known, not_before=None)
        return status.restart_pacing if restarts_in_place(status) else self.pace.begin(status)

    def _remembered(
        self, pacing: RestartPacing | None, record: InPlaceRestartStatus
    ) -> RestartPacing | None:
        """Return the pacing to store, with the times of restarts that count."""
        counted = restart_budget.recreations(self.jobset.status) + record.restarts
        return self.pace.remember(self.jobset.status, pacing, counted, self.allowed)

    def sync(self) -> EpochDecision:
        """Sync an epoch, unless workers have to wait, or the runs before made no progress."""
        jobset, pods, charged, pace = self.jobset, self.pods, self.charged, self.pace
        seats = self.seats
        # Of those that will run: a pod that has lost its seat reports no steps of the next run.
        digest = pods.digest if seats is None else seats.digest
        stuck = other_limits.no_progress(jobset, charged, pods, digest)
        if stuck is not None:
            return Fail(record=stuck[0], failure=stuck[1])
        begun = self._pacing()
        if pace.wait_s(begun):
            if restarts_in_place(jobset.status):
                return Wait(backoff_s=pace.wait_s(begun))
            # All have arrived simultaneously. The status records that they wait, and until when.
            return self.deprecate(charged.epoch - 1)
        count = pods.epochs.get(charged.epoch, 0) if seats is None else seats.filled
        known = barrier.record_of(jobset)
        missing = sum(one.missing for one in known.job_sizes) if seats is None else seats.missing
        record = on_sync(jobset, charged, barrier.whole_group(jobset, pods) - missing)
        record = other_limits.with_progress(jobset, record, charged, pods, digest)
        if seats is not None:
            record = evolve(
                record,
                taken_seats=seats.taken,
                taken_jobs=seats.taken_jobs,
                ready_spares=max(0, pods.spares.ready - seats.ready),
            )
            record = resizing.on_sync(jobset, record, seats.sizes, pace.now)
        started = pace.started(evolve(jobset.status, restart_pacing=begun))
        said = texts.barrier_lifted(charged, count)
        return Sync(
            record=record,
            pacing=self._remembered(started, record),
            conditions=said.conditions,
            charge=charged,
            events=(*said.events, *seating.swap_events(seats), *resizing.events(known, record)),
            seats_taken=0 if seats is None else seats.seats_taken,
            resized=record.job_sizes != known.job_sizes,
        )
