"""Membership of a Job in a JobSet, ReplicatedJob and attempt, and numbers of pods."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple, TypeGuard

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.epoch_report import parse_decimal
from jobsetpy.api.job_size import pods_at_once
from jobsetpy.api.jobset import JobSet, ReplicatedJob
from jobsetpy.api.meta import ObjectKey

MAX_JOBS: Final = 100_000
MAX_PARALLELISM: Final = 100_000
"""Kubernetes' maximum for an indexed Job: with a higher number, no Job can be created."""
"""Maximum number of Jobs of a JobSet, over all its ReplicatedJobs.

More are not feasible: etcd holds some gigabytes, and each reconcile reads all Jobs.
"""


def is_ours(jobset: JobSet) -> bool:
    """Return True if this controller handles a JobSet; others are ignored.

    ``managedBy`` may assign it to another one, and it may be too large (stored before admission
    refused that).
    """
    return is_left_to_us(jobset) and jobs_of(jobset) <= MAX_JOBS


def is_handled(jobset: JobSet | None) -> TypeGuard[JobSet]:
    """Return True if a JobSet exists, is not being deleted, and is ours."""
    return jobset is not None and jobset.metadata.deletion_timestamp is None and is_ours(jobset)


def is_left_to_us(jobset: JobSet) -> bool:
    """Return True if ``managedBy`` assigns a JobSet to this controller."""
    return jobset.spec.managed_by in {None, "", keys.JOBSET_CONTROLLER_NAME}


def jobs_of(jobset: JobSet) -> int:
    """Return the number of Jobs that a JobSet requests."""
    return sum([item.replicas for item in jobset.spec.replicated_jobs])


class AttemptKey(NamedTuple):
    """Key of the Jobs of one attempt of one JobSet.

    The names are those of the owner reference; the UID identifies the JobSet. It is a tuple, since
    it is hashed and compared several times at each event of a pod.
    """

    namespace: str
    name: str
    uid: str
    attempt: int

    @classmethod
    def of(cls, jobset: JobSet) -> AttemptKey:
        """Return the key of a JobSet's current attempt."""
        meta = jobset.metadata
        return cls(meta.namespace, meta.name, meta.uid, jobset.status.restarts)

    @property
    def jobset(self) -> ObjectKey:
        """Key of the JobSet."""
        return ObjectKey(self.namespace, self.name)


def attempt_of(job: Job) -> AttemptKey | None:
    """Return the attempt of a Job, by its owner and label; ``None`` if it has no JobSet."""
    owner = job.metadata.controller
    if owner is None or owner.kind != "JobSet" or owner.api_version.partition("/")[0] != keys.GROUP:
        return None
    attempt = parse_count(job.metadata.labels.get(keys.RESTART_ATTEMPT))
    if attempt is None:
        return None
    return AttemptKey(job.metadata.namespace, owner.name, owner.uid, attempt)


def replicated_job_of(job: Job) -> str:
    """Return the name of the ReplicatedJob from which a Job was created, or ""."""
    return job.metadata.labels.get(keys.REPLICATED_JOB_NAME, "")


@lru_cache(maxsize=2048)  # most labels have the same value
def parse_count(text: str | None) -> int | None:
    """Return a label's decimal number ≥ 0, or ``None`` if it is invalid."""
    return parse_decimal(text)


def pods_of(jobset: JobSet) -> int:
    """Return the number of parallel pods of a JobSet, if all its Jobs exist."""
    return sum(item.replicas * pods_of_template(item) for item in jobset.spec.replicated_jobs)


def pods_of_template(replicated: ReplicatedJob) -> int:
    """Return the number of parallel pods of each Job of a ReplicatedJob."""
    spec = replicated.template.get("spec") or {}
    return pods_at_once(spec.get("parallelism"), spec.get("completions"))
