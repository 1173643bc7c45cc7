"""Plan of one reconcile of a JobSet's epochs (KEP-467).

``decide_epochs`` derives the numbers from the counts. The plan adds everything that depends on time
or memory: the cause among the observed failures, the durations of a restart and its phases, the
time for which a barrier has been closed, and the pods that block it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal

import attrs

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.jobset import JobSet, RestartCause, RestartRecord
from jobsetpy.api.reconcile import Result
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.reconcilers.restart_in_place import pod_backoff
from jobsetpy.reconcilers.restart_in_place import restart_history as epoch_history
from jobsetpy.reconcilers.restart_in_place.attempts import (
    adopt_go_controller_state,
    managed_by_go_controller,
    reports_attempts,
    with_attempts,
)
from jobsetpy.reconcilers.restart_in_place.barrier_report import (
    Delay,
    absentees,
    laggards,
)
from jobsetpy.reconcilers.restart_in_place.barrier_state import (
    is_waiting,
    next_epoch,
)
from jobsetpy.reconcilers.restart_in_place.decision import (
    EpochDecision,
    Histogram,
    InvalidEpoch,
    conditions_to_clear,
    decide_epochs,
    group_size,
    has_missing_pods,
    is_starting,
    missing_pods_failure,
    needs_decision,
    takes_part,
)
from jobsetpy.reconcilers.restart_in_place.epoch_charges import (
    record_of,
    requested,
)
from jobsetpy.reconcilers.restart_in_place.failures import (
    Cause,
    Failure,
    FailureSignal,
    judge,
    reported_cause,
)
from jobsetpy.reconcilers.restart_in_place.ledger import Observations
from jobsetpy.reconcilers.restart_in_place.node_memory import NodeMemory, suspicion
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import history
from jobsetpy.reconcilers.rules.backoff import OFF, Pace, RestartBackoff
from jobsetpy.reconcilers.rules.failure_policy import delay_recreation
from jobsetpy.reconcilers.rules.membership import is_ours
from jobsetpy.reconcilers.rules.plan import EmitEvent, Plan, StatusChange
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.reconcilers.rules.times import Now, PinnedTime

RECREATE: Final = "Recreate"
"""Value of the annotation ``in-place-restart-after-success`` that is not the default."""

LOOK_AGAIN_MAX_S: Final = 600.0
"""Maximum interval in seconds between checks of the pods behind a closed barrier."""

_MAX_TEXT: Final = 40

Phase = Literal["detect", "deprecate", "gather", "wait", "lift"]
"""Phases of a restart: until ``deprecatedEpoch`` is written; until no pod is at an older epoch;
until all are at the new one; until the back-off is over, if there is one; until ``syncedEpoch`` is
written."""

Use = Literal["starting", "repeating", "training", "restarting"]
"""Parts of a group's time: until a run's first step, in steps that an earlier run had done, in new
ones, and from the first sign of its end until the next run."""


@attrs.frozen(kw_only=True)
class ObservedEpochs:
    """Observed state of one JobSet.

    Args:
        jobset: the JobSet; ``None`` if it is deleted.
        pods: counts of its current attempt.
        invalid: pods with an invalid annotation, by UID.
        notes: observations since the last plan.
        job_of: finds the Job of a pod.
        node_ready: returns True if the node with a name is ready, as far as known.
        failed_at: returns the monotonic time of the latest observed failure of a Job's pod.
        members: lists the Jobs of the current attempt and their pods; O(pods), so it is called only
            to name some of them.
        wait_s: seconds for which the cache may not show own writes yet; 0 if it does.
        stalled_after_s: time after which a closed barrier is reported as stalled.
        missing_after_s: time after which a missing pod of a running group counts as failed.
        backoff: back-off of restarts in quick succession, unless the JobSet sets its own.
        nodes: settings for suspect nodes.
    """

    jobset: JobSet | None
    pods: Histogram = attrs.field(factory=Histogram)
    invalid: Mapping[str, InvalidEpoch] = attrs.field(factory=dict)
    notes: Observations = attrs.field(factory=Observations)
    job_of: Callable[[ChildPod], Job | None] = lambda _pod: None
    node_ready: Callable[[str], bool] = lambda _name: True
    failed_at: Callable[[Job], float | None] = lambda _job: None
    members: Callable[[], tuple[list[Job], list[ChildPod]]] = lambda: ([], [])
    wait_s: float = 0.0
    stalled_after_s: float = 60.0
    missing_after_s: float = 10.0
    backoff: RestartBackoff = OFF
    nodes: NodeMemory = attrs.field(factory=NodeMemory)


@attrs.frozen(kw_only=True)
class EpochState:
    """State remembered for a JobSet; a new manager works without it.

    Its loss costs at most an early detection, a measurement and the time for which a barrier has
    been closed. All times are on the monotonic clock.

    Args:
        uid: UID of the JobSet.
        left: True if it was suspended at the last plan: observations since then are not failures.
        told: invalid annotations that an event has reported.
        invalid: ``Observations.invalid`` at that time.
        cause: the latest failure that was detected early.
        began: time of the first sign of the measured restart.
        deprecated: its old epoch, 0 if no restart is measured.
        deprecated_at: time at which that was deprecated.
        held_since: time at which all pods were ready and the back-off began; 0 if it has not.
        pause: end of the stored back-off.
        waiting_since: time at which the barrier was first observed as closed.
        lacking_since: time since which workers run without their whole group.
        look_at: time of the next check for pods that block the barrier, or are missing.
        stall_told: the epoch whose stalled barrier an event has reported.
        missing: number of pods that the barrier waited for at the last check.
        stalled: True if the barrier is stalled, and its pods were checked.
        lifted: the epoch that was synced last, and the duration of that write in seconds.
        ran_from: time at which the current or last run started; 0 if unknown.
        ran_until: time of the first sign of the end of that run; 0 while it continues.
        ready_spares: number of ready spares.
        exhausted: number of Jobs without a ready spare.
    """

    uid: str = ""
    left: bool = False
    told: frozenset[InvalidEpoch] = frozenset()
    invalid: int = 0
    cause: Cause | None = None
    began: float = 0.0
    deprecated: int = 0
    deprecated_at: float = 0.0
    held_since: float = 0.0
    pause: PinnedTime | None = None
    waiting_since: float | None = None
    lacking_since: float | None = None
    look_at: float = 0.0
    stall_told: int = 0
    missing: int = 0
    stalled: bool = False
    lifted: tuple[int, float] = (0, 0.0)
    ran_from: float = 0.0
    ran_until: float = 0.0
    ready_spares: int = 0
    exhausted: int = 0


@attrs.frozen(kw_only=True)
class RestartMetrics:
    """Metrics to update once the status is stored.

    Args:
        began: True if a restart began.
        cause: its cause; ``None`` if it was detected by a pod at a new epoch.
        phases: durations of completed phases of a restart, in seconds.
        since: monotonic start times of the phases that the write ends.
        restart_since: start time of the restart that the write ends, or ``None``.
        lost_steps: number of steps that the last run has repeated.
        first_step_s: seconds from the failure before that run to its first step.
        spent: use of the seconds of that run and of the restart after it.
        seats_taken: number of seats that spares have taken over.
    """

    began: bool = False
    cause: Cause | None = None
    phases: Mapping[Phase, float] = attrs.field(factory=dict)
    since: Mapping[Phase, float] = attrs.field(factory=dict)
    restart_since: float | None = None
    lost_steps: int | None = None
    first_step_s: float | None = None
    spent: Mapping[Use, float] = attrs.field(factory=dict)
    seats_taken: int = 0


@attrs.frozen(kw_only=True)
class EpochPlan(Plan[EpochState]):
    """Plan of one reconcile.

    Args:
        judged: True if the plan has processed all observations.
        measures: metrics to update once the status is stored.
    """

    judged: bool = False
    measures: RestartMetrics = RestartMetrics()

    def stored(self, now: float) -> EpochPlan:
        """Return the plan after its status was stored, at a monotonic time."""
        since = self.measures.since.get("lift")
        if since is None or self.memory is None or self.status is None:
            return self
        lifted = (self.status.status.synced_epoch, now - since)
        return attrs.evolve(self, memory=attrs.evolve(self.memory, lifted=lifted))


def needs_plan(jobset: JobSet, pods: Histogram, notes: Observations, memory: EpochState) -> bool:
    """Return True if the epochs of a JobSet need a plan; O(1), called at each pod or Job event.

    The JobSet's own events cause plans too, which detect changes that are not visible here yet.
    """
    if not takes_part(jobset) or managed_by_go_controller(jobset, pods):
        return False
    status = jobset.status
    if adopt_go_controller_state(jobset, pods) is not None:
        return True
    if status.synced_epoch > status.deprecated_epoch and (
        notes.remade or (notes.failures and notes.failures[0].epoch == status.synced_epoch)
    ):
        return True
    if notes.invalid != memory.invalid or bool(pods.slow) is not _reports_slowness(jobset):
        return True
    lacking = has_missing_pods(jobset, pods)
    if lacking is not (memory.lacking_since is not None):
        return True
    return needs_decision(jobset, pods, memory.cause)


def _reports_slowness(jobset: JobSet) -> bool:
    """Return True if the condition says that workers wait for a slow API server."""
    return any(
        each.type == keys.BARRIER_STALLED_CONDITION
        and each.status == "True"
        and each.reason == keys.API_SERVER_SLOW_REASON
        for each in jobset.status.conditions
    )


def plan_epochs(observed: ObservedEpochs, memory: EpochState, now: Now) -> EpochPlan:
    """Plan one reconcile.

    Args:
        observed: the JobSet and its counts.
        memory: state after the previous plan.
        now: time on both clocks.
    """
    jobset = observed.jobset
    if jobset is None:
        return EpochPlan()
    uid = jobset.metadata.uid
    if memory.uid != uid:
        memory = EpochState(uid=uid)
    part = takes_part(jobset) and not managed_by_go_controller(jobset, observed.pods)
    if part and observed.wait_s > 0:
        wait = timedelta(seconds=observed.wait_s)
        return EpochPlan(memory=memory, result=Result.requeue_after(wait))
    status = adopt_go_controller_state(jobset, observed.pods)
    if status is not None:
        draft = StatusDraft(jobset.status, now.wall)
        draft.status = status
        again = Result.done(summary="attempts and epochs are in step")
        return EpochPlan(memory=memory, status=draft.change(), result=again)
    if not part:
        return _leave(jobset, now)
    cause = _find_cause(jobset, observed, memory)
    pace = _pace(jobset, observed, memory, now)
    waited_s = _waited_s(jobset, observed, memory, now)
    decision = decide_epochs(jobset, observed.pods, cause or memory.cause, pace, waited_s)
    if cause is not None and decision.empty:
        # No restarts are left: the failed pod's agent will report it, which fails the JobSet.
        cause, decision = None, decide_epochs(jobset, observed.pods, memory.cause, pace, waited_s)
    notices, spares = _invalid_notices(observed, memory), observed.pods.spares
    memory = attrs.evolve(
        memory,
        left=False,
        cause=cause or memory.cause,
        told=frozenset(observed.invalid.values()),
        invalid=observed.notes.invalid,
        pause=pace.pause,
        ready_spares=0 if spares is None else spares.ready,
        exhausted=0 if spares is None else spares.exhausted,
    )
    if not has_missing_pods(jobset, observed.pods):
        memory = attrs.evolve(memory, lacking_since=None)
    if _is_recreated(jobset, decision, observed.pods):
        plan = _recreate(jobset, observed, decision, memory, pace, now)
    elif not decision.empty:
        plan = _change(jobset, observed, decision, memory, now)
    elif decision.wait_s:
        plan = _hold(jobset, observed, decision.wait_s, memory, now)
    elif is_waiting(jobset.status, observed.pods.epochs):
        plan = _wait(jobset, observed, memory, now, decision.call_s)
    else:
        plan = _run(jobset, observed, memory, now)
    return attrs.evolve(plan, notices=notices, judged=True)


def _waited_s(jobset: JobSet, observed: ObservedEpochs, memory: EpochState, now: Now) -> float:
    """Return the time since the last call for missing pods began, in seconds.

    That is the first sign of a restart; when the pods are new, the arrival of the first of them.
    """
    opened, at = observed.notes.opened
    known = [at] if opened > jobset.status.synced_epoch else []
    starting = is_starting(jobset, group_size(jobset, observed.pods))
    if memory.waiting_since is not None and not starting:
        known.append(memory.waiting_since)
    return now.monotonic - min(known, default=now.monotonic)


def _pace(jobset: JobSet, observed: ObservedEpochs, memory: EpochState, now: Now) -> Pace:
    """Return the JobSet's pace, with this manager's own measurements."""
    pace = Pace.of(jobset, now.wall, observed.backoff).paused(jobset.status, memory.pause, now)
    ran_s = now.monotonic - memory.ran_from if memory.ran_from else None
    return attrs.evolve(pace, ran_s=ran_s)


def _find_cause(jobset: JobSet, observed: ObservedEpochs, memory: EpochState) -> Cause | None:
    """Return the failure that ended the synced epoch, if one was detected and none before."""
    epoch, notes = jobset.status.synced_epoch, observed.notes
    if memory.left or epoch <= jobset.status.deprecated_epoch:
        return None
    if memory.cause is not None and memory.cause.epoch >= epoch:
        return None
    if notes.remade:
        return Cause(epoch, None, notes.remade, counted=False)
    seen = next(filter(None, (_judged(jobset, observed, one) for one in notes.failures)), None)
    return seen or _told(notes, epoch + 1) or _asked(jobset)


def _asked(jobset: JobSet) -> Cause | None:
    """Return a restart that a user has requested since the current workers were started."""
    asked = requested(jobset)
    if not asked or asked == record_of(jobset).served_request:
        return None
    return Cause(jobset.status.synced_epoch, FailureSignal.REQUESTED, "", counted=False)


def _told(notes: Observations, opened: int) -> Cause | None:
    """Return the cause that the failed pod's agent has reported with the epoch that it opens."""
    report = notes.reported
    return None if report is None or report.epoch != opened else reported_cause(report)


