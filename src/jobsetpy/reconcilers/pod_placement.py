"""Keeps followers of exclusively placed Jobs in their leader's domain (controller ``pod``).

A follower that was created before its leader had a node waits behind a scheduling gate. The pass
that the leader's binding causes releases all of them, each by one patch that sets the domain and
removes the gate. The same pass finds followers that are anywhere else and has them start anew;
before it deletes anything it asks the API server, since caches may be late.

A follower's event costs O(1): it queues a pass only if there is something to be done about that
pod. Whatever a pass waits for (a node, the end of a second leader) is watched, so none is repeated
on suspicion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock, LoopClock
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import LabelledNode
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import condition_true, controller_of
from jobsetpy.domain.conditions import WARNING
from jobsetpy.domain.placement.admission import LEADER_INDEX
from jobsetpy.domain.placement.followers import (
    PlacedPod,
    PlacementPlan,
    UnknownTopology,
    is_misplaced,
    plan_followers,
)
from jobsetpy.errors import JobSetPyError, NotFoundError
from jobsetpy.reconcilers import metrics
from jobsetpy.reconcilers._caches import SharedCaches
from jobsetpy.reconcilers._kinds import ListedPod
from jobsetpy.reconcilers._parallel import in_parallel

FIELD_MANAGER: Final = "jobset-placement"
"""Owner of the condition on pods that are evicted."""

_ENDED: Final = frozenset({"Failed", "Succeeded"})
_SHOWN_ERRORS: Final = 10


@attrs.frozen(kw_only=True)
class PlacementSettings:
    """How the placement reconciler works.

    Args:
        workers: maximum concurrent reconciles.
        parallel_writes: maximum concurrent requests for one Job.
        repair: whether misplaced followers are evicted. Without the pod webhook no follower has a
            place, and all would be evicted for ever; held ones are released in any case.
        look_again_s: seconds after writes until the next reconcile: the cache shows them by then.
    """

    workers: int = 8
    parallel_writes: int = 50
    repair: bool = True
    look_again_s: float = 30.0


@attrs.define
class _Memory:
    """What is remembered of a Job between passes; nothing that could not be lost."""

    acted: dict[str, str] = attrs.field(factory=dict)
    """By UID, the version of a pod that a write was made on and that the cache may still show."""
    told: UnknownTopology | None = None


@attrs.frozen
class _Done:
    """What came of a plan."""

    released: int
    evicted: int
    errors: list[JobSetPyError]


def _index_values(pod: ChildPod) -> Iterable[str]:
    if pod.metadata.annotations.placed_topology is None:
        return ()
    job = _job_key(pod)
    if job is None:
        return ()
    if not _is_leader(pod):
        return (f"job:{job}",)
    leader = (f"job:{job}", f"leader:{job}")
    return (*leader, f"node:{pod.spec.node_name}") if pod.spec.node_name else leader


PLACED: rt.Index[ChildPod] = rt.Index("exclusivePlacement", _index_values)
"""Pods under exclusive placement by their Job, leaders also as such and by their node."""


class PodPlacementReconciler:
    """One pass over the pods of one Job; the request's key is the Job's.

    Args:
        client: writes, and lists before evictions.
        jobsets: cache of JobSets; events are about them.
        jobs: cache of child Jobs.
        pods: cache of their pods, with the index :data:`PLACED`.
        nodes: cache of nodes.
        events: receives events about JobSets.
        settings: see there.
        clock: time.
    """

    def __init__(
        self,
        client: rt.Client,
        *,
        jobsets: rt.Store[JobSet],
        jobs: rt.Store[Job],
        pods: rt.Store[ChildPod],
        nodes: rt.Store[LabelledNode],
        events: rt.EventRecorder,
        settings: PlacementSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._jobsets = jobsets
        self._jobs = jobs
        self._pods = pods
        self._nodes = nodes
        self._events = events
        self._settings = settings or PlacementSettings()
        self._clock = clock or LoopClock()
        self._memory: dict[rt.ObjectKey, _Memory] = {}

    # -- which events cause a pass ------------------------------------------------------------

    def concerns(self, event: rt.Event[Any]) -> bool:
        """Whether a pod's event asks for a pass over its Job; O(1)."""
        old, new = event.old, event.new
        pod = old if new is None else new
        if pod is None or pod.metadata.annotations.placed_topology is None:
            return False
        if _is_leader(pod):
            return _footing(old) != _footing(new)
        if new is None or not _is_live(new):
            return False
        if old is not None and _is_live(old) and old.spec == new.spec:
            return False
        return self._is_due(new)

    def _is_due(self, follower: ChildPod) -> bool:
        """Whether something is to be done about one follower, by what the caches show now.

        Before they show all, no: leaders and Jobs of the first lists cause passes by themselves,
        and passes begin when all caches are complete.
        """
        job = _job_key(follower)
        synced = self._pods.has_synced and self._nodes.has_synced and self._jobs.has_synced
        if job is None or not synced:
            return False
        uid = follower.metadata.controller_uid
        if follower.spec.held and self._is_over(job, uid):
            return True
        leaders = [
            pod
            for pod in self._pods.by_index(PLACED, f"leader:{job}")
            if pod.metadata.controller_uid == uid and _is_live(pod)
        ]
        if len(leaders) != 1 or not leaders[0].spec.node_name:
            return False
        if follower.spec.held:
            return True
        leader = _placed(leaders[0])
        domain = (self._node_labels(leader.node) or {}).get(leader.topology)
        return domain is not None and is_misplaced(_placed(follower), leader.topology, domain)

    def leaders_on(self, node: LabelledNode) -> list[rt.ObjectKey]:
        """The Jobs whose leaders are on a node; none before all leaders are known."""
        if not self._pods.has_synced:
            return []
        pods = self._pods.by_index(PLACED, f"node:{node.metadata.name}")
        return [job for job in map(_job_key, pods) if job is not None]

    # -- the pass -----------------------------------------------------------------------------

    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Release, and if need be evict, the followers of one Job.

        Raises:
            ExceptionGroup: some writes failed; the others were made.
        """
        job = request.key
        incarnations: dict[str, list[ChildPod]] = {}
        for pod in self._pods.by_index(PLACED, f"job:{job}"):
            incarnations.setdefault(pod.metadata.controller_uid, []).append(pod)
        memory = self._recall(job, incarnations)
        released = evicted = 0
        errors: list[JobSetPyError] = []
        for uid, pods in incarnations.items():
            plan = await self._plan(job, uid, pods)
            self._tell_unknown(plan, pods[0], memory)
            done = await self._carry_out(job, plan, memory)
            metrics.followers_placed(released=done.released, evicted=done.evicted)
            released += done.released
            evicted += done.evicted
            errors += done.errors
            if done.evicted:
                self._tell_evicted(done.evicted, plan, pods[0], job)
        if memory.acted or memory.told is not None:
            self._memory[job] = memory
        else:
            self._memory.pop(job, None)
        if errors:
            msg = f"{len(errors)} pods could not be placed: {errors[0]}"
            raise ExceptionGroup(msg, errors[:_SHOWN_ERRORS])
        if not memory.acted:
            return rt.Result.done()
        did = [f"{what} {count}" for what, count in (("released", released), ("evicted", evicted))]
        return rt.Result.requeue_after(
            timedelta(seconds=self._settings.look_again_s),
            summary=", ".join(did) if released or evicted else "",
        )

    def _recall(self, job: rt.ObjectKey, incarnations: Mapping[str, list[ChildPod]]) -> _Memory:
        """What is known of a Job, without writes that the cache shows by now."""
        before = self._memory.get(job, _Memory())
        acted = {}
        if before.acted:
            for pods in incarnations.values():
                for pod in pods:
                    version = before.acted.get(pod.metadata.uid)
                    if version == pod.metadata.resource_version:
                        acted[pod.metadata.uid] = version
        return _Memory(acted, before.told if incarnations else None)

    async def _plan(self, job: rt.ObjectKey, uid: str, cached: Sequence[ChildPod]) -> PlacementPlan:
        over = self._is_over(job, uid)
        plan = self._allowed(
            plan_followers(list(map(_placed, cached)), self._node_labels, over=over)
        )
        if not plan.evict:
            return plan
        # Deleting cannot be taken back: look at the pods themselves, not at what is remembered.
        labels = cached[0].metadata.labels
        selector = f"{keys.JOBSET_NAME}={labels.jobset_name}"
        if labels.job_key:
            selector += f",{keys.JOB_KEY}={labels.job_key}"
        page = await self._client.list_page(ListedPod, job.namespace, label_selector=selector)
        pods = [
            _placed(pod)
            for pod in page.items
            if pod.metadata.controller_uid == uid
            and pod.metadata.annotations.placed_topology is not None
        ]
        return self._allowed(plan_followers(pods, self._node_labels, over=over))

    def _allowed(self, plan: PlacementPlan) -> PlacementPlan:
        if self._settings.repair or not plan.evict:
            return plan
        return attrs.evolve(plan, evict=tuple(pod for pod in plan.evict if pod.held))

    async def _carry_out(self, job: rt.ObjectKey, plan: PlacementPlan, memory: _Memory) -> _Done:
        async def release(pod: PlacedPod) -> None:
            others = [{"name": gate} for gate in pod.gates if gate != keys.PLACEMENT_GATE]
            spec: dict[str, Any] = {"schedulingGates": others or None}
            if pod.domain is None:
                spec["nodeSelector"] = {pod.topology: plan.domain}
            # The UID keeps it from any other pod. No version: gates can only be removed, so a
            # gate that is gone meanwhile makes the API server refuse the patch.
            body = {"metadata": {"uid": pod.uid}, "spec": spec}
            with suppress(NotFoundError):
                await self._client.merge_patch(ChildPod, job.namespace, pod.name, body)
            memory.acted[pod.uid] = pod.version

        async def evict(pod: PlacedPod) -> None:
            with suppress(NotFoundError):
                if not pod.disrupted:
                    await self._client.apply(
                        ListedPod,
                        job.namespace,
                        pod.name,
                        self._disruption(job.namespace, pod),
                        owner=FIELD_MANAGER,
                        subresource="status",
                    )
                await self._client.delete(ChildPod, job.namespace, pod.name, uid=pod.uid)
            memory.acted[pod.uid] = pod.version

        limit = self._settings.parallel_writes
        todo = [pod for pod in plan.release if memory.acted.get(pod.uid) != pod.version]
        kept = await in_parallel(limit, todo, release)
        stayed = await in_parallel(limit, plan.evict, evict)
        return _Done(
            len(todo) - len(kept),
            len(plan.evict) - len(stayed),
            [error for _, error in (*kept, *stayed)],
        )

    def _disruption(self, namespace: str, pod: PlacedPod) -> dict[str, Any]:
        condition = {
            "type": keys.DISRUPTION_TARGET_CONDITION,
            "status": "True",
            "reason": keys.PLACEMENT_VIOLATION_REASON,
            "message": keys.PLACEMENT_VIOLATION_MESSAGE,
            "lastTransitionTime": self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod.name, "namespace": namespace, "uid": pod.uid},
            "status": {"conditions": [condition]},
        }

    # -- what users hear ----------------------------------------------------------------------

    def _tell_evicted(
        self, count: int, plan: PlacementPlan, pod: ChildPod, job: rt.ObjectKey
    ) -> None:
        where = (
            f"they have to be where {pod.metadata.annotations.placed_topology} is {plan.domain!r}"
            if plan.domain is not None
            else "there is no pod left that tells where they belong"
        )
        message = f"{count} pods of Job {job.name!r} start anew: {where}"
        self._event(pod, keys.PLACEMENT_VIOLATION_REASON, message)

    def _tell_unknown(self, plan: PlacementPlan, pod: ChildPod, memory: _Memory) -> None:
        unknown = plan.unknown
        if unknown is not None and unknown.topology and unknown != memory.told:
            message = (
                f"the leader of pod {pod.metadata.name!r} is on node {unknown.node!r}, which does "
                f"not have the label {unknown.topology!r}: its followers wait"
            )
            self._event(pod, keys.TOPOLOGY_UNKNOWN_REASON, message)
        memory.told = unknown

    def _event(self, pod: ChildPod, reason: str, message: str) -> None:
        meta = pod.metadata
        jobset = self._jobsets.get(rt.ObjectKey(meta.namespace, meta.labels.jobset_name))
        wanted = meta.annotations.jobset_uid
        if jobset is not None and wanted in {"", jobset.metadata.uid}:
            self._events.event(jobset, WARNING, reason, message, related=pod)

    # -- what the caches say ------------------------------------------------------------------

    def _is_over(self, job: rt.ObjectKey, uid: str) -> bool:
        found = self._jobs.get(job)
        return found is not None and found.metadata.uid == uid and found.status.first_index_is_over

    def _node_labels(self, name: str) -> Mapping[str, str] | None:
        node = self._nodes.get(rt.ObjectKey("", name))
        return None if node is None else node.metadata.labels


def _placed(pod: ChildPod | ListedPod) -> PlacedPod:
    meta, spec = pod.metadata, pod.spec
    topology = meta.annotations.placed_topology or ""
    conditions = pod.status.conditions if isinstance(pod, ListedPod) else ()
    return PlacedPod(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        is_leader=_is_leader(pod),
        live=_is_live(pod),
        topology=topology,
        node=spec.node_name,
        domain=(spec.node_selector or {}).get(topology),
        held=spec.held,
        gates=tuple(gate.name for gate in spec.scheduling_gates),
        disrupted=condition_true(conditions, keys.DISRUPTION_TARGET_CONDITION) is not None,
    )


def _is_leader(pod: ChildPod | ListedPod) -> bool:
    return pod.metadata.annotations.completion_index == LEADER_INDEX


def _is_live(pod: ChildPod | ListedPod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in _ENDED


def _footing(leader: ChildPod | None) -> tuple[bool, str]:
    """What matters of a leader: whether it counts, and where it is."""
    return (False, "") if leader is None else (_is_live(leader), leader.spec.node_name)


def _job_key(pod: ChildPod) -> rt.ObjectKey | None:
    owner = controller_of(pod.metadata.owner_references)
    return None if owner is None else rt.ObjectKey(pod.metadata.namespace, owner.name)


def _jobs_of_pod(pod: ChildPod) -> list[rt.ObjectKey]:
    job = _job_key(pod)
    return [] if job is None else [job]


def _leader_ends(event: rt.Event[Any]) -> bool:
    """Whether a Job's change shows that no leader will come any more."""
    old, new = event.old, event.new
    if new is None or keys.EXCLUSIVE_TOPOLOGY_ANNOTATION not in new.metadata.annotations:
        return False
    return new.status.first_index_is_over and not (
        old is not None and old.status.first_index_is_over
    )


