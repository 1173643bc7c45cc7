"""What happens when child Jobs fail (KEP-262).

Each failure is decided by the first rule that applies to it, and the strongest outcome is carried
out: the end of the JobSet, a restart of all Jobs, of ReplicatedJobs, of single Jobs. A counted
restart comes before one that is not counted. Among equal outcomes the earlier rule's is taken,
and among its Jobs the one that failed first is named. One decision covers all Jobs that failed: a
restart of all Jobs replaces every one of them, and restarts of single Jobs or ReplicatedJobs are
decided one after the other until none is left.

A Job that ``FailJob`` covers takes no part in that: it stays failed, and its rule is found again in
every reconcile, since reason and message of a failure never change.
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
from jobsetpy.domain import conditions as cond
from jobsetpy.domain import history
from jobsetpy.domain.features import Features
from jobsetpy.domain.jobs.actions import (
    FAIL_JOB,
    FAIL_JOBSET,
    RESTART_JOB,
    RESTART_JOB_UNCOUNTED,
    RESTART_JOBSET,
    RESTART_JOBSET_UNCOUNTED,
    RESTART_REPLICATED_JOB,
    RESTART_REPLICATED_JOB_UNCOUNTED,
)
from jobsetpy.domain.jobs.backoff import UNPACED, Pace, recorded, restarts_in_place
from jobsetpy.domain.jobs.budget import spent
from jobsetpy.domain.jobs.patterns import found
from jobsetpy.domain.membership import parse_count, replicated_job_of
from jobsetpy.domain.plan import EmitEvent
from jobsetpy.domain.status import StatusDraft

REACHED_MAX_RESTARTS: Final = "ReachedMaxRestarts"
NO_FAILURE_POLICY: Final = "NoFailurePolicy"
DECISIONS: Final = (
    *(FAIL_JOBSET, RESTART_JOBSET, RESTART_JOBSET_UNCOUNTED, RESTART_JOB, RESTART_JOB_UNCOUNTED),
    *(RESTART_REPLICATED_JOB, RESTART_REPLICATED_JOB_UNCOUNTED, FAIL_JOB),
    *(REACHED_MAX_RESTARTS, NO_FAILURE_POLICY),
)
"""All that can come of a failure: an action, or an end without one."""

_COUNTED: Final = frozenset({RESTART_JOB, RESTART_REPLICATED_JOB})
_SINGLE: Final = frozenset({RESTART_JOB, RESTART_JOB_UNCOUNTED})
_WHOLE: Final = frozenset({RESTART_REPLICATED_JOB, RESTART_REPLICATED_JOB_UNCOUNTED})
"""Actions that recreate all Jobs of a ReplicatedJob."""
_RANKS: Final = {
    FAIL_JOBSET: 0,
    RESTART_JOBSET: 2,
    RESTART_JOBSET_UNCOUNTED: 3,
    RESTART_REPLICATED_JOB: 4,
    RESTART_REPLICATED_JOB_UNCOUNTED: 5,
    RESTART_JOB: 6,
    RESTART_JOB_UNCOUNTED: 7,
}
"""Outcomes, the strongest first; 1 is a restart for which there is no budget left."""
MAX_REPLICAS_OF_PARTIAL_RESTARTS: Final = 1024
"""Restarts of single Jobs are counted in a list of the status that has this many places."""
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@attrs.frozen
class Match:
    """The action chosen for a failure; ``rule`` is ``None`` for the default."""

    action: str
    job: Job
    rule: FailurePolicyRule | None = None


def apply_failure_policy(
    jobset: JobSet,
    failed: Iterable[Job],
    draft: StatusDraft,
    features: Features,
    pace: Pace = UNPACED,
) -> str:
    """Decide on the failed Jobs and write the decision into the draft.

    Args:
        jobset: for its policy; the counters are read from the draft.
        failed: Jobs of the current attempt that failed, at least one, in any order, without
            those that ``split`` found to stay failed.
        draft: its status receives restarts, conditions and events.
        features: whether single Jobs and ReplicatedJobs may be restarted.
        pace: how restarts of all Jobs are delayed, and within what time restarts are counted.

    Returns:
        Why nothing could be decided (the spec asks for what this controller may not do), or "".
    """
    remaining = sorted(failed, key=_failed_first)
    policy = _named(jobset.spec.failure_policy)
    if policy is None:
        draft.fail(
            keys.FAILED_JOBS_REASON,
            f"jobset failed due to one or more job failures{_suffix(remaining[0])}",
        )
        draft.decided(NO_FAILURE_POLICY)
        _explain(draft, [remaining[0]], "no failure policy")
        return ""
    parts: dict[tuple[FailurePolicyRule | None, str], list[Job]] = {}
    problem = _apply(jobset, policy, remaining, draft, features=features, pace=pace, parts=parts)
    _explain_parts(draft, parts)
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
    parts: dict[tuple[FailurePolicyRule | None, str], list[Job]],
) -> str:
    """Carry out the strongest of what is decided; ``parts`` gathers single Jobs by decision."""
    no_budget = _budget_spent(policy, draft, pace)
    matches = sorted(
        (choose(policy, job) for job in failed), key=lambda match: _rank(policy, match, no_budget)
    )
    recreated: set[str] = set()
    for match in matches:
        if match.action not in _SINGLE | _WHOLE:
            return _apply_to_all(policy, match, draft, pace)
        if replicated_job_of(match.job) in recreated:
            continue
        if not features.restart_job:
            return f"failure policy action {match.action} needs the feature gate RestartJob"
        if match.action in _COUNTED and _budget_spent(policy, draft, pace):
            _explain_parts(draft, parts)
            _fail_for_max_restarts(policy, match, draft)
            return ""
        problem = _restart_part(jobset, match, draft)
        if problem:
            return problem
        draft.decided(match.action)
        if match.action in _SINGLE:
            parts.setdefault((match.rule, match.action), []).append(match.job)
        else:
            recreated.add(replicated_job_of(match.job))
    return ""


def _rank(policy: FailurePolicy, match: Match, no_budget: bool) -> tuple[int, int]:
    """The lower, the stronger; among equals the earlier rule.

    A counted restart for which there is no budget ends the JobSet.
    """
    rules = policy.rules
    place = len(rules) if match.rule is None else rules.index(match.rule)
    if no_budget and match.action in {RESTART_JOBSET, *_COUNTED}:
        return 1, place
    return _RANKS.get(match.action, len(_RANKS) + 1), place


def _named(policy: FailurePolicy | None) -> FailurePolicy | None:
    """A policy whose rules all have names: those that admission gives where it is asked."""
    if policy is None or all(rule.name for rule in policy.rules):
        return policy
    rules = tuple(
        rule if rule.name else evolve(rule, name=f"failurePolicyRule{at}")
        for at, rule in enumerate(policy.rules)
    )
    return evolve(policy, rules=rules)


def split(policy: FailurePolicy | None, failed: Iterable[Job]) -> tuple[list[Match], list[Job]]:
    """Tell failed Jobs that stay as they are from those that something has to be decided about.

    A Job stays failed if the first rule that applies to it says ``FailJob``. That holds until its
    whole ReplicatedJob or JobSet is restarted for another failure: "all Jobs" includes it.

    Args:
        policy: of the JobSet.
        failed: Jobs of the current attempt that failed, in any order.

    Returns:
        What stays failed, the Job that failed first in front; and the other Jobs.
    """
    if policy is None or all(rule.action != FAIL_JOB for rule in policy.rules):
        return [], list(failed)
    policy = _named(policy) or policy
    stay: list[Match] = []
    others: list[Job] = []
    for job in sorted(failed, key=_failed_first):
        match = choose(policy, job)
        if match.action == FAIL_JOB:
            stay.append(match)
        else:
            others.append(job)
    return stay, others


def stays_failed_notice(match: Match) -> EmitEvent:
    """The event about a Job that stays failed."""
    message = f"applying FailJob failure policy action{_cause(match)}: the job stays failed"
    return EmitEvent(
        cond.WARNING, keys.FAIL_JOB_REASON, message + _suffix(match.job), match.job.metadata.name
    )


def fail_beyond_completion(stay: list[Match], draft: StatusDraft) -> None:
    """End a JobSet that ``FailJob`` keeps from ever completing.

    Args:
        stay: the Jobs that stay failed, at least one, the one that failed first in front.
        draft: receives the end.
    """
    count = len(stay)
    jobs = "1 job stays" if count == 1 else f"{count} jobs stay"
    draft.fail(
        keys.FAIL_JOB_REASON,
        f"jobset cannot complete: {jobs} failed by failure policy action FailJob"
        f"{_cause(stay[0])}{_suffix(stay[0].job)}",
    )


def choose(policy: FailurePolicy, job: Job) -> Match:
    """The first rule that applies to a failed Job; without one the whole JobSet restarts."""
    rule = next((rule for rule in policy.rules if applies(rule, job)), None)
    return Match(RESTART_JOBSET if rule is None else rule.action, job, rule)


def applies(rule: FailurePolicyRule, job: Job) -> bool:
    """Whether reason, message and ReplicatedJob of a failed Job are among those of the rule."""
    condition = job.status.failed_condition
    replicated = replicated_job_of(job)
    if condition is None or not replicated:
        return False
    if rule.target_replicated_jobs and replicated not in rule.target_replicated_jobs:
        return False
    if rule.on_job_failure_reasons and condition.reason not in rule.on_job_failure_reasons:
        return False
    patterns = rule.on_job_failure_message_patterns
    return not patterns or any(found(pattern, condition.message) for pattern in patterns)


def failed_at(job: Job) -> datetime:
    """When a Job failed; Jobs that do not say come last."""
    condition = job.status.failed_condition
    if condition is None or condition.last_transition_time is None:
        return _NEVER
    return condition.last_transition_time


def _failed_first(job: Job) -> tuple[datetime, str]:
    # Names decide between equal times, so that the order in the cache does not matter.
    return failed_at(job), job.metadata.name


def _apply_to_all(policy: FailurePolicy, match: Match, draft: StatusDraft, pace: Pace) -> str:
    suffix = _suffix(match.job)
    message = f"applying {match.action} failure policy action{suffix}"
    action = match.action
    match action:
        case "FailJobSet":
            draft.fail(keys.FAIL_JOBSET_REASON, message)
            draft.decided(action)
            _explain(draft, [match.job], _chosen(match.rule, action))
            return ""
        case "RestartJobSet":
            if _budget_spent(policy, draft, pace):
                _fail_for_max_restarts(policy, match, draft)
                return ""
        case "RestartJobSetAndIgnoreMaxRestarts":
            pass
        case _:
            return f"unknown failure policy action {match.action!r}"
    draft.restart_all(counts_towards_max=match.action == RESTART_JOBSET)
    _record(draft, history.RECREATE, match, number=draft.status.restarts)
    if match.rule is None:
        reason = keys.DEFAULT_FAILURE_POLICY_REASON
    else:
        reason = f"{keys.FAILURE_POLICY_REASON_PREFIX}{match.rule.name}"
    delay = _delay(draft, pace)
    draft.set(cond.restarting(reason, f"{message}; {delay}" if delay else message))
    draft.event(cond.WARNING, f"{match.action}FailurePolicyAction", message)
    draft.decided(action)
    _explain(draft, [match.job], _chosen(match.rule, action))
    return ""


def _budget_spent(policy: FailurePolicy, draft: StatusDraft, pace: Pace) -> bool:
    return pace.used(draft.old, spent(draft.status)) >= policy.max_restarts


def _delay(draft: StatusDraft, pace: Pace) -> str:
    """Note that all Jobs restart now; what their start waits for, or ""."""
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


def _explain_parts(
    draft: StatusDraft, parts: dict[tuple[FailurePolicyRule | None, str], list[Job]]
) -> None:
    """Tell of restarts of single Jobs, all Jobs of a rule together; each is told once."""
    for (rule, action), jobs in parts.items():
        _record(
            draft,
            history.JOB,
            Match(action, jobs[0], rule),
            number=_own_restarts(draft, jobs[0]),
            target=jobs[0].metadata.name,
            more_jobs=len(jobs) - 1,
        )
        _explain(draft, jobs, _chosen(rule, action))
    parts.clear()


def _explain(draft: StatusDraft, jobs: list[Job], decision: str) -> None:
    """Tell rule, Job, reason and the failure's own message.

    In an event of its own: users' tools know the texts of all the others.
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


