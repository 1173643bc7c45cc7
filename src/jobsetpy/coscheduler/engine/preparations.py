"""Writes that prepare binds: gates, the times of gangs, and marks, in order of their importance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, assert_never

import attrs

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock
from jobsetpy.coscheduler import metrics
from jobsetpy.coscheduler.engine.pods import GroupPod
from jobsetpy.coscheduler.engine.report import Reporter
from jobsetpy.coscheduler.engine.writes import Writes
from jobsetpy.coscheduler.gang_scheduler.state import KeepTime, Ungate
from jobsetpy.errors import ConflictError, JobSetPyError, LeadershipLostError, NotFoundError
from jobsetpy.reconcilers.coscheduling.pod_writer import patch_pod

_UNGATE_AGAIN_S: Final = 1.0
"""Delay in seconds after a gate could not be removed; the client has already retried then."""


@attrs.frozen
class Mark:
    """Mark on a scheduling failure that was seen, so that the next one differs."""

    pod: GroupPod
    at: int
    message: str


_Work = Ungate | KeepTime | Mark


class Preparations:
    """Queue of these writes. Each worker runs :meth:`write`.

    Args:
        client: API client for gates.
        pods: pods of gangs by UID.
        report: reporter of failures.
        clock: clock for all times.
        failed: called with the UID of a pod whose gate could not be removed.

    Attributes:
        closed: nothing more is written.
    """

    def __init__(
        self,
        client: rt.Client,
        pods: Mapping[str, GroupPod],
        report: Reporter,
        clock: Clock,
        failed: Callable[[str], None],
    ) -> None:
        self._client = client
        self._writes = Writes(client)
        self._pods = pods
        self._report = report
        self._clock = clock
        self._failed = failed
        self._queue: asyncio.PriorityQueue[tuple[bool, int, float, _Work]] = asyncio.PriorityQueue()
        self._number = 0
        self.closed = False

    def add(self, work: _Work) -> None:
        """Queue a write; gates come first."""
        self._number += 1
        is_late = not isinstance(work, Ungate)
        self._queue.put_nowait((is_late, self._number, self._clock.monotonic(), work))

    async def write(self) -> None:
        """Execute queued writes until cancelled."""
        while True:
            _, _, since, work = await self._queue.get()
            if self.closed:
                continue
            match work:
                case Ungate():
                    await self._ungate(work, since)
                case KeepTime():
                    await self._keep_time(work)
                case Mark(pod, at, message):
                    # If it fails, the next failure is seen later, or the gang's timeout ends its
                    # attempt.
                    with suppress(JobSetPyError):
                        await self._writes.mark(pod, at, message)
                case _:
                    assert_never(work)

    async def _ungate(self, ungate: Ungate, since: float) -> None:
        pod = self._pods.get(ungate.uid)
        if pod is None:
            return
        meta = pod.metadata
        try:
            await patch_pod(self._client, meta.namespace, meta.name, meta.uid, ungate=True)
            metrics.gate_removed(self._clock.monotonic() - since)
        except (NotFoundError, LeadershipLostError):
            pass
        except JobSetPyError as error:
            self._report.write_failed("a gate could not be removed", ungate.group, error)
            await asyncio.sleep(_UNGATE_AGAIN_S)
            self._failed(ungate.uid)

    async def _keep_time(self, keep: KeepTime) -> None:
        pod = self._pods.get(keep.uid)
        if pod is None:  # the time is lost with this process
            return
        try:
            await self._writes.keep_time(pod, keep.since)
        except (NotFoundError, ConflictError, LeadershipLostError):
            pass  # the pod is gone or replaced, or another replica leads
        except JobSetPyError as error:
            self._report.write_failed("the time of a gang could not be kept", keep.group, error)
