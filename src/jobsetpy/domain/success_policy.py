"""When a JobSet is complete."""

from __future__ import annotations

from collections.abc import Iterable

from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSetSpec, SuccessPolicy
from jobsetpy.domain.buckets import replicated_job_of


def is_satisfied(spec: JobSetSpec, successful: Iterable[Job]) -> bool:
    """Whether enough Jobs have succeeded.

    ``Any`` needs one Job of the targets, ``All`` needs all of them; no targets means every
    ReplicatedJob. Without a policy (the field may be removed from a JobSet) ``All`` applies. A
    JobSet none of whose Jobs has succeeded is never complete, even if none is wanted.
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
