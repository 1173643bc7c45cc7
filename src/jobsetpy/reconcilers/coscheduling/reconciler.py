"""Keeps the labels of gangs true on pods, and tells where each gang stands.

What is wrong and what is done about it is decided by ``reconcilers.coscheduling.plan``. A
pod's event costs the same however large its gang is: some counts, a comparison of its labels, and a
reconcile only if they are wrong or the gang has just become, or ceased to be, complete.

With the backend ``podgroup`` the API server's own groups are made and kept as well. Pods that were
made for the coscheduler are let go when another backend is chosen: nobody else might.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.errors import NotFoundError
from jobsetpy.reconcilers.coscheduling.backends import PODGROUP, SchedulerFields
from jobsetpy.reconcilers.coscheduling.coscheduler_watch import CoschedulerWatch
from jobsetpy.reconcilers.coscheduling.gates import take_gate_off
from jobsetpy.reconcilers.coscheduling.plan import (
    Action,
    CoschedulingPlan,
    GangMemory,
    MendPod,
    ObservedGangs,
    has_turned,
    job_matters,
    mending,
    plan_coscheduling,
)
from jobsetpy.reconcilers.coscheduling.pod_group_writer import (
    PodGroupCaches,
    replace_object,
    wire_pod_groups,
)
from jobsetpy.reconcilers.coscheduling.pod_group_writer import (
    are_served as pod_groups_are_served,
)
from jobsetpy.reconcilers.coscheduling.pod_groups import ReplaceObject
from jobsetpy.reconcilers.coscheduling.tally import (
    GangCounts,
    GangKey,
    GangPodState,
    changed_gangs,
    gang_state,
)
from jobsetpy.reconcilers.execution.caches import SharedCaches, pods_labelled
from jobsetpy.reconcilers.execution.memory import Memories
from jobsetpy.reconcilers.execution.parallel import in_parallel, raise_failures
from jobsetpy.reconcilers.execution.status_writer import (
    StatusWriter,
    decide_again_on_conflict,
    moment,
)
from jobsetpy.reconcilers.rules.features import Features

__all__ = [
    "CoschedulingReconciler",
    "CoschedulingSettings",
    "pod_groups_are_served",
    "setup",
]


@attrs.frozen(kw_only=True)
class CoschedulingSettings:
    """How the coscheduling reconciler works.

    Args:
        features: the feature gates.
        workers: maximum concurrent reconciles.
        parallel_writes: maximum concurrent writes of labels for one JobSet.
        marks: what pods of groups are given, where no coscheduler is looked for.
        coscheduler: what is seen of one, if it is.
        not_served: why pods are only labelled, if more was asked for; JobSets are told.
    """

    features: Features = attrs.field(factory=Features)
    workers: int = 4
    parallel_writes: int = 16
    marks: SchedulerFields = attrs.field(factory=SchedulerFields)
    coscheduler: CoschedulerWatch | None = None
    not_served: str = ""


def _jobset_of_open_pod(pod: ChildPod) -> Iterable[str]:
    meta = pod.metadata
    if pod.spec.node_name or not meta.labels.pod_group or not pod.live:
        return ()
    return (f"{meta.namespace}/{meta.labels.jobset_name}",)


GANGS: rt.Tally[ChildPod, GangKey, GangPodState] = rt.Tally("gangs", gang_state)
"""How many pods of each gang are in which state."""

OPEN_PODS: rt.Index[ChildPod] = rt.Index("openGangPods", _jobset_of_open_pod)
"""Pods of gangs that have no node yet, by their JobSet."""


class CoschedulingReconciler:
    """Keeps the gangs of JobSets.

    Args:
        caches: what it reads; pods with the tally :data:`GANGS` and the index :data:`OPEN_PODS`.
        settings: see there.
        pod_groups: caches of the API server's own groups, with the backend of that name.
    """

    def __init__(
        self,
        caches: SharedCaches,
        settings: CoschedulingSettings,
        pod_groups: PodGroupCaches | None = None,
    ) -> None:
        self._client = caches.manager.client
        self._clock = caches.manager.clock
        self._jobs = caches.jobs.store
        self._pods = caches.pods.store
        self._pod_groups = pod_groups
        self._settings = settings
        self._suspects: dict[rt.ObjectKey, set[str]] = {}  # pods to be looked at, by name
        self._memory = Memories(GangMemory)
        self._status = StatusWriter(self._client, caches.jobsets.store, caches.events)

    # -- events -------------------------------------------------------------------------------

    def on_pod(self, event: rt.Event[ChildPod]) -> Iterable[rt.Request]:
        """Ask for a reconcile if a pod is to be mended, or its gang has turned complete; O(1)."""
        meta = event.obj.metadata
        key = rt.ObjectKey(meta.namespace, meta.labels.jobset_name)
        memory = self._memory.of(key)
        if memory.gangs is None:
            return ()  # it takes no part, or its first reconcile is yet to come and sees everything
        if event.new is not None and mending(memory, event.new) is not None:
            self._suspect(key, (meta.name,))
            return (rt.Request(key),)
        gangs = changed_gangs(event.old, event.new)
        turned = any(has_turned(memory, self._counts, gang) for gang in gangs if gang.jobset == key)
        return (rt.Request(key),) if turned else ()

    def on_job(self, event: rt.Event[Job]) -> Iterable[rt.Request]:
        """Ask for a reconcile of the owner, if its gangs may have less to do."""
        meta = event.obj.metadata
        owner = meta.controller if self._memory else None
        if owner is None:
            return ()
        key = rt.ObjectKey(meta.namespace, owner.name)
        takes_part = self._memory.of(key).gangs is not None
        return (rt.Request(key),) if takes_part and job_matters(event.old, event.new) else ()

    # -- reconcile ----------------------------------------------------------------------------

    @decide_again_on_conflict
    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Mend labels, and tell where the gangs stand.

        Raises:
            ConflictError: the JobSet changes faster than it can be written.
            ExceptionGroup: some writes failed; the others were made.
        """
        observed = self._observe(request.key)
        plan = plan_coscheduling(observed, self._memory.of(request.key), moment(self._clock))
        await self._execute(observed, plan)
        return plan.result

    def _observe(self, key: rt.ObjectKey) -> ObservedGangs:
        jobset = self._status.latest(key)
        uid = "" if jobset is None else jobset.metadata.uid
        caches, coscheduler = self._pod_groups, self._settings.coscheduler
        marks, not_served = self._settings.marks, self._settings.not_served
        if coscheduler is not None:
            marks, not_served = coscheduler.marks, coscheduler.not_served
        return ObservedGangs(
            key=key,
            jobset=jobset,
            jobs=self._jobs.by_index(rt.OWNER_UID, uid),
            counts=self._counts,
            open_pods=lambda: [each.name for each in self._pods.index_keys(OPEN_PODS, str(key))],
            suspects=self._suspects.pop(key, ()),
            pod=lambda name: self._pods.get(rt.ObjectKey(key.namespace, name)),
            pods=lambda: pods_labelled(self._pods, key),
            pod_groups=None if caches is None else caches.pod_groups.by_index(rt.OWNER_UID, uid),
            workloads=() if caches is None else caches.workloads.by_index(rt.OWNER_UID, uid),
            features=self._settings.features,
            backend=marks.backend,
            not_served=not_served,
        )

    def _counts(self, gang: GangKey) -> GangCounts:
        return GangCounts.of(self._pods.tally(GANGS, gang))

    def _suspect(self, jobset: rt.ObjectKey, pods: Collection[str]) -> None:
        """Have pods of a JobSet looked at by its next reconcile."""
        if pods:
            self._suspects.setdefault(jobset, set()).update(pods)

    async def _execute(self, observed: ObservedGangs, plan: CoschedulingPlan) -> None:
        key = observed.key
        self._memory.keep(key, plan.interim)
        if observed.jobset is None:
            self._status.forget(key)
            return
        self._status.tell(observed.jobset, plan.notices)
        try:
            for stage in plan.stages:
                await self._carry_out(observed.jobset, stage)
        except BaseException:
            self._suspect(key, plan.mended)
            raise
        if plan.status is not None:
            await self._status.store(observed.jobset, plan.status)
        self._memory.keep(key, plan.memory)

    async def _carry_out(self, jobset: JobSet, stage: tuple[Action, ...]) -> None:
        async def act(action: Action) -> None:
            if isinstance(action, ReplaceObject):
                await replace_object(self._client, jobset, action)
            else:
                await self._mend(action)

        failed = await in_parallel(self._settings.parallel_writes, stage, act)
        raise_failures(failed, f"of {len(stage)} objects could not be written")

    async def _mend(self, action: MendPod) -> None:
        meta = action.pod.metadata
        with suppress(NotFoundError):
            if action.labels is not None:
                # The UID keeps it from another pod of that name.
                body = {"metadata": {"uid": meta.uid, "labels": dict(action.labels)}}
                await self._client.merge_patch(ChildPod, meta.namespace, meta.name, body)
            if action.gate:
                await take_gate_off(self._client, action.pod)