def _judged(jobset: JobSet, observed: ObservedEpochs, failure: Failure) -> Cause | None:
    if failure.epoch != jobset.status.synced_epoch:
        return None
    job = observed.job_of(failure.old)
    return None if job is None else judge(jobset, job, failure, observed.node_ready)


def _leave(jobset: JobSet, now: Now) -> EpochPlan:
    """Clear conditions that no longer hold for a JobSet that was suspended or has ended."""
    memory = EpochState(uid=jobset.metadata.uid, left=True) if _may_resume(jobset) else None
    if jobset.metadata.deletion_timestamp is not None or not is_ours(jobset):
        return EpochPlan(memory=memory, judged=True)
    draft = StatusDraft(jobset.status, now.wall)
    changed = [draft.set(wanted, announce=False) for wanted in conditions_to_clear(jobset)]
    if not any(changed):
        return EpochPlan(memory=memory, judged=True)
    return EpochPlan(
        memory=memory,
        status=draft.change(),
        result=Result.done(summary="no further restart"),
        judged=True,
    )


def _may_resume(jobset: JobSet) -> bool:
    return jobset.spec.restarts_in_place and jobset.spec.suspend is True


# ---- changes of the status -----------------------------------------------------------------------


def _is_recreated(jobset: JobSet, decision: EpochDecision, pods: Histogram) -> bool:
    """Return True if all Jobs are recreated instead, since a pod has succeeded."""
    if not pods.succeeded or decision.deprecated is None:
        return False
    if jobset.metadata.annotations.get(keys.AFTER_SUCCESS_ANNOTATION) != RECREATE:
        return False
    return decision.restart or decision.renewed == "remade"


