"""Reconciler that creates the successors of failed pods (controller ``successor-pods``).

The request's key is that of the Job. A pod event costs O(1): only a pod that fails or is gone, and
a Job that counts more failures, begins to miss pods or has finished, request a reconcile.
``reconcilers.restart_in_place.replacing.successors`` decides. Before a pod is created, the Job is
read from the API server and the plan made again: a cache that lags behind must not create pods for
a Job that is suspended, deleted or over. A pod of a Job that finished meanwhile is deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import controller_of
from jobsetpy.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    JobSetPyError,
    NotFoundError,
)
from jobsetpy.reconcilers.execution import metrics as execution_metrics
from jobsetpy.reconcilers.execution.caches import CacheReader, SharedCaches, jobset_of, pods_of_job
from jobsetpy.reconcilers.execution.kinds import CreatedPod, WholeJob
from jobsetpy.reconcilers.execution.memory import Memories
from jobsetpy.reconcilers.execution.parallel import in_parallel, raise_failures
from jobsetpy.reconcilers.execution.status_writer import moment
from jobsetpy.reconcilers.restart_in_place.failures.unfit_nodes import unfit_event
from jobsetpy.reconcilers.restart_in_place.job_controller.replacement_delay import FailureTimes
from jobsetpy.reconcilers.restart_in_place.replacing.successor_pod import (
    failures_after,
    successor_body,
)
from jobsetpy.reconcilers.restart_in_place.replacing.successors import (
    MissingMembers,
    ObservedMembers,
    Successor,
    SuccessorPlan,
    is_left_over,
    may_be_missing_pods,
    may_need_successor,
    plan_successors,
)
from jobsetpy.reconcilers.restart_in_place.replacing.uncounted import finalizer_patch
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.json_tree import child, number

WORKERS: Final = 4
PARALLEL_WRITES: Final = 16
"""Maximum number of concurrent requests for one Job."""


class SuccessorPodsReconciler(CacheReader):
    """Reconciler that creates the successors of the failed pods of a Job, the request's key.

    Args:
        caches: informers to read from.
    """

    def __init__(self, caches: SharedCaches) -> None:
        super().__init__(caches)
        self._failures = FailureTimes()
        self._memories = Memories(MissingMembers)

    def on_pod(self, event: rt.Event[ChildPod]) -> Iterable[rt.Request]:
        """Request a reconcile if a pod has failed, is gone or comes too late for its Job; O(1)."""
        comes = event.old is None
        if not comes and not may_need_successor(event.old, event.new):
            return ()
        owner = controller_of(event.obj.metadata.owner_references)
        if owner is None or owner.kind != "Job":
            return ()
        key = rt.ObjectKey(event.obj.metadata.namespace, owner.name)
        if comes and not may_need_successor(None, event.new):
            job = self._jobs.get(key)
            if job is None or not is_left_over(job, event.obj):
                return ()
        return (rt.Request(key),)

    def on_job(self, event: rt.Event[Job]) -> Iterable[rt.Request]:
        """Request a reconcile if a Job counts more failures, begins to miss pods, or ends; O(1).

        More failures mean that its back-off begins. It delays the pods of a Job that resumes, too,
        and those of pods that went while no manager observed them.
        """
        old, new = event.old, event.new
        more = self._failures.job_changed(old, new, self._clock.monotonic())
        if more or (new is not None and _begins_to_need_a_look(old, new)):
            return (rt.Request(event.obj.metadata.key),)
        return ()

    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Create the missing pods of one Job that the Job controller delays; delete left ones.

        Raises:
            ExceptionGroup: some requests failed; the others were made.
        """
        key = request.key
        observed = self._observe(key)
        memory = self._memories.of(key)
        plan = plan_successors(observed, memory, moment(self._clock))
        whole = None
        if plan.confirm:
            whole = await self._read(key)
            job = None if whole is None else whole.cached
            observed = attrs.evolve(self._observe(key), job=job, confirmed=True)
            plan = plan_successors(observed, memory, moment(self._clock))
        self._memories.keep(key, plan.memory)
        if whole is not None and plan.delete:
            return await self._delete_left_over(whole, plan)
        if whole is not None and plan.create:
            return await self._execute(whole, observed.jobset, plan)
        return plan.result

    def _observe(self, key: rt.ObjectKey) -> ObservedMembers:
        job = self._jobs.get(key)
        jobset = None if job is None else jobset_of(self._jobsets, job)
        if job is None or jobset is None:
            return ObservedMembers(job=job)
        return ObservedMembers(
            job=job,
            jobset=jobset,
            pods=pods_of_job(self._pods, job),
            failed_at=self._failures.of(job),
        )

    async def _read(self, key: rt.ObjectKey) -> WholeJob | None:
        try:
            return await self._client.get(WholeJob, key.namespace, key.name)
        except NotFoundError:
            return None

    async def _execute(
        self, job: WholeJob, jobset: JobSet | None, plan: SuccessorPlan
    ) -> rt.Result:
        """Create pods, the first one alone: what refuses it would refuse all of them."""
        refused: list[JobSetPyError] = []

        async def create(one: Successor) -> None:
            if refused:
                return
            try:
                if await self._create(job, one, plan.avoid):
                    self._report(job, jobset, one)
            except (ForbiddenError, InvalidError) as error:
                refused.append(error)

        failures = await in_parallel(1, plan.create[:1], create)
        if not failures:
            failures = await in_parallel(PARALLEL_WRITES, plan.create[1:], create)
        if refused:
            return self._refused(job, plan, refused[0])
        raise_failures(failures, "successors of failed pods could not be created")
        return plan.result

    async def _delete_left_over(self, job: WholeJob, plan: SuccessorPlan) -> rt.Result:
        """Delete pods that the Job has left over; nothing else removes their finalizer."""

        async def delete(pod: ChildPod) -> None:
            meta = pod.metadata
            with contextlib.suppress(NotFoundError, ConflictError):  # it is gone, or another's
                if meta.tracked:
                    await self._client.merge_patch(
                        ChildPod, meta.namespace, meta.name, finalizer_patch(pod)
                    )
                await self._delete(pod)
                message = f"Deleted pod: {meta.name}, which was created while the Job finished"
                reason = keys.LATE_POD_DELETED_REASON
                self._events.event(job, cond.NORMAL, reason, message, series=meta.name)

        failures = await in_parallel(PARALLEL_WRITES, plan.delete, delete)
        raise_failures(failures, "pods that a finished Job has left over could not be deleted")
        return plan.result

    async def _create(self, job: WholeJob, one: Successor, avoid: Sequence[str]) -> bool:
        """Create a pod; return False if there is nothing to create."""
        meta = job.metadata
        failures, limit = None, number(job.spec, "backoffLimitPerIndex")
        if limit is not None:
            failures = await self._index_failures(one)
            if failures > limit:
                return False  # the Job controller fails the index
        template = child(job.spec, "template")
        body = successor_body(
            meta.name,
            meta.uid,
            template,
            one,
            index_failures=failures,
            avoid=avoid,
        )
        try:
            await self._client.create(CreatedPod, meta.namespace, body)
        except AlreadyExistsError:
            return False  # by this manager or another: the cache lags behind
        return True

    def _report(self, job: WholeJob, jobset: JobSet | None, one: Successor) -> None:
        """Record the events of a pod that was created."""
        execution_metrics.successor_created()
        self._events.event(
            job, cond.NORMAL, keys.POD_CREATED_REASON, f"Created pod: {one.name}", series=one.name
        )
        if one.unfit and one.predecessor is not None and jobset is not None:
            event = unfit_event(one.predecessor, one.name)
            self._record(jobset, event, series=one.predecessor.metadata.name)

    async def _index_failures(self, one: Successor) -> int:
        """Return the failures of an index; 0 if its pods were not counted."""
        if one.predecessor is None:
            return 0
        meta = one.predecessor.metadata
        try:
            pod = await self._client.get(Pod, meta.namespace, meta.name)
        except NotFoundError:
            return 0
        return failures_after(pod.metadata.annotations)

    def _refused(self, job: WholeJob, plan: SuccessorPlan, error: JobSetPyError) -> rt.Result:
        """Report a refusal as the Job controller does; ``PodsRefused`` repeats it."""
        execution_metrics.successor_refused()
        message = f"Error creating: {error}"
        self._events.event(job, cond.WARNING, keys.PODS_REFUSED_REASON, message)
        now = self._clock.monotonic()
        memory = (plan.memory or MissingMembers(uid=job.metadata.uid)).refused(now)
        self._memories.keep(job.metadata.key, memory)
        return rt.Result.requeue_after(memory.not_before - now, summary=message)


def _begins_to_need_a_look(old: Job | None, new: Job) -> bool:
    """Return True if a Job begins to miss pods, or has finished, perhaps with a pod left over."""
    missing = may_be_missing_pods(new) and (old is None or not may_be_missing_pods(old))
    ends = new.status.finished is not None and (old is None or old.status.finished is None)
    return missing or ends


def setup(manager: rt.Manager) -> rt.Controller:
    """Wire the successor pods reconciler: its caches, watches and controller.

    Args:
        manager: manager that is not started yet.
    """
    caches = SharedCaches(manager)
    reconciler = SuccessorPodsReconciler(caches)
    return caches.controller(
        "successor-pods",
        reconciler,
        WORKERS,
        rt.Watch(caches.jobs, reconciler.on_job),
        rt.Watch(caches.pods, reconciler.on_pod),
    )
