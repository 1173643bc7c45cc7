"""Executor of a plan's actions on the children of a JobSet.

All actions of a plan run in parallel, for all ReplicatedJobs, except that Service, volume claims
and the startup group's ConfigMap are created before the Jobs that need them. A failed write does
not prevent the others. Every write is announced to the expectations, so that no later reconcile
acts before the cache shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, assert_never

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap
from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    JobSetPyError,
    NotFoundError,
)
from jobsetpy.reconcilers.execution.kinds import CREATED_KINDS, CreatedJob, WholeJob
from jobsetpy.reconcilers.execution.parallel import NAMED_FAILURES, in_parallel
from jobsetpy.reconcilers.jobs.suspension import changes_resources, resume_patch
from jobsetpy.reconcilers.rules import plan as p
from jobsetpy.reconcilers.rules.conditions import WARNING
from jobsetpy.reconcilers.rules.json_tree import child

PARALLEL_WRITES: Final = 64
"""Maximum number of concurrent requests for one JobSet."""

_ROLE_LOOKS: Final = 20
_ROLE_LOOK_S: Final = 0.02

_FAILED: Final = {
    "Service": keys.SERVICE_CREATION_FAILED_REASON,
    "PersistentVolumeClaim": keys.PVC_CREATION_FAILED_REASON,
}
"""Reasons of events about objects that could not be created; others are of startup groups."""

Failures = list[tuple[p.Action, JobSetPyError]]


def _is_role(action: p.Action) -> bool:
    return isinstance(action, p.CreateObject) and action.kind in {"Role", "RoleBinding"}


class ChildWriter:
    """Writer of the children of JobSets.

    Args:
        client: API client for the writes.
        jobs: cache of child Jobs.
        events: recorder for events about failed creations.
        own: expectations about Jobs, by key of their JobSet.
    """

    def __init__(
        self,
        client: rt.Client,
        jobs: rt.Store[Job],
        events: rt.EventRecorder,
        own: rt.Expectations,
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._events = events
        self._own = own

    async def carry_out(self, jobset: JobSet, actions: Sequence[p.Action]) -> Failures:
        """Execute actions.

        Args:
            jobset: parent JobSet.
            actions: actions of one plan.

        Returns:
            Failed actions with their errors, without those that were skipped because of them.
        """
        if not actions:
            return []

        async def act(action: p.Action) -> None:
            await self._act_one(jobset, action)

        roles = [item for item in actions if _is_role(item)]
        failures: Failures = await in_parallel(PARALLEL_WRITES, roles, act)
        # The ConfigMap signals that its Role exists, so it waits until the Role was created; but
        # not if RBAC forbids the Role, since pods work without it.
        later = any(not isinstance(error, ForbiddenError) for _, error in failures)
        first: list[p.Action] = [
            item
            for item in actions
            if isinstance(item, p.CreateObject)
            and not _is_role(item)
            and not (later and item.kind == "ConfigMap")
        ]
        failures += await in_parallel(PARALLEL_WRITES, first, act)
        rest = [
            item
            for item in actions
            if not isinstance(item, p.CreateObject)
            # Pods without their volumes or DNS names would only fail.
            and not (failures and isinstance(item, p.CreateJob))
        ]
        failures += await in_parallel(PARALLEL_WRITES, rest, act)
        self._tell_failures(jobset, failures)
        return failures

    async def _act_one(self, jobset: JobSet, action: p.Action) -> None:
        namespace = jobset.metadata.namespace
        match action:
            case p.CreateJob():
                await self._create_job(jobset, action)
            case p.DeleteJob():
                await self._delete_job(jobset, action)
            case p.SuspendJob(name, uid):
                body = {"metadata": {"uid": uid}, "spec": {"suspend": True}}
                await self._patch_job(jobset, name, body)
            case p.ResizeJob(name, uid, parallelism, completions):
                size = {"parallelism": parallelism, "completions": completions}
                await self._patch_job(jobset, name, {"metadata": {"uid": uid}, "spec": size})
            case p.ResumeJob():
                await self._resume_job(jobset, action)
            case p.CreateObject():
                await self._create_object(namespace, action)
            case p.DeleteJobSet(name, uid):
                with suppress(NotFoundError):
                    await self._client.delete(
                        JobSet, namespace, name, propagation="Foreground", uid=uid
                    )
            case _:
                assert_never(action)

    async def _create_job(self, jobset: JobSet, action: p.CreateJob) -> None:
        key = jobset.metadata.key
        self._own.expect_creations(key, (action.name,))
        try:
            await self._client.create(CreatedJob, key.namespace, action.body)
        except AlreadyExistsError:
            self._own.observed_creation(key, action.name)
            if not await self._is_own_job(jobset, action.name):
                raise
        except BaseException:
            self._own.observed_creation(key, action.name)
            raise

    async def _is_own_job(self, jobset: JobSet, name: str) -> bool:
        """Return whether the existing Job of that name is owned by this JobSet.

        If so, the cache is late, or the Job has lost the label that the cache selects by. The label
        is restored: without it the Job would be invisible, and could not be replaced.
        """
        try:
            job = await self._client.get(Job, jobset.metadata.namespace, name)
        except NotFoundError:
            return True  # it was being deleted; its event triggers the next reconcile
        owner = job.metadata.controller
        if owner is None or owner.uid != jobset.metadata.uid:
            return False
        labels = {keys.JOBSET_NAME: jobset.metadata.name}
        if job.metadata.labels.get(keys.JOBSET_NAME) != jobset.metadata.name:
            metadata = {"uid": job.metadata.uid, "labels": labels}
            await self._patch_job(jobset, name, {"metadata": metadata})
            text = f"job {name!r} had lost its label {keys.JOBSET_NAME}: it was put back"
            self._events.event(jobset, WARNING, keys.INVALID_JOB_REASON, text)
        return True

    async def _delete_job(self, jobset: JobSet, action: p.DeleteJob) -> None:
        key = jobset.metadata.key
        self._own.expect_deletions(key, (action.uid,))
        try:
            await self._client.delete(
                Job, key.namespace, action.name, propagation="Foreground", uid=action.uid
            )
        except (NotFoundError, ConflictError):
            # Deleted, or its name was reused by another Job: this deletion is done.
            self._own.observed_deletion(key, action.uid)
        except BaseException:
            self._own.observed_deletion(key, action.uid)
            raise

    async def _patch_job(self, jobset: JobSet, name: str, body: Mapping[str, Any]) -> None:
        key = jobset.metadata.key
        try:
            job = await self._client.merge_patch(Job, key.namespace, name, body)
        except NotFoundError:
            return
        self._expect_job_version(key, job)

    def _expect_job_version(self, key: rt.ObjectKey, job: Job) -> None:
        cached = self._jobs.get(job.metadata.key)
        if cached is None or cached.metadata.uid != job.metadata.uid:
            return
        self._own.expect_version(
            key,
            job.metadata.uid,
            job.metadata.resource_version,
            cached=cached.metadata.resource_version,
        )

    async def _resume_job(self, jobset: JobSet, action: p.ResumeJob) -> None:
        namespace, name = jobset.metadata.namespace, action.name
        try:
            if action.clear_start_time:
                body = {"metadata": {"uid": action.uid}, "status": {"startTime": None}}
                await self._client.merge_patch(Job, namespace, name, body, subresource="status")
            job = await self._client.get(WholeJob, namespace, name)
        except NotFoundError:
            return
        template = child(job.spec, "template")
        patch = resume_patch(action, template, job.metadata.annotations)
        try:
            await self._patch_job(jobset, name, patch)
        except InvalidError as error:
            if changes_resources(patch):
                # With its old resources, the Job would run with others than it was admitted for.
                text = (
                    f"job {name!r} stays suspended: the API server refuses to change its resources "
                    f"(Kubernetes' feature gate MutablePodResourcesForSuspendedJobs): {error}"
                )
                reason = keys.FAILED_RESOURCE_PROPAGATION_REASON
                self._events.event(jobset, WARNING, reason, text)
            raise

    async def _create_if_missing(self, namespace: str, action: p.CreateObject) -> None:
        try:
            await self._client.create(CREATED_KINDS[action.kind], namespace, action.body)
        except AlreadyExistsError:
            # Without our label it is in no cache, and pods would wait for it forever.
            if action.kind == "ConfigMap" and await self._is_foreign(namespace, action.name):
                raise

    async def _is_foreign(self, namespace: str, name: str) -> bool:
        """Return whether a ConfigMap has no JobSet as owner; leftovers of one are collected."""
        owner = (await self._client.get(ConfigMap, namespace, name)).metadata.controller
        return owner is None or owner.kind != JobSet.RESOURCE.kind

    async def _create_object(self, namespace: str, action: p.CreateObject) -> None:
        """Create the object; retry while the API server does not see a RoleBinding's Role."""
        for _ in range(_ROLE_LOOKS):
            try:
                await self._create_if_missing(namespace, action)
            except NotFoundError:
                if action.kind != "RoleBinding":
                    raise
                await asyncio.sleep(_ROLE_LOOK_S)
            else:
                return
        await self._create_if_missing(namespace, action)

    def _tell_failures(self, jobset: JobSet, failures: Failures) -> None:
        """Emit one event for each kind of object that could not be created."""
        texts: dict[str, list[str]] = {}
        for action, error in failures:
            match action:
                case p.CreateJob(name):
                    reason = keys.JOB_CREATION_FAILED_REASON
                    text = f'job "{name}" creation failed with error: {error}'
                case p.CreateObject("ConfigMap", name) if isinstance(error, AlreadyExistsError):
                    reason = keys.GROUP_FOREIGN_REASON
                    text = (
                        f"no Job is made: the ConfigMap {name} belongs to something else; delete it"
                    )
                case p.CreateObject(kind):
                    reason = _FAILED.get(kind, keys.GROUP_CREATION_FAILED_REASON)
                    text = str(error)
                case _:
                    continue
            texts.setdefault(reason, []).append(text)
        for reason, lines in texts.items():
            self._events.event(jobset, WARNING, reason, "\n".join(lines[:NAMED_FAILURES]))