def _restart_part(jobset: JobSet, match: Match, draft: StatusDraft) -> str:
    """Count the restart of the failed Job, or of every Job of its ReplicatedJob."""
    name = replicated_job_of(match.job)
    index = parse_count(match.job.metadata.labels.get(keys.JOB_INDEX))
    replicas = {item.name: item.replicas for item in jobset.spec.replicated_jobs}.get(name)
    if replicas is None or index is None or index >= replicas:
        return f"job {match.job.metadata.name!r} cannot be restarted: its labels do not place it"
    if replicas > MAX_REPLICAS_OF_PARTIAL_RESTARTS:
        return (
            f"failure policy action {match.action} needs a replicated job of at most "
            f"{MAX_REPLICAS_OF_PARTIAL_RESTARTS} replicas, since each Job's restarts are counted: "
            f"{name!r} has {replicas}"
        )
    whole = match.action in _WHOLE
    draft.restart_part(
        tuple(
            _bumped(item, index, replicas, whole=whole, counts_towards_max=match.action in _COUNTED)
            if item.name == name
            else item
            for item in draft.status.replicated_jobs_status
        ),
        whole=whole,
    )
    message = f"applying {match.action} failure policy action"
    if whole:
        number = _own_restarts(draft, match.job)
        _record(draft, history.REPLICATED_JOB, match, number=number, target=name)
        message += f" to replicated job {name!r}{_cause(match)}"
    draft.event(
        cond.WARNING, f"{match.action}FailurePolicyAction", f"{message}{_suffix(match.job)}"
    )
    return ""


