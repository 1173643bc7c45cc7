"""Writer of the API server's ``PodGroup`` and ``Workload`` objects (``scheduling.k8s.io``).

The spec of a ``PodGroup`` is immutable, so another minimum needs a new object. A finalizer keeps
one that pods refer to; when it is replaced, or must not exist while a Job is resized, the finalizer
is removed with the deletion. The successor has the same name. The scheduler counts pods of a group
by that name, for any object behind it, so pods with a node stay in the group, and pods without one
wait for it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import attrs
import msgspec

from jobsetpy import runtime as rt
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.scheduling import (
    GROUP,
    POD_GROUP_FINALIZER,
    VERSION,
    SchedulingPodGroup,
    SchedulingWorkload,
)
from jobsetpy.client import HttpRequest
from jobsetpy.errors import AlreadyExistsError, ConflictError, NotFoundError
from jobsetpy.reconcilers.coscheduling.pod_groups import DesiredObject, ReplaceObject, same_spec
from jobsetpy.reconcilers.execution.caches import CHILD_SELECTOR


class _Resource(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    resources: list[_Resource] = []


async def are_served(client: rt.Client) -> bool:
    """Return whether the API server serves ``PodGroup`` and ``Workload`` in the supported version.

    Raises:
        ApiError, TransportError: discovery failed.
    """
    path = f"/apis/{GROUP}/{VERSION}"
    try:
        answer = await client.raw(HttpRequest(method="GET", path=path))
    except NotFoundError:
        return False
    found = {each.name for each in msgspec.json.decode(answer.body, type=_Resources).resources}
    return {cls.RESOURCE.plural for cls in (SchedulingPodGroup, SchedulingWorkload)} <= found


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
class PodGroupCaches:
    """Caches of ``PodGroup`` and ``Workload``, with the index ``OWNER_UID``."""

    pod_groups: rt.Store[SchedulingPodGroup]
    workloads: rt.Store[SchedulingWorkload]


def wire_pod_groups(manager: rt.Manager) -> tuple[PodGroupCaches, list[rt.Watch[Any]]]:
    """Return the caches, and watches that trigger the recreation of deleted objects.

    Args:
        manager: not started yet.
    """
    pod_groups = manager.informer(
        SchedulingPodGroup, label_selector=CHILD_SELECTOR, indexes=[rt.OWNER_UID]
    )
    workloads = manager.informer(
        SchedulingWorkload, label_selector=CHILD_SELECTOR, indexes=[rt.OWNER_UID]
    )
    of_owner = rt.enqueue_owner(JobSet)
    watches = [rt.Watch(each, of_owner, when=_goes) for each in (pod_groups, workloads)]
    return PodGroupCaches(pod_groups.store, workloads.store), watches


def _goes(event: rt.Event[Any]) -> bool:
    return event.deleted
