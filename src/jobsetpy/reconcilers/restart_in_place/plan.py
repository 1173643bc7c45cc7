"""What one reconcile does about the epochs of a JobSet (KEP-467).

``decide_epochs`` is the rule: which numbers the counts ask for. The plan adds what takes time or
memory: which of the failures that were seen is the cause, how long a restart and its phases took,
how long a barrier has been closed, and who holds it.
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
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import history
from jobsetpy.reconcilers.rules.backoff import OFF, Pace, RestartBackoff
from jobsetpy.reconcilers.rules.failure_policy import delay_recreation
from jobsetpy.reconcilers.rules.membership import is_ours
from jobsetpy.reconcilers.rules.pinned_time import PinnedTime
from jobsetpy.reconcilers.rules.plan import EmitEvent, Now, Plan, StatusChange
from jobsetpy.reconcilers.rules.status_draft import StatusDraft

RECREATE: Final = "Recreate"
"""Value of the annotation ``in-place-restart-after-success`` that is not the default."""

LOOK_AGAIN_MAX_S: Final = 600.0
"""Of a barrier that stays closed, the pods are looked at this often at least."""

_MAX_TEXT: Final = 40

Phase = Literal["detect", "deprecate", "gather", "wait", "lift"]
"""Of a restart: until ``deprecatedEpoch`` is written; until no pod is at an older epoch; until all
are at the new one; until the back-off is over, if there is any; until ``syncedEpoch`` is
written."""

Use = Literal["starting", "repeating", "training", "restarting"]
"""Of a group's time: until a run's first step, in steps that one before it had done, in new ones,
and from the first sign of its end until the next run."""


@attrs.frozen(kw_only=True)
class ObservedEpochs:
    """What is known of one JobSet.

    Args:
        jobset: ``None`` if it is gone.
        pods: counts of its present attempt.
        invalid: pods with an unusable annotation, by UID.
        notes: what happened since the last plan.
        job_of: finds the Job of a pod.
        node_ready: whether the node of a name is ready, as far as it is known.
        failed_at: tells when the latest failure of a pod of a Job was seen, on the monotonic clock.
        members: lists the Jobs of the present attempt and their pods; O(pods), so it is called only
            to name some of them.
        wait_s: until when the cache may not show own writes, in seconds from now; 0 if it does.
        stalled_after_s: a barrier that is closed for longer is said to be stalled.
        missing_after_s: a pod of a running group that is away for longer has failed.
        backoff: how restarts in quick succession are delayed, unless the JobSet says otherwise.
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


