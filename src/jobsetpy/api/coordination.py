"""Slice of coordination.k8s.io/v1: the Lease by which processes agree on a leader."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from jobsetpy.api._wire import wire
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource


@wire
class LeaseSpec:
    """Holder and duration of a Lease; times are from the holder's own wall clock."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


@resource("coordination.k8s.io", "v1", "Lease", "leases")
@wire
class Lease:
    """A claim that expires unless it is renewed."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()
