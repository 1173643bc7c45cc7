"""Which pods of a JobSet are a gang of coscheduling, and what its pods are told.

A JobSet asks for it by annotations, so that its definition is the one that other tools know:

* ``jobset.sigs.k8s.io/coscheduling`` is the scope: ``JobSet`` (one gang over all targets),
  ``ReplicatedJob`` or ``Job`` (one gang for each).
* ``…-targets`` names the ReplicatedJobs that take part, with commas; all of them without it.
* ``…-min-available``: so many pods of a gang start together; all of them without it. With the
  scopes ``ReplicatedJob`` and ``Job`` it may stand on a Job template as well, and wins there.
* ``…-capacity-check: "false"``: a coscheduler tries a gang though there is no room for it, so that
  whoever makes room hears of it.
* ``…-timeout-seconds``: how long a coscheduler holds reservations of a gang that is incomplete.

Gang names carry the JobSet's UID, so a JobSet made anew never shares a gang with the old one, and
the attempt: pods of the attempt before that are yet to be deleted do not count for the next. The
first attempt's names are those of versions without attempts, whose pods need no new labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPodLabels
from jobsetpy.api.jobset import JobSet, ReplicatedJob
from jobsetpy.reconcilers.rules.buckets import job_restart_targets, sort_jobs
from jobsetpy.reconcilers.rules.failure_policy import split
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.membership import (
    parse_count,
    pods_at_once,
    pods_of_template,
)
from jobsetpy.reconcilers.rules.names import job_name

JOBSET: Final = "JobSet"
REPLICATED_JOB: Final = "ReplicatedJob"
JOB: Final = "Job"
SCOPES: Final = (JOBSET, REPLICATED_JOB, JOB)

LABELS: Final = (keys.POD_GROUP_NAME, keys.POD_GROUP_MIN_AVAILABLE)
"""Labels of pods that take part; the controller's, whatever a template says."""

_READABLE: Final = 46
"""So much of a JobSet's name is in its gangs' names: 63 less a digest of 16 and a dash."""


@attrs.frozen
class Gang:
    """One gang.

    Args:
        name: value of its pods' label.
        title: for people: the ReplicatedJob or Job it is made of, "" for all of the JobSet.
        size: how many pods it has by the JobSet's spec.
        min_available: so many of them have to be there together; at most ``size``, at least 1.
        stem: what the names of all attempts have in common.
    """

    name: str
    title: str
    size: int
    min_available: int
    stem: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """What its pods carry."""
        return {
            keys.POD_GROUP_NAME: self.name,
            keys.POD_GROUP_MIN_AVAILABLE: str(self.min_available),
        }


class Gangs:
    """The gangs of one JobSet, as its spec has them. Use :func:`gangs_of`."""

    def __init__(self, jobset: JobSet, scope: str, targets: frozenset[str]) -> None:
        meta = jobset.metadata
        self.scope = scope
        self.attempt = jobset.status.restarts
        self._own_attempts = job_restart_targets(jobset)
        self._stem = meta.name[:_READABLE]
        self._uid = meta.uid
        self._minimum = positive(meta.annotations.get(keys.COSCHEDULING_MIN_ANNOTATION))
        self._targets = {
            item.name: item
            for item in jobset.spec.replicated_jobs
            if not targets or item.name in targets
        }
        self._whole: Gang | None = None
        if scope == JOBSET:
            size = sum(item.replicas * pods_of_template(item) for item in self._targets.values())
            self._whole = self._gang("", size, self._minimum)
        elif scope == REPLICATED_JOB:
            self._of_replicated_job = {
                name: self._gang(name, item.replicas * pods_of_template(item), self._own(item))
                for name, item in self._targets.items()
            }
        else:
            self._of_jobs = {
                name: (pods_of_template(item), self._own(item))
                for name, item in self._targets.items()
            }

    def of(self, replicated_job: str, index: int | str) -> Gang | None:
        """The gang of a Job's pods; ``None`` if they are in none."""
        if replicated_job not in self._targets:
            return None
        if self._whole is not None:
            return self._whole
        if self.scope == REPLICATED_JOB:
            return self._of_replicated_job[replicated_job]
        size, minimum = self._of_jobs[replicated_job]
        return self._gang(f"{replicated_job}-{index}", size, minimum)

    def has_left(self, labels: ChildPodLabels) -> bool:
        """Whether a pod is of a Job that is made anew, by a restart of that Job alone or of some.

        The gang keeps its name then, for the sake of the pods that go on. So those that go must not
        count for it: others would start beside them, and be left alone when they have gone.
        """
        own, index = parse_count(labels.job_restart_attempt), parse_count(labels.job_index)
        attempts = self._own_attempts.get(labels.replicated_job_name)
        if own is None or index is None or attempts is None:
            return False
        return own < attempts.of(index)

    def __iter__(self) -> Iterator[Gang]:
        """All gangs that have pods, in the order of the spec."""
        if self._whole is not None:
            every: Iterable[Gang] = (self._whole,)
        elif self.scope == REPLICATED_JOB:
            every = self._of_replicated_job.values()
        else:
            every = (
                self._gang(f"{name}-{index}", *self._of_jobs[name])
                for name, item in self._targets.items()
                for index in range(item.replicas)
            )
        return (gang for gang in every if gang.size)

    @property
    def per_job(self) -> bool:
        """Whether Jobs of one ReplicatedJob are gangs of their own."""
        return self.scope == JOB

    @property
    def common_name(self) -> str:
        """A name for what all gangs have in common."""
        return self._name("", 0)

    @property
    def targets(self) -> tuple[ReplicatedJob, ...]:
        """The ReplicatedJobs that take part, in the order of the spec."""
        return tuple(self._targets.values())

    def _own(self, item: ReplicatedJob) -> int | None:
        note = _notes(item).get(keys.COSCHEDULING_MIN_ANNOTATION)
        own = positive(note) if isinstance(note, str) else None
        return self._minimum if own is None else own

    def _gang(self, title: str, size: int, minimum: int | None) -> Gang:
        least = size if minimum is None else min(minimum, size)
        stem = self._name(title, 0)
        name = self._name(title, self.attempt) if self.attempt else stem
        return Gang(name, title, size, max(1, least), stem)

    def _name(self, title: str, attempt: int) -> str:
        identity = f"{self._uid}/{title}/{attempt}" if attempt else f"{self._uid}/{title}"
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return f"{self._stem}-{digest}"


