"""Pods that have left their restart group by succeeding: their Job counts them, or will.

The Job controller counts a pod that has ended while the pod has the tracking finalizer, first in
the Job's status, then by removing the finalizer
(https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-tracking-with-finalizers). A
phase alone proves nothing: a pod that was evicted, saved its work and ended with 0 has the phase
``Succeeded`` too, and its index gets another pod.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobsetpy.api.batch import Job, JobStatus
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.reconcilers.rules.membership import parse_count


def completion_of(pod: ChildPod) -> str:
    """Return what a succeeded pod completes: its index, or its UID; "" if only its Job knows.

    A pod that is being deleted, or that its kubelet ended, completes nothing by itself: it may
    have ended because of that.
    """
    meta = pod.metadata
    if pod.status.phase != "Succeeded" or not meta.tracked or pod.is_interrupted:
        return ""
    index = meta.annotations.completion_index
    return meta.uid if index is None else index


def is_counted(status: JobStatus, completion: str) -> bool:
    """Return True if a Job's status includes a completion of :func:`completion_of`."""
    index = parse_count(completion)
    if index is not None and status.has_completed(index):
        return True
    return completion in status.uncounted_terminated_pods.succeeded


def counted(status: JobStatus) -> int:
    """Return the number of pods that a Job counts as succeeded."""
    return status.succeeded + len(status.uncounted_terminated_pods.succeeded)


def succeeded(job: Job, pods: Iterable[ChildPod]) -> int:
    """Return the number of a Job's pods that have succeeded; O(pods).

    Args:
        job: the Job.
        pods: its pods.
    """
    completions = {completion for pod in pods if (completion := completion_of(pod))}
    more = sum(not is_counted(job.status, completion) for completion in completions)
    return counted(job.status) + more