def _recreate(
    jobset: JobSet,
    observed: ObservedEpochs,
    decision: EpochDecision,
    memory: EpochState,
    pace: Pace,
    now: Now,
) -> EpochPlan:
    """Recreate all Jobs: pods that have succeeded do not restart in place."""
    epoch, count = (decision.deprecated or 0) + 1, observed.pods.succeeded
    cause = memory.cause
    if cause is not None and cause.epoch != decision.deprecated:
        cause = None
    draft = StatusDraft(jobset.status, now.wall)
    draft.restart_all(counts_towards_max=decision.restart)
    draft.record(
        RestartRecord(
            kind=history.RECREATE,
            number=draft.status.restarts,
            counted=decision.restart,
            began_at=history.whole_millis(now.wall),
            cause=epoch_history.cause_of(cause, observed.notes, epoch),
        )
    )
    why = "a pod has restarted" if cause is None else str(cause)
    succeeded = "1 pod has" if count == 1 else f"{count} pods have"
    message = f"{why}: recreating all jobs, since {succeeded} succeeded already"
    delay = delay_recreation(draft, pace)
    draft.set(
        cond.restarting(keys.PODS_SUCCEEDED_REASON, f"{message}; {delay}" if delay else message)
    )
    summary = "recreates all jobs, since pods have succeeded"
    result = Result.done(summary=summary)
    return EpochPlan(memory=_at_rest(memory), status=draft.change(), result=result)


