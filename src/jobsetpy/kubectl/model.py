"""Fields of a JobSet that commands read.

The manager's models are attrs classes with schemas and all that the rules need, whose import takes
longer than everything else that a question to the API server needs. These are the same objects, cut
down to what is shown; the rules that are asked take either.
"""

from __future__ import annotations

import msgspec


class FailurePolicy(msgspec.Struct, frozen=True, rename="camel"):
    """``spec.failurePolicy``."""

    max_restarts: int = 0
    restart_strategy: str = ""


class ReplicatedJob(msgspec.Struct, frozen=True, rename="camel"):
    """One of ``spec.replicatedJobs``."""

    name: str = ""
    replicas: int = 1


class JobSetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a JobSet."""

    failure_policy: FailurePolicy | None = None
    replicated_jobs: tuple[ReplicatedJob, ...] = ()


class TakenSeat(msgspec.Struct, frozen=True, rename={"pod_uid": "podUID"}):
    """One of ``status.inPlaceRestart.takenSeats``."""

    job: str = ""
    seat: int = 0
    pod_uid: str = ""


class TakenJob(msgspec.Struct, frozen=True):
    """One of ``status.inPlaceRestart.takenJobs``."""

    job: str = ""
    holder: str = ""


class InPlaceRestart(msgspec.Struct, frozen=True, rename="camel"):
    """``status.inPlaceRestart``."""

    restarts: int = 0
    uncounted_epochs: int = 0
    ready_spares: int | None = None
    taken_seats: tuple[TakenSeat, ...] = ()
    taken_jobs: tuple[TakenJob, ...] = ()


class ReplicatedJobStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One of ``status.replicatedJobsStatus``."""

    job_restarts: tuple[int, ...] = ()
    job_restarts_count_towards_max: tuple[int, ...] = ()


class JobSetStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``status`` of a JobSet."""

    restarts: int = 0
    restarts_count_towards_max: int = 0
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = ()
    synced_epoch: int = 0
    deprecated_epoch: int = 0
    in_place_restart: InPlaceRestart | None = None
    state: str = ""


class JobSet(msgspec.Struct, frozen=True):
    """The plugin's slice of a JobSet."""

    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()