@attrs.frozen(kw_only=True)
class EpochState:
    """What is remembered of a JobSet; a new manager goes on without it.

    Lost with it are at most an early detection, a measurement and the time a barrier has been
    closed. All times are on the monotonic clock.

    Args:
        uid: of the JobSet.
        left: it was suspended at the last plan: what was noted since then are no failures.
        told: unusable annotations that an event has told of.
        invalid: ``Observations.invalid`` by then.
        cause: the failure that ended the latest epoch to end early.
        began: first sign of the restart that is measured.
        deprecated: its old epoch, 0 if no restart is measured.
        deprecated_at: since when that is deprecated.
        held_since: since when all pods are there and wait for the back-off, 0 if they do not.
        pause: end of the stored back-off, on the monotonic clock as well.
        waiting_since: when the barrier was first seen closed.
        lacking_since: since when workers run without all of their group.
        look_at: when to see who holds the barrier, or is missing.
        stall_told: the epoch whose stalled barrier an event has told of.
        missing: how many pods the barrier waited for at the last look.
        stalled: whether the barrier is held for so long that it was looked who holds it.
        lifted: the epoch that was synced last, and how long that write took, in seconds.
        ran_from: when the workers were let run that run or ran last, 0 if that was not seen.
        ran_until: the first sign of the end of that run, 0 while they run.
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


@attrs.frozen(kw_only=True)
class RestartMetrics:
    """What to count once the status is stored.

    Args:
        began: a restart began.
        cause: what showed it; ``None`` if it was a pod at a new epoch.
        phases: how long phases of a restart took that are over, in seconds.
        since: when the phases began that the write ends, on the monotonic clock.
        restart_since: when the restart began that the write ends, or ``None``.
        lost_steps: how many steps the run that is over has done again which one before it had done.
        first_step_s: how long after the failure before it that run has told of its first step.
        spent: what the seconds of that run and of the restart after it went into.
    """

    began: bool = False
    cause: Cause | None = None
    phases: Mapping[Phase, float] = attrs.field(factory=dict)
    since: Mapping[Phase, float] = attrs.field(factory=dict)
    restart_since: float | None = None
    lost_steps: int | None = None
    first_step_s: float | None = None
    spent: Mapping[Use, float] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class EpochPlan(Plan[EpochState]):
    """What one reconcile does.

    Args:
        judged: whether the plan has taken all notes into account.
        measures: what to count once the status is stored.
    """

    judged: bool = False
    measures: RestartMetrics = RestartMetrics()

    def stored(self, now: float) -> EpochPlan:
        """The plan once its status is stored, at a time on the monotonic clock."""
        since = self.measures.since.get("lift")
        if since is None or self.memory is None or self.status is None:
            return self
        lifted = (self.status.status.synced_epoch, now - since)
        return attrs.evolve(self, memory=attrs.evolve(self.memory, lifted=lifted))


def needs_plan(jobset: JobSet, pods: Histogram, notes: Observations, memory: EpochState) -> bool:
    """Whether the epochs of a JobSet need a plan; O(1), asked at each event of a pod or Job.

    The JobSet's own events cause plans too, so what cannot be known here yet is seen then.
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
    if notes.invalid != memory.invalid:
        return True
    lacking = has_missing_pods(jobset, pods)
    if lacking is not (memory.lacking_since is not None):
        return True
    return needs_decision(jobset, pods, memory.cause)


def plan_epochs(observed: ObservedEpochs, memory: EpochState, now: Now) -> EpochPlan:
    """Plan one reconcile.

    Args:
        observed: the JobSet and its counts.
        memory: of the plan before.
        now: on both clocks.
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
    decision = decide_epochs(jobset, observed.pods, cause or memory.cause, pace)
    if cause is not None and decision.empty:
        # No restarts are left: the failed pod's agent will tell, and end the JobSet.
        cause, decision = None, decide_epochs(jobset, observed.pods, memory.cause, pace)
    notices = _invalid_notices(observed, memory)
    memory = attrs.evolve(
        memory,
        left=False,
        cause=cause or memory.cause,
        told=frozenset(observed.invalid.values()),
        invalid=observed.notes.invalid,
        pause=pace.pause,
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
        plan = _wait(jobset, observed, memory, now)
    else:
        plan = _run(jobset, observed, memory, now)
    return attrs.evolve(plan, notices=notices, judged=True)


def _pace(jobset: JobSet, observed: ObservedEpochs, memory: EpochState, now: Now) -> Pace:
    """The JobSet's pace, with what this manager has measured itself."""
    pace = Pace.of(jobset, now.wall, observed.backoff).paused(jobset.status, memory.pause, now)
    ran_s = now.monotonic - memory.ran_from if memory.ran_from else None
    return attrs.evolve(pace, ran_s=ran_s)


def _find_cause(jobset: JobSet, observed: ObservedEpochs, memory: EpochState) -> Cause | None:
    """The failure that ended the synced epoch, if one was seen and none was before."""
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
    """A restart that a user has asked for since the present workers were started."""
    asked = requested(jobset)
    if not asked or asked == record_of(jobset).served_request:
        return None
    return Cause(jobset.status.synced_epoch, FailureSignal.REQUESTED, "", counted=False)


def _told(notes: Observations, opened: int) -> Cause | None:
    """The cause by what the failed pod's agent has reported with the epoch that it opens."""
    report = notes.reported
    return None if report is None or report.epoch != opened else reported_cause(report)


