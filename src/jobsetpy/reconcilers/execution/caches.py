"""Caches that several reconcilers share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap, LabelledNode
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import KubeObject, OwnerReference, controller_of
from jobsetpy.reconcilers.execution.definition import Definition
from jobsetpy.reconcilers.execution.kinds import ListedPod
from jobsetpy.reconcilers.execution.status_writer import StatusWriter
from jobsetpy.reconcilers.rules.plan import EmitEvent

T = TypeVar("T", bound=KubeObject)

CHILD_SELECTOR: Final = keys.JOBSET_NAME
"""Label selector of all objects created for JobSets: the label exists."""


def _jobset_of(pod: ChildPod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.labels.jobset_name}"


PODS_OF_JOBSET: Final[rt.Index[ChildPod]] = rt.Index("jobset", _jobset_of)
"""Index by namespace and name of the JobSet in the pod's label, which proves nothing."""


def _jobset_of_reporter(pod: ChildPod) -> str | None:
    notes = pod.metadata.annotations
    return None if notes.unheard is None and notes.log_report is None else _jobset_of(pod)


REPORTERS: Final[rt.Index[ChildPod]] = rt.Index("reporters", _jobset_of_reporter)
"""The same for pods whose agents report neighbours that send no heartbeats, or a line of output."""

POD_INDEXES: Final[tuple[rt.Index[ChildPod], ...]] = (PODS_OF_JOBSET, rt.OWNER_UID, REPORTERS)
"""All indexes of the pods that several reconcilers share."""


def pods_labelled(pods: rt.Store[ChildPod], jobset: rt.ObjectKey) -> list[ChildPod]:
    """Return the pods with the label of a JobSet; O(result).

    Args:
        pods: store with the index ``PODS_OF_JOBSET``.
        jobset: key of the JobSet.
    """
    return pods.by_index(PODS_OF_JOBSET, str(jobset))


def pods_of_job(pods: rt.Store[ChildPod], job: Job) -> list[ChildPod]:
    """Return the pods that a Job controls; O(result).

    Args:
        pods: store with the index ``OWNER_UID``.
        job: a Job.
    """
    return pods.by_index(rt.OWNER_UID, job.metadata.uid)


@attrs.frozen
class SharedCaches:
    """Informers of a manager for reconcilers; only those that are used run.

    Args:
        manager: manager that is not started yet.
        definition: observed CRD; ``None`` if it is not observed.
    """

    manager: rt.Manager
    definition: Definition | None = None

    @property
    def events(self) -> rt.EventRecorder:
        """Recorder of events about JobSets."""
        return self.manager.recorder("jobset")

    @property
    def jobsets(self) -> rt.SharedInformer[JobSet]:
        """Informer of all JobSets."""
        return self.manager.informer(JobSet)

    @property
    def jobs(self) -> rt.SharedInformer[Job]:
        """Informer of their Jobs, with the index ``OWNER_UID``."""
        return self.manager.informer(Job, label_selector=CHILD_SELECTOR, indexes=[rt.OWNER_UID])

    @property
    def pods(self) -> rt.SharedInformer[ChildPod]:
        """Informer of their pods, with ``POD_INDEXES``."""
        return self.manager.informer(ChildPod, label_selector=CHILD_SELECTOR, indexes=POD_INDEXES)

    @property
    def config_maps(self) -> rt.SharedInformer[ConfigMap]:
        """Informer of the ConfigMaps of startup groups."""
        return self.manager.informer(ConfigMap, label_selector=CHILD_SELECTOR)

    @property
    def nodes(self) -> rt.SharedInformer[LabelledNode]:
        """Informer of all nodes."""
        return self.manager.informer(LabelledNode)

    def status_writer(
        self,
        *,
        own_writes: rt.Expectations | None = None,
        jobs: rt.Store[Job] | None = None,
        pods: rt.Store[ChildPod] | None = None,
    ) -> StatusWriter:
        """Return a writer of the status of JobSets that leaves out what the CRD does not have.

        Args:
            own_writes: expectations of its writes, if the reconciler waits for them.
            jobs: cache of Jobs, which events may name.
            pods: cache of pods, which events may name.
        """
        return StatusWriter(
            self.manager.client,
            self.jobsets.store,
            self.events,
            own_writes=own_writes,
            jobs=jobs,
            pods=pods,
            clock=self.manager.clock,
            definition=self.definition,
        )

    def controller(
        self, name: str, reconciler: rt.Reconciler, workers: int, *watches: rt.Watch[Any]
    ) -> rt.Controller:
        """Register a reconciler with the manager.

        Args:
            name: name of the controller.
            reconciler: reconciler of the controller.
            workers: maximum concurrent reconciles.
            *watches: sources of its requests.
        """
        clock = self.manager.clock
        controller = rt.Controller(
            name=name, reconciler=reconciler, workers=workers, watches=watches, clock=clock
        )
        self.manager.add(controller)
        return controller


class CacheReader:
    """Reconciler that reads JobSets, Jobs and pods from the manager's caches.

    Args:
        caches: informers to read from.
    """

    def __init__(self, caches: SharedCaches) -> None:
        self._client = caches.manager.client
        self._clock = caches.manager.clock
        self._events = caches.events
        self._jobsets = caches.jobsets.store
        self._jobs = caches.jobs.store
        self._pods = caches.pods.store

    def _record(self, jobset: JobSet, event: EmitEvent, **about: Any) -> None:
        """Record an event of a JobSet; ``about`` as for ``EventRecorder.event``."""
        self._events.event(jobset, event.type_, event.reason, event.message, **about)

    async def _delete(self, pod: ChildPod | ListedPod) -> None:
        """Delete a pod, and no other of its name.

        Raises:
            ConflictError: there is another pod of this name.
            NotFoundError: there is none.
        """
        meta = pod.metadata
        await self._client.delete(ChildPod, meta.namespace, meta.name, uid=meta.uid)


def node_labels(nodes: rt.Store[LabelledNode], name: str) -> Mapping[str, str] | None:
    """Return the labels of a node; ``None`` if it does not exist."""
    node = nodes.get(rt.ObjectKey("", name))
    return None if node is None else node.metadata.labels


def first_index_is_over(jobs: rt.Store[Job], key: rt.ObjectKey, uid: str) -> bool:
    """Return True if index 0 of the Job of that name and UID has ended."""
    job = jobs.get(key)
    return job is not None and job.metadata.uid == uid and job.status.first_index_is_over


def job_of(jobs: rt.Store[Job], pod: ChildPod) -> Job | None:
    """Return the Job of a pod, by its UID: names and labels prove nothing."""
    return _owner_in(jobs, pod.metadata.namespace, controller_of(pod.metadata.owner_references))


def jobset_of(jobsets: rt.Store[JobSet], job: Job) -> JobSet | None:
    """Return the JobSet of a Job, by its UID."""
    return _owner_in(jobsets, job.metadata.namespace, controller_of(job.metadata.owner_references))


def _owner_in(store: rt.Store[T], namespace: str, owner: OwnerReference | None) -> T | None:
    if owner is None:
        return None
    found = store.get(rt.ObjectKey(namespace, owner.name))
    return found if found is not None and found.metadata.uid == owner.uid else None
