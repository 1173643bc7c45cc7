"""Gangs of a JobSet, and the labels and annotations of their pods.

Gang names contain the JobSet's UID, so a recreated JobSet never shares a gang with the old one, and
the attempt: pods of an earlier attempt that are not deleted yet do not count for the next one. The
first attempt has the names of versions without attempts, so that their pods need no new labels. A
PodGroup that the field ``spec.scheduling`` requests has no attempt in its name: it stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPodLabels
from jobsetpy.api.job_size import pods_at_once
from jobsetpy.api.jobset import JobSet, ReplicatedJob
from jobsetpy.reconcilers.coscheduling.requests import GangRequest, gang_requests, positive
from jobsetpy.reconcilers.failure_policy.decision import split
from jobsetpy.reconcilers.rules.buckets import job_restart_targets, sort_jobs
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.json_tree import child
from jobsetpy.reconcilers.rules.membership import (
    parse_count,
    pods_of_template,
    replicated_job_of,
)
from jobsetpy.reconcilers.rules.names import job_name
from jobsetpy.reconcilers.rules.spares import pods_to_start, spares_of

LABELS: Final = (keys.POD_GROUP_NAME, keys.POD_GROUP_MIN_AVAILABLE)
"""Labels of pods that take part; set by the controller, never by a template."""

_TEMPLATE_NOTE: Final = keys.GROUP_TEMPLATE_ANNOTATION
_TEMPLATE: Final = 52
"""Number of characters of a template's name before a digest of 10 and a dash."""
_READABLE: Final = 46
"""Number of characters of a JobSet's name in gang names: 63 minus a digest of 16 and a dash."""


@attrs.frozen
class Gang:
    """Gang of a JobSet.

    Args:
        name: value of its pods' label.
        title: name for users: its ReplicatedJobs or Job, "" for the whole JobSet.
        size: number of its pods by the JobSet's spec, without spares that it does not wait for.
        min_available: number of pods that must be present together; at most ``size``, at least 1.
        pod_group: name of its ``PodGroup``.
        template: name of that one's template.
        spares: number of its pods whose work others can take over; 0 unless it is one Job.
        native: further fields of the ``PodGroup``.
    """

    name: str
    title: str
    size: int
    min_available: int
    pod_group: str = ""
    template: str = ""
    spares: int = 0
    native: Mapping[str, Any] = attrs.field(factory=dict, eq=False)

    @property
    def labels(self) -> dict[str, str]:
        """Labels of its pods."""
        return {
            keys.POD_GROUP_NAME: self.name,
            keys.POD_GROUP_MIN_AVAILABLE: str(self.min_available),
        }


