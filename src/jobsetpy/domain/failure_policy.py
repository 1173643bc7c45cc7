"""What happens when child Jobs fail (KEP-262).

The first rule of the list that applies to some failed Job is chosen, and among the Jobs it applies
to the one that failed first. One decision covers all Jobs that failed: a restart of all Jobs
replaces every one of them, and restarts of single Jobs are decided one after the other until none
is left, exactly as if each had a pass of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import FailurePolicy, FailurePolicyRule, JobSet, ReplicatedJobStatus
from jobsetpy.domain import conditions as cond
from jobsetpy.domain.buckets import parse_count, replicated_job_of
from jobsetpy.domain.features import Features
from jobsetpy.domain.patterns import found
from jobsetpy.domain.status import StatusDraft
from jobsetpy.domain.values import evolve

FAIL_JOBSET: Final = "FailJobSet"
RESTART_JOBSET: Final = "RestartJobSet"
RESTART_JOBSET_UNCOUNTED: Final = "RestartJobSetAndIgnoreMaxRestarts"
RESTART_JOB: Final = "RestartJob"
RESTART_JOB_UNCOUNTED: Final = "RestartJobAndIgnoreMaxRestarts"

NOT_APPLICABLE_REASON: Final = "FailurePolicyNotApplicable"
"""Reason of the event when a failure cannot be handled as the policy says."""

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@attrs.frozen
class Match:
    """The action chosen for a failure; ``rule`` is ``None`` for the default."""

    action: str
    job: Job
    rule: FailurePolicyRule | None = None


def apply_failure_policy(
    jobset: JobSet, failed: Iterable[Job], draft: StatusDraft, features: Features
) -> str:
    """Decide on the failed Jobs and write the decision into the draft.

    Args:
        jobset: for its policy; the counters are read from the draft.
        failed: Jobs of the current attempt that failed, at least one, in any order.
        draft: its status receives restarts, conditions and events.
        features: whether single Jobs may be restarted.

    Returns:
        Why nothing could be decided (the spec asks for what this controller may not do), or "".
    """
    remaining = sorted(failed, key=_failed_first)
    policy = jobset.spec.failure_policy
    if policy is None:
        draft.fail(
            keys.FAILED_JOBS_REASON,
            f"jobset failed due to one or more job failures{_suffix(remaining[0])}",
        )
        return ""
    while remaining:
        match = choose(policy, remaining)
        if match.action not in {RESTART_JOB, RESTART_JOB_UNCOUNTED}:
            return _apply_to_all(policy, match, draft, features)
        if not features.restart_job:
            return f"failure policy action {match.action} needs the feature gate RestartJob"
        counts = match.action == RESTART_JOB
        if counts and _budget_spent(policy, draft, features):
            _fail_for_max_restarts(match.job, draft)
            return ""
        problem = _restart_job(jobset, match, draft, counts_towards_max=counts)
        if problem:
            return problem
        remaining.remove(match.job)
    return ""


def choose(policy: FailurePolicy, failed: list[Job]) -> Match:
    """The first rule with a Job it applies to; the order of rules beats the order of failures.

    Args:
        policy: with rules or without.
        failed: at least one Job, the one that failed first in front.
    """
    for rule in policy.rules:
        for job in failed:
            if applies(rule, job):
                return Match(rule.action, job, rule)
    return Match(RESTART_JOBSET, failed[0])


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


def _apply_to_all(
    policy: FailurePolicy, match: Match, draft: StatusDraft, features: Features
) -> str:
    suffix = _suffix(match.job)
    message = f"applying {match.action} failure policy action{suffix}"
    action = match.action
    match action:
        case "FailJobSet":
            draft.fail(keys.FAIL_JOBSET_REASON, message)
            return ""
        case "RestartJobSet":
            if _budget_spent(policy, draft, features):
                _fail_for_max_restarts(match.job, draft)
                return ""
        case "RestartJobSetAndIgnoreMaxRestarts":
            pass
        case _:
            return f"unknown failure policy action {match.action!r}"
    draft.restart_all(counts_towards_max=match.action == RESTART_JOBSET)
    if match.rule is None:
        reason = keys.DEFAULT_FAILURE_POLICY_REASON
    else:
        reason = f"{keys.FAILURE_POLICY_REASON_PREFIX}{match.rule.name}"
    draft.set(cond.restarting(reason, message))
    draft.event(cond.WARNING, f"{match.action}FailurePolicyAction", message)
    return ""


def _budget_spent(policy: FailurePolicy, draft: StatusDraft, features: Features) -> bool:
    spent = draft.status.restarts_count_towards_max
    if features.restart_job:
        spent += sum(
            sum(item.job_restarts_count_towards_max) for item in draft.status.replicated_jobs_status
        )
    return spent >= policy.max_restarts


def _fail_for_max_restarts(job: Job, draft: StatusDraft) -> None:
    draft.fail(
        keys.REACHED_MAX_RESTARTS_REASON,
        f"jobset failed due to reaching max number of restarts{_suffix(job)}",
    )


def _restart_job(
    jobset: JobSet, match: Match, draft: StatusDraft, *, counts_towards_max: bool
) -> str:
    name = replicated_job_of(match.job)
    index = parse_count(match.job.metadata.labels.get(keys.JOB_INDEX))
    replicas = {item.name: item.replicas for item in jobset.spec.replicated_jobs}.get(name)
    if replicas is None or index is None or index >= replicas:
        return f"job {match.job.metadata.name!r} cannot be restarted: its labels do not place it"
    draft.evolve(
        replicated_jobs_status=tuple(
            _bumped(item, index, replicas, counts_towards_max=counts_towards_max)
            if item.name == name
            else item
            for item in draft.status.replicated_jobs_status
        )
    )
    message = f"applying {match.action} failure policy action{_suffix(match.job)}"
    draft.event(cond.WARNING, f"{match.action}FailurePolicyAction", message)
    return ""


def _bumped(
    status: ReplicatedJobStatus, index: int, replicas: int, *, counts_towards_max: bool
) -> ReplicatedJobStatus:
    restarts = _plus_one(status.job_restarts, index, replicas)
    counted = status.job_restarts_count_towards_max
    if counts_towards_max:
        counted = _plus_one(counted, index, replicas)
    return evolve(status, job_restarts=restarts, job_restarts_count_towards_max=counted)


def _plus_one(values: tuple[int, ...], index: int, length: int) -> tuple[int, ...]:
    out = [*values, *(0 for _ in range(length - len(values)))]
    out[index] += 1
    return tuple(out)


def _suffix(job: Job) -> str:
    return f" (first failed job: {job.metadata.name})"
