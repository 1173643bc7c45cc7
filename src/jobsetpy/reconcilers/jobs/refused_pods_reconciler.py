"""Reconciler of the condition ``PodsRefused`` (controller ``refused-pods``).

The request's key is that of the JobSet. An event of a Job costs O(1): only a Job that starts or
stops missing pods requests a reconcile. Events are not watched; they are read from the API server
for one Job at a time, and only when pods have been missing for a while.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.events import Event
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.execution.caches import CacheReader, SharedCaches
from jobsetpy.reconcilers.execution.definition import Definition
from jobsetpy.reconcilers.execution.memory import Memories
from jobsetpy.reconcilers.execution.status_writer import (
    decide_again_on_conflict,
    moment,
)
from jobsetpy.reconcilers.jobs.counters import lacks_pods
from jobsetpy.reconcilers.jobs.refused_pods import ObservedRefusals, RefusalMemory, plan_refusals
from jobsetpy.reconcilers.rules import conditions as cond

WORKERS = 2


class RefusedPodsReconciler(CacheReader):
    """Reconciler that repeats the Job controller's event about rejected pods in a JobSet condition.

    Args:
        caches: informers of JobSets and Jobs.
    """

    def __init__(self, caches: SharedCaches) -> None:
        super().__init__(caches)
        self._status = caches.status_writer()
        self._memories = Memories(RefusalMemory)

    def on_job(self, event: rt.Event[Job]) -> Iterable[rt.Request]:
        """Request a reconcile if a Job starts or stops missing pods; O(1)."""
        old, new = event.old, event.new
        if (old is not None and lacks_pods(old)) == (new is not None and lacks_pods(new)):
            return ()
        meta = event.obj.metadata
        return (rt.Request(rt.ObjectKey(meta.namespace, meta.labels.get(keys.JOBSET_NAME, ""))),)

    @decide_again_on_conflict
    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Set or clear the condition of one JobSet."""
        observed = self._observe(request.key)
        memory = self._memories.of(request.key)
        plan = plan_refusals(observed, memory, moment(self._clock))
        if plan.look_at is not None:
            observed = attrs.evolve(observed, events=await self._read(plan.look_at))
            plan = plan_refusals(observed, plan.memory or memory, moment(self._clock))
        if observed.jobset is None:
            self._status.forget(request.key)
        elif plan.status is not None:
            await self._status.store(observed.jobset, plan.status)
        self._memories.keep(request.key, plan.memory)
        return plan.result

    def _observe(self, key: rt.ObjectKey) -> ObservedRefusals:
        jobset = self._status.latest(key)
        if jobset is None:
            return ObservedRefusals(jobset=None)
        jobs = self._jobs.by_index(rt.OWNER_UID, jobset.metadata.uid)
        return ObservedRefusals(jobset=jobset, jobs=tuple(jobs))

    async def _read(self, job: Job) -> tuple[Event, ...]:
        selector = f"regarding.uid={job.metadata.uid},reason={keys.PODS_REFUSED_REASON}"
        page = await self._client.list_page(Event, job.metadata.namespace, field_selector=selector)
        return tuple(page.items)


def setup(manager: rt.Manager, definition: Definition | None = None) -> rt.Controller:
    """Wire the refused pods reconciler: its caches, watches and controller.

    Args:
        manager: not started yet.
        definition: observed CRD; ``None`` if it is not observed.
    """
    caches = SharedCaches(manager, definition)
    reconciler = RefusedPodsReconciler(caches)
    return caches.controller(
        "refused-pods",
        reconciler,
        WORKERS,
        rt.Watch(caches.jobs, reconciler.on_job),
        rt.Watch(caches.jobsets, rt.enqueue_self, when=_is_left_over),
    )


def _is_left_over(event: rt.Event[JobSet]) -> bool:
    """Return whether a JobSet had the condition before this process started."""
    new = event.new
    if new is None or not event.initial:
        return False
    return cond.is_true(new.status.conditions, keys.PODS_REFUSED_CONDITION)