def _asks(event: rt.Event[JobSet]) -> bool:
    """Whether coscheduling is, or just was, asked for."""
    return any(
        jobset is not None and keys.COSCHEDULING_ANNOTATION in jobset.metadata.annotations
        for jobset in (event.old, event.new)
    )


def setup(manager: rt.Manager, settings: CoschedulingSettings | None = None) -> rt.Controller:
    """Wire the coscheduling reconciler: its caches and controller.

    Args:
        manager: not started yet.
        settings: see there.
    """
    settings = settings or CoschedulingSettings()
    caches = SharedCaches(manager)
    caches.pods.add_index(OPEN_PODS)
    caches.pods.add_tally(GANGS)
    pod_groups = None
    watches: list[rt.Watch[Any]] = []
    if settings.coscheduler is not None:
        watches.append(settings.coscheduler.watch(caches.jobsets.store))
    if settings.marks.backend == PODGROUP:
        pod_groups, more = wire_pod_groups(manager)
        watches += more
    reconciler = CoschedulingReconciler(caches, settings, pod_groups)
    return caches.controller(
        "coscheduling",
        reconciler,
        settings.workers,
        rt.Watch(caches.jobsets, rt.enqueue_self, when=_asks),
        *watches,
        rt.Watch(caches.jobs, reconciler.on_job),
        rt.Watch(caches.pods, reconciler.on_pod),
    )
