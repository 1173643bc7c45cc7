"""Application of a changed parallelism in the spec to running Jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSetSpec
from jobsetpy.reconcilers.rules.json_tree import child
from jobsetpy.reconcilers.rules.membership import replicated_job_of
from jobsetpy.reconcilers.rules.plan import ResizeJob


def resizes(spec: JobSetSpec, active: Iterable[Job]) -> Iterator[ResizeJob]:
    """Yield a resize for each active Job whose size differs from its template's.

    Only templates that set parallelism and completions to one and the same number are elastic.
    """
    wanted = {}
    for item in spec.replicated_jobs:
        job_spec = child(item.template, "spec")
        parallelism, completions = job_spec.get("parallelism"), job_spec.get("completions")
        if isinstance(parallelism, int) and parallelism == completions:
            wanted[item.name] = parallelism
    if not wanted:
        return
    for job in active:
        size = wanted.get(replicated_job_of(job))
        if size is not None and (job.spec.parallelism, job.spec.completions) != (size, size):
            yield ResizeJob(job.metadata.name, job.metadata.uid, size, size)
