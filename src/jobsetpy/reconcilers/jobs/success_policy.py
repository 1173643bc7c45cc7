"""Completion of a JobSet, and the check that it can still be reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSetSpec, ReplicatedJob, SuccessPolicy
from jobsetpy.reconcilers.rules.membership import replicated_job_of


def is_satisfied(spec: JobSetSpec, successful: Iterable[Job], wanted: Mapping[str, int]) -> bool:
    """Return whether enough Jobs have succeeded.

    ``Any`` needs one Job of the targets, ``All`` needs all of them; no targets means every
    ReplicatedJob. Without a policy (the field may be removed from a JobSet) ``All`` applies. A
    JobSet without a successful Job is never complete, even if its targets have no Jobs.

    Args:
        spec: spec of the JobSet.
        successful: complete Jobs.
        wanted: number of Jobs that have work, by name of the ReplicatedJob: all but spare ones,
            of which none is complete without having taken over the work of another one.
    """
    policy = spec.success_policy or SuccessPolicy()
    targets = frozenset(policy.target_replicated_jobs)
    names = map(replicated_job_of, successful)
    done = Counter(name for name in names if not targets or name in targets)
    if not done:
        return False
    if policy.operator == "Any":
        return True
    return all(
        done[name] >= count for name, count in wanted.items() if not targets or name in targets
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
