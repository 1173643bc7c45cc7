"""Reconciler that keeps followers of exclusively placed Jobs in their leader's domain (``pod``).

A follower that was created before its leader had a node waits behind a scheduling gate. When the
leader is bound, a reconcile releases all of them, each by one patch that sets the domain and
removes the gate. It also finds followers in other domains and evicts them; before any deletion the
API server is asked, since caches may be late. The decision is made by
``reconcilers.placement.plan``.

A follower's event costs O(1): it queues a reconcile only if that pod needs an action. Everything
that a reconcile waits for (a node, the end of a second leader) is watched, so none is repeated
without a reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import LabelledNode
from jobsetpy.api.jobset import ChildPod
from jobsetpy.api.meta import controller_of
from jobsetpy.errors import JobSetPyError, NotFoundError
from jobsetpy.reconcilers.execution import metrics as execution_metrics
from jobsetpy.reconcilers.execution.caches import (
    CacheReader,
    SharedCaches,
    first_index_is_over,
    node_labels,
)
from jobsetpy.reconcilers.execution.disruption import disruption
from jobsetpy.reconcilers.execution.kinds import ListedPod
from jobsetpy.reconcilers.execution.memory import Memories
from jobsetpy.reconcilers.execution.parallel import in_parallel, raise_failures
from jobsetpy.reconcilers.execution.status_writer import moment
from jobsetpy.reconcilers.placement.plan import (
    Incarnation,
    ObservedPlacement,
    PlacedPod,
    Placement,
    PlacementMemory,
    PlacementPlan,
    is_due,
    is_leader,
    plan_placement,
    selected_domain,
    topology_of,
)
from jobsetpy.reconcilers.rules.plan import EmitEvent

FIELD_MANAGER: Final = "jobset-placement"
"""Field manager for the condition on evicted pods."""


WORKERS: Final = 8
"""Maximum number of concurrent reconciles."""
PARALLEL_WRITES: Final = 50
"""Maximum number of concurrent requests for one Job."""


def _index_values(pod: ChildPod) -> Iterable[str]:
    if pod.metadata.annotations.placed_topology is None:
        return ()
    job = _job_key(pod)
    if job is None:
        return ()
    if not is_leader(pod):
        return (f"job:{job}",)
    leader = (f"job:{job}", f"leader:{job}")
    return (*leader, f"node:{pod.spec.node_name}") if pod.spec.node_name else leader


PLACED: rt.Index[ChildPod] = rt.Index("exclusivePlacement", _index_values)
"""Pods with exclusive placement by their Job; leaders also by their role and their node."""


class PodPlacementReconciler(CacheReader):
    """Reconciler of exclusively placed Jobs; the request's key is that of the Job.

    Args:
        caches: shared informers; pods with the index :data:`PLACED`.
        repair: evict misplaced followers. Without the pod webhook no follower has a place, and all
            would be evicted forever; held ones are released in any case.
    """

    def __init__(self, caches: SharedCaches, *, repair: bool) -> None:
        super().__init__(caches)
        self._nodes = caches.nodes.store
        self._node_labels = partial(node_labels, self._nodes)
        self._repair = repair
        self._memory = Memories(PlacementMemory)

    # -- events ---------------------------------------------------------------------------

    def needs_reconcile(self, event: rt.Event[Any]) -> bool:
        """Return whether a pod's event requires a reconcile of its Job; O(1).

        Until the caches are synced, a follower's event does not: leaders and Jobs of the first
        lists request reconciles themselves, and these begin when all caches are synced.
        """
        old, new = event.old, event.new
        if event.obj.metadata.annotations.placed_topology is None:
            return False
        if is_leader(event.obj):
            return _footing(old) != _footing(new)
        if new is None or not new.live or (old is not None and old.live and old.spec == new.spec):
            return False
        caches = (self._pods, self._nodes, self._jobs)
        return all(each.has_synced for each in caches) and self._is_due(new)

    def _is_due(self, pod: ChildPod) -> bool:
        """Return whether a live follower has to be released or evicted; O(1)."""
        job, uid = _job_key(pod), pod.metadata.controller_uid
        if job is None:
            return False
        pods = self._pods.by_index(PLACED, f"leader:{job}")
        leaders = [each for each in pods if each.metadata.controller_uid == uid]
        over = pod.spec.held and first_index_is_over(self._jobs, job, uid)
        return over or is_due(pod, leaders, self._node_labels)

    def leaders_on(self, node: LabelledNode) -> list[rt.ObjectKey]:
        """Return the Jobs whose leaders are on a node; empty until pods are synced."""
        if not self._pods.has_synced:
            return []
        pods = self._pods.by_index(PLACED, f"node:{node.metadata.name}")
        return [job for job in map(_job_key, pods) if job is not None]

    # -- reconcile ----------------------------------------------------------------------------

    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Release and, if necessary, evict the followers of one Job.

        Raises:
            ExceptionGroup: some writes failed; the others were made.
        """
        observed = self._observe(request.key)
        plan = plan_placement(observed, self._memory.of(request.key), moment(self._clock))
        plan = await self._execute(observed, plan)
        return plan.result

    def _observe(self, job: rt.ObjectKey) -> ObservedPlacement:
        incarnations: dict[str, list[ChildPod]] = {}
        for pod in self._pods.by_index(PLACED, f"job:{job}"):
            incarnations.setdefault(pod.metadata.controller_uid, []).append(pod)
        return ObservedPlacement(
            job=job,
            incarnations=[
                Incarnation(over=first_index_is_over(self._jobs, job, uid), pods=pods)
                for uid, pods in incarnations.items()
            ],
            nodes=self._node_labels,
            repair=self._repair,
        )

    async def _execute(self, observed: ObservedPlacement, plan: PlacementPlan) -> PlacementPlan:
        """Execute the plan, or the one made after confirming it; return the executed plan."""
        job = observed.job
        if plan.unconfirmed:
            seen = [
                await self._list(each) if each in plan.unconfirmed else each
                for each in observed.incarnations
            ]
            observed = attrs.evolve(observed, incarnations=seen)
            plan = plan_placement(observed, self._memory.of(job), moment(self._clock))
        failures: list[tuple[PlacedPod, JobSetPyError]] = []
        for placement in plan.placements:
            failures += await self._place(job, placement, plan.at)
        memory = plan.memory
        if memory is not None:
            failed = {pod.metadata.uid for pod, _ in failures}
            acted = {uid: at for uid, at in memory.acted.items() if uid not in failed}
            memory = attrs.evolve(memory, acted=acted)
        self._memory.keep(job, memory)
        raise_failures(failures, "pods could not be placed")
        return plan

    async def _list(self, incarnation: Incarnation) -> Incarnation:
        """List the pods from the API server."""
        meta = incarnation.first.metadata
        selector = f"{keys.JOBSET_NAME}={meta.labels.jobset_name}"
        if meta.labels.job_key:
            selector += f",{keys.JOB_KEY}={meta.labels.job_key}"
        page = await self._client.list_page(ListedPod, meta.namespace, label_selector=selector)
        pods = [
            pod
            for pod in page.items
            if pod.metadata.controller_uid == incarnation.uid
            and pod.metadata.annotations.placed_topology is not None
        ]
        return attrs.evolve(incarnation, listed=pods)

    async def _place(
        self, job: rt.ObjectKey, placement: Placement, at: datetime
    ) -> list[tuple[PlacedPod, JobSetPyError]]:
        """Execute the actions for one incarnation; return the failures."""
        followers = placement.followers
        for notice in placement.notices:
            self._tell(placement, notice)

        async def release(pod: PlacedPod) -> None:
            names = [gate.name for gate in pod.spec.scheduling_gates]
            others = [{"name": name} for name in names if name != keys.PLACEMENT_GATE]
            spec: dict[str, Any] = {"schedulingGates": others or None}
            if selected_domain(pod) is None:
                spec["nodeSelector"] = {topology_of(pod): followers.domain}
            # The UID protects other pods of that name. No resourceVersion is needed: gates can only
            # be removed, so the API server rejects the patch if a gate was removed meanwhile.
            meta = pod.metadata
            body = {"metadata": {"uid": meta.uid}, "spec": spec}
            with suppress(NotFoundError):
                await self._client.merge_patch(ChildPod, job.namespace, meta.name, body)

        async def evict(pod: PlacedPod) -> None:
            meta = pod.metadata
            with suppress(NotFoundError):
                if not (isinstance(pod, ListedPod) and pod.disrupted):
                    reason, why = keys.PLACEMENT_VIOLATION_REASON, keys.PLACEMENT_VIOLATION_MESSAGE
                    await self._client.apply(
                        ListedPod,
                        meta.namespace,
                        meta.name,
                        disruption(meta, reason, why, at),
                        owner=FIELD_MANAGER,
                        subresource="status",
                    )
                await self._delete(pod)

        kept = await in_parallel(PARALLEL_WRITES, followers.release, release)
        stayed = await in_parallel(PARALLEL_WRITES, followers.evict, evict)
        evicted = len(followers.evict) - len(stayed)
        execution_metrics.followers_released(len(followers.release) - len(kept))
        execution_metrics.followers_evicted(evicted)
        if evicted:
            self._tell(placement, placement.evicted(job.name, evicted))
        return [*kept, *stayed]

    def _tell(self, placement: Placement, event: EmitEvent) -> None:
        meta = placement.of.first.metadata
        jobset = self._jobsets.get(rt.ObjectKey(meta.namespace, meta.labels.jobset_name))
        if jobset is not None and meta.annotations.jobset_uid in {"", jobset.metadata.uid}:
            self._record(jobset, event, related=placement.of.first)


