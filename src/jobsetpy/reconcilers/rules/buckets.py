"""Classification of child Jobs: previous attempt, marked, or active, successful or failed.

A Job that cannot be classified, since its labels were edited, is reported with the reason. It is
not changed and its name stays in use; the other Jobs are handled as if it did not exist.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.rules.conditions import finished as finished_condition
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.membership import parse_count


@attrs.frozen
class Invalid:
    """Job that cannot be classified, with the reason."""

    job: Job
    why: str


@attrs.frozen
class Buckets:
    """Child Jobs, each in one class.

    Args:
        active: Jobs of the current attempt, not finished (terminating ones included).
        successful: Jobs of the current attempt, complete.
        failed: Jobs of the current attempt, failed.
        previous: Jobs of an earlier attempt, to be deleted.
        marked: Jobs of the current attempt, finished or not, with an annotation that requests their
            recreation at the same attempt; none once the JobSet is finished.
        invalid: Jobs that cannot be classified.
        names: names of all Jobs.
    """

    active: tuple[Job, ...] = ()
    successful: tuple[Job, ...] = ()
    failed: tuple[Job, ...] = ()
    previous: tuple[Job, ...] = ()
    marked: tuple[Job, ...] = ()
    invalid: tuple[Invalid, ...] = ()
    names: frozenset[str] = frozenset()


def sort_jobs(jobset: JobSet, jobs: Iterable[Job], features: Features) -> Buckets:
    """Classify all child Jobs in one pass.

    An attempt greater than the one in status counts as current: the cached JobSet is then older
    than the Job.

    Args:
        jobset: JobSet with the attempt numbers in its status.
        jobs: all Jobs that it controls, in any order.
        features: feature gates; with ``restart_job`` a Job's own attempt counts as well.
    """
    targets = job_restart_targets(jobset) if features.restart_job else None
    ended = finished_condition(jobset.status.conditions) is not None
    found: dict[str, list[Any]] = defaultdict(list)
    names: set[str] = set()
    for job in jobs:
        names.add(job.metadata.name)
        try:
            found[_class_of(job, jobset.status.restarts, targets, ended=ended)].append(job)
        except ValueError as why:
            found["invalid"].append(Invalid(job, str(why)))
    return Buckets(names=frozenset(names), **{kind: tuple(each) for kind, each in found.items()})


def _class_of(
    job: Job, restarts: int, targets: Mapping[str, OwnAttempts] | None, *, ended: bool
) -> str:
    """Return the class of a Job, as the field of :class:`Buckets`.

    Raises:
        ValueError: it cannot be classified; the message gives the reason.
    """
    attempt = parse_count(job.metadata.labels.get(keys.RESTART_ATTEMPT))
    if attempt is None:
        raise _unusable(job, keys.RESTART_ATTEMPT)
    if attempt < restarts or not (targets is None or _own_attempt_is_current(job, targets)):
        return "previous"
    if not ended and keys.RESTART_ANNOTATION in job.metadata.annotations:
        return "marked"
    finished = job.status.finished
    if finished is None:
        return "active"
    return "successful" if finished.type == "Complete" else "failed"


@attrs.frozen
class OwnAttempts:
    """Desired own attempts of the Jobs of a ReplicatedJob.

    Args:
        replicas: number of Jobs.
        stored: attempts by index; 0 for missing ones.
    """

    replicas: int
    stored: tuple[int, ...] = ()

    def of(self, index: int) -> int:
        """Return the attempt of the Job at an index."""
        return self.stored[index] if index < len(self.stored) else 0


def job_restart_targets(jobset: JobSet) -> Mapping[str, OwnAttempts]:
    """Return the own attempts by name of the ReplicatedJob."""
    stored = {item.name: item.job_restarts for item in jobset.status.replicated_jobs_status}
    return {
        replicated.name: OwnAttempts(replicated.replicas, stored.get(replicated.name, ()))
        for replicated in jobset.spec.replicated_jobs
    }


def _own_attempt_is_current(job: Job, targets: Mapping[str, OwnAttempts]) -> bool:
    labels = job.metadata.labels
    name = labels.get(keys.REPLICATED_JOB_NAME)
    index = parse_count(labels.get(keys.JOB_INDEX))
    if name is None or name not in targets:
        raise _unusable(job, keys.REPLICATED_JOB_NAME)
    if index is None or index >= targets[name].replicas:
        raise _unusable(job, keys.JOB_INDEX)
    # A Job that was created while the gate was off has no such label: none of its own restarts has
    # been executed, so a later decision makes it outdated.
    attempt = parse_count(labels.get(keys.JOB_RESTART_ATTEMPT, "0"))
    if attempt is None:
        raise _unusable(job, keys.JOB_RESTART_ATTEMPT)
    return attempt >= targets[name].of(index)


def _unusable(job: Job, key: str) -> ValueError:
    value = job.metadata.labels.get(key)
    state = "is missing" if value is None else f"has the unusable value {value!r}"
    return ValueError(
        f"job {job.metadata.name!r} is left alone and not counted: its label {key} {state}"
    )
