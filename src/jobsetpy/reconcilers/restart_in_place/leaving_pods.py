"""Has Jobs not count pods that were told to leave (controller ``leaving-pods``).

The request's key is the JobSet's. A pod event costs O(1): only a pod that begins to leave asks for
a reconcile. What is done, and why, is decided by ``reconcilers.restart_in_place.leaving``. Nothing
is remembered: a manager that starts finds the pods that are leaving by then in its cache.
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
from jobsetpy.errors import ConflictError, NotFoundError
from jobsetpy.reconcilers.execution.caches import SharedCaches, job_of
from jobsetpy.reconcilers.execution.parallel import in_parallel, raise_failures
from jobsetpy.reconcilers.restart_in_place.leaving import (
    LeavingPlan,
    ObservedLeaving,
    finalizer_patch,
    is_leaving,
    plan_leaving,
)


@attrs.frozen(kw_only=True)
class LeavingPodsSettings:
    """Settings of the leaving pods reconciler.

    Args:
        workers: maximum concurrent reconciles.
        parallel_writes: maximum concurrent requests for one JobSet.
    """

    workers: int = 4
    parallel_writes: int = 16


def _jobset_key(pod: ChildPod) -> rt.ObjectKey:
    return rt.ObjectKey(pod.metadata.namespace, pod.metadata.labels.jobset_name)


def _counted(pod: ChildPod) -> str | None:
    meta = pod.metadata
    going = meta.deletion_timestamp is not None and meta.tracked
    return str(_jobset_key(pod)) if going else None


COUNTED_LEAVING: Final[rt.Index[ChildPod]] = rt.Index("countedLeavingPods", _counted)
"""Pods that are being deleted and that their Job would count, by the JobSet that they name."""


class LeavingPodsReconciler:
    """Takes the Job controller's finalizer off pods of one JobSet that leave.

    Args:
        caches: informers; pods with the index :data:`COUNTED_LEAVING`.
        settings: limits.
    """

    def __init__(self, caches: SharedCaches, settings: LeavingPodsSettings) -> None:
        self._client = caches.manager.client
        self._jobsets = caches.jobsets.store
        self._jobs = caches.jobs.store
        self._pods = caches.pods.store
        self._settings = settings
        self._told: set[str] = set()  # UIDs of pods that were seen leaving; they may end meanwhile

    def on_pod(self, event: rt.Event[ChildPod]) -> Iterable[rt.Request]:
        """Ask for a reconcile if a pod begins to leave; O(1)."""
        old, new = event.old, event.new
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._told.discard(old.metadata.uid)
        if new is None or not is_leaving(new) or new.metadata.uid in self._told:
            return ()
        self._told.add(new.metadata.uid)
        return (rt.Request(_jobset_key(new)),)

    def on_job(self, event: rt.Event[Job]) -> Iterable[rt.Request]:
        """Ask for a reconcile if pods leave whose Job becomes known only now; O(1)."""
        new = event.new
        if new is None or event.old is not None:
            return ()
        key = rt.ObjectKey(new.metadata.namespace, new.metadata.labels.get(keys.JOBSET_NAME, ""))
        return (rt.Request(key),) if self._pods.by_index(COUNTED_LEAVING, str(key)) else ()

    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Have Jobs not count the pods of one JobSet that leave.

        Raises:
            ExceptionGroup: some writes failed; the others were made.
        """
        plan = plan_leaving(self._observe(request.key))
        await self._execute(plan)
        return plan.result

    def _observe(self, key: rt.ObjectKey) -> ObservedLeaving:
        jobset = self._jobsets.get(key)
        if jobset is None:
            return ObservedLeaving(jobset=None)
        leaving = self._pods.by_index(COUNTED_LEAVING, str(key))
        found = ((pod, job_of(self._jobs, pod)) for pod in leaving)
        uid = jobset.metadata.uid
        return ObservedLeaving(
            jobset=jobset,
            pods=tuple(
                (pod, job)
                for pod, job in found
                if job is not None
                and pod.metadata.uid in self._told
                and job.metadata.controller is not None
                and job.metadata.controller.uid == uid
            ),
        )

    async def _execute(self, plan: LeavingPlan) -> None:
        async def act(pod: ChildPod) -> None:
            meta = pod.metadata
            with suppress(ConflictError, NotFoundError):  # another pod of that name, or none
                await self._client.merge_patch(
                    ChildPod, meta.namespace, meta.name, finalizer_patch(pod)
                )

        failures = await in_parallel(self._settings.parallel_writes, plan.uncounted, act)
        raise_failures(failures, "pods that leave could not be taken from their jobs' counts")


def setup(manager: rt.Manager, settings: LeavingPodsSettings | None = None) -> rt.Controller:
    """Wire the leaving pods reconciler: its caches, watches and controller.

    Args:
        manager: not started yet.
        settings: limits.
    """
    settings = settings or LeavingPodsSettings()
    caches = SharedCaches(manager)
    caches.pods.add_index(COUNTED_LEAVING)
    reconciler = LeavingPodsReconciler(caches, settings)
    return caches.controller(
        "leaving-pods",
        reconciler,
        settings.workers,
        rt.Watch(caches.pods, reconciler.on_pod),
        rt.Watch(caches.jobs, reconciler.on_job),
    )
