"""Gangs of a JobSet, and the labels and annotations of their pods.

A JobSet requests coscheduling by annotations, so that its CRD stays the one that other tools know:

* ``jobset.sigs.k8s.io/coscheduling`` is the scope: ``JobSet`` (one gang over all targets),
  ``ReplicatedJob`` or ``Job`` (one gang for each).
* ``…-targets``: comma-separated names of the ReplicatedJobs that take part; default all.
* ``…-min-available``: minimum number of pods of a gang that start together; default all. With the
  scopes ``ReplicatedJob`` and ``Job`` it may also be set on a Job template, which then overrides
  the JobSet's.
* ``in-place-restart-start-without-spares: "true"``: a gang of one Job does not wait for its spares.
* ``…-capacity-check: "false"``: the coscheduler tries a gang although no capacity is left for it,
  so that autoscalers and preemption can react.
* ``…-timeout-seconds``: time for which a coscheduler holds reservations of an incomplete gang.

Gang names contain the JobSet's UID, so a recreated JobSet never shares a gang with the old one, and
the attempt: pods of an earlier attempt that are not deleted yet do not count for the next one. The
first attempt has the names of versions without attempts, so that their pods need no new labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPodLabels
from jobsetpy.api.jobset import JobSet, ReplicatedJob
from jobsetpy.reconcilers.failure_policy.decision import split
from jobsetpy.reconcilers.rules.buckets import job_restart_targets, sort_jobs
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.json_tree import child, text
from jobsetpy.reconcilers.rules.membership import parse_count, pods_at_once, pods_of_template
from jobsetpy.reconcilers.rules.names import job_name
from jobsetpy.reconcilers.rules.spares import pods_to_start, spares_of

JOBSET: Final = "JobSet"
REPLICATED_JOB: Final = "ReplicatedJob"
JOB: Final = "Job"
SCOPES: Final = (JOBSET, REPLICATED_JOB, JOB)

LABELS: Final = (keys.POD_GROUP_NAME, keys.POD_GROUP_MIN_AVAILABLE)
"""Labels of pods that take part; set by the controller, never by a template."""

_READABLE: Final = 46
"""Number of characters of a JobSet's name in gang names: 63 minus a digest of 16 and a dash."""


@attrs.frozen
class Gang:
    """Gang of a JobSet.

    Args:
        name: value of its pods' label.
        title: name for users: its ReplicatedJob or Job, "" for the whole JobSet.
        size: number of its pods by the JobSet's spec, without spares that it does not wait for.
        min_available: number of pods that must be present together; at most ``size``, at least 1.
        stem: common part of the names of all attempts.
        spares: number of its pods whose work others can take over; 0 unless it is one Job.
    """

    name: str
    title: str
    size: int
    min_available: int
    stem: str = ""
    spares: int = 0

    @property
    def labels(self) -> dict[str, str]:
        """Labels of its pods."""
        return {
            keys.POD_GROUP_NAME: self.name,
            keys.POD_GROUP_MIN_AVAILABLE: str(self.min_available),
        }


class Gangs:
    """Gangs of one JobSet, by its spec. Use :func:`gangs_of`."""

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
        self.pods: dict[str, int] = {}
        """Number of pods of each Job that its gang waits for, by name of the ReplicatedJob."""
        # Spares can fill no seat of another Job, so only a gang of one Job may be without them.
        alone = scope == JOB or sum(item.replicas for item in self._targets.values()) == 1
        self._sizes: dict[str, tuple[int, int | None, int]] = {}
        for name, item in self._targets.items():
            self.pods[name], spares = pods_of_template(item), 0
            if alone or (scope == REPLICATED_JOB and item.replicas == 1):
                left_out = self.pods[name] - pods_to_start(jobset, item)
                self.pods[name] -= left_out
                spares = spares_of(jobset, item).pods - left_out
            jobs = 1 if scope == JOB else item.replicas
            self._sizes[name] = (jobs * self.pods[name], self._own(item), jobs * spares)
        self._shared: dict[str, Gang] = {}
        if scope == REPLICATED_JOB:
            self._shared = {name: self._gang(name, *size) for name, size in self._sizes.items()}
        elif scope == JOBSET:
            size = sum(pods for pods, _, _ in self._sizes.values())
            of_all = sum(spares for _, _, spares in self._sizes.values())
            whole = self._gang("", size, self._minimum, of_all)
            self._shared = dict.fromkeys(self._targets, whole)

    def of(self, replicated_job: str, index: int | str) -> Gang | None:
        """Return the gang of a Job's pods; ``None`` if they are in none."""
        if replicated_job not in self._targets:
            return None
        shared = self._shared.get(replicated_job)
        return shared or self._gang(f"{replicated_job}-{index}", *self._sizes[replicated_job])

    def has_left(self, labels: ChildPodLabels) -> bool:
        """Return whether a pod's Job is being recreated by a restart of single Jobs.

        The gang keeps its name then, for the pods that continue to run. So pods of the old Job must
        not count for it: others would start with them, and be left alone after their deletion.
        """
        own, index = parse_count(labels.job_restart_attempt), parse_count(labels.job_index)
        attempts = self._own_attempts.get(labels.replicated_job_name)
        if own is None or index is None or attempts is None:
            return False
        return own < attempts.of(index)

    def each(self) -> Iterator[tuple[ReplicatedJob, Gang]]:
        """Iterate over all gangs that have pods, each with a ReplicatedJob of it."""
        for item in self._targets.values():
            for index in range(item.replicas if self.scope == JOB else min(item.replicas, 1)):
                gang = self.of(item.name, index)
                if gang is not None and gang.size:
                    yield item, gang

    def __iter__(self) -> Iterator[Gang]:
        """Iterate over all gangs that have pods, in the order of the spec."""
        return iter(dict.fromkeys(gang for _, gang in self.each()))

    @property
    def common_name(self) -> str:
        """Common name for all gangs of the JobSet."""
        return self._name("", 0)

    @property
    def targets(self) -> tuple[ReplicatedJob, ...]:
        """ReplicatedJobs that take part, in the order of the spec."""
        return tuple(self._targets.values())

    def _own(self, item: ReplicatedJob) -> int | None:
        notes = child(item.template, "metadata", "annotations")
        own = positive(text(notes, keys.COSCHEDULING_MIN_ANNOTATION))
        return self._minimum if own is None else own

    def _gang(self, title: str, size: int, minimum: int | None, spares: int) -> Gang:
        least = size if minimum is None else min(minimum, size)
        stem = self._name(title, 0)
        name = self._name(title, self.attempt) if self.attempt else stem
        return Gang(name, title, size, max(1, least), stem, spares)

    def _name(self, title: str, attempt: int) -> str:
        identity = f"{self._uid}/{title}/{attempt}" if attempt else f"{self._uid}/{title}"
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return f"{self._stem}-{digest}"


