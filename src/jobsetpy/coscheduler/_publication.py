"""Publication of a coscheduler and its settings in an annotation of a Lease.

The Lease is renewed while a coscheduler leads, so that managers notice when it is missing. It is in
the namespace of the coscheduler, where users have no write access.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock
from jobsetpy.api import keys
from jobsetpy.api.coordination import Lease
from jobsetpy.api.timestamps import micros_text
from jobsetpy.errors import AlreadyExistsError, JobSetPyError, NotFoundError
from jobsetpy.observability.logging import get_logger
from jobsetpy.reconcilers.coscheduling.published import CoschedulerState

RENEWED_S: Final = 5.0
"""Interval in seconds between renewals."""
_RETRY_S: Final = 1.0
"""Delay in seconds after a failed write."""
LAPSES_S: Final = 15
"""Duration of the Lease in seconds."""


class Publisher:
    """Writer of the Lease.

    Args:
        client: API client of the leader.
        knows: set once all existing objects are known.
        namespace: namespace of the Lease.
        clock: clock for all times.
        state: published settings.
    """

    def __init__(
        self,
        client: rt.Client,
        knows: asyncio.Event,
        namespace: str,
        *,
        clock: Clock,
        state: CoschedulerState,
    ) -> None:
        self._client = client
        self._knows = knows
        self._namespace = namespace
        self._clock = clock
        self._state = state

    async def run(self) -> None:
        """Renew the Lease once all objects are known, until cancelled.

        The Lease is created if it is missing at the start. If it is deleted later, the coscheduler
        is being removed, and the Lease is not created again.
        """
        make = True
        await self._knows.wait()
        while True:
            try:
                await self._write(make=make)
                make, pause_s = False, RENEWED_S
            except JobSetPyError as error:
                pause_s = _RETRY_S
                get_logger("coscheduler").warning(
                    "the coscheduler's Lease could not be written", error=str(error)
                )
            await asyncio.sleep(pause_s)

    async def _write(self, *, make: bool) -> None:
        namespace, name = self._namespace, keys.COSCHEDULER_LEASE
        metadata: dict[str, Any] = {
            "annotations": {keys.COSCHEDULER_QUEUE_ANNOTATION: self._state.encoded()}
        }
        body = {
            "metadata": metadata,
            "spec": {
                "holderIdentity": socket.gethostname(),
                "leaseDurationSeconds": LAPSES_S,
                "renewTime": micros_text(self._clock.now()),
            },
        }
        try:
            await self._client.merge_patch(Lease, namespace, name, body)
        except NotFoundError:
            if not make:
                return
            whole = {**body, "metadata": {**metadata, "name": name}}
            try:
                await self._client.create(Lease, namespace, whole)
            except AlreadyExistsError:
                await self._client.merge_patch(Lease, namespace, name, body)
