"""The caches that several reconcilers share, declared once."""

from __future__ import annotations

from typing import Any, Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap, LabelledNode
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import controller_of

CHILD_SELECTOR: Final = keys.JOBSET_NAME
"""Label selector of all that is made for JobSets: the label exists."""


def _jobset_of(pod: ChildPod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.labels.jobset_name}"


PODS_OF_JOBSET: Final[rt.Index[ChildPod]] = rt.Index("jobset", _jobset_of)
"""By namespace and name of the JobSet in the pod's label, which proves nothing."""


def pods_labelled(pods: rt.Store[ChildPod], jobset: rt.ObjectKey) -> list[ChildPod]:
    """Pods that say that they are of a JobSet; O(result), however many there are of others.

    Args:
        pods: with the index ``PODS_OF_JOBSET``.
        jobset: which.
    """
    return pods.by_index(PODS_OF_JOBSET, str(jobset))


@attrs.frozen
class SharedCaches:
    """What reconcilers are made of: a manager's informers; only those that are asked for run.

    Args:
        manager: not started yet.
    """

    manager: rt.Manager

    @property
    def events(self) -> rt.EventRecorder:
        """Receives events about JobSets."""
        return self.manager.recorder("jobset")

    @property
    def jobsets(self) -> rt.SharedInformer[JobSet]:
        """All JobSets."""
        return self.manager.informer(JobSet)

    @property
    def jobs(self) -> rt.SharedInformer[Job]:
        """Their Jobs, with the index ``OWNER_UID``."""
        return self.manager.informer(Job, label_selector=CHILD_SELECTOR, indexes=[rt.OWNER_UID])

    @property
    def pods(self) -> rt.SharedInformer[ChildPod]:
        """Their pods, with the index ``PODS_OF_JOBSET``."""
        return self.manager.informer(
            ChildPod, label_selector=CHILD_SELECTOR, indexes=[PODS_OF_JOBSET]
        )

    @property
    def config_maps(self) -> rt.SharedInformer[ConfigMap]:
        """The ConfigMaps of startup groups."""
        return self.manager.informer(ConfigMap, label_selector=CHILD_SELECTOR)

    @property
    def nodes(self) -> rt.SharedInformer[LabelledNode]:
        """All nodes."""
        return self.manager.informer(LabelledNode)

    def controller(
        self, name: str, reconciler: rt.Reconciler, workers: int, *watches: rt.Watch[Any]
    ) -> rt.Controller:
        """Have the manager run a reconciler.

        Args:
            name: of the controller.
            reconciler: its reconciler.
            workers: maximum concurrent reconciles.
            *watches: what asks for reconciles.
        """
        clock = self.manager.clock
        controller = rt.Controller(
            name=name, reconciler=reconciler, workers=workers, watches=watches, clock=clock
        )
        self.manager.add(controller)
        return controller


def job_of(jobs: rt.Store[Job], pod: ChildPod) -> Job | None:
    """The Job that a pod belongs to, by its UID: names and labels prove nothing."""
    owner = controller_of(pod.metadata.owner_references)
    if owner is None:
        return None
    job = jobs.get(rt.ObjectKey(pod.metadata.namespace, owner.name))
    return job if job is not None and job.metadata.uid == owner.uid else None
