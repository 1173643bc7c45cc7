"""Seat of a pod in a JobSet with spares: whose work its worker does, decided at each lift.

The manager publishes the assignment in the write that lifts the barrier (see
``reconcilers.restart_in_place.spares.assign_jobs``): entries for seats that are held by another pod
than that with their completion index, and for Jobs whose seats are held by another Job. A pod
without a seat is parked: it joins the next epoch, prepares its standby process, and waits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from jobsetpy.agent.protocol.settings import ConfigurationError, number_of
from jobsetpy.agent.protocol.wire_types import InPlaceRestart
from jobsetpy.agent.supervisor.worker.epoch_file import write_new
from jobsetpy.agent.supervisor.worker.settings import MAX_RANKS, encoded, worker_environs

SAVING_AFTER_S: Final = 0.2
"""Seconds for which a worker may take to stop before the agent reports that it saves its work; less
than the manager waits for a missing pod."""

ENDING_S: Final = 30
"""Minimum of the reported seconds for a worker that stops because its pod ends."""

HOSTS_VARIABLE: Final = "JOBSET_HOSTFILE"
"""Variable with the path of the file of hosts in the order of their ranks."""


_NO_SIZES: Final[Mapping[str, str]] = {}
_HOSTS: Final = re.compile(r"([^=]+)=([0-9]{1,7})x([0-9]{1,7})x([0-9]{1,2})", re.ASCII)


class Seat(NamedTuple):
    """Place in the training world, within a ReplicatedJob: index of the Job, and of the pod."""

    job: int
    pod: int

    def __str__(self) -> str:
        return f"{self.job}-{self.pod}"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Place of a pod in its Job.

    Args:
        uid: UID of the pod.
        job: name of its Job.
        index: its completion index.
        seats: number of seats of the Job.
        job_index: index of the Job.
        jobs: number of Jobs of its ReplicatedJob that have seats; 0 if all have their own.
        variables: variables of the worker with the completion index as value.
        job_variables: variables of the worker with an index of the Job as value.
        count_variables: variables with the number of Jobs of the ReplicatedJob.
        address_variables: variables with the address of the first rank's pod.
        master_job: name of the Job of the coordinator; "" without ranks.
        master_seat: seat of the coordinator.
        domain: domain of the names of pods; "" if they have none.
    """

    uid: str
    job: str
    index: int
    seats: int
    job_index: int = 0
    jobs: int = 0
    variables: tuple[str, ...] = ()
    job_variables: tuple[str, ...] = ()
    count_variables: tuple[str, ...] = ()
    address_variables: tuple[str, ...] = ()
    master_job: str = ""
    master_seat: int = 0
    domain: str = ""

    @property
    def own(self) -> Seat:
        """Seat that the pod has if no other pod holds it; a spare pod's does not exist."""
        return Seat(self.job_index, self.index)

    def seat(self, taken: InPlaceRestart) -> Seat | None:
        """Return the pod's seat; ``None`` if it has none.

        Args:
            taken: the assignment in the state of the JobSet that lifts the barrier.
        """
        job = self._seats_of(taken)
        if job is None:
            return None
        own = next((one.seat for one in taken.taken_seats if one.pod_uid == self.uid), None)
        if own is not None:
            return Seat(job, own)
        lost = any((one.job, one.seat) == (self.job, self.index) for one in taken.taken_seats)
        seats = min(self.seats, taken.size(self.job, self.seats))
        return None if lost or self.index >= seats else Seat(job, self.index)

    def is_done(self, taken: InPlaceRestart) -> bool:
        """Return True if the pod has no seat, and those of its Job have all succeeded."""
        done = any(one.job == self.job and one.done for one in taken.job_sizes)
        return done and self.seat(taken) is None

    def _seats_of(self, taken: InPlaceRestart) -> int | None:
        """Return the index of the Job whose seats the pods of the own one have; or ``None``."""
        held = next((one.job for one in taken.taken_jobs if one.holder == self.job), "")
        if held:
            return int(held.rpartition("-")[2])
        given_up = any(one.job == self.job for one in taken.taken_jobs)
        return None if given_up or 0 < self.jobs <= self.job_index else self.job_index

    def master_address(self, taken: InPlaceRestart) -> str:
        """Return the address of the coordinator's pod; "" if it is the one with that index."""
        return self.addresses(taken)(self.master_job, self.master_seat) if self.master_job else ""

    def addresses(self, taken: InPlaceRestart) -> Callable[[str, int], str]:
        """Return a lookup by Job and seat of a pod's address; "" if it is the one with the indexes.

        Args:
            taken: the assignment.
        """
        holders = {one.job: one.holder for one in taken.taken_jobs}
        found = {(one.job, one.seat): one.address for one in taken.taken_seats}

        def address_of(job: str, seat: int) -> str:
            holder = holders.get(job, job)
            name = "" if holder == job else f"{holder}-{seat}.{self.domain}"
            return found.get((holder, seat)) or name

        return address_of


