"""The caches that several reconcilers share, declared once."""

from __future__ import annotations

from typing import Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap
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
    """Informers of a manager that has not started yet; only those that are asked for run."""

    manager: rt.Manager

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


def job_of(jobs: rt.Store[Job], pod: ChildPod) -> Job | None:
    """The Job that a pod belongs to, by its UID: names and labels prove nothing."""
    owner = controller_of(pod.metadata.owner_references)
    if owner is None:
        return None
    job = jobs.get(rt.ObjectKey(pod.metadata.namespace, owner.name))
    return job if job is not None and job.metadata.uid == owner.uid else None
