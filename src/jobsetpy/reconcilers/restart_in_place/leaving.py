"""Pods that were told to leave and that their Job must not count (restart in place).

A pod of a running group is drained, evicted, preempted or deleted. Its program may save its work
and exit with 0: the Job controller would count its index as complete and never replace the pod. Or
it exits with another code: the Job controller would count a failure and wait for 10 s, the next
time for 20 s and so on up to 10 minutes, before it creates the replacement. It does neither for a
pod without its tracking finalizer
(https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-tracking-with-finalizers): such
a pod is replaced as soon as it is gone. So the manager takes the finalizer off a pod that leaves.

A pod that has ended may be uncounted too, if it was told to leave before: its grace period is still
there, while a pod that is deleted after its end has none. The Job controller, which counts within
about a second, may be faster; then the pod counts.

Left alone are pods of Jobs that end or are deleted, pods whose end could fail their Job by
``podFailurePolicy`` (the JobSet's failure policy decides then), and pods that are deleted by force
on a node: the finalizer keeps them until their kubelet has ended them, so that no second pod of the
same index runs next to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod, FailedContainer
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.restart_in_place.failures import (
    fails_the_job,
    is_over,
    may_fail_by_condition,
    template_of,
)
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.json_tree import Json, child, objects, text
from jobsetpy.reconcilers.rules.membership import is_ours
from jobsetpy.reconcilers.rules.plan import Plan

EXPECTED_CODES: Final = (137, 143)
"""Exit codes that follow from being told to leave: SIGKILL and SIGTERM."""


@attrs.frozen(kw_only=True)
class ObservedLeaving:
    """A JobSet's pods that leave.

    Args:
        jobset: the JobSet; ``None`` if it is gone.
        pods: its pods that :func:`is_leaving`, or were when they were last seen, each with its
            Job; their Jobs would count them.
    """

    jobset: JobSet | None
    pods: tuple[tuple[ChildPod, Job], ...] = ()


@attrs.frozen(kw_only=True)
class LeavingPlan(Plan[None]):
    """Actions for the pods that leave.

    Args:
        uncounted: pods to take the finalizer off.
    """

    uncounted: tuple[ChildPod, ...] = ()


def is_leaving(pod: ChildPod) -> bool:
    """Tell if a pod was told to leave before it ended, and its Job may still count it; O(1)."""
    meta = pod.metadata
    if meta.deletion_timestamp is None or not meta.tracked:
        return False
    return meta.deletion_grace_period_seconds != 0 or not pod.spec.node_name


def plan_leaving(observed: ObservedLeaving) -> LeavingPlan:
    """Plan which pods their Jobs must not count; O(pods that leave)."""
    jobset = observed.jobset
    if jobset is None or not _restarts_in_place(jobset):
        return LeavingPlan()
    pods = tuple(pod for pod, job in observed.pods if _is_replaced(jobset, job, pod))
    if not pods:
        return LeavingPlan()
    result = Result.done(summary=f"has the Jobs not count {len(pods)} pods that leave")
    return LeavingPlan(uncounted=pods, result=result)


def finalizer_patch(pod: ChildPod) -> dict[str, object]:
    """Return the merge patch that takes the Job controller's finalizer off a pod.

    The UID is a precondition. The other finalizers are named as they were seen: an object that is
    being deleted gets no new ones, so the API server refuses a patch that would bring one back.
    """
    meta = pod.metadata
    others = [name for name in meta.finalizers if name != keys.JOB_TRACKING_FINALIZER]
    return {"metadata": {"uid": meta.uid, "finalizers": others or None}}


def _restarts_in_place(jobset: JobSet) -> bool:
    """Tell if a JobSet's pods are to be replaced; those of a suspended one are when it resumes."""
    return (
        jobset.spec.restarts_in_place
        and jobset.metadata.deletion_timestamp is None
        and is_ours(jobset)
        and cond.finished(jobset.status.conditions) is None
    )


def _is_replaced(jobset: JobSet, job: Job, pod: ChildPod) -> bool:
    template = template_of(jobset, job, pod)
    if template is None or is_over(job) or may_fail_by_condition(template):
        return False
    return not any(fails_the_job(template, (end,)) for end in _ends(template, pod))


def _ends(template: Json, pod: ChildPod) -> Iterable[FailedContainer]:
    """Return how containers have ended, or may end because the pod was told to leave."""
    yield from pod.status.failed
    spec = child(child(template, "template"), "spec")
    for field in ("containers", "initContainers"):
        for _, container in objects(spec, field):
            for code in EXPECTED_CODES:
                yield FailedContainer(name=text(container, "name"), exit_code=code)
