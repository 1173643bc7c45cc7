"""Workers that run although the barrier of their epoch is closed.

In mode ``sidecar`` the kubelet holds them until the agent's startup probe succeeds. A kubelet that
restarts may count the agent as started without a probe (see ``agent.sidecar.probe``); its worker
then runs before its group is complete, perhaps next to workers of the epoch before. An agent that
has noticed it ends its pod's containers within seconds. This is the check of all others by level:
a pod at an epoch above the synced one, of which an ordinary container runs, is deleted. The barrier
waits for its replacement, so that no other pod restarts.

Epoch and containers are written by two processes, so a status may be left over from the run
before. It is not if the containers were observed waiting at the same epoch; otherwise it has to
last, and the kubelet to be alive.
"""

from __future__ import annotations

from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.reconcile import Result
from jobsetpy.api.worker_reports import epoch_of
from jobsetpy.reconcilers.restart_in_place.failures.pod_changes import STATUS_LAG_S
from jobsetpy.reconcilers.restart_in_place.job_controller import template_rules
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.agent_containers import sidecars, supervised
from jobsetpy.reconcilers.rules.json_tree import child
from jobsetpy.reconcilers.rules.membership import is_ours
from jobsetpy.reconcilers.rules.plan import EmitEvent, Plan

AGENT_ENDS_S: Final = 5.0
"""Time in seconds in which an agent that has noticed it ends its pod's containers by itself."""


@attrs.frozen(kw_only=True)
class ObservedWorker:
    """Observed state of a pod whose worker may run early.

    Args:
        pod: the pod; ``None`` if it is deleted.
        job: its Job.
        jobset: the Job's JobSet.
        certain: True if its containers were observed waiting at this epoch.
        since_s: seconds since its worker was first observed running at this epoch.
        node_ready: True if its node is ready, as far as known.
    """

    pod: ChildPod | None
    job: Job | None
    jobset: JobSet | None
    certain: bool = False
    since_s: float = 0.0
    node_ready: bool = True


@attrs.frozen(kw_only=True)
class EarlyPlan(Plan[None]):
    """Actions for such a pod.

    Args:
        delete: True to delete it.
    """

    delete: bool = False


def may_run_early(pod: ChildPod | None) -> bool:
    """Return True if the worker of a pod with an epoch runs; O(1).

    Attempts of the Go project's agents are left out: a JobSet that was moved here has no synced
    epoch until the state of the other controller was adopted.
    """
    if pod is None or not pod.status.running or pod.metadata.annotations.epoch is None:
        return False
    return pod.live and epoch_of(pod) > 0


def plan_early(observed: ObservedWorker) -> EarlyPlan:
    """Plan the actions for one pod; O(containers of its template)."""
    if not _runs_early(observed):
        return EarlyPlan()
    wait_s = (AGENT_ENDS_S if observed.certain else STATUS_LAG_S) - observed.since_s
    if wait_s > 0:
        return EarlyPlan(result=Result.requeue_after(wait_s))
    if not observed.certain and not observed.node_ready:
        return EarlyPlan(result=Result.requeue_after(STATUS_LAG_S))
    return EarlyPlan(delete=True)


def _runs_early(observed: ObservedWorker) -> bool:
    pod, job, jobset = observed.pod, observed.job, observed.jobset
    if pod is None or job is None or jobset is None or not may_run_early(pod):
        return False
    if not jobset.spec.restarts_in_place or not is_ours(jobset):
        return False
    if epoch_of(pod) <= jobset.status.synced_epoch or template_rules.is_ending(job):
        return False
    return template_rules.template_of(jobset, job, pod) is not None and held_by_probe(jobset, job)


def held_by_probe(jobset: JobSet, job: Job) -> bool:
    """Return True if a sidecar holds the workers of a Job; a supervisor's container always runs."""
    spec = child(template_rules.job_template(jobset, job) or {}, "template", "spec")
    return bool(sidecars(spec)) and not supervised(spec)


def early_event(pod: ChildPod, jobset: JobSet) -> EmitEvent:
    """Return the event for a pod that is deleted."""
    name = pod.metadata.name
    message = (
        f"pod {name!r} on node {pod.spec.node_name!r} runs its worker at epoch {epoch_of(pod)}, "
        f"but the barrier is lifted up to epoch {jobset.status.synced_epoch} only: the pod is "
        "replaced; a kubelet that restarts forgets the probe that holds the worker, unless its "
        "gate ChangeContainerStatusOnKubeletRestart is true"
    )
    return EmitEvent(cond.WARNING, keys.WORKER_EARLY_REASON, message, pod=name)
