"""Completion of a JobSet, and the check that it can still be reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSetSpec, ReplicatedJob, SuccessPolicy
from jobsetpy.reconcilers.rules.membership import replicated_job_of


def is_satisfied(spec: JobSetSpec, successful: Iterable[Job]) -> bool:
    """Return whether enough Jobs have succeeded.

    ``Any`` needs one Job of the targets, ``All`` needs all of them; no targets means every
    ReplicatedJob. Without a policy (the field may be removed from a JobSet) ``All`` applies. A
    JobSet without a successful Job is never complete, even if its targets have no Jobs.
    """
    policy = spec.success_policy or SuccessPolicy()
    targets = frozenset(policy.target_replicated_jobs)
    done = sum(1 for job in successful if not targets or replicated_job_of(job) in targets)
    if done == 0:
        return False
    if policy.operator == "Any":
        return True
    return done >= sum(
        item.replicas for item in spec.replicated_jobs if not targets or item.name in targets
    )


def is_out_of_reach(
    spec: JobSetSpec,
    *,
    successful: Iterable[Job],
    stay_failed: Sequence[Job],
    running: Iterable[Job],
) -> bool:
    """Return whether Jobs that stay failed prevent an incomplete JobSet from ever completing.

    The result is True only when every Job of the targets has ended, so that no Job is stopped that
    may still do its work. A Job that waits forever, because it depends on the completion of one
    that stays failed, counts as ended; so a JobSet never waits for an event that cannot come.

    Args:
        spec: spec of the JobSet.
        successful: complete Jobs.
        stay_failed: failed Jobs that are not restarted, at least one.
        running: unfinished Jobs that are not suspended.
    """
    policy = spec.success_policy or SuccessPolicy()
    targets = frozenset(
        policy.target_replicated_jobs or (each.name for each in spec.replicated_jobs)
    )
    failed = Counter(map(replicated_job_of, stay_failed))
    ended = failed + Counter(map(replicated_job_of, successful))
    lost = _lost(spec, failed, ended + Counter(map(replicated_job_of, running)))
    if not targets & (failed.keys() | lost.keys()):
        return False
    return all(
        ended[item.name] + lost.get(item.name, 0) >= item.replicas
        for item in spec.replicated_jobs
        if item.name in targets
    )


def _lost(spec: JobSetSpec, failed: Counter[str], going: Counter[str]) -> dict[str, int]:
    """Return the number of Jobs of each ReplicatedJob that never start because of a dependency."""
    dependents: dict[str, list[ReplicatedJob]] = {}
    lost: dict[str, int] = {}
    todo: list[str] = []

    def lose(item: ReplicatedJob) -> None:
        missing = item.replicas - going[item.name]
        if missing > 0 and item.name not in lost:
            lost[item.name] = missing
            todo.append(item.name)

    for item in spec.replicated_jobs:
        for each in item.depends_on:
            dependents.setdefault(each.name, []).append(item)
            if each.status == "Complete" and failed[each.name]:
                lose(item)
    while todo:
        for item in dependents.get(todo.pop(), ()):
            lose(item)
    return lost