def _change(
    jobset: JobSet,
    observed: ObservedEpochs,
    decision: EpochDecision,
    memory: EpochState,
    now: Now,
) -> EpochPlan:
    before = memory
    memory, measures = _measure(jobset, observed, decision, memory, now)
    memory = _with_run(observed, decision, memory, now)
    measures = _with_steps(jobset, observed, decision, measures)
    measures = attrs.evolve(
        measures,
        spent=_spent(jobset, observed, decision, memory, now),
        seats_taken=decision.seats_taken,
    )
    if decision.synced is not None:
        memory = attrs.evolve(memory, ran_from=now.monotonic, ran_until=0.0)
    status = _status(jobset, observed, decision, before, measures, now)
    again = Result.done(summary=_summary(decision))
    if decision.deprecated is not None:
        wait = timedelta(seconds=observed.stalled_after_s)
        again = Result.requeue_after(wait, summary=_summary(decision))
    return EpochPlan(
        memory=memory,
        status=status,
        measures=measures,
        result=again,
    )


def _status(
    jobset: JobSet,
    observed: ObservedEpochs,
    decision: EpochDecision,
    memory: EpochState,
    measures: RestartMetrics,
    now: Now,
) -> StatusChange:
    draft = StatusDraft(jobset.status, now.wall)
    _remember(draft, observed, decision, memory, measures, now)
    if decision.failed is not None:
        draft.fail(decision.failed.reason, decision.failed.message)
    ended = conditions_to_clear(evolve(jobset, status=draft.status))
    for wanted in (*decision.conditions, *ended):
        draft.set(wanted, announce=False)
    changes: dict[str, Any] = {
        "synced_epoch": decision.synced,
        "deprecated_epoch": decision.deprecated,
        "in_place_restart": decision.record,
        "restart_pacing": decision.pacing,
    }
    draft.evolve(**{name: value for name, value in changes.items() if value is not None})
    if reports_attempts(jobset.status, observed.pods):
        draft.status = with_attempts(draft.status)
    draft.tell(*decision.events)
    known = jobset.status.restart_history
    warning = suspicion(known, draft.status.restart_history, now.wall, observed.nodes)
    if warning is not None:
        draft.tell(warning)
    return draft.change()


