"""Reconciler of startup groups: writes the ConfigMap when all pods have started (KEP-498).

Pod events change a few counts in the ledger. A reconcile is queued when the counts show that the
last pod has started, and when the group's leader (completion index 0 of job index 0) starts.
``reconcilers.startup_groups.plan`` decides.

It writes the ConfigMap's value once for each attempt of a group, regardless of the number of pods.
A few more writes are for information: the condition of the JobSet, and the number of started pods
if the group has a timeout. Every write carries the resourceVersion it was decided on, so a manager
that has lost its lease cannot replace a newer value by an older one.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from jobsetpy import runtime as rt
from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap
from jobsetpy.api.group_signal import config_map_name
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.errors import ConflictError, NotFoundError
from jobsetpy.reconcilers.execution import metrics as execution_metrics
from jobsetpy.reconcilers.execution.caches import CacheReader, SharedCaches, pods_labelled
from jobsetpy.reconcilers.execution.definition import Definition
from jobsetpy.reconcilers.execution.memory import Memories
from jobsetpy.reconcilers.execution.status_writer import (
    TRIES,
    decide_again_on_conflict,
    moment,
)
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.startup_groups.ledger import StartLedger
from jobsetpy.reconcilers.startup_groups.plan import (
    GroupMemory,
    ObservedGroup,
    SetSignal,
    StartupGroupPlan,
    is_leader,
    lifted,
    needs_reconcile,
    plan_startup_group,
)

WORKERS: Final = 8
"""Maximum number of concurrent reconciles."""


class StartupGroupsReconciler(CacheReader):
    """Reconciler that releases the startup groups of JobSets.

    Args:
        caches: caches that it reads.
        features: the feature gates.
    """

    def __init__(self, caches: SharedCaches, features: Features) -> None:
        super().__init__(caches)
        self._config_maps = caches.config_maps.store
        self._features = features
        self._ledger = StartLedger()
        self._memory = Memories(GroupMemory)
        self._waiting: set[rt.ObjectKey] = set()
        self._status = caches.status_writer()

    # -- events -------------------------------------------------------------------------------

    def on_pod(self, event: rt.Event[ChildPod]) -> Iterable[rt.Request]:
        """Update the ledger with a pod; request a reconcile if needed."""
        group = self._ledger.pod_changed(event.old, event.new)
        if group is None:
            return ()
        key = group.jobset
        needed = event.new is not None and is_leader(event.new)
        if not needed and self._jobsets.has_synced:
            memory = self._memory.of(key) if key in self._memory else None
            needed = needs_reconcile(group, self._jobsets.get(key), self._ledger, memory)
        return (rt.Request(key),) if needed else ()

    def on_job(self, event: rt.Event[Job]) -> Iterable[rt.Request]:
        """Update the ledger with a Job, by which its pods may join a group or leave it."""
        group = self._ledger.job_changed(event.old, event.new)
        return () if group is None else (rt.Request(group.jobset),)

    # -- reconcile ----------------------------------------------------------------------------

    @decide_again_on_conflict
    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Release the group if all its pods have started; otherwise report its progress.

        Raises:
            ConflictError: JobSet or ConfigMap change faster than they can be written.
        """
        observed = self._observe(request.key)
        plan = plan_startup_group(observed, self._memory.of(request.key), moment(self._clock))
        await self._execute(observed, plan)
        return plan.result

    def _observe(self, key: rt.ObjectKey) -> ObservedGroup:
        jobset = self._status.latest(key)
        uid = "" if jobset is None else jobset.metadata.uid
        config_map = rt.ObjectKey(key.namespace, config_map_name(key.name))
        return ObservedGroup(
            key=key,
            jobset=jobset,
            config_map=self._config_maps.get(config_map),
            ledger=self._ledger,
            jobs=lambda: self._jobs.by_index(rt.OWNER_UID, uid),
            pods=lambda: pods_labelled(self._pods, key),
            features=self._features,
        )

    async def _execute(self, observed: ObservedGroup, plan: StartupGroupPlan) -> None:
        key, jobset = observed.key, observed.jobset
        if jobset is None:
            self._status.forget(key)
        else:
            self._status.record_events(jobset, plan.notices)
            if plan.signal is not None:
                await self._write(jobset, plan.signal)
                self._memory.keep(key, plan.signal.memory)
            if plan.status is not None:
                await self._status.store(jobset, plan.status)
        self._memory.keep(key, plan.memory)
        (self._waiting.add if plan.waits else self._waiting.discard)(key)
        execution_metrics.groups_waiting(len(self._waiting))

    async def _write(self, jobset: JobSet, signal: SetSignal) -> None:
        """Write a value of the ConfigMap.

        Raises:
            ConflictError: it changes faster than it can be written.
            NotFoundError: it was just deleted; it will be recreated.
        """
        if signal.released:
            await self._release(jobset, signal)
            execution_metrics.group_released(self._clock.monotonic() - signal.memory.began)
        else:
            with suppress(ConflictError, NotFoundError):
                await self._patch(signal.config_map, signal)

    async def _release(self, jobset: JobSet, signal: SetSignal) -> None:
        """Write the value unless a newer one is stored; it must not wait for a cache."""
        config_map = signal.config_map
        for _ in range(TRIES - 1):
            with suppress(ConflictError):
                await self._patch(config_map, signal)
                return
            meta = config_map.metadata
            config_map = await self._client.get(ConfigMap, meta.namespace, meta.name)
            if lifted(jobset, config_map) >= signal.released:
                return
        await self._patch(config_map, signal)

    async def _patch(self, config_map: ConfigMap, signal: SetSignal) -> None:
        meta = config_map.metadata
        metadata = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {"metadata": metadata, "data": dict(signal.data)}
        await self._client.merge_patch(ConfigMap, meta.namespace, meta.name, body)


def _uses_groups(event: rt.Event[JobSet]) -> bool:
    """Return True if the JobSet has group scheduling, or had it before this event."""
    return any(
        jobset is not None and jobset.spec.group_scheduling_config is not None
        for jobset in (event.old, event.new)
    )


def setup(
    manager: rt.Manager,
    features: Features | None = None,
    definition: Definition | None = None,
) -> rt.Controller:
    """Wire the reconciler of startup groups: its caches, ledger and controller.

    Args:
        manager: manager that is not started yet.
        features: the feature gates; the defaults if ``None``.
        definition: observed CRD; ``None`` if it is not observed.
    """
    caches = SharedCaches(manager, definition)
    reconciler = StartupGroupsReconciler(caches, features or Features())
    return caches.controller(
        "leader-pods",
        reconciler,
        WORKERS,
        rt.Watch(caches.jobsets, rt.enqueue_self, when=_uses_groups),
        rt.Watch(caches.config_maps, rt.enqueue_owner(JobSet)),
        rt.Watch(caches.jobs, reconciler.on_job, standby=True),
        rt.Watch(caches.pods, reconciler.on_pod, standby=True),
    )
