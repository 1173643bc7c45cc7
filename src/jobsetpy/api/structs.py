"""Parts of objects as structs, for programs that start often: the agent and the plugin.

The manager's models are attrs classes with schemas, whose import alone takes several milliseconds.
"""

from __future__ import annotations

import msgspec


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Identity of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class TakenSeat(msgspec.Struct, frozen=True, rename={"pod_uid": "podUID"}):
    """Seat that is held by another pod than that with its completion index."""

    job: str
    seat: int
    pod_uid: str
    address: str = ""


class TakenJob(msgspec.Struct, frozen=True):
    """Job whose seats are all held by the pods of another one."""

    job: str
    holder: str


class JobSize(msgspec.Struct, frozen=True):
    """Job that works with fewer seats.

    Args:
        job: name of the Job.
        seats: number of its seats.
        done: True if all of them have succeeded.
        missing: number of seats that it would have in addition.
    """

    job: str
    seats: int
    done: bool = False
    missing: int = 0


class SeatLists(msgspec.Struct, frozen=True, rename="camel"):
    """Assignment of seats in ``status.inPlaceRestart`` of a JobSet."""

    taken_seats: tuple[TakenSeat, ...] = ()
    taken_jobs: tuple[TakenJob, ...] = ()
    job_sizes: tuple[JobSize, ...] = ()