def _remember(
    draft: StatusDraft,
    observed: ObservedEpochs,
    decision: EpochDecision,
    memory: EpochState,
    measures: RestartMetrics,
    now: Now,
) -> None:
    """Write the history of restarts."""
    notes = observed.notes
    if memory.lifted[0]:
        known = history.with_lift(draft.status.restart_history, *memory.lifted)
        draft.evolve(restart_history=known)
    if decision.deprecated is not None and (decision.restart or decision.renewed):
        epoch, cause = decision.deprecated + 1, memory.cause
        if cause is not None and cause.epoch != decision.deprecated:
            cause = None
        why = epoch_history.cause_of(cause, notes, epoch)
        if decision.renewed == "resized":
            why = RestartCause(reason=keys.IN_PLACE_GROUP_RESIZED_REASON)
        began = measures.since.get("detect", now.monotonic)
        epoch_history.begin(draft, epoch, why, began, now, counted=decision.restart)
    elif decision.synced is not None:
        epoch = decision.synced
        if decision.restart and not history.is_open(draft.status.restart_history):
            began = notes.opened[1] if notes.opened[0] == epoch else now.monotonic
            why = epoch_history.cause_of(_told(notes, epoch), notes, epoch)
            epoch_history.begin(draft, epoch, why, began, now, counted=True)
        epoch_history.end(draft, epoch, notes, measures.phases, decision.seats_taken)


