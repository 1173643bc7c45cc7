"""Reconciler that keeps the labels of pods in gangs correct, and reports the state of each gang.

Decisions are made by ``reconcilers.coscheduling.plan``. A pod's event costs the same for gangs of
any size and number: some counters, a comparison of its labels, and a reconcile only if they are
wrong, the last gang became complete, the first one incomplete, or a pod needs a lower minimum.

With native gangs it also manages the API server's ``PodGroup`` objects. Pods that were created for
the coscheduler are ungated when there is none and another backend is used, because no other program
may do so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any, Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.errors import NotFoundError
from jobsetpy.reconcilers.coscheduling import status as messages
from jobsetpy.reconcilers.coscheduling.backend_watch import BackendWatch
from jobsetpy.reconcilers.coscheduling.backends import LABELS
from jobsetpy.reconcilers.coscheduling.native import patch_spec, replace_object
from jobsetpy.reconcilers.coscheduling.plan import (
    Action,
    CoschedulingPlan,
    GangMemory,
    ObservedGangs,
    has_turned,
    job_matters,
    plan_coscheduling,
    pod_fix,
)
from jobsetpy.reconcilers.coscheduling.pod_groups import PatchSpec, ReplaceObject
from jobsetpy.reconcilers.coscheduling.pod_writer import patch_pod
from jobsetpy.reconcilers.coscheduling.requests import requests_gangs
from jobsetpy.reconcilers.coscheduling.tally import (
    GangCounts,
    GangKey,
    changed_gangs,
    gang_state,
)
from jobsetpy.reconcilers.execution import metrics
from jobsetpy.reconcilers.execution.caches import CacheReader, SharedCaches, pods_labelled
from jobsetpy.reconcilers.execution.definition import Definition
from jobsetpy.reconcilers.execution.memory import Memories
from jobsetpy.reconcilers.execution.parallel import in_parallel, raise_failures
from jobsetpy.reconcilers.execution.status_writer import (
    decide_again_on_conflict,
    moment,
)
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.status_draft import condition_change

_PARALLEL_WRITES: Final = 16
"""Maximum concurrent writes of labels for one JobSet."""


@attrs.frozen(kw_only=True)
class CoschedulingSettings:
    """Settings of the coscheduling reconciler.

    Args:
        features: the feature gates.
        workers: maximum concurrent reconciles.
        backend: observed schedulers of gangs; ``None`` for pods that only get labels.
    """

    features: Features = attrs.field(factory=Features)
    workers: int = 4
    backend: BackendWatch | None = None


def _jobset_of_open_pod(pod: ChildPod) -> Iterable[str]:
    meta = pod.metadata
    if pod.spec.node_name or not meta.labels.pod_group or not pod.live:
        return ()
    return (f"{meta.namespace}/{meta.labels.jobset_name}",)


GANGS: rt.Index[ChildPod] = rt.Index("gangs", gang_state)
"""Pods of each gang, and those of each gang in a state."""

OPEN_PODS: rt.Index[ChildPod] = rt.Index("openGangPods", _jobset_of_open_pod)
"""Pods in gangs that have no node yet, by their JobSet."""


class CoschedulingReconciler(CacheReader):
    """Reconciler of the gangs of JobSets.

    Args:
        caches: shared informers; pods with the indexes :data:`GANGS` and :data:`OPEN_PODS`.
        settings: settings of the reconciler.
    """

    def __init__(self, caches: SharedCaches, settings: CoschedulingSettings) -> None:
        super().__init__(caches)
        self._settings = settings
        self._suspects: dict[rt.ObjectKey, set[str]] = {}  # pods to be checked, by name
        self._memory = Memories(GangMemory)
        self._status = caches.status_writer()

    # -- events -------------------------------------------------------------------------------

    def on_pod(self, event: rt.Event[ChildPod]) -> Iterable[rt.Request]:
        """Request a reconcile if a pod needs a correction, or :func:`has_turned`; O(1)."""
        meta = event.obj.metadata
        key = rt.ObjectKey(meta.namespace, meta.labels.jobset_name)
        memory = self._memory.of(key)
        if memory.gangs is None:
            return ()  # no gangs, or the first reconcile is still to come and sees all pods
        if event.new is not None and pod_fix(memory, event.new) is not None:
            self._suspect(key, (meta.name,))
            return (rt.Request(key),)
        gangs = changed_gangs(event.old, event.new)
        turned = [has_turned(memory, self._counts, gang) for gang in gangs if gang.jobset == key]
        return (rt.Request(key),) if any(turned) else ()

    def on_job(self, event: rt.Event[Job]) -> Iterable[rt.Request]:
        """Request a reconcile of the owner if its gangs may have less work left."""
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
        """Correct labels, and report the state of the gangs.

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
        backend = self._settings.backend
        metrics.coscheduling_backend(LABELS if backend is None else backend.marks.backend)
        return ObservedGangs(
            key=key,
            jobset=jobset,
            jobs=self._jobs.by_index(rt.OWNER_UID, uid),
            counts=self._counts,
            open_pods=lambda: [each.name for each in self._pods.index_keys(OPEN_PODS, str(key))],
            suspects=self._suspects.pop(key, ()),
            pod=lambda name: self._pods.get(rt.ObjectKey(key.namespace, name)),
            pods=lambda: pods_labelled(self._pods, key),
            native=None if backend is None else backend.native_objects(uid),
            features=self._settings.features,
            scheduler="" if backend is None else backend.scheduler,
            not_served="" if backend is None else backend.not_served,
        )

    def _counts(self, gang: GangKey) -> GangCounts:
        return GangCounts.of(gang, lambda value: self._pods.index_count(GANGS, value))

    def _suspect(self, jobset: rt.ObjectKey, pods: Collection[str]) -> None:
        """Mark pods of a JobSet to be checked by its next reconcile."""
        if pods:
            self._suspects.setdefault(jobset, set()).update(pods)

    async def _execute(self, observed: ObservedGangs, plan: CoschedulingPlan) -> None:
        key = observed.key
        self._memory.keep(key, plan.interim)
        if observed.jobset is None:
            self._status.forget(key)
            return
        self._status.record_events(observed.jobset, plan.notices)
        try:
            for stage in plan.stages:
                await self._carry_out(observed.jobset, stage)
        except BaseException:
            self._suspect(key, plan.fixed)
            raise
        if plan.status is not None:
            await self._status.store(observed.jobset, plan.status)
        self._memory.keep(key, plan.memory)

    async def _carry_out(self, jobset: JobSet, stage: tuple[Action, ...]) -> None:
        async def act(action: Action) -> None:
            if isinstance(action, ReplaceObject):
                await replace_object(self._client, jobset, action)
            elif isinstance(action, PatchSpec):
                await patch_spec(self._client, action)
            else:
                meta = action.pod.metadata
                where = meta.namespace, meta.name, meta.uid
                with suppress(NotFoundError):
                    await patch_pod(self._client, *where, labels=action.labels, ungate=action.gate)

        failed = await in_parallel(_PARALLEL_WRITES, stage, act)
        for action, error in failed:
            if isinstance(action, ReplaceObject) and action.new is not None:
                wanted = messages.refused(action.new.kind.RESOURCE.kind, action.new.name, error)
                change = condition_change(jobset, moment(self._clock), wanted)
                await self._status.store(jobset, change)
                break  # one condition names the first
        raise_failures(failed, f"of {len(stage)} objects could not be written")