def gangs_of(jobset: JobSet) -> Gangs | None:
    """The gangs a JobSet asks for; ``None`` if it does not, or not in a valid way."""
    scope = jobset.metadata.annotations.get(keys.COSCHEDULING_ANNOTATION)
    if scope is None or scope not in SCOPES:
        return None
    given = target_names(jobset.metadata.annotations.get(keys.COSCHEDULING_TARGETS_ANNOTATION, ""))
    return Gangs(jobset, scope, frozenset(given))


def pod_annotations(jobset: JobSet) -> dict[str, str]:
    """What pods of gangs are told beside the labels."""
    out = {}
    timeout = jobset.metadata.annotations.get(keys.COSCHEDULING_TIMEOUT_ANNOTATION)
    if timeout is not None and positive(timeout) is not None:
        out[keys.COSCHEDULING_TIMEOUT_ANNOTATION] = timeout
    if jobset.metadata.annotations.get(keys.COSCHEDULING_CAPACITY_ANNOTATION) == "false":
        out[keys.COSCHEDULING_CAPACITY_ANNOTATION] = "false"
    return out


def possible(
    jobset: JobSet,
    gangs: Gangs,
    jobs: Iterable[Job],
    features: Features,
    counts: Callable[[Job], bool] = lambda _: True,
) -> dict[str, int]:
    """By name of a gang, for how many pods at the same time it has work left; O(Jobs).

    Pods that have succeeded do not come again, nor do those of Jobs that are complete or stay
    failed. A gang must not wait for them.

    Args:
        jobset: as the cache has it.
        gangs: of it.
        jobs: of it.
        features: the feature gates.
        counts: whether a Job's pods count at all. Those of Jobs that are yet to be made do.
    """
    left = {gang.name: gang.size for gang in gangs}
    mine = list(jobs)
    buckets = sort_jobs(jobset, mine, features)
    stay_failed, _ = split(jobset.spec.failure_policy, buckets.failed)
    over = {job.metadata.uid for job in buckets.successful}
    over |= {match.job.metadata.uid for match in stay_failed}
    active = {job.metadata.uid for job in buckets.active}
    by_name = {job.metadata.name: job for job in mine}
    for item in gangs.targets:
        job_spec: Mapping[str, Any] = item.template.get("spec") or {}
        full = pods_of_template(item)
        for index in range(item.replicas):
            job = by_name.get(job_name(jobset.metadata.name, item.name, index))
            gang = gangs.of(item.name, index)
            if job is None or gang is None or gang.name not in left:
                continue
            if job.metadata.uid in over or not counts(job):
                left[gang.name] -= full
            elif job.metadata.uid in active and job.status.succeeded:
                left[gang.name] -= full - pods_at_once(
                    job_spec.get("parallelism"), job_spec.get("completions"), job.status.succeeded
                )
    return left


def is_true(label: str, gang: Gang, least: int, *, bound: bool) -> bool:
    """Whether a pod's label tells its gang's minimum.

    A pod that has a node is no longer scheduled, so its label need not follow each pod of its gang
    that succeeds: else the end of a large gang would cost a write for each pair of its pods.

    Args:
        label: its value.
        gang: the pod's.
        least: the minimum, given what the gang has left to do; see :func:`minimum`.
        bound: whether the pod has a node.
    """
    if label == str(least):
        return True
    value = positive(label)
    return bound and value is not None and least <= value <= gang.min_available


def minimum(gang: Gang, left: int) -> int:
    """The gang's minimum, if so many pods are left to be there at the same time."""
    return max(1, min(gang.min_available, left))


def target_names(value: str) -> list[str]:
    """Names of the annotation for targets, each once."""
    return list(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))


def positive(value: str | None) -> int | None:
    """A decimal number from 1 to 2³¹-1, or ``None`` if it is none."""
    if value is None or not value.isascii() or not value.isdigit() or len(value) > 10:
        return None
    number = int(value)
    return number if 0 < number <= keys.INT32_MAX else None


def _notes(item: ReplicatedJob) -> Mapping[str, Any]:
    metadata = item.template.get("metadata") or {}
    return metadata.get("annotations") or {}
