"""Fields of a JobSet and of a pod that the agent reads: those that the barrier needs."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from jobsetpy.api import agent_keys
from jobsetpy.api.structs import Metadata, SeatLists


class Resource(msgspec.Struct, frozen=True):
    """Place of a kind in the REST API; the client's part of ``api.meta.ResourceInfo``."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True


class FailurePolicy(msgspec.Struct, frozen=True, rename="camel"):
    """``spec.failurePolicy`` of a JobSet."""

    restart_strategy: str = ""


class JobSetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a JobSet."""

    failure_policy: FailurePolicy | None = None


class InPlaceRestart(SeatLists, frozen=True, rename="camel"):
    """``status.inPlaceRestart`` of a JobSet."""

    def size(self, job: str, seats: int) -> int:
        """Return the number of seats of a Job; it has ``seats`` unless pods are missing."""
        return next((one.seats for one in self.job_sizes if one.job == job), seats)


_NO_RECORD = InPlaceRestart()


class JobSetStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``status`` of a JobSet; an epoch that is not set reads as 0."""

    synced_epoch: int = 0
    deprecated_epoch: int = 0
    in_place_restart: InPlaceRestart = _NO_RECORD


class JobSet(msgspec.Struct, frozen=True):
    """JobSet, as far as the agent reads it."""

    RESOURCE: ClassVar[Resource] = Resource(
        agent_keys.GROUP, agent_keys.VERSION, "JobSet", "jobsets"
    )

    metadata: Metadata
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()

    @property
    def restarts_in_place(self) -> bool:
        """Return True if the manager writes epochs into this JobSet's status."""
        policy = self.spec.failure_policy
        return policy is not None and policy.restart_strategy == agent_keys.IN_PLACE_RESTART


class PodAnnotations(
    msgspec.Struct, frozen=True, rename={"deadline": agent_keys.LOST_NODE_DEADLINE_ANNOTATION}
):
    """``metadata.annotations`` of a pod.

    Args:
        deadline: time after which the pod is given up if its node is unreachable; "" if never.
    """

    deadline: str = ""


class PodMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """``metadata`` of a pod."""

    name: str = ""
    deletion_timestamp: str | None = None
    annotations: PodAnnotations = PodAnnotations()


class Pod(msgspec.Struct, frozen=True):
    """Pod in the answer to a patch, as far as the agent reads it."""

    RESOURCE: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    metadata: PodMetadata
