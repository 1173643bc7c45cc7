"""Decision on restarts in place and on lifting the barrier (KEP-467).

It needs only a histogram of epochs, never the pods themselves. ``barrier`` has the rule of the
epochs, ``budget`` that of ``maxRestarts``, ``pause`` the back-off, ``crashes`` and ``progress`` the
other reasons to give up, ``seating`` the use of spares.
"""

from __future__ import annotations

from math import inf
from typing import Final

import attrs

from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet, RestartPacing
from jobsetpy.reconcilers.restart_in_place.barrier import has_shrunk, next_move
from jobsetpy.reconcilers.restart_in_place.barrier_state import next_epoch
from jobsetpy.reconcilers.restart_in_place.budget import EpochCharge, account, over_budget
from jobsetpy.reconcilers.restart_in_place.cause import Cause
from jobsetpy.reconcilers.restart_in_place.crashes import crash_loop, worst_crash
from jobsetpy.reconcilers.restart_in_place.group import group_size, record_of, takes_part
from jobsetpy.reconcilers.restart_in_place.observed import Histogram
from jobsetpy.reconcilers.restart_in_place.pause import pacing_of, remembered
from jobsetpy.reconcilers.restart_in_place.progress import (
    max_without_progress,
    no_progress,
    with_progress,
)
from jobsetpy.reconcilers.restart_in_place.record import on_crash, on_deprecate, on_sync
from jobsetpy.reconcilers.restart_in_place.seating import (
    may_be_filled,
    plan_seats,
    spares_changed,
    spares_condition,
    swap_events,
)
from jobsetpy.reconcilers.restart_in_place.seats import READY, Seating, Swap
from jobsetpy.reconcilers.restart_in_place.texts import (
    barrier_lifted,
    restart_begun,
    uncounted_begun,
)
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.backoff import UNPACED, Pace, restarts_in_place
from jobsetpy.reconcilers.rules.plan import EmitEvent


@attrs.frozen
class EpochDecision:
    """Changes of the status.

    Args:
        synced: new ``syncedEpoch``, or ``None`` to leave it.
        deprecated: new ``deprecatedEpoch``, or ``None`` to leave it.
        record: new ``inPlaceRestart``, or ``None`` to leave it.
        conditions: conditions to set, by the update rule of conditions, without events.
        failed: the condition that ends the JobSet: its budget of restarts is spent. Setting it
            has an event of its own.
        charge: charge of the restart that begins, if running pods restart, or of the epoch that is
            synced.
        events: further events once the change is stored.
        pacing: new ``restartPacing``, or ``None`` to leave it.
        wait_s: seconds that workers have to wait although all pods have arrived.
        call_s: seconds until spares take over the seats of missing pods.
        seats_taken: number of seats that spares take over.
    """

    synced: int | None = None
    deprecated: int | None = None
    record: InPlaceRestartStatus | None = None
    conditions: tuple[cond.DesiredCondition, ...] = ()
    failed: cond.DesiredCondition | None = None
    charge: EpochCharge | None = None
    events: tuple[EmitEvent, ...] = ()
    pacing: RestartPacing | None = None
    wait_s: float = 0.0
    call_s: float = 0.0
    seats_taken: int = 0

    @property
    def restart(self) -> bool:
        """Return True if a restart in place begins or ends, not a gathering of new pods."""
        return self.charge is not None and self.charge.restarts

    @property
    def empty(self) -> bool:
        """Return True if nothing has to be written."""
        return (
            self.synced is None
            and self.deprecated is None
            and self.failed is None
            and self.record is None
        )


NOTHING: Final = EpochDecision()


def needs_decision(jobset: JobSet, pods: Histogram, cause: Cause | None = None) -> bool:
    """Return True if the counts of a group require another status; called at each event.

    A budget spent by other causes shows in the JobSet, whose own events lead to a decision.
    """
    expected = group_size(jobset, pods)
    synced, deprecated = next_move(jobset, pods, cause, expected)
    if synced is not None or deprecated is not None:
        return True
    record, policy = record_of(jobset), jobset.spec.failure_policy
    if pods.spares is not None and (
        may_be_filled(jobset, pods, expected) or spares_changed(jobset, pods)
    ):
        return True
    if pods.crashes or record.crashes:
        allowed = 0 if policy is None else policy.max_restarts
        if worst_crash(jobset, pods).times > min(record.crashes, allowed):
            return True
        if any(crash.at[-1:] > record.crash_times[-1:] for crash in pods.crashes.values()):
            return True
    return has_shrunk(jobset, pods, expected)


