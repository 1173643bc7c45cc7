"""What is written for a group: the ConfigMap's values, and the JobSet's condition (KEP-498).

Every write carries the resourceVersion of what it was decided on. When something else has changed
the object meanwhile, it is read again at once: a signal must not wait for a cache.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock
from jobsetpy.api.core import ConfigMap
from jobsetpy.api.group_signal import (
    STARTED,
    WAITING,
    Progress,
    lifted_attempt,
    started_value,
    waiting_value,
)
from jobsetpy.api.jobset import JobSet
from jobsetpy.domain import conditions as cond
from jobsetpy.domain.status import StatusDraft
from jobsetpy.errors import ConflictError, NotFoundError

_TRIES: Final = 5


def lifted(jobset: JobSet, config_map: ConfigMap | None) -> int:
    """Up to which attempt of the JobSet a ConfigMap says that pods may go on; 0 for none."""
    data = None if config_map is None else config_map.data
    return lifted_attempt((data or {}).get(STARTED), jobset.metadata.uid)


class GroupWriter:
    """Writes for groups.

    Args:
        client: sends the writes.
        events: is told of conditions that change.
        clock: time.
    """

    def __init__(self, client: rt.Client, events: rt.EventRecorder, clock: Clock) -> None:
        self._client = client
        self._events = events
        self._clock = clock

    async def release(self, jobset: JobSet, config_map: ConfigMap, released: int) -> None:
        """Write the value, unless a newer one is there by now.

        Raises:
            ConflictError: it changes faster than it can be written.
            NotFoundError: it was just deleted; it will be made anew.
        """
        data = {STARTED: started_value(jobset.metadata.uid, released)}
        for _ in range(_TRIES):
            try:
                await self._patch(config_map, data)
            except ConflictError:
                meta = config_map.metadata
                config_map = await self._client.get(ConfigMap, meta.namespace, meta.name)
                if lifted(jobset, config_map) >= released:
                    return
            else:
                return
        msg = f"{config_map.metadata.key} changed {_TRIES} times while it was being written"
        raise ConflictError(
            409, "Conflict", msg, verb="patch", target=f"configmaps {config_map.metadata.key}"
        )

    async def progress(
        self, jobset: JobSet, config_map: ConfigMap, attempt: int, started: int, expected: int
    ) -> None:
        """Say how many pods have started, if nothing is in the way; it only serves messages."""
        time = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        progress = Progress(started, expected, time)
        value = waiting_value(jobset.metadata.uid, attempt, progress)
        with suppress(ConflictError, NotFoundError):
            await self._patch(config_map, {WAITING: value})

    async def condition(self, jobset: JobSet, wanted: cond.DesiredCondition) -> None:
        """Set a condition, if it is not set; an event tells of the change.

        Raises:
            ConflictError: the JobSet changes faster than it can be written.
        """
        meta = jobset.metadata
        current: JobSet | None = jobset
        for _ in range(_TRIES):
            if current is None or current.metadata.uid != meta.uid:
                return
            if wanted.status and cond.finished(current.status.conditions) is not None:
                return
            draft = StatusDraft(current.status, self._clock.now())
            draft.set(wanted)
            write = draft.change()
            if not write.patch:
                return
            version = current.metadata.resource_version
            body = {"metadata": {"resourceVersion": version}, "status": write.patch}
            try:
                stored = await self._client.merge_patch(
                    JobSet, meta.namespace, meta.name, body, subresource="status"
                )
            except NotFoundError:
                return
            except ConflictError:
                current = await self._read_again(jobset)
                continue
            for event in write.events:
                self._events.event(stored, event.type_, event.reason, event.message)
            return
        msg = f"{meta.key} changed {_TRIES} times while its condition was being written"
        raise ConflictError(409, "Conflict", msg, verb="patch", target=f"jobsets {meta.key}")

    async def _read_again(self, jobset: JobSet) -> JobSet | None:
        try:
            return await self._client.get(JobSet, jobset.metadata.namespace, jobset.metadata.name)
        except NotFoundError:
            return None

    async def _patch(self, config_map: ConfigMap, data: dict[str, str]) -> None:
        meta = config_map.metadata
        await self._client.merge_patch(
            ConfigMap,
            meta.namespace,
            meta.name,
            {
                "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
                "data": data,
            },
        )
