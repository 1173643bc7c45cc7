"""Plan of the jobs reconciler, and the order in which the rules of a JobSet are evaluated.

Failure comes before success, both come before creation, and creation before suspension. With a
deadline, success comes first, then the deadline, then failure. Users
depend on this order, so it is written down only here; every rule has a file of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import (
    JobSet,
    ReplicatedJob,
    ReplicatedJobStatus,
    RestartCause,
    RestartRecord,
)
from jobsetpy.api.meta import ObjectKey
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.reconcilers.coscheduling.gangs import regrouped
from jobsetpy.reconcilers.failure_policy.actions import FAIL_JOB
from jobsetpy.reconcilers.failure_policy.decision import (
    Match,
    apply_failure_policy,
    fail_beyond_completion,
    split,
    stays_failed_notice,
)
from jobsetpy.reconcilers.jobs.child_jobs import JobTemplateBuilder, SharedParts
from jobsetpy.reconcilers.jobs.counter_pace import CounterPace, is_restarting
from jobsetpy.reconcilers.jobs.counters import (
    all_jobs_ready,
    lacks_pods,
    ready_pods,
    replicated_job_statuses,
    without_suspended,
)
from jobsetpy.reconcilers.jobs.held import (
    STALLED_AFTER_S,
    StalledDeletions,
    stalled_deletions,
)
from jobsetpy.reconcilers.jobs.recreation import SOON_S, Recreation
from jobsetpy.reconcilers.jobs.runs import (
    attempt_annotation,
    deadline_s,
    expire,
    expiry,
    track_run,
)
from jobsetpy.reconcilers.jobs.startup_policy import (
    WAITING_FOR_DELETION,
    dependencies_reached,
    has_started,
    waiting_notice,
)
from jobsetpy.reconcilers.jobs.success_policy import is_out_of_reach, is_satisfied
from jobsetpy.reconcilers.jobs.surroundings import surroundings
from jobsetpy.reconcilers.jobs.suspension import resumptions, suspensions
from jobsetpy.reconcilers.lost_nodes.deadline import deadline_of
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import definition, history
from jobsetpy.reconcilers.rules import plan as p
from jobsetpy.reconcilers.rules.backoff import OFF, Pace, RestartBackoff
from jobsetpy.reconcilers.rules.buckets import Buckets, sort_jobs
from jobsetpy.reconcilers.rules.elastic import resizes
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.json_tree import child, number
from jobsetpy.reconcilers.rules.membership import (
    MAX_JOBS,
    is_handled,
    is_left_to_us,
    jobs_of,
    pods_of,
    replicated_job_of,
)
from jobsetpy.reconcilers.rules.names import job_name
from jobsetpy.reconcilers.rules.spares import working_jobs
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.reconcilers.rules.time_accounting import activity
from jobsetpy.reconcilers.rules.times import Now, PinnedTime, pin
from jobsetpy.reconcilers.startup_groups import spec as group_scheduling

_COUNTERS: Final = frozenset({"replicatedJobsStatus", "restarts", "readyPods"})

DEFINITION_S: Final = 600.0
"""Interval in seconds at which a JobSet is planned again while the CRD is older."""
CREATED_AT_ONCE: Final = 2000
"""Maximum number of Jobs created per plan; bounds its memory and planning time."""


@attrs.frozen(kw_only=True)
class ObservedJobSet:
    """Input of one reconcile.

    Args:
        key: namespace and name of the JobSet.
        jobset: the JobSet; ``None`` if it is gone.
        wait_s: seconds until the JobSet may be planned: until the caches show our own writes, or
            for the pause after the previous plan; the fields below are then empty.
        jobs: Jobs controlled by the JobSet, by UID, in any order.
        surroundings: kinds and names of the other objects that its pods need and that are known to
            exist.
        features: the feature gates.
        group_rbac: grant pods the permission to watch their startup group's ConfigMap.
        marks: scheduler fields of pods in gangs.
        pace: limits on status writes that change only counters.
        lost_node_deadline_s: deadline in seconds for pods on unreachable nodes, if the JobSet sets
            none; 0 for never.
        deletion_stalled_after_s: time in seconds after which a deletion is reported as stalled.
        backoff: delay between restarts of all Jobs, unless the JobSet overrides it.
        lost: some of its pods are being deleted on an unreachable node.
        missing: fields of this release that the CRD does not have.
    """

    key: ObjectKey
    jobset: JobSet | None
    wait_s: float = 0.0
    jobs: Sequence[Job] = ()
    surroundings: AbstractSet[tuple[str, str]] = frozenset()
    features: Features = attrs.field(factory=Features)
    group_rbac: bool = False
    marks: SchedulerFields = attrs.field(factory=SchedulerFields)
    pace: CounterPace = attrs.field(factory=CounterPace)
    lost_node_deadline_s: float = 0.0
    deletion_stalled_after_s: float = STALLED_AFTER_S
    backoff: RestartBackoff = OFF
    lost: bool = False
    missing: frozenset[str] = frozenset()


def plan_jobs(observed: ObservedJobSet, memory: p.JobsMemory, now: Now) -> p.JobsPlan:
    """Return everything that one reconcile does.

    The same input gives the same plan in any order of Jobs; repeated planning and execution
    converges.

    Args:
        observed: JobSet and children, perhaps older than those in the API server.
        memory: state kept from the previous plan.
        now: current time, for conditions, the TTL and pauses between writes.
    """
    jobset = observed.jobset
    if jobset is None:
        return p.JobsPlan()
    if memory.uid != jobset.metadata.uid:
        memory = p.JobsMemory(jobset.metadata.uid)
    if observed.wait_s > SOON_S:
        return p.JobsPlan(memory=memory, result=Result.requeue_after(observed.wait_s))
    if not is_handled(jobset):
        return _leave_alone(jobset, memory, now)
    return _JobsPlanner(observed, jobset, memory, now).plan()


def _leave_alone(jobset: JobSet, memory: p.JobsMemory, now: Now) -> p.JobsPlan:
    """Return the plan for a JobSet of another controller, too large, or being deleted.

    One that has finished is deleted after its ``ttlSecondsAfterFinished``, whoever manages it: that
    is left to this controller, as in the Go project since its pull request 1315.
    """
    notices: tuple[p.EmitEvent, ...] = ()
    count = jobs_of(jobset)
    if count > MAX_JOBS and is_left_to_us(jobset):
        message = (
            f"the JobSet is left alone: its replicas ask for {count} Jobs together, and there may "
            f"be {MAX_JOBS}"
        )
        notices = (p.EmitEvent(cond.WARNING, keys.TOO_MANY_JOBS_REASON, message),)
    deletion = None
    if jobset.metadata.deletion_timestamp is None:
        deletion = _deletion_time(jobset, memory, now)
    left_s = 0.0 if deletion is None else deletion.left_s(now)
    return p.JobsPlan(
        actions=() if deletion is None or left_s > SOON_S else (_deletion(jobset),),
        memory=attrs.evolve(memory, notified=frozenset(notices), deletion=deletion),
        notices=tuple(notice for notice in notices if notice not in memory.notified),
        begun=now.monotonic,
        activity="",
        result=Result(left_s if left_s > SOON_S else None),
    )


def _deletion_time(jobset: JobSet, memory: p.JobsMemory, now: Now) -> PinnedTime | None:
    """Return the time at which a JobSet has to be deleted.

    ``None`` if it has not finished, has no ``ttlSecondsAfterFinished``, or no finish time (it is
    then kept, which is the safe choice).
    """
    ttl = jobset.spec.ttl_seconds_after_finished
    end = cond.finished(jobset.status.conditions)
    if ttl is None or end is None or end.last_transition_time is None:
        return None
    at = end.last_transition_time + timedelta(seconds=ttl)
    return pin(memory.deletion, at, now, longest_s=ttl)


def _deletion(jobset: JobSet) -> p.DeleteJobSet:
    return p.DeleteJobSet(jobset.metadata.name, jobset.metadata.uid)


class _JobsPlanner:
    """State of one planning pass."""

    def __init__(
        self, observed: ObservedJobSet, jobset: JobSet, memory: p.JobsMemory, now: Now
    ) -> None:
        self.observed = observed
        self.jobset = jobset
        self.spec = jobset.spec
        self.features = observed.features
        self.memory = memory
        self.now = now
        self.draft = StatusDraft(self.jobset.status, now.wall)
        self.actions: list[p.Action] = []
        self.buckets: Buckets = sort_jobs(self.jobset, observed.jobs, observed.features)
        self.queued_by_job = keys.SKIP_SUSPEND_ANNOTATION in jobset.metadata.annotations
        self.suspended = self.spec.suspend is True and not self.queued_by_job
        self.in_order = self.spec.in_order
        self.counters: dict[str, ReplicatedJobStatus] = {}
        self.wanted_jobs = working_jobs(jobset)
        self.stay_failed: list[Match] = []
        self.waits: list[p.EmitEvent] = []
        self.recreation = Recreation(memory, now)
        self.ready = False
        self.restarting = is_restarting(jobset)
        # All agents are notified of the start and the end of a restart, as they would be of
        # counters.
        changed = self.restarting != memory.restarting
        self.counters_at = now.monotonic if changed else memory.counters_at
        pace = Pace.of(jobset, now.wall, observed.backoff)
        self.restart_pace = pace.paused(jobset.status, memory.pause, now)
        may_regroup = self.suspended and self.features.coscheduling
        self.regrouped = regrouped(jobset, self.buckets.active) if may_regroup else []
        self.deletion: PinnedTime | None = None
        self.expiry: PinnedTime | None = None
        # Back-off of a restart in place; that of a restart of all Jobs is computed before creation.
        self.paused_s = self._wait_s() if self.restarting else 0.0

    def plan(self) -> p.JobsPlan:
        statuses = replicated_job_statuses(self.jobset, self.buckets, self.features)
        self.draft.count_replicated_jobs(statuses)
        self.counters = {item.name: item for item in without_suspended(statuses, self.buckets)}
        self.draft.evolve(ready_pods=ready_pods(self.jobset, self.buckets.active))
        self.stalled = self._stalled_deletions()
        self.draft.set(self.stalled.condition, announce=bool(self.stalled.names))
        if cond.finished(self.jobset.status.conditions) is not None:
            return self._clean_up()
        self.draft.set(definition.condition(self.observed.missing))
        track_run(self.draft, self.features, suspended=self.suspended)
        self._delete(self.buckets.previous)
        self._delete(self.buckets.marked)
        self._delete(self.regrouped)
        self._record_remade()
        self.stay_failed, failed = split(self.spec.failure_policy, self.buckets.failed)
        self._count_what_stays_failed()
        if not self.suspended and all_jobs_ready(
            self.jobset, self.counters.values(), stay_failed=len(self.stay_failed)
        ):
            self.draft.set(cond.RESTART_ENDED_READY)
            self.ready = True
            if not self.spec.restarts_in_place:  # else the barrier plan ends the restart
                self.draft.end_restart()
        limited = deadline_s(self.jobset, self.features)
        if failed and limited is None:
            return self._fail(failed)
        if self.buckets.successful and is_satisfied(
            self.spec, self.buckets.successful, self.wanted_jobs
        ):
            self.draft.complete()
            return self._result()
        if limited is not None:
            self.expiry = expiry(limited, self.draft, self.memory.expiry, self.now)
            if self.expiry is not None and self.expiry.left_s(self.now) <= SOON_S:
                expire(self.draft, limited)
                return self._result()
            if failed:
                return self._fail(failed)
        if self.stay_failed and self._is_out_of_reach():
            fail_beyond_completion(self.stay_failed, self.draft)
            return self._result()
        # The changes below report actions, and are stored only when those succeeded.
        before_actions = self.draft.change()
        self._create_surroundings()
        if self.features.elastic_jobset:
            self.actions += resizes(self.spec, self.buckets.active)
        self._create_jobs()
        self._suspend_or_resume()
        return self._result(partial=before_actions)

    def _fail(self, failed: list[Job]) -> p.JobsPlan:
        problem = apply_failure_policy(
            self.jobset, failed, self.draft, self.features, self.restart_pace
        )
        return self._result(problem=problem)

    def _were_ready(self) -> bool:
        """Return whether the stored counters say that all Jobs are ready."""
        stored = self.jobset.status.replicated_jobs_status
        return all_jobs_ready(self.jobset, stored, stay_failed=len(self.stay_failed))

    def _waited_since(self) -> datetime | None:
        """Return the latest of the creation, a restart of Jobs and a resumption."""
        times = [self.jobset.metadata.creation_timestamp]
        times += [
            each.last_transition_time
            for each in self.jobset.status.conditions
            if each.type == keys.SUSPENDED_CONDITION and each.status == "False"
        ]
        restarts = self.jobset.status.restart_history
        times += [each.began_at for each in restarts if each.kind != history.IN_PLACE]
        return max((at for at in times if at is not None), default=None)

    def _time_to_ready(self, since: datetime | None) -> float | None:
        """Return the seconds to record; ``None`` unless the JobSet is known to become ready now."""
        if since is None or self._were_ready():
            return None
        return max(0.0, (self.now.wall - since).total_seconds())

    @property
    def _remade(self) -> list[str]:
        """Names of the Jobs that are recreated on request."""
        marked = (job.metadata for job in self.buckets.marked)
        return sorted(meta.name for meta in marked if meta.deletion_timestamp is None)

    def _record_remade(self) -> None:
        """Record Jobs that are recreated on request, once, together with their deletion."""
        going = self._remade
        if not going:
            return
        known = self.draft.status.restart_history
        if history.is_open(known) and (known[-1].number, known[-1].target) == (0, going[0]):
            return
        self.draft.record(
            RestartRecord(
                kind=history.JOB,
                target=going[0],
                more_jobs=len(going) - 1,
                began_at=history.whole_millis(self.now.wall),
                detection_millis=0,
                cause=RestartCause(reason=keys.JOB_REMADE_REASON, job=going[0]),
            )
        )

    def _count_what_stays_failed(self) -> None:
        """Count each failed Job once: with the status write that adds it to the failed Jobs."""
        before = {item.name: item.failed for item in self.jobset.status.replicated_jobs_status}
        for name, count in Counter(replicated_job_of(m.job) for m in self.stay_failed).items():
            now = self.counters.get(name)
            if now is not None:
                self.draft.decided(FAIL_JOB, min(count, max(0, now.failed - before.get(name, 0))))

    def _is_out_of_reach(self) -> bool:
        return is_out_of_reach(
            self.spec,
            successful=self.buckets.successful,
            stay_failed=[match.job for match in self.stay_failed],
            running=[job for job in self.buckets.active if job.spec.suspend is not True],
        )

    def _result(
        self,
        *,
        partial: p.StatusChange | None = None,
        problem: str = "",
        delay_s: float = 0.0,
    ) -> p.JobsPlan:
        change: p.StatusChange | None = self.draft.change()
        partial = partial or change
        if self._counters_wait_s(partial) > SOON_S:
            partial = None
        counters_s = self._counters_wait_s(change)
        if counters_s > SOON_S:
            change = None
        wait_s = self._next_look_s(delay_s, counters_s if counters_s > SOON_S else 0.0)
        writes = change is not None and bool(change.patch)
        ready_since = self.memory.ready_since
        if self.ready and (writes or self._were_ready()):
            ready_since = self._waited_since()
            if change is not None and ready_since != self.memory.ready_since:
                change = attrs.evolve(change, ready_s=self._time_to_ready(ready_since))
        notices = self._notices(problem)
        memory = attrs.evolve(
            self._remembered(),
            notified=frozenset(notices),
            ready_since=ready_since,
            counters_at=self.now.monotonic if writes else self.counters_at,
        )
        return p.JobsPlan(
            actions=tuple(self.actions),
            status=change,
            partial_status=partial,
            notices=tuple(notice for notice in notices if notice not in self.memory.notified),
            problem=problem,
            confirm=self.recreation.confirm,
            memory=memory,
            begun=self.now.monotonic,
            activity=self._activity(),
            pods=pods_of(self.jobset),
            result=Result(wait_s, _summary(self.actions, writes=writes)),
        )

    def _next_look_s(self, *waits_s: float) -> float | None:
        """Return the seconds until something has to be looked at again; ``None`` for nothing."""
        own_s = (
            self.paused_s,
            self.recreation.wait_s if self.recreation.held else 0.0,
            self.stalled.next_s or 0.0,
            0.0 if self.expiry is None else self.expiry.left_s(self.now),
            DEFINITION_S if self.observed.missing else 0.0,
        )
        return min((each for each in (*waits_s, *own_s) if each), default=None)

    def _activity(self) -> str:
        """Return the current activity of the JobSet, for the accounting of its time."""
        status = self.draft.status
        waits = {each.reason for each in self.waits}
        return activity(
            evolve(self.jobset, status=status),
            pauses=self.paused_s > 0,
            depends=keys.WAITING_FOR_DEPENDENCIES_REASON in waits
            or cond.is_true(status.conditions, keys.STARTUP_IN_PROGRESS_CONDITION),
            lost=self.observed.lost,
            lacks_pods=not self.ready and any(lacks_pods(job) for job in self.buckets.active),
        )

    def _remembered(self) -> p.JobsMemory:
        gone = (*self.buckets.previous, *self.buckets.marked, *self.regrouped)
        deleted = [job.metadata.name for job in gone]
        memory = self.recreation.remember(
            self.buckets.names.difference(deleted) if deleted else self.buckets.names,
            [action.name for action in self.actions if isinstance(action, p.CREATIONS)],
            [name for _, name in self.observed.surroundings],
        )
        return attrs.evolve(
            memory,
            restarting=self.restarting,
            pause=self.restart_pace.pause,
            deletion=self.deletion,
            expiry=self.expiry,
        )

    def _counters_wait_s(self, change: p.StatusChange | None) -> float:
        """Return the remaining wait for a change that affects only counters, in seconds."""
        if change is None or change.events or not change.patch.keys() <= _COUNTERS:
            return 0.0
        if not change.patch or change.status.restarts != self.jobset.status.restarts:
            return 0.0
        pause_s = self.observed.pace.pause_s(self.jobset)
        return self.counters_at + pause_s - self.now.monotonic

    def _notices(self, problem: str) -> tuple[p.EmitEvent, ...]:
        notices = [
            p.EmitEvent(cond.WARNING, keys.INVALID_JOB_REASON, item.why, item.job.metadata.name)
            for item in sorted(self.buckets.invalid, key=lambda item: item.job.metadata.name)
        ]
        notices += [stays_failed_notice(match) for match in self.stay_failed]
        notices += [
            p.EmitEvent(
                cond.NORMAL,
                keys.RESTART_REQUESTED_REASON,
                f"job {name!r} is recreated at the same attempt, since it carries the annotation "
                f"{keys.RESTART_ANNOTATION}",
                name,
            )
            for name in self._remade
        ]
        if problem:
            reason = keys.FAILURE_POLICY_NOT_APPLICABLE_REASON
            notices.append(p.EmitEvent(cond.WARNING, reason, problem))
        return (*notices, *self.waits)

    def _clean_up(self) -> p.JobsPlan:
        """Delete the unfinished Jobs of a finished JobSet, and the JobSet after its TTL.

        Jobs of any attempt are deleted, also those with unreadable labels: a finished JobSet leaves
        nothing running.
        """
        self._delete([job for job in self.observed.jobs if job.status.finished is None])
        self.deletion = _deletion_time(self.jobset, self.memory, self.now)
        if self.deletion is None:
            return self._result()
        left_s = self.deletion.left_s(self.now)
        if left_s > SOON_S:
            return self._result(delay_s=left_s)
        self.actions.append(_deletion(self.jobset))
        return self._result()

    def _delete(self, jobs: Sequence[Job]) -> None:
        self.actions += [
            p.DeleteJob(job.metadata.name, job.metadata.uid)
            for job in jobs
            if job.metadata.deletion_timestamp is None
        ]

    def _stalled_deletions(self) -> StalledDeletions:
        if all(job.metadata.deletion_timestamp is None for job in self.observed.jobs):
            return StalledDeletions()
        grace_s = {}
        for item in self.spec.replicated_jobs:
            pod_spec = child(item.template, "spec", "template", "spec")
            stated = number(pod_spec, "terminationGracePeriodSeconds")
            grace_s[item.name] = 30.0 if stated is None else float(stated)
        after_s = self.observed.deletion_stalled_after_s
        return stalled_deletions(self.observed.jobs, grace_s, self.now.wall, after_s)

    def _create_surroundings(self) -> None:
        present, rbac = self.observed.surroundings, self.observed.group_rbac
        missing = surroundings(self.jobset, present, rbac=rbac)
        self.actions += [each for each in missing if self.recreation.may_create(each.name)]

    def _create_jobs(self) -> None:
        policy = self.spec.failure_policy
        blocking = policy is not None and policy.restart_strategy == keys.BLOCKING_RECREATE
        blocked = blocking and bool(self.buckets.previous)
        if blocked:
            self.waits.append(WAITING_FOR_DELETION)
        # Without what they need, pods would only fail.
        blocked = self._pauses() or blocked or bool(self.recreation.held)
        ordered = self.in_order and not self.suspended
        left = CREATED_AT_ONCE
        for item in self.spec.replicated_jobs:
            if not self._dependencies_reached(item):
                self._wait_for_dependencies()
                continue
            if not blocked:
                left -= self._create_missing(item, left)
            started = has_started(self.wanted_jobs[item.name], self.counters.get(item.name))
            if ordered and not started:
                self.draft.set(cond.STARTUP_IN_PROGRESS)
                return
        if ordered:
            self.draft.set(cond.STARTUP_COMPLETED)

    def _create_missing(self, item: ReplicatedJob, limit: int) -> int:
        """Create missing Jobs of a ReplicatedJob; return their number, at most ``limit``.

        The next plan creates the others.
        """
        stem = job_name(self.jobset.metadata.name, item.name, "")
        taken = self.buckets.names
        missing = [index for index in range(item.replicas) if f"{stem}{index}" not in taken][:limit]
        number = len(missing)
        if missing and self.memory.children:
            missing = [i for i in missing if self.recreation.may_create(f"{stem}{i}")]
        if missing:
            builder = JobTemplateBuilder(self._parts, item)
            self.actions += [p.CreateJob(f"{stem}{i}", builder.body(i)) for i in missing]
        return number

    @cached_property
    def _parts(self) -> SharedParts:
        """Parts of Jobs; expensive, so they are made only when a Job has to be created."""
        observed, status = self.observed, self.jobset.status
        # That of the run which begins with this plan.
        status = evolve(status, execution_attempts=self.draft.status.execution_attempts)
        jobset = evolve(self.jobset, status=status)
        return SharedParts(jobset, self.features, observed.marks, observed.lost_node_deadline_s)

    def _pauses(self) -> bool:
        """Return whether a restart of all Jobs waits before it recreates them.

        A restart in place has its own back-off, at the barrier.
        """
        status = self.jobset.status
        if self.suspended or not cond.is_true(status.conditions, keys.RESTARTING_CONDITION):
            return False
        self.paused_s = self._wait_s()
        return self.paused_s > 0

    def _wait_s(self) -> float:
        """Return the remaining back-off in seconds; 0 if it is over."""
        wait_s = self.restart_pace.wait_s(self.jobset.status.restart_pacing)
        return wait_s if wait_s > SOON_S else 0.0

    def _wait_for_dependencies(self) -> None:
        if all(each.reason != keys.WAITING_FOR_DEPENDENCIES_REASON for each in self.waits):
            self.waits.append(waiting_notice(self.spec))

    def _suspend_or_resume(self) -> None:
        if self.queued_by_job:
            # A queue suspends and resumes each Job by itself (KEP-1172).
            self.draft.set(cond.RESUMED)
            return
        if self.suspended:
            self.actions += suspensions(self.buckets.active)
            self.draft.set(cond.SUSPENDED)
            self.draft.set(cond.RESTART_ENDED_SUSPENDED)
            self.draft.end_restart(history.INTERRUPTED)
            return
        suspended: dict[str, list[Job]] = {}
        for job in self.buckets.active:
            if job.spec.suspend is True:
                suspended.setdefault(replicated_job_of(job), []).append(job)
        self._recall_suspension()
        node_deadline_s = deadline_of(
            self.jobset.metadata.annotations, self.observed.lost_node_deadline_s
        )
        annotations = group_scheduling.job_annotations(self.jobset)
        attempt = attempt_annotation(self.draft.status)
        for item in self.spec.replicated_jobs:
            if not self._dependencies_reached(item):
                continue
            started = has_started(self.wanted_jobs[item.name], self.counters.get(item.name))
            self.actions += resumptions(
                item,
                suspended.get(item.name, ()),
                {**annotations.get(item.name, {}), **attempt},
                lost_node_deadline_s=node_deadline_s,
                resources=self.features.mutable_resources,
            )
            if self.in_order and not started:
                self.draft.set(cond.STARTUP_IN_PROGRESS)
                return
        self.draft.set(cond.RESUMED)

    def _recall_suspension(self) -> None:
        """Record a suspension that ended before it was written to the status.

        The status write for a JobSet that is resumed meanwhile is rejected; the time of the last
        resumption is read from this condition (``rules.in_place_record``).
        """
        all_stopped = all(job.spec.suspend is True for job in self.buckets.active)
        waits = any(item.depends_on for item in self.spec.replicated_jobs)
        if self.buckets.active and all_stopped and not waits:
            self.draft.set(cond.SUSPENDED)

    def _dependencies_reached(self, item: ReplicatedJob) -> bool:
        return not item.depends_on or dependencies_reached(item, self.counters, self.wanted_jobs)


def _summary(actions: Sequence[p.Action], *, writes: bool) -> str:
    """Return a short summary of the plan's actions; "" if there are none."""
    counts = Counter(
        f"Create{action.kind}" if isinstance(action, p.CreateObject) else type(action).__name__
        for action in actions
    )
    parts = [f"{name} {count}" for name, count in counts.items()]
    if writes:
        parts.append("status")
    return ", ".join(parts)