def _tells_more(event: rt.Event[Any]) -> bool:
    """Whether a node appears or gets a label that it lacked; changed values move no pod."""
    old, new = event.old, event.new
    if new is None:
        return False
    return old is None or bool(new.metadata.labels.keys() - old.metadata.labels.keys())


def setup(manager: rt.Manager, settings: PlacementSettings | None = None) -> rt.Controller:
    """Wire the placement reconciler: its caches, watches and controller.

    Args:
        manager: not started yet.
        settings: see there.
    """
    settings = settings or PlacementSettings()
    caches = SharedCaches(manager)
    jobsets, jobs, pods = caches.jobsets, caches.jobs, caches.pods
    pods.add_index(PLACED)
    nodes = manager.informer(LabelledNode)
    reconciler = PodPlacementReconciler(
        manager.client,
        jobsets=jobsets.store,
        jobs=jobs.store,
        pods=pods.store,
        nodes=nodes.store,
        events=manager.recorder("jobset"),
        settings=settings,
        clock=manager.clock,
    )
    controller = rt.Controller(
        name="pod",
        reconciler=reconciler,
        workers=settings.workers,
        watches=(
            rt.Watch(pods, rt.enqueue_mapped(_jobs_of_pod), when=reconciler.concerns),
            rt.Watch(jobs, rt.enqueue_self, when=_leader_ends),
            rt.Watch(nodes, rt.enqueue_mapped(reconciler.leaders_on), when=_tells_more),
        ),
        clock=manager.clock,
    )
    manager.add(controller)
    return controller
