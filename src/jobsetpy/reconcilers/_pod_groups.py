"""Writes the API server's own groups (``scheduling.k8s.io``) for JobSets.

The spec of a ``PodGroup`` cannot change, so another minimum takes another object. The API server
keeps one that pods name by a finalizer; when a group is replaced, or has to be away while a Job is
resized, that is taken off with the deletion. The successor has the same name. The scheduler
counts pods of a group by that name, whatever object stands behind it, so those that have a node
stay in the group, and those that have none wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import attrs
import msgspec

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.scheduling import (
    GROUP,
    POD_GROUP_FINALIZER,
    VERSION,
    SchedulingPodGroup,
    SchedulingWorkload,
)
from jobsetpy.client import HttpRequest
from jobsetpy.domain.coscheduling.gangs import Gangs
from jobsetpy.domain.coscheduling.podgroups import (
    DesiredObject,
    pod_group_name,
    pod_groups,
    same_spec,
    workload,
)
from jobsetpy.errors import AlreadyExistsError, ConflictError, NotFoundError
from jobsetpy.reconcilers._parallel import in_parallel

_SHOWN_ERRORS: Final = 5

_Object: TypeAlias = SchedulingPodGroup | SchedulingWorkload
_Kind: TypeAlias = type[SchedulingPodGroup] | type[SchedulingWorkload]


@attrs.frozen
class _Change:
    """What is there and has to go, and what has to come in its place.

    With ``now``, what goes does not wait for the pods that name it.
    """

    old: _Object | None
    new: DesiredObject | None
    now: bool = True


class _Resource(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    resources: list[_Resource] = []


async def are_served(client: rt.Client) -> bool:
    """Whether the API server has ``PodGroup`` and ``Workload``, in the version that is known here.

    Raises:
        ApiError, TransportError: it does not say.
    """
    path = f"/apis/{GROUP}/{VERSION}"
    try:
        answer = await client.raw(HttpRequest(method="GET", path=path))
    except NotFoundError:
        return False
    found = {each.name for each in msgspec.json.decode(answer.body, type=_Resources).resources}
    return {cls.RESOURCE.plural for cls in (SchedulingPodGroup, SchedulingWorkload)} <= found


class PodGroupWriter:
    """Keeps the objects of JobSets' groups as they should be.

    Args:
        client: writes.
        pod_groups: cache of ours, with the index ``OWNER_UID``.
        workloads: the same of Workloads.
        parallel: maximum concurrent writes for one JobSet.
    """

    def __init__(
        self,
        client: rt.Client,
        *,
        pod_groups: rt.Store[SchedulingPodGroup],
        workloads: rt.Store[SchedulingWorkload],
        parallel: int,
    ) -> None:
        self._client = client
        self._pod_groups = pod_groups
        self._workloads = workloads
        self._parallel = parallel

    async def sync(self, jobset: JobSet, groups: Gangs, minima: Mapping[str, int]) -> int:
        """Make what is missing, replace what has another minimum, delete what is left over.

        Args:
            jobset: their owner.
            groups: of it.
            minima: by name of a group, how many of its pods have to be there together; 0 if it has
                to be away for now.

        Returns:
            How many objects were written.

        Raises:
            ExceptionGroup: some could not be written; the others were.
        """
        above = workload(jobset, groups)
        wanted = pod_groups(jobset, groups, minima, above)
        attempt = jobset.status.restarts
        away = {pod_group_name(name, attempt) for name, least in minima.items() if not least}
        # A group is refused while the template that it names is not there.
        return await self._bring_about(
            jobset, SchedulingWorkload, self._workloads, [] if above is None else [above]
        ) + await self._bring_about(jobset, SchedulingPodGroup, self._pod_groups, wanted, away)

    async def remove(self, jobset: JobSet) -> None:
        """Delete all; groups stay as long as pods name them.

        Raises:
            ExceptionGroup: some could not be deleted; the others were.
        """
        await self._bring_about(jobset, SchedulingPodGroup, self._pod_groups, [])
        await self._bring_about(jobset, SchedulingWorkload, self._workloads, [])

    async def _bring_about(
        self,
        jobset: JobSet,
        kind: _Kind,
        store: rt.Store[SchedulingPodGroup] | rt.Store[SchedulingWorkload],
        wanted: Sequence[DesiredObject],
        away: Collection[str] = (),
    ) -> int:
        found: Iterable[_Object] = store.by_index(rt.OWNER_UID, jobset.metadata.uid)
        there = {each.metadata.name: each for each in found}
        changes = [
            _Change(there.get(each.name), each)
            for each in wanted
            if each.name not in there or not same_spec(there[each.name].spec, each.spec)
        ]
        names = {each.name for each in wanted}
        changes += [
            _Change(each, None, now=name in away)
            for name, each in there.items()
            if name not in names and (name in away or each.metadata.deletion_timestamp is None)
        ]

        async def write(change: _Change) -> None:
            await self._change(jobset, kind, change)

        failed = await in_parallel(self._parallel, changes, write)
        if failed:
            msg = f"{len(failed)} of {len(changes)} {kind.RESOURCE.plural}: {failed[0][1]}"
            raise ExceptionGroup(msg, [error for _, error in failed[:_SHOWN_ERRORS]])
        return len(changes)

    async def _change(self, jobset: JobSet, kind: _Kind, change: _Change) -> None:
        old, new = change.old, change.new
        if old is not None:
            await self._delete(kind, old)
            if change.now and POD_GROUP_FINALIZER in old.metadata.finalizers:
                await self._let_go(kind, old)
        if new is not None:
            await self._create(jobset, kind, new)

    async def _delete(self, kind: _Kind, old: _Object) -> None:
        meta = old.metadata
        # Gone, or another one has its name by now.
        with suppress(NotFoundError, ConflictError):
            await self._client.delete(kind, meta.namespace, meta.name, uid=meta.uid)

    async def _let_go(self, kind: _Kind, old: _Object) -> None:
        """Take the API server's finalizer off; those of others stay."""
        meta = old.metadata
        others = [each for each in meta.finalizers if each != POD_GROUP_FINALIZER]
        body = {"metadata": {"uid": meta.uid, "finalizers": others or None}}
        with suppress(NotFoundError, ConflictError):
            await self._client.merge_patch(kind, meta.namespace, meta.name, body)

    async def _create(self, jobset: JobSet, kind: _Kind, new: DesiredObject) -> None:
        namespace = jobset.metadata.namespace
        try:
            await self._client.create(kind, namespace, new.body)
        except AlreadyExistsError:
            # The cache may be late; one that is ours and as it should be is what was wanted.
            there = await self._client.get(kind, namespace, new.name)
            owner = there.metadata.controller
            ours = owner is not None and owner.uid == jobset.metadata.uid
            going = there.metadata.deletion_timestamp is not None
            if going or not ours or not same_spec(there.spec, new.spec):
                raise


def wire_pod_groups(
    manager: rt.Manager, *, parallel: int
) -> tuple[PodGroupWriter, list[rt.Watch[Any]]]:
    """The writer with its caches, and watches by which a group that somebody deletes is made again.

    Args:
        manager: not started yet.
        parallel: maximum concurrent writes for one JobSet.
    """
    pod_groups = manager.informer(
        SchedulingPodGroup, label_selector=keys.JOBSET_NAME, indexes=[rt.OWNER_UID]
    )
    workloads = manager.informer(
        SchedulingWorkload, label_selector=keys.JOBSET_NAME, indexes=[rt.OWNER_UID]
    )
    writer = PodGroupWriter(
        manager.client, pod_groups=pod_groups.store, workloads=workloads.store, parallel=parallel
    )
    of_owner = rt.enqueue_owner(JobSet)
    return writer, [rt.Watch(each, of_owner, when=_goes) for each in (pod_groups, workloads)]


def _goes(event: rt.Event[Any]) -> bool:
    return event.new is None
