"""Reconciler that deletes pods whose workers run too early (controller ``early-workers``).

The request's key is the pod's. A pod event costs O(1); ``early_workers`` decides. Before a pod is
deleted, its JobSet is read from the API server and the plan made again: a cache that lags behind
does not show that the barrier has lifted.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.worker_reports import epoch_of
from jobsetpy.errors import ConflictError, NotFoundError
from jobsetpy.reconcilers.execution.caches import CacheReader, SharedCaches, job_of, jobset_of
from jobsetpy.reconcilers.restart_in_place.replacing.early_workers import (
    ObservedWorker,
    early_event,
    held_by_probe,
    may_run_early,
    plan_early,
)

WORKERS: Final = 4
MAX_FORMS: Final = 10_000
"""Maximum number of Jobs whose form is remembered."""


class _First(NamedTuple):
    """First observation of a running worker: UID and epoch of its pod, time, and if it waited."""

    uid: str
    epoch: int
    at: float
    certain: bool


class EarlyWorkersReconciler(CacheReader):
    """Reconciler that deletes a pod, the request's key, if its worker runs at a closed barrier.

    Args:
        caches: informers to read from.
    """

    def __init__(self, caches: SharedCaches) -> None:
        super().__init__(caches)
        self._nodes = caches.nodes.store
        self._first: dict[rt.ObjectKey, _First] = {}
        self._forms: dict[str, bool] = {}
        """Results of ``held_by_probe``, by UID of the Job: they never change."""

    def on_pod(self, event: rt.Event[ChildPod]) -> Iterable[rt.Request]:
        """Request a reconcile if a pod's worker begins to run above the synced epoch; O(1)."""
        old, new, meta = event.old, event.new, event.obj.metadata
        if new is None or not may_run_early(new):
            if self._first:
                self._first.pop(rt.ObjectKey(meta.namespace, meta.name), None)
            return ()
        epoch = epoch_of(new)
        if old is not None and may_run_early(old) and epoch_of(old) == epoch:
            return ()  # nothing that counts here has changed
        job = job_of(self._jobs, new)
        if job is not None and self._forms.get(job.metadata.uid) is False:
            return ()  # a supervisor: thousands of pods would be queued at each restart
        key = rt.ObjectKey(meta.namespace, meta.name)
        jobset = None if job is None else jobset_of(self._jobsets, job)
        if job is not None and jobset is not None:
            below = epoch <= jobset.status.synced_epoch
            if below or not self._is_held(jobset, job):
                self._first.pop(key, None)
                return ()
        waited = old is not None and not old.status.running and epoch_of(old) == epoch
        self._first[key] = _First(meta.uid, epoch, self._clock.monotonic(), waited)
        return (rt.Request(key),)

    def _is_held(self, jobset: JobSet, job: Job) -> bool:
        uid = job.metadata.uid
        if uid not in self._forms:
            if len(self._forms) >= MAX_FORMS:
                self._forms.clear()
            self._forms[uid] = held_by_probe(jobset, job)
        return self._forms[uid]

    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Delete the pod if its worker has run early for long enough."""
        observed = self._observe(request.key)
        plan = plan_early(observed)
        if plan.delete and observed.pod is not None and observed.jobset is not None:
            with suppress(ConflictError, NotFoundError):  # another of that name, or none
                await self._delete_early(observed, observed.pod, observed.jobset)
        if plan.result.delay is None:
            self._first.pop(request.key, None)
        return plan.result

    def _observe(self, key: rt.ObjectKey) -> ObservedWorker:
        pod, first = self._pods.get(key), self._first.get(key)
        if pod is None or first is None or (pod.metadata.uid, epoch_of(pod)) != first[:2]:
            return ObservedWorker(pod=None, job=None, jobset=None)
        job = job_of(self._jobs, pod)
        node = self._nodes.get(rt.ObjectKey("", pod.spec.node_name))
        return ObservedWorker(
            pod=pod,
            job=job,
            jobset=None if job is None else jobset_of(self._jobsets, job),
            certain=first.certain,
            since_s=self._clock.monotonic() - first.at,
            node_ready=node is None or node.ready,
        )

    async def _delete_early(self, observed: ObservedWorker, pod: ChildPod, cached: JobSet) -> None:
        key = cached.metadata.key
        jobset = await self._client.get(JobSet, key.namespace, key.name)
        if not plan_early(attrs.evolve(observed, jobset=jobset)).delete:
            return
        await self._delete(pod)
        self._record(jobset, early_event(pod, jobset))


def setup(manager: rt.Manager) -> rt.Controller:
    """Wire the reconciler of early workers: its caches, watches and controller.

    Args:
        manager: manager that is not started yet.
    """
    caches = SharedCaches(manager)
    reconciler = EarlyWorkersReconciler(caches)
    return caches.controller(
        "early-workers",
        reconciler,
        WORKERS,
        rt.Watch(caches.pods, reconciler.on_pod),
    )