def _judged(jobset: JobSet, observed: ObservedEpochs, failure: Failure) -> Cause | None:
    if failure.epoch != jobset.status.synced_epoch:
        return None
    job = observed.job_of(failure.old)
    return None if job is None else judge(jobset, job, failure, observed.node_ready)


def _leave(jobset: JobSet, now: Now) -> EpochPlan:
    """Take back what is not true of a JobSet any more that was suspended or has ended."""
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
        result=Result.done(summary="no restart any more"),
        judged=True,
    )


def _may_resume(jobset: JobSet) -> bool:
    return jobset.spec.restarts_in_place and jobset.spec.suspend is True


# ---- changes of the status -----------------------------------------------------------------------


def _is_recreated(jobset: JobSet, decision: EpochDecision, pods: Histogram) -> bool:
    """Tell if all Jobs are recreated instead of a restart in place, since a pod has succeeded."""
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
    """Have all Jobs recreated: the pods that have succeeded do not restart in place."""
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
    measures = attrs.evolve(measures, spent=_spent(jobset, observed, decision, memory, now))
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
        epoch_history.end(draft, epoch, notes, measures.phases)


def _measure(
    jobset: JobSet,
    observed: ObservedEpochs,
    decision: EpochDecision,
    memory: EpochState,
    now: Now,
) -> tuple[EpochState, RestartMetrics]:
    """The next memory, and what to count."""
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
        # All pods came at once, or another manager saw the restart begin.
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
    """What an epoch's pods have said of the run before, if that had followed a restart."""
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
    """The memory with the end of the run, at the first sign of it."""
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
    """What the time of the run before a barrier that lifts went into, as its pods have told."""
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


def _wait(jobset: JobSet, observed: ObservedEpochs, memory: EpochState, now: Now) -> EpochPlan:
    """The barrier is closed, and nothing is to be decided: see for how long that has been."""
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
    wait = timedelta(seconds=memory.look_at - at)
    return EpochPlan(memory=memory, status=change, result=Result.requeue_after(wait))


def _hold(
    jobset: JobSet, observed: ObservedEpochs, wait_s: float, memory: EpochState, now: Now
) -> EpochPlan:
    """All pods are there; the back-off after restarts in quick succession is not over."""
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
    """Take the condition back, if it says otherwise."""
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
    """Workers run, and nothing is to be decided: see whether all are there."""
    at, grace = now.monotonic, observed.missing_after_s
    if not has_missing_pods(jobset, observed.pods):
        return _complete(jobset, memory, now)
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
        # They are of Jobs that are about to end: see later whether those did.
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
    # No restarts are left. With a new pod the JobSet would fail; without one, it must not hang.
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


def _complete(jobset: JobSet, memory: EpochState, now: Now) -> EpochPlan:
    """Workers run, and all are there, or will be: nothing is stalled."""
    change = _not_stalled(jobset, keys.BARRIER_LIFTED_REASON, now)
    return EpochPlan(memory=_at_rest(memory), status=change)


def _look(
    jobset: JobSet, observed: ObservedEpochs, memory: EpochState, epoch: int, now: Now
) -> tuple[EpochState, StatusChange | None]:
    """See who holds the barrier, and say so, if that is not said already."""
    at = now.monotonic
    members, after_s = observed.members(), observed.stalled_after_s
    found = laggards(jobset, *members, epoch, after_s, _delay(observed, now))
    # The longer nothing happens, the less often it is worth a look at all pods.
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
    """Set the condition if it is not so already, with one event per epoch."""
    draft = StatusDraft(jobset.status, now.wall)
    kind = keys.BARRIER_STALLED_CONDITION
    if not draft.set(cond.DesiredCondition(kind, True, reason, message), announce=False):
        return memory, None
    if memory.stall_told != epoch:
        memory = attrs.evolve(memory, stall_told=epoch)
        draft.tell(EmitEvent(cond.WARNING, kind, message))
    return memory, draft.change()


def _invalid_notices(observed: ObservedEpochs, memory: EpochState) -> tuple[EmitEvent, ...]:
    """One Warning for each pod and unusable value."""
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