class Gangs:
    """Gangs of one JobSet, by its spec. Use :func:`gangs_of`."""

    def __init__(self, jobset: JobSet, requests: Sequence[GangRequest]) -> None:
        meta = jobset.metadata
        self.by_field = jobset.spec.scheduling is not None
        self.attempt = jobset.status.restarts
        self._own_attempts = job_restart_targets(jobset)
        self._stem = meta.name[:_READABLE]
        self._uid = meta.uid
        self._requests = {name: request for request in requests for name in request.targets}
        self._targets = {
            item.name: item for item in jobset.spec.replicated_jobs if item.name in self._requests
        }
        self.pods: dict[str, int] = {}
        """Number of pods of each Job that its gang waits for, by name of the ReplicatedJob."""
        self._sizes: dict[str, tuple[int, int]] = {}
        self._shared: dict[str, Gang] = {}
        for request in requests:
            items = [self._targets[name] for name in request.targets if name in self._targets]
            jobs = {item.name: 1 if request.per_job else item.replicas for item in items}
            # Spares can fill no seat of another Job, so only a gang of one Job may be without them.
            alone = sum(jobs.values()) == 1
            size = of_all = 0
            for item in items:
                self.pods[item.name], spares = pods_of_template(item), 0
                if alone:
                    left_out = self.pods[item.name] - pods_to_start(jobset, item)
                    self.pods[item.name] -= left_out
                    spares = spares_of(jobset, item).pods - left_out
                size += jobs[item.name] * self.pods[item.name]
                of_all += jobs[item.name] * spares
            if request.per_job:
                self._sizes |= dict.fromkeys(request.targets, (size, of_all))
            else:
                whole = self._gang(request, request.title, request.title, size, of_all)
                self._shared |= dict.fromkeys(request.targets, whole)

    def of(self, replicated_job: str, index: int | str) -> Gang | None:
        """Return the gang of a Job's pods; ``None`` if they are in none."""
        if replicated_job not in self._targets:
            return None
        shared = self._shared.get(replicated_job)
        if shared is not None:
            return shared
        # A ReplicatedJob may have the name of another one's Job: a slash is in no name.
        identity = f"{replicated_job}{'/' if self.by_field else '-'}{index}"
        request, (size, spares) = self._requests[replicated_job], self._sizes[replicated_job]
        return self._gang(request, f"{replicated_job}-{index}", identity, size, spares)

    def template_annotation(self, gang: Gang | None) -> dict[str, str]:
        """Return the annotation of the Jobs of a gang that the field requests."""
        if gang is None or not self.by_field:
            return {}
        return {_TEMPLATE_NOTE: gang.template}

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
            per_job = self._requests[item.name].per_job
            for index in range(item.replicas if per_job else min(item.replicas, 1)):
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

    def _gang(
        self, request: GangRequest, title: str, identity: str, size: int, spares: int
    ) -> Gang:
        least = size if request.minimum is None else min(request.minimum, size)
        stem = self._name(identity, 0)
        return Gang(
            self._name(identity, self.attempt) if self.attempt else stem,
            title,
            size,
            max(1, least),
            # Restarts keep the PodGroup of the field. With annotations, pods of an attempt before,
            # which the scheduler counts until they are gone, do not count for the next one.
            stem if self.by_field else f"{stem}-{self.attempt}",
            self._template(request, title, stem),
            spares,
            request.native,
        )

    def _template(self, request: GangRequest, title: str, stem: str) -> str:
        """Return the name of a template, unique among those of the JobSet."""
        name = request.template or title
        if (len(request.targets) > 1 and title) or (not request.template and name in self._targets):
            return f"{name[:_TEMPLATE]}-{stem[-10:]}"
        return name

    def _name(self, title: str, attempt: int) -> str:
        identity = f"{self._uid}/{title}/{attempt}" if attempt else f"{self._uid}/{title}"
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return f"{self._stem}-{digest}"


def gangs_of(jobset: JobSet) -> Gangs | None:
    """Return the requested gangs of a JobSet; ``None`` if there are none or it is invalid."""
    requests = gang_requests(jobset)
    return None if requests is None else Gangs(jobset, requests)


def regrouped(jobset: JobSet, jobs: Iterable[Job]) -> list[Job]:
    """Return the Jobs of a suspended JobSet whose pods would be in other groups than it requests.

    ``spec.scheduling`` may change while it is suspended, but the group in a Job's template may not.
    """
    gangs = gangs_of(jobset) if jobset.spec.scheduling is not None else None
    own = {
        item.name: child(item.template, "metadata", "annotations")
        for item in jobset.spec.replicated_jobs
    }
    out = []
    for job in jobs:
        name, index = replicated_job_of(job), job.metadata.labels.get(keys.JOB_INDEX, "")
        gang = None if gangs is None else gangs.of(name, index)
        wanted = own.get(name, {}) if gang is None else {_TEMPLATE_NOTE: gang.template}
        if job.metadata.annotations.get(_TEMPLATE_NOTE) != wanted.get(_TEMPLATE_NOTE):
            out.append(job)
    return out


def pod_annotations(jobset: JobSet) -> dict[str, str]:
    """Return the annotations of pods in gangs, in addition to the labels."""
    out = {}
    timeout = jobset.metadata.annotations.get(keys.COSCHEDULING_TIMEOUT_ANNOTATION)
    if timeout is not None and positive(timeout):
        out[keys.COSCHEDULING_TIMEOUT_ANNOTATION] = timeout
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
