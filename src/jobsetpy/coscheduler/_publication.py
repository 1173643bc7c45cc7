"""Publication of the state of the queue, empty or not, in an annotation of a Lease.

Managers create pods without gates while it is (``reconcilers.coscheduling.queue_state``). The Lease
is renewed while a coscheduler leads, so that the state expires with it. It is in the namespace of
the coscheduler, where users have no write access.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

import msgspec

from jobsetpy import aio
from jobsetpy import runtime as rt
from jobsetpy.aio import Clock
from jobsetpy.api import keys
from jobsetpy.api.coordination import Lease
from jobsetpy.api.timestamps import micros_text
from jobsetpy.coscheduler.engine.engine import Engine
from jobsetpy.errors import AlreadyExistsError, JobSetPyError, NotFoundError
from jobsetpy.observability.logging import get_logger
from jobsetpy.reconcilers.coscheduling.queue_state import QueueState

RENEWED_S: Final = 5.0
"""Interval in seconds between renewals without changes."""
LAPSES_S: Final = 15
"""Duration of the Lease in seconds: managers ignore the state after it without a renewal."""
_PAUSE_S: Final = 0.1


class Publisher:
    """Writer of the Lease.

    Args:
        client: API client of the leader.
        engine: source of the state.
        namespace: namespace of the Lease.
        clock: clock for all times.
        state: published fields that never change.
    """

    def __init__(
        self,
        client: rt.Client,
        engine: Engine,
        namespace: str,
        *,
        clock: Clock,
        state: QueueState,
    ) -> None:
        self._client = client
        self._engine = engine
        self._namespace = namespace
        self._clock = clock
        self._state = state
        self._published: QueueState | None = None
        self._published_at = 0.0
        self._log = get_logger("coscheduler")

    async def run(self) -> None:
        """Publish each change once all objects are known, until cancelled.

        The Lease is created if it is missing at the start. If it is deleted later, the coscheduler
        is being removed, and the Lease is not created again.
        """
        make = True
        await self._engine.knows.wait()
        while True:
            self._engine.changed.clear()
            waiting = not self._engine.gang_scheduler.queue_is_empty()
            state = msgspec.structs.replace(self._state, waiting=waiting)
            make = not await self._publish(state, make=make) and make
            due_s = self._published_at + RENEWED_S - self._clock.monotonic()
            await aio.sleep_or(self._engine.changed, max(_PAUSE_S, due_s))
            await asyncio.sleep(_PAUSE_S)

    async def _publish(self, state: QueueState, *, make: bool) -> bool:
        """Write the Lease if the state is new or renewal is due; return whether it was written."""
        now = self._clock.monotonic()
        if state == self._published and now - self._published_at < RENEWED_S:
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
        self._published, self._published_at = state, now
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