def _footing(leader: ChildPod | None) -> tuple[bool, str]:
    """Return the relevant state of a leader: whether it is live, and its node."""
    return (False, "") if leader is None else (leader.live, leader.spec.node_name)


def _job_key(pod: ChildPod) -> rt.ObjectKey | None:
    owner = controller_of(pod.metadata.owner_references)
    return None if owner is None else rt.ObjectKey(pod.metadata.namespace, owner.name)


def _leader_ends(event: rt.Event[Any]) -> bool:
    """Return whether a change of a Job shows that no further leader will come."""
    old, new = event.old, event.new
    if new is None or keys.EXCLUSIVE_TOPOLOGY_ANNOTATION not in new.metadata.annotations:
        return False
    return new.status.first_index_is_over and not (
        old is not None and old.status.first_index_is_over
    )


def _tells_more(event: rt.Event[Any]) -> bool:
    """Return whether a node appears or gets a new label; changed values move no pod."""
    old, new = event.old, event.new
    if new is None:
        return False
    return old is None or bool(new.metadata.labels.keys() - old.metadata.labels.keys())


def setup(manager: rt.Manager, *, repair: bool = True) -> rt.Controller:
    """Wire the placement reconciler: its caches, watches and controller.

    Args:
        manager: not started yet.
        repair: evict misplaced followers, which needs the pod webhook.
    """
    caches = SharedCaches(manager)
    caches.pods.add_index(PLACED)
    reconciler = PodPlacementReconciler(caches, repair=repair)
    return caches.controller(
        "pod",
        reconciler,
        WORKERS,
        rt.Watch(caches.pods, rt.enqueue_owner(Job), when=reconciler.needs_reconcile),
        rt.Watch(caches.jobs, rt.enqueue_self, when=_leader_ends),
        rt.Watch(caches.nodes, rt.enqueue_mapped(reconciler.leaders_on), when=_tells_more),
    )
