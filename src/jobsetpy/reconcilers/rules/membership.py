"""Which JobSet, ReplicatedJob and attempt a Job belongs to, and how many pods it stands for."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet, ReplicatedJob
from jobsetpy.api.meta import ObjectKey

MAX_JOBS: Final = 100_000
"""How many Jobs a JobSet may have, over all its ReplicatedJobs.

More cannot be carried out: etcd holds some gigabytes, and each reconcile looks at all Jobs.
"""


def is_ours(jobset: JobSet) -> bool:
    """Whether this controller handles a JobSet; others are not even looked at.

    ``managedBy`` may leave it to another one, and it may be too large (stored before admission
    refused that).
    """
    return is_left_to_us(jobset) and jobs_of(jobset) <= MAX_JOBS


def is_left_to_us(jobset: JobSet) -> bool:
    """Whether ``managedBy`` leaves a JobSet to this controller."""
    return jobset.spec.managed_by in {None, "", keys.JOBSET_CONTROLLER_NAME}


def jobs_of(jobset: JobSet) -> int:
    """How many Jobs a JobSet asks for."""
    return sum([item.replicas for item in jobset.spec.replicated_jobs])


class AttemptKey(NamedTuple):
    """The Jobs of one attempt of one JobSet.

    The names are those of the owner reference; it is the UID that says which JobSet it is. A
    tuple, since it is hashed and compared several times at each event of a pod.
    """

    namespace: str
    name: str
    uid: str
    attempt: int

    @classmethod
    def of(cls, jobset: JobSet) -> AttemptKey:
        """The present attempt of a JobSet."""
        meta = jobset.metadata
        return cls(meta.namespace, meta.name, meta.uid, jobset.status.restarts)

    @property
    def jobset(self) -> ObjectKey:
        """The JobSet's key."""
        return ObjectKey(self.namespace, self.name)


def attempt_of(job: Job) -> AttemptKey | None:
    """The group a Job belongs to by its owner and label; ``None`` if it is no JobSet's."""
    owner = job.metadata.controller
    if owner is None or owner.kind != "JobSet" or owner.api_version.partition("/")[0] != keys.GROUP:
        return None
    attempt = parse_count(job.metadata.labels.get(keys.RESTART_ATTEMPT))
    if attempt is None:
        return None
    return AttemptKey(job.metadata.namespace, owner.name, owner.uid, attempt)


def replicated_job_of(job: Job) -> str:
    """Name of the ReplicatedJob a Job was made from, or ""."""
    return job.metadata.labels.get(keys.REPLICATED_JOB_NAME, "")


@lru_cache(maxsize=2048)  # most labels say the same
def parse_count(text: str | None) -> int | None:
    """A label's decimal number ≥ 0, or ``None`` if it is none."""
    # int() alone would also take "1_000", " 1" and digits of other scripts.
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    return int(text)


def pods_at_once(parallelism: int | None, completions: int | None, succeeded: int = 0) -> int:
    """How many pods of a Job are to be there at the same time.

    Args:
        parallelism: of the Job; 1 if absent.
        completions: of the Job; absent for a work queue, which winds down with its first success.
        succeeded: how many of its pods have succeeded.
    """
    pods = 1 if parallelism is None else parallelism
    if completions is None:
        return 0 if succeeded else pods
    return max(0, min(pods, completions - succeeded))


def pods_of(jobset: JobSet) -> int:
    """How many pods a JobSet has at the same time, if all its Jobs are there."""
    return sum(item.replicas * pods_of_template(item) for item in jobset.spec.replicated_jobs)


def pods_of_template(replicated: ReplicatedJob) -> int:
    """How many pods each Job of a ReplicatedJob has at the same time."""
    spec = replicated.template.get("spec") or {}
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    return pods_at_once(parallelism, completions)
