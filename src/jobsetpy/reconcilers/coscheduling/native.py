"""Caches and writer of the API server's ``PodGroup`` and ``Workload`` objects.

The best of the supported versions that the API server serves is used. Each version has an informer
of its own, since another one may be served after an upgrade of the control plane: an informer of a
version that is not served has no objects, and looks for it every ten seconds.

In ``v1alpha2``, specs are immutable, so another minimum needs a new object. A finalizer keeps one
that pods refer to; when it is replaced, or must not exist while a Job is resized, the finalizer is
removed with the deletion. The successor has the same name. The scheduler counts pods of a group by
that name, for any object behind it, so pods with a node stay in the group, and others wait for it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import condition_true
from jobsetpy.api.scheduling import (
    NATIVE_APIS,
    POD_GROUP_FINALIZER,
    NativeApi,
    SchedulingPodGroup,
    SchedulingWorkload,
)
from jobsetpy.errors import AlreadyExistsError, ConflictError, NotFoundError
from jobsetpy.reconcilers.coscheduling.pod_groups import (
    DISRUPTED,
    DesiredObject,
    NativeObjects,
    PatchSpec,
    ReplaceObject,
    same_spec,
)
from jobsetpy.reconcilers.execution.caches import CHILD_SELECTOR


async def patch_spec(client: rt.Client, change: PatchSpec) -> None:
    """Patch the spec of an object, unless its name was reused by another one."""
    meta = change.old.metadata
    body = {"metadata": {"uid": meta.uid}, "spec": change.spec}
    with suppress(NotFoundError, ConflictError):
        await client.merge_patch(type(change.old), meta.namespace, meta.name, body)


async def replace_object(client: rt.Client, jobset: JobSet, change: ReplaceObject) -> None:
    """Delete the old object and create its replacement."""
    old, new = change.old, change.new
    if old is not None:
        meta = old.metadata
        # Deleted, or its name was reused by another object.
        with suppress(NotFoundError, ConflictError):
            await client.delete(type(old), meta.namespace, meta.name, uid=meta.uid)
        if change.at_once and POD_GROUP_FINALIZER in meta.finalizers:
            others = [each for each in meta.finalizers if each != POD_GROUP_FINALIZER]
            body = {"metadata": {"uid": meta.uid, "finalizers": others or None}}
            with suppress(NotFoundError, ConflictError):
                await client.merge_patch(type(old), meta.namespace, meta.name, body)
    if new is not None:
        await _create(client, jobset, new)


async def _create(client: rt.Client, jobset: JobSet, new: DesiredObject) -> None:
    namespace = jobset.metadata.namespace
    try:
        await client.create(new.kind, namespace, new.body(jobset))
    except AlreadyExistsError:
        # The cache may be late; an existing object of ours with the desired spec is enough.
        there = await client.get(new.kind, namespace, new.name)
        owner = there.metadata.controller
        ours = owner is not None and owner.uid == jobset.metadata.uid
        going = there.metadata.deletion_timestamp is not None
        if going or not ours or not same_spec(there.spec, new.spec):
            raise


@attrs.frozen
class _Caches:
    """Informers of one version."""

    api: NativeApi
    pod_groups: rt.SharedInformer[SchedulingPodGroup]
    workloads: rt.SharedInformer[SchedulingWorkload]

    @property
    def served(self) -> bool:
        """Return whether the API server serves both kinds, as far as is known.

        The list of a kind that it does not serve has no version.
        """
        return bool(
            self.pod_groups.store.resource_version and self.workloads.store.resource_version
        )


class NativeWatch:
    """Versions of the API that the API server serves, and the objects in the best of them.

    Args:
        manager: not started yet.
    """

    def __init__(self, manager: rt.Manager) -> None:
        self._caches = [_caches(manager, api) for api in NATIVE_APIS]

    def _best(self) -> _Caches | None:
        return next((each for each in self._caches if each.served), None)

    @property
    def api(self) -> NativeApi | None:
        """Best supported version that the API server serves; ``None`` if there is none."""
        best = self._best()
        return None if best is None else best.api

    def objects_of(self, uid: str) -> NativeObjects | None:
        """Return the objects that a JobSet owns; ``None`` if the API is not served; O(result)."""
        best = self._best()
        if best is None:
            return None
        groups = best.pod_groups.store.by_index(rt.OWNER_UID, uid)
        return NativeObjects(best.api, groups, best.workloads.store.by_index(rt.OWNER_UID, uid))

    def watches(self) -> list[rt.Watch[Any]]:
        """Return watches that trigger the recreation of deleted objects, and reports of disruption.

        When the API is no longer served, all objects of its cache are deleted: their owners are
        reconciled immediately.
        """
        of_owner, out = rt.enqueue_owner(JobSet), []
        for each in self._caches:
            out.append(rt.Watch[Any](each.pod_groups, of_owner, when=_goes_or_is_disrupted))
            out.append(rt.Watch[Any](each.workloads, of_owner, when=lambda event: event.deleted))
        return out


def _caches(manager: rt.Manager, api: NativeApi) -> _Caches:
    pod_groups = manager.informer(
        api.pod_group, label_selector=CHILD_SELECTOR, indexes=[rt.OWNER_UID], optional=True
    )
    workloads = manager.informer(
        api.workload, label_selector=CHILD_SELECTOR, indexes=[rt.OWNER_UID], optional=True
    )
    return _Caches(api, pod_groups, workloads)


def _goes_or_is_disrupted(event: rt.Event[SchedulingPodGroup]) -> bool:
    return event.deleted or (_is_disrupted(event.new) and not _is_disrupted(event.old))


def _is_disrupted(group: SchedulingPodGroup | None) -> bool:
    return group is not None and condition_true(group.status.conditions, DISRUPTED) is not None
