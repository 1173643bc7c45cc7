"""Seat of a pod in a JobSet with spares: whose work its worker does, decided at each lift.

The manager publishes the assignment in the write that lifts the barrier (see
``reconcilers.restart_in_place.seats``): entries for seats that are held by another pod than that
with their completion index. A pod without a seat is parked: it joins the next epoch, prepares its
standby process, and waits.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from jobsetpy.agent.protocol.settings import number_of
from jobsetpy.agent.protocol.wire_types import TakenSeat
from jobsetpy.agent.supervisor.worker_settings import MAX_RANKS, worker_environs

READY: Final = "ready"
PARKED: Final = "parked"
SAVING: Final = "saving="
SAVING_AFTER_S: Final = 0.2
"""Seconds for which a worker may take to stop before the agent reports that it saves its work; less
than the manager waits for a missing pod."""

ENDING_S: Final = 30
"""Minimum of the reported seconds for a worker that stops because its pod ends."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Place of a pod in its Job.

    Args:
        uid: UID of the pod.
        job: name of its Job.
        index: its completion index.
        seats: number of seats of the Job.
        variables: variables of the worker with the completion index as value.
        master_job: name of the Job of the coordinator; "" without ranks.
        master_seat: seat of the coordinator.
    """

    uid: str
    job: str
    index: int
    seats: int
    variables: tuple[str, ...] = ()
    master_job: str = ""
    master_seat: int = 0

    def seat(self, taken: Sequence[TakenSeat]) -> int | None:
        """Return the pod's seat; ``None`` if it has none.

        Args:
            taken: the assignment in the state of the JobSet that lifts the barrier.
        """
        own = next((one.seat for one in taken if one.pod_uid == self.uid), None)
        if own is not None or self.index >= self.seats:
            return own
        lost = any((one.job, one.seat) == (self.job, self.index) for one in taken)
        return None if lost else self.index

    def master_address(self, taken: Sequence[TakenSeat]) -> str:
        """Return the address of the coordinator's pod; "" if it is the one with that index."""
        wanted = (self.master_job, self.master_seat)
        return next((one.address for one in taken if (one.job, one.seat) == wanted), "")


def load_place(environ: Mapping[str, str]) -> Place | None:
    """Read the place of the pod; ``None`` in a JobSet without spares.

    Raises:
        ConfigurationError: a value cannot be used; the message names the variable.
    """
    if not environ.get("WORKER_SEATS"):
        return None
    return Place(
        uid=environ.get("POD_UID", ""),
        job=environ.get("WORKER_JOB", ""),
        index=number_of(environ, "WORKER_POD_INDEX", 0, 0, MAX_RANKS),
        seats=number_of(environ, "WORKER_SEATS", 1, 0, MAX_RANKS),
        variables=tuple(filter(None, environ.get("WORKER_SEAT_VARIABLES", "").split(","))),
        master_job=environ.get("WORKER_MASTER_JOB", ""),
        master_seat=number_of(environ, "WORKER_MASTER_SEAT", 0, 0, MAX_RANKS),
    )


class SeatEnvirons:
    """Environment of the worker's processes, by the seat of their pod.

    Args:
        place: place of the pod.
        common: variables that the processes share.
        environ: the supervisor's own variables, as of :func:`worker_environs`.
        processes: number of processes in this pod.

    Raises:
        ConfigurationError: a value is missing, or the values are inconsistent.
    """

    def __init__(
        self,
        place: Place,
        common: dict[bytes, bytes],
        environ: Mapping[str, str],
        processes: int,
    ) -> None:
        self.place = place
        self._common = common
        self._environ = environ
        self._processes = processes
        self._of(0, "")  # mistakes should end the pod before it waits

    def of(self, seat: int, taken: Sequence[TakenSeat]) -> list[Mapping[bytes, bytes]]:
        """Return the environment of each process of a seat's worker."""
        return self._of(seat, self.place.master_address(taken))

    @property
    def parked(self) -> list[Mapping[bytes, bytes]]:
        """Environment in which the standby processes of a parked pod prepare: without a rank."""
        return [
            {name: value for name, value in environ.items() if name != b"RANK"}
            for environ in self._of(min(self.place.index, self.place.seats - 1), "")
        ]

    def _of(self, seat: int, address: str) -> list[Mapping[bytes, bytes]]:
        names = [os.fsencode(name) for name in self.place.variables]
        follows = {name: str(seat).encode() for name in names if name in self._common}
        own = {**self._environ, "WORKER_POD_INDEX": str(seat)}
        if address:
            own["MASTER_ADDR"] = address
        return worker_environs(self._common | follows, own, self._processes)