def _record(draft: StatusDraft, kind: str, match: Match, **details: Any) -> None:
    """Add the restart that was just counted to the history."""
    at = failed_at(match.job)
    draft.record(
        history.jobs_restarted(
            kind,
            match.job,
            draft.now,
            None if at is _NEVER else at,
            rule="" if match.rule is None else match.rule.name,
            counted=match.action in _COUNTED or match.action == RESTART_JOBSET,
            **details,
        )
    )


def _own_restarts(draft: StatusDraft, job: Job) -> int:
    """How often a Job was restarted by itself or with its ReplicatedJob."""
    index = parse_count(job.metadata.labels.get(keys.JOB_INDEX)) or 0
    name = replicated_job_of(job)
    for item in draft.status.replicated_jobs_status:
        if item.name == name and index < len(item.job_restarts):
            return item.job_restarts[index]
    return 0


def _bumped(
    status: ReplicatedJobStatus,
    index: int,
    replicas: int,
    *,
    whole: bool,
    counts_towards_max: bool,
) -> ReplicatedJobStatus:
    """Counters after a restart.

    A restart of the whole ReplicatedJob moves every index on, so that none of its Jobs is current
    any more, but counts one towards the maximum: at the index of the Job that failed.
    """
    restarts = _plus_one(status.job_restarts, None if whole else index, replicas)
    counted = status.job_restarts_count_towards_max
    if counts_towards_max:
        counted = _plus_one(counted, index, replicas)
    return evolve(status, job_restarts=restarts, job_restarts_count_towards_max=counted)


def _plus_one(values: tuple[int, ...], index: int | None, length: int) -> tuple[int, ...]:
    """One more at an index, or at all of them for ``None``; padded to the length."""
    out = [*values, *(0 for _ in range(length - len(values)))]
    return tuple(value + (index is None or at == index) for at, value in enumerate(out))


def _cause(match: Match) -> str:
    """Rule and reason, for messages."""
    condition = match.job.status.failed_condition
    rule = f" by rule {match.rule.name!r}" if match.rule is not None else ""
    return f"{rule} for reason {condition.reason!r}" if condition is not None else rule


def _suffix(job: Job) -> str:
    return f" (first failed job: {job.metadata.name})"
