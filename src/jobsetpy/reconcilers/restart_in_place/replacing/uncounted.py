"""Pods that are evicted or deleted and that their Job must not count.

A pod of a running group is drained, evicted, preempted or deleted. Its program may save its work
and exit with 0: the Job controller would count its index as complete and never replace the pod. Or
it exits with another code: the Job controller would count a failure and wait for 10 s, the next
time for 20 s and so on up to 10 minutes, before it creates the replacement. It does neither for a
pod without its tracking finalizer
(https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-tracking-with-finalizers): such
a pod is replaced as soon as it is deleted. So the manager removes the finalizer of a pod that
leaves.

A kubelet that ends a pod by itself (node pressure, a critical pod, shutdown of the node) deletes
nothing: such a pod leaves with its end, which its condition ``DisruptionTarget`` explains. It stays
after its end, so that a manager that starts can still see that its Job has counted it. One that was
not counted and has succeeded is deleted: once its successor has completed the index, and was
removed with its node, it would look like one that was counted.

The same holds for a pod that has ended if its deletion was requested before: it still has a grace
period, while a pod that is deleted after its end has none. The Job controller, which counts within
about a second, may be faster; then its index is complete although its work is not, and the Job is
recreated.

Excluded are pods of Jobs that end or are deleted, pods whose end could fail their Job by
``podFailurePolicy`` (the JobSet's failure policy decides then), and pods on a node that are
force-deleted: the finalizer keeps them until their kubelet has ended them, so that no second pod of
the same index runs next to them.
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
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import is_live
from jobsetpy.reconcilers.restart_in_place.job_controller import template_rules
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.json_tree import Json, child, objects, text
from jobsetpy.reconcilers.rules.membership import parse_count
from jobsetpy.reconcilers.rules.plan import EmitEvent, Plan

EXPECTED_CODES: Final = (137, 143)
"""Exit codes that follow from an eviction or deletion: SIGKILL and SIGTERM."""


CHECK_S: Final = 2.0
"""Interval in seconds between checks of a Job that may have counted a pod."""
CHECKS: Final = 5
"""Number of such checks; the Job controller counts within about a second."""


@attrs.frozen(kw_only=True)
class ObservedLeaving:
    """Observed state of a pod that leaves.

    Args:
        first: the pod when it was first observed leaving.
        pod: the pod now; ``None`` if it is deleted.
        job: its Job; ``None`` if the Job is deleted or not known yet.
        jobset: the Job's JobSet; ``None`` if it is deleted or does not own the Job.
        checks: number of checks of its Job since the pod has ended, or was not known.
        replaced: True if another pod of the same index has succeeded.
        since: monotonic time at which it was first observed leaving.
    """

    first: ChildPod
    pod: ChildPod | None
    job: Job | None
    jobset: JobSet | None
    checks: int = 0
    replaced: bool = False
    since: float = 0.0


@attrs.frozen(kw_only=True)
class LeavingPlan(Plan[None]):
    """Actions for a pod that leaves.

    Args:
        uncount: True to remove the Job controller's finalizer from it.
        recreate: True to recreate its Job, which counts it as succeeded.
        delete: True to delete it, since its Job does not count it.
        again: True to check its Job again later.
    """

    uncount: bool = False
    recreate: bool = False
    delete: bool = False
    again: bool = False

    def event(self, first: ChildPod, job: Job) -> EmitEvent:
        """Return the event for a Job that is recreated."""
        name = first.metadata.name
        message = (
            f"job {job.metadata.name!r} counts pod {name!r} as succeeded, which had to leave "
            "its node: the job is recreated, since it never replaces that pod"
        )
        return EmitEvent(cond.WARNING, keys.LEAVING_POD_COUNTED_REASON, message, pod=name)


def is_leaving(pod: ChildPod) -> bool:
    """Return True if a pod leaves before its end and its Job may count it, or has; O(1)."""
    meta = pod.metadata
    if not pod.is_interrupted:
        return False
    if meta.deletion_timestamp is None:
        # Its kubelet has ended the containers: none can run next to a replacement.
        return meta.tracked or pod.status.phase == "Succeeded"
    if not meta.tracked:
        return False
    return meta.deletion_grace_period_seconds != 0 or not pod.spec.node_name


def plan_leaving(observed: ObservedLeaving) -> LeavingPlan:
    """Plan the actions for one pod; O(containers of its template)."""
    first, pod, job, jobset = observed.first, observed.pod, observed.job, observed.jobset
    if job is None:
        return _check_again(observed)  # without a line in the log: so do all pods of deleted Jobs
    if jobset is None or not is_live(jobset) or not _is_replaced(jobset, job, first):
        return LeavingPlan()
    if pod is not None and pod.metadata.tracked:
        if not _is_replaced(jobset, job, pod):
            return LeavingPlan()
        result = Result.done(summary="has its job not count the pod")
        return LeavingPlan(uncount=True, result=result)
    index = parse_count(first.metadata.annotations.completion_index)
    if index is not None and job.status.has_completed(index):
        if observed.replaced:
            return LeavingPlan(delete=_remains(pod))
        result = Result.done(summary="has the job recreated, which counts the pod as succeeded")
        return LeavingPlan(recreate=True, result=result)
    plan = _check_again(observed, "the pod may have been counted")
    return plan if plan.again else LeavingPlan(delete=_remains(pod))


def _remains(pod: ChildPod | None) -> bool:
    """Return True for a pod that has succeeded and that is not being deleted."""
    return (
        pod is not None
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase == "Succeeded"
    )


def _check_again(observed: ObservedLeaving, why: str = "") -> LeavingPlan:
    if observed.checks >= CHECKS:
        return LeavingPlan()
    return LeavingPlan(again=True, result=Result.requeue_after(CHECK_S, summary=why))


def finalizer_patch(pod: ChildPod) -> dict[str, object]:
    """Return the merge patch that removes the Job controller's finalizer from a pod.

    The UID is a precondition. The other finalizers are listed as observed: an object that is being
    deleted accepts no new ones, so the API server refuses a patch that would add one again.
    """
    meta = pod.metadata
    others = [name for name in meta.finalizers if name != keys.JOB_TRACKING_FINALIZER]
    return {"metadata": {"uid": meta.uid, "finalizers": others or None}}


def _is_replaced(jobset: JobSet, job: Job, pod: ChildPod) -> bool:
    template = template_rules.template_of(jobset, job, pod)
    if (
        template is None
        or template_rules.is_over(job)
        or template_rules.may_fail_by_condition(template)
    ):
        return False
    return not any(template_rules.fails_the_job(template, (end,)) for end in _ends(template, pod))


def _ends(template: Json, pod: ChildPod) -> Iterable[FailedContainer]:
    """Return how containers have ended, or may end because the pod leaves."""
    yield from pod.status.failed
    spec = child(child(template, "template"), "spec")
    for field in ("containers", "initContainers"):
        for _, container in objects(spec, field):
            for code in EXPECTED_CODES:
                yield FailedContainer(name=text(container, "name"), exit_code=code)