def load_place(environ: Mapping[str, str]) -> Place:
    """Read the place of the pod, in a JobSet with spares.

    Raises:
        ConfigurationError: a value cannot be used; the message names the variable.
    """

    def words(name: str) -> tuple[str, ...]:
        return tuple(filter(None, environ.get(name, "").split(",")))

    return Place(
        uid=environ.get("POD_UID", ""),
        job=environ.get("WORKER_JOB", ""),
        index=number_of(environ, "WORKER_POD_INDEX", 0, 0, MAX_RANKS),
        seats=number_of(environ, "WORKER_SEATS", 1, 0, MAX_RANKS),
        job_index=number_of(environ, "WORKER_JOB_INDEX", 0, 0, MAX_RANKS),
        jobs=number_of(environ, "WORKER_SEAT_JOBS", 0, 0, MAX_RANKS),
        variables=words("WORKER_SEAT_VARIABLES"),
        job_variables=words("WORKER_SEAT_JOB_VARIABLES"),
        count_variables=words("WORKER_SEAT_COUNT_VARIABLES"),
        address_variables=words("WORKER_SEAT_ADDRESS_VARIABLES"),
        master_job=environ.get("WORKER_MASTER_JOB", ""),
        master_seat=number_of(environ, "WORKER_MASTER_SEAT", 0, 0, MAX_RANKS),
        domain=environ.get("MASTER_ADDR", "").partition(".")[2],
    )


def _jobs_of(hosts: str) -> list[tuple[str, int, int, int]]:
    """Read ``WORKER_HOSTS``, as admission writes it; an empty list without ranks.

    Returns:
        Name, number of Jobs with seats, seats and processes of each ReplicatedJob.

    Raises:
        ConfigurationError: it cannot be read.
    """
    jobs = []
    for part in hosts.split(",") if hosts else ():
        found = _HOSTS.fullmatch(part)
        if found is None:
            raise ConfigurationError(f"WORKER_HOSTS must be NAME=JOBSxPODSxPROCESSES: {hosts!r}")
        jobs.append((found[1], int(found[2]), int(found[3]), int(found[4])))
    return jobs


class _Ranked(NamedTuple):
    """Seat among those of all Jobs, which are in the order of their ranks.

    Args:
        job: name of its Job.
        seat: number of the seat.
        processes: number of processes of its pod, each of which has a rank.
    """

    job: str
    seat: int
    processes: int


