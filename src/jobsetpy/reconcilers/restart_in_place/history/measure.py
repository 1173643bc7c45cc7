"""Measures of restarts, and of the runs between them."""

from __future__ import annotations

import attrs

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.detection.early import reported_in
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import record_of
from jobsetpy.reconcilers.restart_in_place.epochs.budget import EpochCharge
from jobsetpy.reconcilers.restart_in_place.epochs.decision import EpochDecision
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause
from jobsetpy.reconcilers.restart_in_place.history.memory import (
    EpochState,
    Restart,
    Run,
    Times,
    Use,
)
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import ObservedEpochs
from jobsetpy.reconcilers.rules import history


def restart_begun(
    observed: ObservedEpochs, decision: EpochDecision, memory: EpochState, at: float
) -> Restart | None:
    """Return the restart that begins when its old epoch is deprecated; ``None`` if none does."""
    charge = decision.charge
    if charge is None:
        return None
    return _opened(observed, charge, memory.cause, at).at(decided=at)


def restart_ended(
    observed: ObservedEpochs, decision: EpochDecision, memory: EpochState, at: float
) -> Restart:
    """Return the restart that ends when its epoch is synced."""
    charge, notes, restart = decision.charge, observed.notes, memory.restart
    assert charge is not None
    epoch = charge.epoch
    if restart is None or restart.epoch != epoch:
        # All pods arrived simultaneously, or another manager observed the beginning.
        restart = _opened(observed, charge, memory.cause, at)
    decided, left = restart.times.decided, None
    if decided is not None and notes.single[0] >= epoch:
        left = max(notes.single[1], decided)
    last = notes.latest[1:] if notes.latest[0] == epoch else ("", "")
    restart = attrs.evolve(restart, charge=charge, last=last, seats_taken=decision.seats_taken)
    return restart.at(left=left, lifted=at)


def _opened(
    observed: ObservedEpochs, charge: EpochCharge, cause: Cause | None, at: float
) -> Restart:
    """Return a restart with its cause and first sign, as far as they were observed."""
    notes, epoch, signs = observed.notes, charge.epoch, [at]
    if cause is None or cause.epoch != epoch - 1:
        cause = reported_in(notes, epoch)
    if charge.restarts and notes.opened[0] >= epoch:
        signs.append(notes.opened[1])
    if charge.restarts and cause is not None:
        signs += [one.at for one in notes.failures]
    first = notes.opener[1:] if notes.opener[0] == epoch else ("", "")
    times = Times(began=min(signs))
    return Restart(epoch=epoch, charge=charge, cause=cause, first=first, times=times)


def end_of_run(observed: ObservedEpochs, memory: EpochState, epoch: int, at: float) -> float:
    """Return the time of the first sign that the run before an epoch has ended; 0 if unknown."""
    if memory.ran_until or not memory.ran_from:
        return memory.ran_until
    opened, since = observed.notes.opened
    signs = [at] if memory.restart is None else [at, memory.restart.times.began]
    if opened >= epoch:
        signs.append(since)
    return max(memory.ran_from, min(signs))


def run_before(observed: ObservedEpochs, memory: EpochState, until: float, at: float) -> Run:
    """Return the pods' reports on the run that has lasted until a time, when another one starts."""
    jobset, first, progress = observed.jobset, observed.notes.first, observed.pods.progress
    synced = 0 if memory.restart is None else memory.restart.epoch
    if first is None or first[0] != synced:
        return Run()
    step, seconds = first[1]
    highest, run = record_of(jobset).highest_step, Run()
    if synced > 2:  # it had followed a restart
        lost = None if highest is None else max(0, highest - step + 1)
        before = _restart_s(jobset, synced - 1)
        took = None if before is None else seconds + before
        run = attrs.evolve(run, lost_steps=lost, first_step_s=took)
    if progress[0] != synced or not until:
        return run
    ran_s = until - memory.ran_from
    stepping_s = ran_s - min(seconds, ran_s)
    again = -1 if highest is None else highest - step
    steps = progress[1] - step
    part = min(max(0, again), steps) / steps if steps > 0 else float(again >= 0)
    spent: dict[Use, float] = {
        "starting": ran_s - stepping_s,
        "repeating": stepping_s * part,
        "training": stepping_s * (1 - part),
        "restarting": at - until,
    }
    return attrs.evolve(run, spent=spent)


def _restart_s(jobset: JobSet, epoch: int) -> float | None:
    """Return the seconds that a restart has taken, from the history; ``None`` if unknown."""
    for one in jobset.status.restart_history:
        if (one.kind, one.number, one.outcome) == (history.IN_PLACE, epoch, history.COMPLETED):
            phases = (one.detection_millis, one.deprecation_millis, one.gathering_millis)
            return sum(part or 0 for part in (*phases, one.lift_millis)) / 1000
    return None