def _asks(event: rt.Event[JobSet]) -> bool:
    """Return whether coscheduling is requested, or was before this change."""
    return any(jobset is not None and requests_gangs(jobset) for jobset in (event.old, event.new))


def setup(
    manager: rt.Manager,
    settings: CoschedulingSettings | None = None,
    definition: Definition | None = None,
) -> rt.Controller:
    """Wire the coscheduling reconciler: its caches and controller.

    Args:
        manager: not started yet.
        settings: settings of the reconciler; defaults if ``None``.
        definition: observed CRD; ``None`` if it is not observed.
    """
    settings = settings or CoschedulingSettings()
    caches = SharedCaches(manager, definition)
    caches.pods.add_index(OPEN_PODS)
    caches.pods.add_index(GANGS)
    watches: list[rt.Watch[Any]] = []
    if settings.backend is not None:
        watches = settings.backend.watches(caches.jobsets.store)
    reconciler = CoschedulingReconciler(caches, settings)
    return caches.controller(
        "coscheduling",
        reconciler,
        settings.workers,
        rt.Watch(caches.jobsets, rt.enqueue_self, when=_asks),
        *watches,
        rt.Watch(caches.jobs, reconciler.on_job),
        rt.Watch(caches.pods, reconciler.on_pod),
    )