def decide_epochs(
    jobset: JobSet,
    pods: Histogram,
    cause: Cause | None = None,
    pace: Pace = UNPACED,
    waited_s: float = inf,
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
    """
    policy = jobset.spec.failure_policy
    if policy is None or not takes_part(jobset):
        return NOTHING
    status = jobset.status
    expected = group_size(jobset, pods)
    newest = max(pods.epochs, default=0)
    synced, deprecated = next_move(jobset, pods, cause, expected)
    seating = None if deprecated is not None else plan_seats(jobset, pods, expected, waited_s)
    if seating is not None and seating.complete and synced is None:
        synced = next_epoch(status, pods.epochs)
    opened = synced or (deprecated or 0) + 1
    early = opened > max(newest, status.synced_epoch)
    remade = cause is not None and cause.epoch + 1 == opened and not cause.counted
    charged = account(jobset, max(newest, opened, status.synced_epoch), expected, remade=remade)
    if pace.used(status, charged.spent) > policy.max_restarts:
        before = account(jobset, status.synced_epoch, expected).spent
        if early and pace.used(status, before) <= policy.max_restarts:
            # Failing the JobSet is not urgent: the pod's agent will report the failure.
            return NOTHING
        return EpochDecision(failed=over_budget(pace))
    crash = worst_crash(jobset, pods, pace)
    if crash.times > policy.max_restarts:
        return EpochDecision(failed=crash_loop(crash, next_epoch(jobset.status, pods.epochs), pace))
    if synced is not None:
        stuck = no_progress(jobset, charged, pods)
        if stuck is not None:
            return EpochDecision(record=stuck[0], failed=stuck[1])
        begun = pacing_of(jobset, charged, pace)
        if pace.wait_s(begun):
            if restarts_in_place(status):
                return EpochDecision(wait_s=pace.wait_s(begun))
            # All have arrived simultaneously. The status records that they wait, and until when.
            return _deprecate(jobset, charged, synced - 1, pods, cause, pace=pace)
        return _sync(jobset, charged, expected, pods, begun, pace, seating)
    if deprecated is not None:
        return _deprecate(jobset, charged, deprecated, pods, cause, pace=pace)
    record = record_of(jobset)
    if crash.times > record.crashes or crash.at[-1:] > record.crash_times[-1:]:
        # The next manager must not start counting from zero.
        return EpochDecision(record=on_crash(jobset, *crash))
    if has_shrunk(jobset, pods, expected):
        return EpochDecision(record=evolve(record, pods=expected))
    call_s = 0.0 if seating is None else seating.wait_s
    if pods.spares is not None and spares_changed(jobset, pods):
        record = evolve(record, ready_spares=pods.spares.ready)
        return EpochDecision(
            record=record, conditions=spares_condition(jobset, pods.spares), call_s=call_s
        )
    return EpochDecision(call_s=call_s) if call_s else NOTHING


def _deprecate(
    jobset: JobSet,
    charged: EpochCharge,
    deprecated: int,
    pods: Histogram,
    cause: Cause | None,
    *,
    pace: Pace,
) -> EpochDecision:
    if not deprecated + 1 > jobset.status.synced_epoch > 0:
        return EpochDecision(deprecated=deprecated)  # no worker runs yet, or all have run for long
    record = on_deprecate(jobset, charged, max(pods.restarts, default=0))
    if cause is not None and cause.epoch != deprecated:
        cause = None
    if charged.renewed:
        texts = uncounted_begun(jobset, charged, cause, pods, pace)
        pacing = None
    else:
        begun = pacing_of(jobset, charged, pace)
        pacing = remembered(jobset, begun, record, pace)
        texts = restart_begun(charged, cause, pods, pace.explain(begun))
    return EpochDecision(
        deprecated=deprecated,
        record=record,
        pacing=pacing,
        conditions=texts.conditions,
        charge=charged if texts.events else None,
        events=texts.events,
    )


def _sync(
    jobset: JobSet,
    charged: EpochCharge,
    expected: int,
    pods: Histogram,
    begun: RestartPacing | None,
    pace: Pace,
    seating: Seating | None,
) -> EpochDecision:
    epoch = charged.epoch
    count = pods.epochs.get(epoch, 0) if seating is None else seating.filled
    record = with_progress(jobset, on_sync(jobset, charged, expected), charged, pods)
    if max_without_progress(jobset) or record.highest_step is not None:
        record = evolve(record, pods_digest=pods.digest)
    swaps: tuple[Swap, ...] = ()
    if pods.spares is not None and seating is not None:
        swaps = seating.swaps
        ready = pods.spares.ready - sum(swap.pod.state == READY for swap in swaps)
        record = evolve(record, taken_seats=seating.taken, ready_spares=max(0, ready))
    started = pace.started(evolve(jobset.status, restart_pacing=begun))
    texts = barrier_lifted(charged, count)
    return EpochDecision(
        synced=epoch,
        record=record,
        pacing=remembered(jobset, started, record, pace),
        conditions=texts.conditions,
        charge=charged,
        events=(*texts.events, *swap_events(swaps)),
        seats_taken=len(swaps),
    )
