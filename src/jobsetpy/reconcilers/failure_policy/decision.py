"""Failure policy: decisions on failed child Jobs (KEP-262).

The first rule that applies to a failure decides on it. If several Jobs have failed, they are
decided in the order of their rules, the default last, and among Jobs of one rule the one that
failed first comes first. A restart of all Jobs, and the end of the JobSet, cover all failures that
are left. A restart of a Job or ReplicatedJob covers the failures within it, and the next failure is
decided: counters and state are those of deciding one failure at a time, in one status write.

A Job with a ``FailJob`` rule is excluded: it stays failed, and every reconcile finds its rule
again, since reason and message of a failure never change.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import FailurePolicy, FailurePolicyRule, JobSet, ReplicatedJobStatus
from jobsetpy.api.meta import condition_true
from jobsetpy.reconcilers.failure_policy import actions as act
from jobsetpy.reconcilers.failure_policy.patterns import found, patterns_problems
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import history
from jobsetpy.reconcilers.rules.backoff import UNPACED, Pace, recorded, restarts_in_place
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.membership import parse_count, replicated_job_of
from jobsetpy.reconcilers.rules.plan import EmitEvent
from jobsetpy.reconcilers.rules.restart_budget import spent
from jobsetpy.reconcilers.rules.status_draft import StatusDraft

REACHED_MAX_RESTARTS: Final = "ReachedMaxRestarts"
NO_FAILURE_POLICY: Final = "NoFailurePolicy"

_COUNTED: Final = frozenset({act.RESTART_JOB, act.RESTART_REPLICATED_JOB})
DECISIONS: Final = (
    *(act.FAIL_JOBSET, act.RESTART_JOBSET, act.RESTART_JOBSET_UNCOUNTED),
    *sorted(act.SINGLE | act.WHOLE),
    *(act.FAIL_JOB, REACHED_MAX_RESTARTS, NO_FAILURE_POLICY),
)
"""Possible decisions on a failure: an action, or the end of the JobSet without one."""
MAX_REPLICAS_OF_PARTIAL_RESTARTS: Final = 1024
"""Maximum replicas with restarts of single Jobs, which are counted in a list of the status."""
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@attrs.frozen
class Match:
    """Action chosen for a failure.

    Args:
        action: one of the actions of a rule.
        job: the Job that failed.
        rule: the rule that applies; ``None`` for the default.
        place: index of the rule in the policy; the number of rules for the default.
    """

    action: str
    job: Job
    rule: FailurePolicyRule | None = None
    place: int = 0


class Rules:
    """Rules of a failure policy, prepared once and then applied to any number of Jobs.

    Rules without names get the names that admission would set. Patterns that admission would refuse
    match nothing.
    """

    def __init__(self, policy: FailurePolicy) -> None:
        self._rules = [
            rule if rule.name else evolve(rule, name=f"failurePolicyRule{at}")
            for at, rule in enumerate(policy.rules)
        ]
        self._patterns = _usable_patterns(policy)
        self._targets = [frozenset(rule.target_replicated_jobs) for rule in policy.rules]
        self._candidates: dict[tuple[str, str], list[int]] = {}
        self._places: dict[tuple[str, str, str], int] = {}

    def choose(self, job: Job) -> Match:
        """Return the first rule that applies to a failed Job; by default, all Jobs restart."""
        condition = job.status.failed_condition
        replicated = replicated_job_of(job)
        place = len(self._rules)
        if condition is not None and replicated:
            # Jobs that fail together mostly share one reason and message.
            signs = (replicated, condition.reason, condition.message)
            known = self._places.get(signs)
            place = self._places[signs] = self._place(*signs) if known is None else known
        if place == len(self._rules):
            return Match(act.RESTART_JOBSET, job, None, place)
        rule = self._rules[place]
        return Match(rule.action, job, rule, place)

    def _place(self, replicated: str, reason: str, message: str) -> int:
        sign = (replicated, reason)
        if sign not in self._candidates:
            self._candidates[sign] = self._possible(*sign)
        for place in self._candidates[sign]:
            patterns = self._patterns[place]
            if patterns is None or any(found(each, message) for each in patterns):
                return place
        return len(self._rules)

    def _possible(self, replicated: str, reason: str) -> list[int]:
        """Return the rules that may apply, up to the first that applies to any message."""
        out = []
        for place, (rule, targets) in enumerate(zip(self._rules, self._targets, strict=True)):
            reasons = rule.on_job_failure_reasons or (reason,)
            if reason in reasons and replicated in (targets or {replicated}):
                out.append(place)
                if self._patterns[place] is None:
                    break
        return out


def _usable_patterns(policy: FailurePolicy) -> list[list[str] | None]:
    """Return by rule the patterns of which one has to match; ``None`` for any message."""
    patterns = [rule.on_job_failure_message_patterns for rule in policy.rules]
    problems = iter(patterns_problems(tuple(each for some in patterns for each in some)))
    return [
        [pattern for pattern in some if not next(problems)] if some else None for some in patterns
    ]


def apply_failure_policy(
    jobset: JobSet,
    failed: Iterable[Job],
    draft: StatusDraft,
    features: Features,
    pace: Pace = UNPACED,
) -> str:
    """Decide on the failed Jobs and write the decision into the draft.

    Args:
        jobset: JobSet with the policy; the counters are read from the draft.
        failed: failed Jobs of the current attempt, at least one, in any order, without those that
            stay failed according to ``split``.
        draft: its status receives restarts, conditions and events.
        features: feature gates for restarts of single Jobs and ReplicatedJobs.
        pace: back-off of restarts of all Jobs, and the window in which restarts are counted.

    Returns:
        Reason why nothing could be decided (the spec requests a disabled action), or "".
    """
    remaining = sorted(failed, key=_failed_first)
    policy = jobset.spec.failure_policy
    if policy is None:
        draft.fail(
            keys.FAILED_JOBS_REASON,
            f"jobset failed due to one or more job failures{_suffix(remaining[0])}",
        )
        draft.decided(NO_FAILURE_POLICY)
        _explain(draft, [remaining[0]], "no failure policy")
        return ""
    problem = _apply(jobset, policy, remaining, draft, features=features, pace=pace)
    draft.evolve(
        restart_pacing=pace.remember(
            draft.old, draft.status.restart_pacing, recorded(draft.status), policy.max_restarts
        )
    )
    return problem


def _apply(
    jobset: JobSet,
    policy: FailurePolicy,
    failed: list[Job],
    draft: StatusDraft,
    *,
    features: Features,
    pace: Pace,
) -> str:
    """Decide on failures in the order of rules, until a decision covers all that are left."""
    left = pace.left(draft.old, spent(draft.status), policy.max_restarts)
    rules = Rules(policy)
    # The sort is stable: Jobs of one rule stay in the order in which they failed. Actions of a
    # newer CRD come last, so that they do not delay those that can be executed.
    matches = sorted(
        map(rules.choose, failed), key=lambda match: (match.action not in DECISIONS, match.place)
    )
    counters = _PartCounters(jobset, draft)
    recreated: set[str] = set()
    for match in matches:
        if match.action not in act.SINGLE | act.WHOLE:
            # Stored first, since the budget of a restart of all Jobs is what these have left.
            counters.store()
            return _apply_to_all(policy, match, draft, pace)
        if replicated_job_of(match.job) in recreated:
            continue
        if not features.restart_job:
            problem = f"failure policy action {match.action} needs the feature gate RestartJob"
        elif match.action in _COUNTED and left <= 0:
            counters.store()
            _fail_for_max_restarts(policy, match, draft)
            return ""
        else:
            problem = counters.restart(match)
        if problem:
            counters.store()
            return problem
        left -= match.action in _COUNTED
        draft.decided(match.action)
        if match.action in act.WHOLE:
            recreated.add(replicated_job_of(match.job))
    counters.store()
    return ""


def split(policy: FailurePolicy | None, failed: Iterable[Job]) -> tuple[list[Match], list[Job]]:
    """Split failed Jobs into those that stay failed and those that need a decision.

    A Job stays failed if the action of the first rule that applies to it is ``FailJob``. That holds
    until its whole ReplicatedJob or JobSet is restarted for another failure: "all Jobs" includes
    it.

    Args:
        policy: failure policy of the JobSet.
        failed: Jobs of the current attempt that failed, in any order.

    Returns:
        Jobs that stay failed, the first to fail in front; and the other Jobs.
    """
    if policy is None or all(rule.action != act.FAIL_JOB for rule in policy.rules):
        return [], list(failed)
    rules = Rules(policy)
    stay: list[Match] = []
    others: list[Job] = []
    for job in sorted(failed, key=_failed_first):
        match = rules.choose(job)
        if match.action == act.FAIL_JOB:
            stay.append(match)
        else:
            others.append(job)
    return stay, others


def stays_failed_notice(match: Match) -> EmitEvent:
    """Return the event about a Job that stays failed."""
    message = f"applying FailJob failure policy action{_cause(match)}: the job stays failed"
    return EmitEvent(
        cond.WARNING, keys.FAIL_JOB_REASON, message + _suffix(match.job), match.job.metadata.name
    )


def fail_beyond_completion(stay: list[Match], draft: StatusDraft) -> None:
    """End a JobSet that can never complete because of ``FailJob``.

    Args:
        stay: the Jobs that stay failed, at least one, the one that failed first in front.
        draft: status draft that receives the end.
    """
    count = len(stay)
    jobs = "1 job stays" if count == 1 else f"{count} jobs stay"
    draft.fail(
        keys.FAIL_JOB_REASON,
        f"jobset cannot complete: {jobs} failed by failure policy action FailJob"
        f"{_cause(stay[0])}{_suffix(stay[0].job)}",
    )


def failed_at(job: Job) -> datetime:
    """Return the time at which a Job failed; Jobs without one come last."""
    condition = job.status.failed_condition
    if condition is None or condition.last_transition_time is None:
        return _NEVER
    return condition.last_transition_time


def _failed_first(job: Job) -> tuple[datetime, str]:
    # Equal times are ordered by name, so that the order in the cache does not matter.
    return failed_at(job), job.metadata.name


def _apply_to_all(policy: FailurePolicy, match: Match, draft: StatusDraft, pace: Pace) -> str:
    suffix = _suffix(match.job)
    message = f"applying {match.action} failure policy action{suffix}"
    action = match.action
    if action == act.FAIL_JOBSET:
        draft.fail(keys.FAIL_JOBSET_REASON, message)
        draft.decided(action)
        _explain(draft, [match.job], _chosen(match.rule, action))
        return ""
    if action not in {act.RESTART_JOBSET, act.RESTART_JOBSET_UNCOUNTED}:
        return f"unknown failure policy action {action!r}"
    counted = action == act.RESTART_JOBSET
    if counted and pace.left(draft.old, spent(draft.status), policy.max_restarts) <= 0:
        _fail_for_max_restarts(policy, match, draft)
        return ""
    draft.restart_all(counts_towards_max=counted)
    _record(draft, history.RECREATE, match, number=draft.status.restarts)
    if match.rule is None:
        reason = keys.DEFAULT_FAILURE_POLICY_REASON
    else:
        reason = f"{keys.FAILURE_POLICY_REASON_PREFIX}{match.rule.name}"
    delay = delay_recreation(draft, pace)
    draft.set(cond.restarting(reason, f"{message}; {delay}" if delay else message))
    draft.event(cond.WARNING, f"{match.action}FailurePolicyAction", message)
    draft.decided(action)
    _explain(draft, [match.job], _chosen(match.rule, action))
    return ""


def delay_recreation(draft: StatusDraft, pace: Pace) -> str:
    """Record that all Jobs restart now; return why their start is delayed, or ""."""
    begun = draft.status.restart_pacing
    if not restarts_in_place(draft.old):  # otherwise the two are one restart
        begun = pace.begin(draft.status)
    wait_s = pace.wait_s(begun)
    at = pace.now + timedelta(seconds=wait_s) if wait_s else None
    explanation = pace.explain(begun)
    draft.evolve(restart_pacing=begun)
    draft.evolve(restart_pacing=pace.started(draft.status, at))
    return explanation


def _fail_for_max_restarts(policy: FailurePolicy, match: Match, draft: StatusDraft) -> None:
    draft.fail(
        keys.REACHED_MAX_RESTARTS_REASON,
        f"jobset failed due to reaching max number of restarts{_suffix(match.job)}",
    )
    draft.decided(REACHED_MAX_RESTARTS)
    why = f"not taken, since all {policy.max_restarts} restarts are used up"
    _explain(draft, [match.job], f"{_chosen(match.rule, match.action)} {why}")


def _chosen(rule: FailurePolicyRule | None, action: str) -> str:
    return f"{'no rule applies' if rule is None else f'rule {rule.name!r}'}, action {action}"


def _explain(draft: StatusDraft, jobs: list[Job], decision: str) -> None:
    """Report rule, Job, reason and the failure's own message.

    It is a separate event, because users' tools match the texts of the others.
    """
    job = jobs[0]
    condition = job.status.failed_condition
    text = f"{decision}: job {job.metadata.name!r} failed"
    if condition is not None:
        text += f" for reason {condition.reason!r}"
        text += f" ({condition.message})" if condition.message else ""
    if len(jobs) > 1:
        text += f", and {len(jobs) - 1} more"
    draft.event(cond.NORMAL, keys.FAILURE_POLICY_APPLIED_REASON, text, job.metadata.name)


class _PartCounters:
    """Counters of restarts of Jobs and ReplicatedJobs, stored as one change.

    A restart of a whole ReplicatedJob increments every index, so that none of its Jobs is current,
    but counts one towards the maximum: at the index of the Job that failed.
    """

    def __init__(self, jobset: JobSet, draft: StatusDraft) -> None:
        self._draft = draft
        self._replicas = {item.name: item.replicas for item in jobset.spec.replicated_jobs}
        self._old = {item.name: item for item in draft.status.replicated_jobs_status}
        self._restarts: dict[str, list[int]] = {}
        self._counted: dict[str, list[int]] = {}
        self._wholes: list[tuple[Match, int]] = []
        self._parts: dict[tuple[int, str], list[tuple[Match, int]]] = {}

    def restart(self, match: Match) -> str:
        """Count the restart of the failed Job, or of every Job of its ReplicatedJob.

        Returns:
            Reason why it cannot be counted, or "".
        """
        name = replicated_job_of(match.job)
        replicas = self._replicas.get(name)
        index = parse_count(match.job.metadata.labels.get(keys.JOB_INDEX))
        if replicas is None or index is None or index >= replicas:
            job = match.job.metadata.name
            return f"job {job!r} cannot be restarted: its labels do not place it"
        if replicas > MAX_REPLICAS_OF_PARTIAL_RESTARTS:
            return (
                f"failure policy action {match.action} needs a replicated job of at most "
                f"{MAX_REPLICAS_OF_PARTIAL_RESTARTS} replicas, since each Job's restarts are "
                f"counted: {name!r} has {replicas}"
            )
        old = self._old.get(name) or ReplicatedJobStatus()
        restarts = _numbers(self._restarts, name, old.job_restarts, replicas)
        whole = match.action in act.WHOLE
        for at in range(len(restarts)) if whole else (index,):
            restarts[at] += 1
        if match.action in _COUNTED:
            stored = old.job_restarts_count_towards_max
            _numbers(self._counted, name, stored, replicas)[index] += 1
        message = f"applying {match.action} failure policy action"
        if whole:
            self._wholes.append((match, restarts[index]))
            message += f" to replicated job {name!r}{_cause(match)}"
        else:
            parts = self._parts.setdefault((match.place, match.action), [])
            parts.append((match, restarts[index]))
        self._draft.event(
            cond.WARNING, f"{match.action}FailurePolicyAction", f"{message}{_suffix(match.job)}"
        )
        return ""

    def store(self) -> None:
        """Store all counters in the draft, and report the restarts.

        Those of single Jobs are reported for all Jobs of a rule together.
        """
        if not self._restarts:
            return
        self._draft.restart_parts(
            tuple(
                self._changed(item) if item.name in self._restarts else item
                for item in self._draft.status.replicated_jobs_status
            ),
            {
                history.JOB: sum(map(len, self._parts.values())),
                history.REPLICATED_JOB: len(self._wholes),
            },
        )
        for match, number in self._wholes[-history.MAX_RECORDS :]:
            name = replicated_job_of(match.job)
            _record(self._draft, history.REPLICATED_JOB, match, number=number, target=name)
        for (_, action), parts in self._parts.items():
            match, number = parts[0]
            target, more = match.job.metadata.name, len(parts) - 1
            _record(self._draft, history.JOB, match, number=number, target=target, more_jobs=more)
            jobs = [each.job for each, _ in parts]
            _explain(self._draft, jobs, _chosen(match.rule, action))

    def _changed(self, status: ReplicatedJobStatus) -> ReplicatedJobStatus:
        counted = self._counted.get(status.name, status.job_restarts_count_towards_max)
        restarts = tuple(self._restarts[status.name])
        return evolve(status, job_restarts=restarts, job_restarts_count_towards_max=tuple(counted))


def _numbers(
    known: dict[str, list[int]], name: str, stored: tuple[int, ...], length: int
) -> list[int]:
    """Return the numbers of a ReplicatedJob's Jobs, at first the stored ones, else 0."""
    if name not in known:
        known[name] = [*stored, *(0 for _ in range(length - len(stored)))]
    return known[name]


def _record(draft: StatusDraft, kind: str, match: Match, **details: Any) -> None:
    """Add the counted restart to the history."""
    # A Job decides to fail first, and has failed once all of its pods have ended.
    decided = condition_true(match.job.status.conditions, "FailureTarget")
    at = (decided and decided.last_transition_time) or failed_at(match.job)
    draft.record(
        history.jobs_restarted(
            kind,
            match.job,
            draft.now,
            None if at is _NEVER else at,
            rule="" if match.rule is None else match.rule.name,
            counted=match.action in _COUNTED or match.action == act.RESTART_JOBSET,
            **details,
        )
    )


def _cause(match: Match) -> str:
    """Return rule and reason, for messages."""
    condition = match.job.status.failed_condition
    rule = f" by rule {match.rule.name!r}" if match.rule is not None else ""
    return f"{rule} for reason {condition.reason!r}" if condition is not None else rule


def _suffix(job: Job) -> str:
    return f" (first failed job: {job.metadata.name})"
