"""Tells managers whether groups wait, and what room there is: an annotation of a Lease.

Managers make pods without gates while nobody waits (``domain.coscheduling.queue_state``). The Lease
is renewed while a coscheduler leads, so that what is told counts only as long as one does. It is in
the coscheduler's own namespace, where users write nothing.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

from jobsetpy import aio
from jobsetpy import runtime as rt
from jobsetpy.aio import Clock, LoopClock
from jobsetpy.api import keys
from jobsetpy.api.coordination import Lease
from jobsetpy.api.timestamps import micros_text
from jobsetpy.coscheduler._engine import Engine
from jobsetpy.domain.coscheduling.capacity import Capacity
from jobsetpy.domain.coscheduling.queue_state import QueueState
from jobsetpy.domain.coscheduling.vacancies import LabelValues, Summary, Vacancies
from jobsetpy.errors import AlreadyExistsError, JobSetPyError, NotFoundError
from jobsetpy.observability.logging import get_logger

RENEWED_S: Final = 5.0
"""How often the Lease is renewed when nothing changes."""
LAPSES_S: Final = 15
"""What is told counts for so long."""
_ROOM_S: Final = 1.0
"""How often other room is told of at most. That groups wait, or no longer do, is told at once."""
_PAUSE_S: Final = 0.1
_SLICE: Final = 200
"""Nodes that are looked at without a pause."""


class Publisher:
    """Keeps the Lease.

    Args:
        client: the leader's.
        engine: what is told of.
        namespace: of the Lease.
        clock: time.
        scheduler_name, member_resource: see ``QueueState``.
    """

    def __init__(
        self,
        client: rt.Client,
        engine: Engine,
        namespace: str,
        *,
        clock: Clock | None = None,
        scheduler_name: str = "",
        member_resource: bool = False,
    ) -> None:
        self._client = client
        self._engine = engine
        self._namespace = namespace
        self._clock = clock or LoopClock()
        self._scheduler_name = scheduler_name
        self._member_resource = member_resource
        self._told: QueueState | None = None
        self._told_at = self._looked_at = 0.0
        self._log = get_logger("coscheduler")

    async def run(self) -> None:
        """Tell what changes, until cancelled.

        A Lease that is missing at the beginning is made. If it goes later the coscheduler is being
        removed, and is no longer told of.
        """
        make, changed = True, False
        while True:
            self._engine.changed.clear()
            if self._is_due():
                self._looked_at, changed = self._clock.monotonic(), False
                make = not await self._tell(await self._state(), make=make) and make
            wait_s = _ROOM_S if changed else RENEWED_S
            changed = await aio.sleep_or(self._engine.changed, wait_s) or changed
            await asyncio.sleep(_PAUSE_S)

    def _is_due(self) -> bool:
        told = self._told
        passed_s = self._clock.monotonic() - self._looked_at
        return told is None or told.waiting != self._waiting() or passed_s >= _ROOM_S

    def _waiting(self) -> bool:
        return not self._engine.planner.nobody_waits()

    async def _state(self) -> QueueState:
        engine = self._engine
        wanted = sum(number for _, number in engine.planner.wanting())
        vacancies: Vacancies | None = Vacancies()
        if not self._waiting():
            capacity = engine.capacity
            vacancies = None if capacity is None else await self._vacancies(capacity.room)
        return QueueState(
            waiting=self._waiting(),
            vacancies=vacancies,
            holds=max(0, engine.holds - wanted),
            scheduler_name=self._scheduler_name,
            member_resource=self._member_resource,
        )

    async def _vacancies(self, capacity: Capacity) -> Vacancies:
        """What nodes have left when all groups that are on their way are placed."""
        labels, found = LabelValues(), []
        for room, free in capacity.rooms():
            labels.add(room)
            found.append((room, free))
            if len(found) % _SLICE == 0:
                await asyncio.sleep(0)
        summary = Summary(labels.told())
        for at, (room, free) in enumerate(found, 1):
            summary.add(room, free)
            if at % _SLICE == 0:
                await asyncio.sleep(0)
        vacancies = summary.vacancies()
        for group, number in self._engine.planner.wanting():
            shapes = capacity.unplaced(group)
            if shapes:
                shape = max(shapes, key=lambda each: shapes[each])
                # One that does not fit needs all there is.
                vacancies = vacancies.without(shape, number) or Vacancies()
            await asyncio.sleep(0)
        return vacancies

    async def _tell(self, state: QueueState, *, make: bool) -> bool:
        """Write it if it is new, or the Lease is to be renewed; whether it was written."""
        now = self._clock.monotonic()
        if state == self._told and now - self._told_at < RENEWED_S:
            return False
        stamp = micros_text(self._clock.now())
        body: dict[str, Any] = {
            "metadata": {"annotations": {keys.COSCHEDULER_QUEUE_ANNOTATION: state.encoded()}},
            "spec": {
                "holderIdentity": socket.gethostname(),
                "leaseDurationSeconds": LAPSES_S,
                "renewTime": stamp,
            },
        }
        try:
            await self._write(body, make=make)
        except JobSetPyError as error:
            self._log.warning("the queue's Lease could not be written", error=str(error))
            return False
        self._told, self._told_at = state, now
        return True

    async def _write(self, body: dict[str, Any], *, make: bool) -> None:
        namespace, name = self._namespace, keys.COSCHEDULER_LEASE
        try:
            await self._client.merge_patch(Lease, namespace, name, body)
        except NotFoundError:
            if not make:
                return
            whole = {**body, "metadata": {**body["metadata"], "name": name}}
            try:
                await self._client.create(Lease, namespace, whole)
            except AlreadyExistsError:
                await self._client.merge_patch(Lease, namespace, name, body)
