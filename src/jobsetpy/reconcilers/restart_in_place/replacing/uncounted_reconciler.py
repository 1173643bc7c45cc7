"""Reconciler that keeps Jobs from counting evicted or deleted pods (controller ``leaving-pods``).

The request's key is the pod's. A pod event costs O(1): only a pod that begins to leave requests a
reconcile. ``reconcilers.restart_in_place.replacing.uncounted`` decides. A pod is remembered from
the first sign of its leaving until its Job certainly does not count it; a manager that starts finds
the leaving pods in its cache. A manager that waits for its election remembers them, too: of a pod
that leaves and ends while no manager leads, nothing else is left. Without any manager such a pod
stays unnoticed, unless its kubelet has ended it: then it still exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.errors import ConflictError, NotFoundError
from jobsetpy.reconcilers.execution.caches import (
    CacheReader,
    SharedCaches,
    job_of,
    jobset_of,
    pods_of_job,
)
from jobsetpy.reconcilers.restart_in_place.replacing.uncounted import (
    CHECK_S,
    LeavingPlan,
    ObservedLeaving,
    finalizer_patch,
    is_leaving,
    plan_leaving,
)
from jobsetpy.reconcilers.rules.membership import parse_count

WORKERS: Final = 16
"""Maximum number of concurrent requests: as many pods as a drain may delete together."""

REMEMBERED_S: Final = 300.0
"""Time in seconds for which a pod that leaves is remembered; longer than an election takes."""


class LeavingPodsReconciler(CacheReader):
    """Reconciler that removes the Job controller's finalizer from a leaving pod, the request's key.

    Args:
        caches: informers to read from.
    """

    def __init__(self, caches: SharedCaches) -> None:
        super().__init__(caches)
        self._leaving: dict[rt.ObjectKey, ObservedLeaving] = {}
        """Pods in the order in which they were first observed leaving."""
        self._unserved: set[rt.ObjectKey] = set()
        """Those that were not reconciled yet."""

    def on_pod(self, event: rt.Event[ChildPod]) -> Iterable[rt.Request]:
        """Request a reconcile if a pod begins to leave; O(1)."""
        pod = event.new
        if pod is None or not is_leaving(pod):
            return ()
        key = rt.ObjectKey(pod.metadata.namespace, pod.metadata.name)
        known = self._leaving.get(key)
        if known is not None and known.first.metadata.uid == pod.metadata.uid:
            return ()
        self._forget_old()
        now = self._clock.monotonic()
        self._leaving[key] = ObservedLeaving(first=pod, pod=pod, job=None, jobset=None, since=now)
        self._unserved.add(key)
        return (rt.Request(key),)

    def on_job(self, event: rt.Event[Job]) -> Iterable[rt.Request]:
        """Request reconciles of pods that began to leave while another process led."""
        if not event.initial or not self._unserved:
            return ()
        unserved, self._unserved = self._unserved, set()
        return [rt.Request(key) for key in unserved]

    def _forget_old(self) -> None:
        """Forget pods that left long ago: while another process leads, none is reconciled."""
        before = self._clock.monotonic() - REMEMBERED_S
        while self._leaving:
            key, known = next(iter(self._leaving.items()))
            if known.since >= before:
                return
            self._forget(key)

    def _forget(self, key: rt.ObjectKey) -> None:
        self._leaving.pop(key, None)
        self._unserved.discard(key)

    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Keep a leaving pod's Job from counting it."""
        key = request.key
        self._unserved.discard(key)
        known = self._leaving.get(key)
        if known is None:
            return rt.Result.done()
        observed = self._observe(key, known)
        plan = plan_leaving(observed)
        again = await self._execute(observed, plan)
        if self._leaving.get(key) is known:  # else another pod of the name leaves
            if again or plan.again:
                self._leaving[key] = attrs.evolve(known, checks=known.checks + 1)
            else:
                self._forget(key)
        return plan.result if not again else rt.Result.requeue_after(CHECK_S)

    def _observe(self, key: rt.ObjectKey, known: ObservedLeaving) -> ObservedLeaving:
        first, pod = known.first, self._pods.get(key)
        if pod is not None and pod.metadata.uid != first.metadata.uid:
            pod = None
        job = job_of(self._jobs, first)
        return attrs.evolve(
            known,
            pod=pod,
            job=job,
            jobset=None if job is None else jobset_of(self._jobsets, job),
            replaced=job is not None and self._is_replaced(first, job),
        )

    def _is_replaced(self, first: ChildPod, job: Job) -> bool:
        """Return True if another pod has completed the index; O(pods of the Job), rarely."""
        index = parse_count(first.metadata.annotations.completion_index)
        if index is None or not job.status.has_completed(index):
            return False
        return any(
            pod.metadata.annotations.completion_index == first.metadata.annotations.completion_index
            and pod.metadata.uid != first.metadata.uid
            and pod.status.phase == "Succeeded"
            for pod in pods_of_job(self._pods, job)
        )

    async def _execute(self, observed: ObservedLeaving, plan: LeavingPlan) -> bool:
        """Execute a plan; return True if the Job may have counted the pod before."""
        pod, job, jobset = observed.pod, observed.job, observed.jobset
        if plan.uncount and pod is not None:
            meta = pod.metadata
            try:
                stored = await self._client.merge_patch(
                    ChildPod, meta.namespace, meta.name, finalizer_patch(pod)
                )
            except (ConflictError, NotFoundError):  # another pod of that name, or none
                return True
            return stored.status.phase == "Succeeded"
        if plan.delete and pod is not None:
            with suppress(ConflictError, NotFoundError):
                await self._delete(pod)
        if plan.recreate and job is not None and jobset is not None:
            await self._recreate(job)
            self._record(jobset, plan.event(observed.first, job))
        return False

    async def _recreate(self, job: Job) -> None:
        """Mark a Job for recreation by the controller of Jobs; the others restart in place."""
        meta = job.metadata
        annotations = {keys.RESTART_ANNOTATION: seconds_text(self._clock.now())}
        body = {"metadata": {"uid": meta.uid, "annotations": annotations}}
        with suppress(ConflictError, NotFoundError):
            await self._client.merge_patch(Job, meta.namespace, meta.name, body)


def setup(manager: rt.Manager) -> rt.Controller:
    """Wire the leaving pods reconciler: its caches, watches and controller.

    Args:
        manager: manager that is not started yet.
    """
    caches = SharedCaches(manager)
    reconciler = LeavingPodsReconciler(caches)
    return caches.controller(
        "leaving-pods",
        reconciler,
        WORKERS,
        rt.Watch(caches.pods, reconciler.on_pod, standby=True),
        rt.Watch(caches.jobs, reconciler.on_job),
    )
