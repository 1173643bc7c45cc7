"""Measures of restarts and of the runs between them."""

from __future__ import annotations

import attrs

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.decision import EpochDecision
from jobsetpy.reconcilers.restart_in_place.detection import reported_in
from jobsetpy.reconcilers.restart_in_place.group import record_of
from jobsetpy.reconcilers.restart_in_place.observed import ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.state import EpochState, Phase, RestartMetrics, Use
from jobsetpy.reconcilers.rules import history
from jobsetpy.reconcilers.rules.times import Now


def measure(
    jobset: JobSet,
    observed: ObservedEpochs,
    decision: EpochDecision,
    memory: EpochState,
    now: Now,
) -> tuple[EpochState, RestartMetrics]:
    """Return the next state, and the metrics to update."""
    notes, at = observed.notes, now.monotonic
    none = attrs.evolve(memory, deprecated=0, held_since=0.0)
    if decision.deprecated is not None:
        memory = attrs.evolve(none, waiting_since=at, look_at=at + observed.stalled_after_s)
        if not decision.restart:
            return memory, RestartMetrics()
        cause = memory.cause
        if cause is not None and (cause.epoch != decision.deprecated or cause.sign is None):
            cause = None
        began = notes.opened[1] if notes.opened[0] > decision.deprecated else at
        if cause is not None:
            began = min([began, *(one.at for one in notes.failures)])
        memory = attrs.evolve(memory, began=began, deprecated=decision.deprecated, deprecated_at=at)
        return memory, RestartMetrics(began=True, cause=cause, since={"detect": began})
    if decision.synced is None:
        return none if decision.failed is not None else memory, RestartMetrics()
    done = attrs.evolve(none, waiting_since=None, stall_told=0, missing=0, stalled=False)
    if not decision.restart:
        return done, RestartMetrics()
    if not memory.deprecated:
        # All pods arrived simultaneously, or another manager observed the beginning.
        at_once = jobset.status.deprecated_epoch < decision.synced - 1
        since = notes.opened[1]
        cause = reported_in(notes, decision.synced)
        return done, RestartMetrics(
            began=at_once, cause=cause, since={"lift": at}, restart_since=since
        )
    phases: dict[Phase, float] = {}
    if notes.single[0] > memory.deprecated:
        followed = max(notes.single[1], memory.deprecated_at)
        came = memory.held_since or at
        phases = {"deprecate": followed - memory.deprecated_at, "gather": came - followed}
    if memory.held_since:
        phases["wait"] = at - memory.held_since
    return done, RestartMetrics(phases=phases, since={"lift": at}, restart_since=memory.began)


def with_steps(
    jobset: JobSet, observed: ObservedEpochs, decision: EpochDecision, measures: RestartMetrics
) -> RestartMetrics:
    """Add the pods' reports on the previous run, if that had followed a restart."""
    first, synced = observed.notes.first, decision.synced
    if first is None or synced is None or first[0] != synced or synced <= 2:
        return measures
    step, seconds = first[1]
    highest = record_of(jobset).highest_step
    lost = None if highest is None else max(0, highest - step + 1)
    took = None
    for one in jobset.status.restart_history:
        if (one.kind, one.number, one.outcome) == (history.IN_PLACE, synced - 1, history.COMPLETED):
            phases = (one.detection_millis, one.deprecation_millis, one.gathering_millis)
            took = seconds + sum(part or 0 for part in (*phases, one.lift_millis)) / 1000
    return attrs.evolve(measures, lost_steps=lost, first_step_s=took)


def with_run(
    observed: ObservedEpochs, decision: EpochDecision, memory: EpochState, now: Now
) -> EpochState:
    """Return the state with the end of the run, at the first sign of it."""
    at = now.monotonic
    epoch = decision.synced if decision.deprecated is None else decision.deprecated + 1
    if epoch is None or memory.ran_until or not memory.ran_from:
        return memory
    opened, since = observed.notes.opened
    seen = [memory.began] if memory.deprecated else []
    if opened >= epoch:
        seen.append(since)
    return attrs.evolve(memory, ran_until=max(memory.ran_from, min([at, *seen])))


def time_breakdown(
    jobset: JobSet,
    observed: ObservedEpochs,
    decision: EpochDecision,
    memory: EpochState,
    now: Now,
) -> dict[Use, float]:
    """Return the use of the previous run's time when the barrier lifts, from its pods' reports."""
    first, told = observed.notes.first, observed.pods.progress
    synced = decision.synced
    if first is None or not first[0] == told[0] == synced or not memory.ran_until:
        return {}
    step, seconds = first[1]
    ran_s = memory.ran_until - memory.ran_from
    stepping_s = ran_s - min(seconds, ran_s)
    highest = record_of(jobset).highest_step
    again = -1 if highest is None else highest - step
    steps = told[1] - step
    part = min(max(0, again), steps) / steps if steps > 0 else float(again >= 0)
    return {
        "starting": ran_s - stepping_s,
        "repeating": stepping_s * part,
        "training": stepping_s * (1 - part),
        "restarting": now.monotonic - memory.ran_until,
    }