def _measure(
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
        cause = _told(notes, decision.synced)
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


def _with_steps(
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


def _with_run(
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


def _spent(
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


def _summary(decision: EpochDecision) -> str:
    if decision.failed is not None:
        return "failed: no restarts left"
    if decision.synced is not None:
        return f"synced {decision.synced}"
    if decision.deprecated is not None:
        return f"deprecated {decision.deprecated}"
    return "noted the group's size or crashes"


# ---- barriers that stay closed -------------------------------------------------------------------


def _wait(
    jobset: JobSet,
    observed: ObservedEpochs,
    memory: EpochState,
    now: Now,
    call_s: float,
) -> EpochPlan:
    """Plan for a closed barrier without a decision: check for how long it has been closed.

    ``call_s`` is the time until spares take over for missing pods, 0 if none can.
    """
    pods, at = observed.pods, now.monotonic
    expected = group_size(jobset, pods) - pods.succeeded
    if expected <= 0 and not pods.epochs:
        return EpochPlan(memory=_at_rest(memory))
    epoch = next_epoch(jobset.status, pods.epochs)
    missing = max(0, expected - pods.epochs.get(epoch, 0))
    stalled = memory.stalled and missing > 0
    memory = attrs.evolve(memory, missing=missing, stalled=stalled, held_since=0.0)
    if memory.waiting_since is None:
        memory = attrs.evolve(memory, waiting_since=at, look_at=at + observed.stalled_after_s)
    change = None
    if at >= memory.look_at:
        memory, change = _look(jobset, observed, memory, epoch, now)
    wait_s = memory.look_at - at
    wait = timedelta(seconds=min(wait_s, call_s) if call_s else wait_s)
    return EpochPlan(memory=memory, status=change, result=Result.requeue_after(wait))


def _hold(
    jobset: JobSet, observed: ObservedEpochs, wait_s: float, memory: EpochState, now: Now
) -> EpochPlan:
    """Plan for a complete group while the back-off after restarts in quick succession lasts."""
    at = now.monotonic
    memory = attrs.evolve(
        memory,
        held_since=memory.held_since or at,
        waiting_since=at,
        look_at=at + observed.stalled_after_s,
        missing=0,
        stalled=False,
    )
    wait = Result.requeue_after(timedelta(seconds=wait_s), summary="waits for the back-off")
    change = _not_stalled(jobset, keys.RESTART_BACKOFF_REASON, now)
    return EpochPlan(memory=memory, status=change, result=wait)


def _not_stalled(jobset: JobSet, reason: str, now: Now) -> StatusChange | None:
    """Clear the condition if it is set."""
    kind = keys.BARRIER_STALLED_CONDITION
    if not cond.is_true(jobset.status.conditions, kind):
        return None
    draft = StatusDraft(jobset.status, now.wall)
    draft.set(cond.DesiredCondition(kind, False, reason, "no pod is waited for"), announce=False)
    return draft.change()


def _at_rest(memory: EpochState) -> EpochState:
    return attrs.evolve(
        memory, deprecated=0, waiting_since=None, stall_told=0, missing=0, stalled=False
    )


def _run(jobset: JobSet, observed: ObservedEpochs, memory: EpochState, now: Now) -> EpochPlan:
    """Plan for running workers without a decision: check for missing pods."""
    at, grace = now.monotonic, observed.missing_after_s
    if not has_missing_pods(jobset, observed.pods):
        return _complete(jobset, observed.pods, memory, now)
    if memory.lacking_since is None:
        memory = attrs.evolve(_at_rest(memory), lacking_since=at, look_at=at + grace)
    if at < memory.look_at:
        wait = timedelta(seconds=memory.look_at - at)
        return EpochPlan(memory=memory, result=Result.requeue_after(wait))
    lacking_since = at if memory.lacking_since is None else memory.lacking_since
    lacking_s = at - lacking_since
    jobs, pods = observed.members()
    delay = _delay(observed, now)
    found = absentees(jobset, jobs, pods, f"for more than {grace:g} s", delay)
    if not found.missing:
        # They belong to Jobs that are about to end: check later.
        pause = max(grace, min(lacking_s, LOOK_AGAIN_MAX_S))
        memory = attrs.evolve(memory, look_at=at + pause)
        return EpochPlan(memory=memory, result=Result.requeue_after(timedelta(seconds=pause)))
    epoch = jobset.status.synced_epoch
    cause = Cause(epoch, FailureSignal.PODS_MISSING, "", reason=found.message)
    pace = _pace(jobset, observed, memory, now)
    decision = decide_epochs(jobset, observed.pods, cause, pace)
    if not decision.empty:
        memory = attrs.evolve(memory, cause=cause, lacking_since=None)
        return _change(jobset, observed, decision, memory, now)
    # No restarts are left. A new pod would fail the JobSet; without one, it must not hang.
    patience = grace + observed.stalled_after_s
    if lacking_s >= patience:
        found = absentees(jobset, jobs, pods, f"for more than {patience:g} s", delay)
        failed = EpochDecision(failed=missing_pods_failure(found.message))
        return _change(jobset, observed, failed, memory, now)
    since = f"since {seconds_text(now.wall - timedelta(seconds=lacking_s))}"
    who = absentees(jobset, jobs, pods, since, delay).message
    message = (
        f"{who}; no restarts are left, so the jobset fails if it is not complete "
        f"{observed.stalled_after_s:g} s later"
    )
    memory = attrs.evolve(
        memory, missing=found.missing, stalled=True, look_at=lacking_since + patience
    )
    memory, change = _tell_stalled(
        jobset, memory, epoch, now, reason=keys.NO_RESTARTS_LEFT_REASON, message=message
    )
    wait = timedelta(seconds=memory.look_at - at)
    return EpochPlan(memory=memory, status=change, result=Result.requeue_after(wait))


def _complete(jobset: JobSet, pods: Histogram, memory: EpochState, now: Now) -> EpochPlan:
    """Plan for a running group that is complete, or will be: at most the API server is slow."""
    if pods.slow:
        # No number: each pod that is confirmed would cost a write to a server that is slow.
        epoch = jobset.status.synced_epoch
        message = (
            f"workers of epoch {epoch} are not started yet, since the API server takes more than "
            "5 s to patch a pod: a pod with a lost-node deadline starts its worker only after the "
            "API server has confirmed that the pod exists; check the load of the API server"
        )
        told, change = _tell_stalled(
            jobset, memory, epoch, now, reason=keys.API_SERVER_SLOW_REASON, message=message
        )
        return EpochPlan(memory=told, status=change)
    change = _not_stalled(jobset, keys.BARRIER_LIFTED_REASON, now)
    return EpochPlan(memory=_at_rest(memory), status=change)


def _look(
    jobset: JobSet, observed: ObservedEpochs, memory: EpochState, epoch: int, now: Now
) -> tuple[EpochState, StatusChange | None]:
    """Check which pods block the barrier, and report them unless already reported."""
    at = now.monotonic
    members, after_s = observed.members(), observed.stalled_after_s
    found = laggards(jobset, *members, epoch, after_s, _delay(observed, now))
    # The longer nothing happens, the less often all pods are checked.
    waited = at - (at if memory.waiting_since is None else memory.waiting_since)
    memory = attrs.evolve(
        memory,
        missing=found.missing,
        stalled=found.missing > 0,
        look_at=at + max(observed.stalled_after_s, min(waited, LOOK_AGAIN_MAX_S)),
    )
    return _tell_stalled(
        jobset, memory, epoch, now, reason=keys.PODS_MISSING_REASON, message=found.message
    )


def _delay(observed: ObservedEpochs, now: Now) -> Delay:
    return lambda job: pod_backoff.explain(job, observed.failed_at(job), now)


def _tell_stalled(
    jobset: JobSet, memory: EpochState, epoch: int, now: Now, *, reason: str, message: str
) -> tuple[EpochState, StatusChange | None]:
    """Set the condition if it differs, with one event per epoch."""
    draft = StatusDraft(jobset.status, now.wall)
    kind = keys.BARRIER_STALLED_CONDITION
    if not draft.set(cond.DesiredCondition(kind, True, reason, message), announce=False):
        return memory, None
    if memory.stall_told != epoch:
        memory = attrs.evolve(memory, stall_told=epoch)
        draft.tell(EmitEvent(cond.WARNING, kind, message))
    return memory, draft.change()


def _invalid_notices(observed: ObservedEpochs, memory: EpochState) -> tuple[EmitEvent, ...]:
    """Return one Warning for each pod and invalid value."""
    return tuple(
        EmitEvent(
            cond.WARNING,
            keys.INVALID_EPOCH_REASON,
            f"pod {item.pod_name!r} is not counted: the annotation "
            f"{keys.ATTEMPT_ANNOTATION if item.is_attempt else keys.EPOCH_ANNOTATION} "
            f"has the unusable value {_shortened(item.text)!r}; "
            "delete the pod, and its Job makes another one",
            pod=item.pod_name,
        )
        for item in observed.invalid.values()
        if item not in memory.told
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."