def gangs_of(jobset: JobSet) -> Gangs | None:
    """Return the requested gangs of a JobSet; ``None`` if there are none or it is invalid."""
    scope = jobset.metadata.annotations.get(keys.COSCHEDULING_ANNOTATION)
    if scope is None or scope not in SCOPES:
        return None
    given = target_names(jobset.metadata.annotations.get(keys.COSCHEDULING_TARGETS_ANNOTATION, ""))
    return Gangs(jobset, scope, frozenset(given))


def pod_annotations(jobset: JobSet) -> dict[str, str]:
    """Return the annotations of pods in gangs, in addition to the labels."""
    out = {}
    timeout = jobset.metadata.annotations.get(keys.COSCHEDULING_TIMEOUT_ANNOTATION)
    if timeout is not None and positive(timeout):
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
    """Return, by name of a gang, the number of pods that still have work together; O(Jobs).

    Pods that have succeeded are not created again, nor are those of Jobs that are complete or stay
    failed. A gang must not wait for them.

    Args:
        jobset: JobSet from the cache.
        gangs: its gangs.
        jobs: its Jobs.
        features: the feature gates.
        counts: predicate for Jobs whose pods count. Those of missing Jobs always do.
    """
    left = {gang.name: gang.size for gang in gangs}
    mine = list(jobs)
    over, active = _over_and_active(jobset, mine, features)
    by_name = {job.metadata.name: job for job in mine}
    for item in gangs.targets:
        full = gangs.pods[item.name]
        for index in range(item.replicas):
            job = by_name.get(job_name(jobset.metadata.name, item.name, index))
            gang = gangs.of(item.name, index)
            if job is None or gang is None or gang.name not in left:
                continue
            if job.metadata.uid in over or not counts(job):
                left[gang.name] -= full
            elif job.metadata.uid in active:
                left[gang.name] -= full - _unfinished(item, full, job.status.succeeded)
    return left


def _over_and_active(
    jobset: JobSet, jobs: Sequence[Job], features: Features
) -> tuple[set[str], set[str]]:
    """Return the UIDs of the Jobs that are complete or stay failed, and of the active ones."""
    buckets = sort_jobs(jobset, jobs, features)
    stay_failed, _ = split(jobset.spec.failure_policy, buckets.failed)
    over = [*buckets.successful, *(match.job for match in stay_failed)]
    return {job.metadata.uid for job in over}, {job.metadata.uid for job in buckets.active}


def _unfinished(item: ReplicatedJob, full: int, succeeded: int) -> int:
    """Return the number of pods of a Job that its gang needs, given the succeeded ones.

    Args:
        item: ReplicatedJob of the Job.
        full: number that it needs before any has succeeded.
        succeeded: number of succeeded pods.
    """
    spec = child(item.template, "spec")
    pods = pods_at_once(spec.get("parallelism"), spec.get("completions"), succeeded)
    return max(0, pods - (pods_of_template(item) - full))


def is_true(label: str, gang: Gang, least: int, *, bound: bool) -> bool:
    """Return whether a pod's label has a valid minimum of its gang.

    A pod with a node is no longer scheduled, so its label need not follow each pod of its gang that
    succeeds: otherwise the end of a large gang would cost a write for each pair of its pods.

    Args:
        label: value of the label.
        gang: gang of the pod.
        least: current minimum for the remaining work of the gang; see :func:`minimum`.
        bound: the pod has a node.
    """
    if label == str(least):
        return True
    value = positive(label)
    return bound and value is not None and least <= value <= gang.min_available


def minimum(gang: Gang, left: int, *, starting: bool = True) -> int:
    """Return the gang's minimum if only this number of pods is left.

    Once its pods have worked together, a pod that replaces a lost one need not wait for a node for
    each spare as well: the others continue as soon as all seats can be filled.

    Args:
        gang: the gang.
        left: number of pods that still have work together.
        starting: its pods are new.
    """
    least = min(gang.min_available, left)
    return max(1, least if starting else min(least, left - gang.spares))


def target_names(value: str) -> list[str]:
    """Return the names in the annotation for targets, without duplicates."""
    return list(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))


def positive(value: object) -> int | None:
    """Return a decimal number from 1 to 2³¹-1, or ``None`` if the value is not one as text."""
    number = (parse_count(value) if isinstance(value, str) else None) or 0
    return number if 0 < number <= keys.INT32_MAX else None
