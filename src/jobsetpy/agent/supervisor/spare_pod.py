"""Seat of the pod in a JobSet with spares: taken at each lift, or the pod is parked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

from jobsetpy.agent.protocol.wire_types import InPlaceRestart
from jobsetpy.agent.supervisor.part import Part, Services, Then
from jobsetpy.agent.supervisor.ranks import (
    ENDING_S,
    SAVING_AFTER_S,
    SeatEnvirons,
)
from jobsetpy.agent.supervisor.worker.rules import JoinNext, Phase
from jobsetpy.api import agent_keys
from jobsetpy.api.agent_reports import PARKED, PREPARED, READY, SAVING

if TYPE_CHECKING:
    from jobsetpy.agent.protocol.wire_types import JobSetStatus
    from jobsetpy.agent.supervisor.worker.starter import Starter


class SparePod(Part):
    """Chooses the environment of the pod's seat, and reports what the pod has in place of one.

    Args:
        services: what the supervisor's parts share.
        seats: the environments by seat.
    """

    def __init__(self, services: Services, seats: SeatEnvirons) -> None:
        self._services = services
        self._seats = seats
        self._taken = InPlaceRestart()
        self._parked = False
        self._told: str | None = None
        self._saves: asyncio.TimerHandle | None = None
        self._starter: Starter  # with the parts: from connect
        self._parts: Sequence[Part]

    def connect(self, starter: Starter, parts: Sequence[Part]) -> None:
        """Set who starts the worker, and the parts that prepare while the pod is parked."""
        self._starter = starter
        self._parts = parts

    def is_parked(self) -> bool:
        """Return True while the pod has reported and has no seat."""
        return self._parked

    def see_status(self, status: JobSetStatus) -> None:
        """Remember the assignment of seats, which arrives with the lift.

        A pod that comes after all seats have succeeded ends with 0: its Job waits for its index.
        """
        self._taken = status.in_place_restart
        if self._taken.job_sizes and self._seats.place.is_done(self._taken):
            self._services.act(self._services.worker.dispensable())

    def annotations(self) -> dict[str, str | None]:
        """Return the annotation about the pod's seat; a parked pod prepares its next start."""
        self._forget_saving()
        self._parked = self._seats.place.seat(self._taken) is None
        self._told = None
        if not self._parked:
            return {agent_keys.AGENT_STATE_ANNOTATION: None}
        self._starter.use(self._seats.parked)
        for part in self._parts:
            part.parked()
        self._told = self._state()
        return {agent_keys.AGENT_STATE_ANNOTATION: self._told}

    def _state(self) -> str:
        return READY if self._starter.ready else PARKED

    def report_standby(self) -> None:
        """Report a change of the standby process, if a group may wait for it.

        It waits for that of a parked pod, and of each running pod before it grows to its full size.
        """
        state: str | None = self._state()
        if not self._parked:
            if not self._taken.job_sizes or self._services.worker.phase is not Phase.RUNNING:
                return
            state = PREPARED if state == READY else None
        if state != self._told:
            self._told = state
            self._services.reporter.annotate({agent_keys.AGENT_STATE_ANNOTATION: state})

    def worker_started(self) -> None:
        """Report that nothing can be prepared, if that is so."""
        self.report_standby()

    def before_lift(self, epoch: int, then: Then) -> None:
        """Take the pod's seat; without one, join the next epoch and start no worker."""
        seats, log = self._seats, self._services.log
        seat = seats.place.seat(self._taken)
        if seat is None:
            log("parked: the pod has no seat", epoch=epoch)
            self._services.act([JoinNext()])
            return
        self._parked = False
        if seat != seats.place.own:
            log("the pod takes another seat", seat=str(seat), own=str(seats.place.own))
        try:
            seats.write_hosts(self._taken)
        except OSError as error:
            log("the file of hosts cannot be written", level="warning", error=str(error))
        self._starter.use(seats.of(seat, self._taken))
        then()

    def stopping(self, seconds: float, *, pod_ends: bool) -> None:
        """Report, in a moment, that the worker uses its grace period, so that it keeps its seat."""
        if self._saves is None:
            if pod_ends:
                seconds = max(ENDING_S, seconds)
            loop = asyncio.get_running_loop()
            self._saves = loop.call_later(SAVING_AFTER_S, self._report_saving, seconds)

    def _report_saving(self, seconds: float) -> None:
        stops = self._services.worker.phase in {Phase.STOPPING, Phase.ENDING}
        if stops and self._services.processes.running:
            text = f"{SAVING}{ceil(seconds)}"
            self._services.reporter.annotate({agent_keys.AGENT_STATE_ANNOTATION: text})

    def _forget_saving(self) -> None:
        if self._saves is not None:
            self._saves.cancel()
            self._saves = None