class SeatEnvirons:
    """Environment of the worker's processes, by the seat of their pod; and the file of all hosts.

    Args:
        place: place of the pod.
        common: variables that the processes share.
        environ: the supervisor's own variables, as of :func:`worker_environs`.
        hosts_file: path of the file, for programs that read one; it is not written without ranks.

    Raises:
        ConfigurationError: a value is missing, or the values are inconsistent.
    """

    def __init__(
        self,
        place: Place,
        common: dict[bytes, bytes],
        environ: Mapping[str, str],
        hosts_file: str,
    ) -> None:
        self.place = place
        self._jobs = _jobs_of(environ.get("WORKER_HOSTS", ""))
        hosts = encoded({HOSTS_VARIABLE: hosts_file}) if self._jobs else {}
        self._common = common | hosts
        self._environ = environ
        self._hosts_file = hosts_file
        self._written: InPlaceRestart | None = None
        self._of(Seat(self._known_job, 0), "")  # mistakes should end the pod before it waits

    def of(self, seat: Seat, taken: InPlaceRestart) -> list[Mapping[bytes, bytes]]:
        """Return the environment of each process of a seat's worker.

        Raises:
            ValueError: the seat does not exist in this epoch.
        """
        if not taken.job_sizes or not self._jobs:
            return self._of(seat, self.place.master_address(taken))
        seats = self._seats(taken)
        address = next(self._hosts(seats, taken)).partition(" ")[0]
        return self._of(seat, address, self._sized(seat, seats), self._job_indexes(seats))

    def _sized(self, seat: Seat, seats: Sequence[_Ranked]) -> dict[str, str]:
        """Return the supervisor's variables about ranks in an epoch with fewer seats.

        Ranks are then counted, as the numbers of seats differ between Jobs.
        """
        job = f"{self.place.job.rpartition('-')[0]}-{seat.job}"
        at = [(one.job, one.seat) for one in seats].index((job, seat.pod))
        return {
            "WORKER_WORLD_SIZE": str(sum(one.processes for one in seats)),
            "WORKER_FIRST_RANK": str(sum(one.processes for one in seats[:at])),
            "WORKER_MASTER_RANK": "0",
            "WORKER_JOB_PODS": "1",
            "WORKER_JOB_INDEX": "0",
            "WORKER_POD_INDEX": "0",
        }

    def _job_indexes(self, seats: Sequence[_Ranked]) -> list[int]:
        """Return the indexes of the Jobs of the own ReplicatedJob that have seats."""
        own = self.place.job.rpartition("-")[0]
        names = (job.rpartition("-") for job in {one.job for one in seats})
        return sorted(int(index) for name, _, index in names if name == own)

    def write_hosts(self, taken: InPlaceRestart) -> None:
        """Write the file of hosts unless it is current.

        Raises:
            OSError: the file cannot be written.
        """
        if self._jobs and taken != self._written:
            half = f"{self._hosts_file}.half"
            hosts = self._hosts(self._seats(taken), taken)
            write_new(half, "".join(f"{line}\n" for line in hosts))
            os.replace(half, self._hosts_file)  # noqa: PTH105
            self._written = taken

    def _seats(self, taken: InPlaceRestart) -> list[_Ranked]:
        """Return all seats in the order of the ranks."""
        jobset = self._environ.get("JOBSET_NAME", "")
        seats = [
            _Ranked(job, seat, processes)
            for name, jobs, pods, processes in self._jobs
            for job in (f"{jobset}-{name}-{index}" for index in range(jobs))
            for seat in range(taken.size(job, pods))
        ]
        first = (self.place.master_job, self.place.master_seat)
        begin = next((at for at, one in enumerate(seats) if (one.job, one.seat) == first), 0)
        return [*seats[begin:], *seats[:begin]]

    def _hosts(self, seats: Sequence[_Ranked], taken: InPlaceRestart) -> Iterator[str]:
        """Yield address and number of processes of each seat's pod, in the order of the ranks."""
        address_of = self.place.addresses(taken)
        for job, seat, processes in seats:
            address = address_of(job, seat) or f"{job}-{seat}.{self.place.domain}"
            yield f"{address} slots={processes}"

    @property
    def parked(self) -> list[Mapping[bytes, bytes]]:
        """Environment in which the standby processes of a parked pod prepare: without a rank."""
        index = min(self.place.index, self.place.seats - 1)
        return [
            {name: value for name, value in environ.items() if name != b"RANK"}
            for environ in self._of(Seat(self._known_job, index), "")
        ]

    @property
    def _known_job(self) -> int:
        """Index of the Job, or of one with seats in place of a spare one."""
        place = self.place
        return min(place.job_index, place.jobs - 1) if place.jobs else place.job_index

    def _of(
        self,
        seat: Seat,
        address: str,
        sized: Mapping[str, str] = _NO_SIZES,
        jobs: Sequence[int] = (),
    ) -> list[Mapping[bytes, bytes]]:
        follows: dict[str, object] = dict.fromkeys(self.place.variables, seat.pod)
        job = jobs.index(seat.job) if jobs else seat.job
        for name in self.place.job_variables:
            value = self._common.get(os.fsencode(name), b"")
            if value.isdigit():
                follows[name] = int(value) + job - self.place.job_index
        if jobs:
            follows |= dict.fromkeys(self.place.count_variables, len(jobs))
        for name in self.place.address_variables if address else ():
            _, colon, port = os.fsdecode(self._common.get(os.fsencode(name), b"")).partition(":")
            follows[name] = f"{address}{colon}{port}"
        own = {
            **self._environ,
            "WORKER_JOB_INDEX": str(seat.job),
            "WORKER_POD_INDEX": str(seat.pod),
        }
        own |= sized
        if address:
            own["MASTER_ADDR"] = address
        changed = {
            os.fsencode(name): str(value).encode()
            for name, value in follows.items()
            if os.fsencode(name) in self._common
        }
        return worker_environs(self._common | changed, own)
