"""Reconciler that gives up pods on unreachable nodes after a deadline (controller ``lost-nodes``).

It does nothing unless a JobSet or the configuration sets a deadline. The request's key is that of
the node. An event costs O(1): a node is queued when it becomes unreachable, and when the deletion
of a pod on such a node begins. The decision is made by ``reconcilers.lost_nodes.plan``.

A pod is first marked as failed, as the pod garbage collector does it, because the Job controller
releases a pod with ``podReplacementPolicy: Failed`` only then. Both writes carry UID and
resourceVersion: if the kubelet has written meanwhile, they are rejected, and the node is checked
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.child_pod import ENDED
from jobsetpy.api.core import LabelledNode
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import controller_of
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.errors import JobSetPyError, NotFoundError
from jobsetpy.reconcilers.execution import metrics as execution_metrics
from jobsetpy.reconcilers.execution.caches import CacheReader, SharedCaches, job_of
from jobsetpy.reconcilers.execution.disruption import disruption
from jobsetpy.reconcilers.execution.kinds import ListedPod
from jobsetpy.reconcilers.execution.memory import Memories
from jobsetpy.reconcilers.execution.parallel import in_parallel, raise_failures
from jobsetpy.reconcilers.execution.status_writer import moment
from jobsetpy.reconcilers.lost_nodes.deadline import deadline_of
from jobsetpy.reconcilers.lost_nodes.plan import (
    DueTimes,
    LeavingPod,
    LostNodePlan,
    LostPods,
    ObservedNode,
    is_leaving,
    plan_lost_node,
)
from jobsetpy.reconcilers.rules.membership import is_ours

FIELD_MANAGER: Final = "jobset-lost-nodes"
"""Field manager for phase and condition of pods that are given up."""
WORKERS: Final = 4
"""Maximum number of concurrent reconciles."""
PARALLEL_WRITES: Final = 16
"""Maximum number of concurrent requests for one node."""


@attrs.frozen(kw_only=True)
class LostNodesSettings:
    """Settings of the lost nodes reconciler.

    Args:
        deadline_s: deadline in seconds of JobSets without the annotation; 0 for never.
    """

    deadline_s: float = 0.0


def _leaving(pod: ChildPod) -> Iterable[str]:
    if not is_leaving(pod):
        return ()
    key = rt.ObjectKey(pod.metadata.namespace, pod.metadata.labels.jobset_name)
    return (f"node:{pod.spec.node_name}", f"jobset:{key}")


LEAVING: rt.Index[ChildPod] = rt.Index("leavingPods", _leaving)
"""Pods that are being deleted on a node, by the node and by the JobSet in their labels."""


class LostNodesReconciler(CacheReader):
    """Reconciler of unreachable nodes; the request's key is that of the node.

    Args:
        caches: shared informers; pods with the index :data:`LEAVING`.
        settings: settings of the reconciler.
    """

    def __init__(self, caches: SharedCaches, settings: LostNodesSettings) -> None:
        super().__init__(caches)
        self._nodes = caches.nodes.store
        self._settings = settings
        self._memory: Memories[DueTimes] = Memories(dict)

    # -- events ---------------------------------------------------------------------------

    def on_pod(self, event: rt.Event[ChildPod]) -> Iterable[rt.Request]:
        """Request a reconcile if the deletion of a pod on an unreachable node begins; O(1).

        Until the nodes are synced, one is requested in any case: it waits for all caches.
        """
        old, new = event.old, event.new
        if new is None or not is_leaving(new) or (old is not None and is_leaving(old)):
            return ()
        key = rt.ObjectKey("", new.spec.node_name)
        if self._nodes.has_synced and _unreachable_since(self._nodes, key) is None:
            return ()
        return (rt.Request(key),)

    def nodes_of(self, jobset: JobSet) -> Iterable[rt.ObjectKey]:
        """Return the nodes on which a JobSet's pods are being deleted; empty until synced."""
        if not self._pods.has_synced:
            return ()
        pods = self._pods.by_index(LEAVING, f"jobset:{jobset.metadata.key}")
        return {rt.ObjectKey("", pod.spec.node_name) for pod in pods}

    def deadline_changes(self, event: rt.Event[JobSet]) -> bool:
        """Return whether the deadline of an existing JobSet changes."""
        old, new = event.old, event.new
        if old is None or new is None:
            return False
        return self._deadline_s(old) != self._deadline_s(new)

    def _deadline_s(self, jobset: JobSet) -> float:
        return deadline_of(jobset.metadata.annotations, self._settings.deadline_s)

    # -- reconcile ----------------------------------------------------------------------------

    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Give up the pods of one node whose deadline is over.

        Raises:
            ExceptionGroup: some writes failed; the others were made.
        """
        observed, memory = self._observe(request.key), self._memory.of(request.key)
        plan = plan_lost_node(observed, memory, moment(self._clock))
        if plan.confirm:
            observed = await self._confirm(observed)
            plan = plan_lost_node(observed, memory, moment(self._clock))
        self._memory.keep(request.key, plan.memory or None)
        await self._execute(plan)
        return plan.result

    def _observe(self, key: rt.ObjectKey) -> ObservedNode:
        since = _unreachable_since(self._nodes, key)
        if since is None:
            return ObservedNode(name=key.name)
        pods = (
            LeavingPod(pod, jobset)
            for pod in self._pods.by_index(LEAVING, f"node:{key.name}")
            if (jobset := self._jobset_of(pod)) is not None
        )
        return ObservedNode(
            name=key.name,
            unreachable_since=since,
            pods=tuple(pods),
            default_s=self._settings.deadline_s,
        )

    async def _confirm(self, observed: ObservedNode) -> ObservedNode:
        """Read the node from the API server: it may be reachable again."""
        page = await self._client.list_page(
            LabelledNode, field_selector=f"metadata.name={observed.name}"
        )
        since = next((node.unreachable_since for node in page.items), None)
        return attrs.evolve(observed, unreachable_since=since, confirmed=True)

    async def _execute(self, plan: LostNodePlan) -> None:
        failures: list[tuple[ChildPod, JobSetPyError]] = []
        for lost in plan.lost:
            failures += await self._give_up(lost, plan.at)
        raise_failures(failures, "pods of a lost node could not be deleted")

    async def _give_up(self, lost: LostPods, at: datetime) -> list[tuple[ChildPod, JobSetPyError]]:
        """Delete pods of one JobSet by force; return the failures."""
        deleted: list[str] = []

        async def delete(pod: ChildPod) -> None:
            meta = pod.metadata
            version = meta.resource_version
            with suppress(NotFoundError):
                if pod.status.phase not in ENDED:
                    failed = await self._client.apply(
                        ListedPod,
                        meta.namespace,
                        meta.name,
                        _failed(pod, lost, at),
                        owner=FIELD_MANAGER,
                        subresource="status",
                    )
                    version = failed.metadata.resource_version
                await self._client.delete(
                    ChildPod,
                    meta.namespace,
                    meta.name,
                    uid=meta.uid,
                    resource_version=version,
                    grace_period_seconds=0,
                )
                deleted.append(meta.name)

        failures = await in_parallel(PARALLEL_WRITES, lost.pods, delete)
        if deleted:
            execution_metrics.lost_pods_deleted(len(deleted))
            event = lost.event(deleted)
            related = self._pods.get(rt.ObjectKey(lost.jobset.metadata.namespace, event.pod))
            self._record(lost.jobset, event, related=related)
        return failures

    # -- cache lookups ------------------------------------------------------------------------

    def _jobset_of(self, pod: ChildPod) -> JobSet | None:
        """Return the JobSet of a pod, found by UIDs, because labels are not reliable.

        If the Job was deleted alone, only the pod's labels are left; they must then also have the
        JobSet's UID.
        """
        meta = pod.metadata
        owner, job = controller_of(meta.owner_references), job_of(self._jobs, pod)
        if job is not None and job.metadata.controller is not None:
            name, uid = job.metadata.controller.name, job.metadata.controller.uid
        elif job is None and owner is not None and owner.kind == "Job":
            name, uid = meta.labels.jobset_name, meta.annotations.jobset_uid
        else:
            return None
        jobset = self._jobsets.get(rt.ObjectKey(meta.namespace, name))
        if jobset is None or jobset.metadata.uid != uid:
            return None
        return jobset if is_ours(jobset) else None


def _failed(pod: ChildPod, lost: LostPods, at: datetime) -> dict[str, Any]:
    """Return phase and conditions of a pod that is given up.

    The Job controller waits before it creates another pod, counted from the time at which this one
    was last ready. The node controller writes that time as well, but its write conflicts with the
    eviction of the pods at the same moment and is retried only five seconds later.
    """
    body = disruption(pod.metadata, keys.NODE_LOST_REASON, f"Deleted by force, {lost.why}", at)
    body["metadata"]["resourceVersion"] = pod.metadata.resource_version
    body["status"]["phase"] = "Failed"
    ready = {"type": "Ready", "status": "False", "reason": keys.NODE_LOST_REASON}
    body["status"]["conditions"].append({**ready, "lastTransitionTime": seconds_text(lost.since)})
    return body


def _unreachable_since(nodes: rt.Store[LabelledNode], key: rt.ObjectKey) -> datetime | None:
    node = nodes.get(key)
    return None if node is None else node.unreachable_since


def _becomes_unreachable(event: rt.Event[LabelledNode]) -> bool:
    """Return whether a node becomes unreachable, or has been since another time."""
    old, new = event.old, event.new
    if new is None or new.unreachable_since is None:
        return False
    return old is None or old.unreachable_since != new.unreachable_since


def lookup(manager: rt.Manager) -> Callable[[rt.ObjectKey], bool]:
    """Return a predicate for JobSets with pods that are being deleted on an unreachable node.

    Args:
        manager: not started yet.
    """
    caches = SharedCaches(manager)
    caches.pods.add_index(LEAVING)
    pods, nodes = caches.pods.store, caches.nodes.store

    def is_lost(key: rt.ObjectKey) -> bool:
        return any(
            _unreachable_since(nodes, rt.ObjectKey("", pod.spec.node_name)) is not None
            for pod in pods.by_index(LEAVING, f"jobset:{key}")
        )

    return is_lost


def setup(manager: rt.Manager, settings: LostNodesSettings | None = None) -> rt.Controller:
    """Wire the lost nodes reconciler: its caches, watches and controller.

    Args:
        manager: not started yet.
        settings: settings of the reconciler; defaults if ``None``.
    """
    settings = settings or LostNodesSettings()
    caches = SharedCaches(manager)
    caches.pods.add_index(LEAVING)
    reconciler = LostNodesReconciler(caches, settings)
    ask_nodes = rt.enqueue_mapped(reconciler.nodes_of)
    return caches.controller(
        "lost-nodes",
        reconciler,
        WORKERS,
        rt.Watch(caches.nodes, rt.enqueue_self, when=_becomes_unreachable),
        rt.Watch(caches.pods, reconciler.on_pod),
        rt.Watch(caches.jobsets, ask_nodes, when=reconciler.deadline_changes),
    )
