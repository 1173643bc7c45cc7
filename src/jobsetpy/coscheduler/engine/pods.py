"""Fields of a pod that coscheduling reads, and their conversion for the gang scheduler.

Any pod with the two labels counts, with or without a JobSet.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

import msgspec

from jobsetpy.api import keys
from jobsetpy.api._wire import field, wire
from jobsetpy.api.child_pod import SchedulingGate
from jobsetpy.api.meta import Condition, ResourceInfo, resource
from jobsetpy.coscheduler.gang_scheduler.state import SeenPod
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey
from jobsetpy.reconcilers.coscheduling.requests import positive


@wire
class GroupLabels:
    """Labels of pods in gangs."""

    name: str = field(default="", name=keys.POD_GROUP_NAME)
    minimum: str = field(default="", name=keys.POD_GROUP_MIN_AVAILABLE)
    jobset: str = field(default="", name=keys.JOBSET_NAME)
    jobset_uid: str = field(default="", name=keys.JOBSET_UID)


@wire
class GroupNotes:
    """Annotations of pods in gangs."""

    timeout: str = field(default="", name=keys.COSCHEDULING_TIMEOUT_ANNOTATION)


@wire
class GroupPodMeta:
    """Identity, age and gang of a pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: GroupLabels = GroupLabels()
    annotations: GroupNotes = GroupNotes()


@wire
class GroupPodSpec:
    """Fields that scheduling reads and sets."""

    node_name: str = ""
    priority: int | None = None
    scheduling_gates: tuple[SchedulingGate, ...] = ()


@wire
class GroupPodStatus:
    """Phase and conditions of a pod."""

    phase: str = ""
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] = ()


@resource("", "v1", "Pod", "pods")
@wire
class GroupPod:
    """Pod that may be in a gang."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: GroupPodMeta = GroupPodMeta()
    spec: GroupPodSpec = GroupPodSpec()
    status: GroupPodStatus = GroupPodStatus()


PathPart = Annotated[str, msgspec.Meta(pattern=r"^(?!\.\.?$)[^/?#%]+$")]
"""Value of a request that becomes a part of a path."""


class Preemptor(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of the pod that others would be deleted for, as the scheduler sends it."""

    namespace: PathPart
    name: PathPart
    uid: str
    labels: GroupLabels = GroupLabels()


def attempt_of(pod: GroupPod) -> PodGroupKey | None:
    """Return the key of its gang; ``None`` if it has none."""
    name = pod.metadata.labels.name
    return PodGroupKey(pod.metadata.namespace, name) if name else None


def seen_pod(pod: GroupPod) -> SeenPod | None:
    """Return the pod as the gang scheduler reads it; ``None`` if it is not in a gang."""
    meta, spec = pod.metadata, pod.spec
    group = attempt_of(pod)
    if group is None:
        return None
    timeout = positive(meta.annotations.timeout)
    created = meta.creation_timestamp
    return SeenPod(
        group=group,
        name=meta.name,
        uid=meta.uid,
        member=Member(
            created=created.timestamp() if created is not None else 0.0,
            min_available=positive(meta.labels.minimum) or 1,
            priority=spec.priority or 0,
            timeout_s=float(timeout) if timeout is not None else None,
            bound=bool(spec.node_name),
            blocked=bool(spec.scheduling_gates),
        ),
        ended=meta.deletion_timestamp is not None or pod.status.phase in {"Succeeded", "Failed"},
    )


def found_no_node(pod: GroupPod) -> bool:
    """Return whether the scheduler reports that it has found no node for a pod.

    A pod that was promised the capacity of others (``nominatedNodeName``) will have a node.
    """
    if pod.spec.node_name or pod.status.nominated_node_name:
        return False
    return any(
        (each.type, each.status, each.reason) == ("PodScheduled", "False", "Unschedulable")
        for each in pod.status.conditions
    )
