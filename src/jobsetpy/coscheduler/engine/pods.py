"""Fields of a pod that coscheduling reads, and their conversion for the gang scheduler.

Any pod with the two labels counts, with or without a JobSet.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar, Final

import msgspec

from jobsetpy.api import keys
from jobsetpy.api._wire import field, wire
from jobsetpy.api.child_pod import SchedulingGate
from jobsetpy.api.meta import Condition, ResourceInfo, condition_true, resource
from jobsetpy.coscheduler.gang_scheduler.capacity.node_rules import Term, Toleration
from jobsetpy.coscheduler.gang_scheduler.state import SeenPod
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey
from jobsetpy.reconcilers.coscheduling.requests import positive

SEEN_MARK: Final = "[seen] "
"""Prefix of the scheduler's message once it was processed.

The scheduler does not write an unchanged message again, so a second failure for the same reason
could not be distinguished from the first.
"""


QUEUED_CONDITION: Final = "jobset.sigs.k8s.io/GangQueued"
"""Condition of a pod whose transition time is that from which its gang has waited.

It is in the status, which users of a namespace have no right to write: else they could put their
gangs before those of others.
"""


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
    capacity: str = field(default="", name=keys.COSCHEDULING_CAPACITY_ANNOTATION)


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
class Asked:
    """Resource requests of a container."""

    requests: Mapping[str, str] | None = None


@wire
class GroupContainer:
    """Resources of a container."""

    restart_policy: str = ""
    resources: Asked = Asked()


@wire
class GroupNodeSelector:
    """Terms of which one has to hold."""

    node_selector_terms: tuple[Term, ...] = ()


@wire
class GroupNodeAffinity:
    """Required affinity to nodes; preferences are not read."""

    required: GroupNodeSelector | None = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


@wire
class GroupAffinity:
    """Affinity to nodes; affinity to pods is left to the scheduler."""

    node_affinity: GroupNodeAffinity | None = None


@wire
class GroupPodSpec:
    """Fields that scheduling reads and sets."""

    node_name: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    containers: tuple[GroupContainer, ...] = ()
    init_containers: tuple[GroupContainer, ...] = ()
    resources: Asked | None = None
    overhead: Mapping[str, str] | None = None
    node_selector: Mapping[str, str] | None = None
    affinity: GroupAffinity | None = None
    tolerations: tuple[Toleration, ...] = ()


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
            needs_capacity=meta.annotations.capacity != "false",
            bound=bool(spec.node_name),
            scheduler=spec.scheduler_name,
            queued=_true_since(pod, QUEUED_CONDITION),
            blocked=any(gate.name != keys.COSCHEDULING_GATE for gate in spec.scheduling_gates),
        ),
        gated=any(gate.name == keys.COSCHEDULING_GATE for gate in spec.scheduling_gates),
        ended=meta.deletion_timestamp is not None or pod.status.phase in {"Succeeded", "Failed"},
    )


def _true_since(pod: GroupPod, type_: str) -> float | None:
    found = condition_true(pod.status.conditions, type_)
    since = None if found is None else found.last_transition_time
    return None if since is None else since.timestamp()


def new_failure(pod: GroupPod) -> tuple[int, str] | None:
    """Return the condition in which the scheduler reports a missing node, unless it was processed.

    A pod that was promised the capacity of others (``nominatedNodeName``) will have a node.

    Returns:
        Index of the condition, and its message.
    """
    if pod.spec.node_name or pod.status.nominated_node_name:
        return None
    for at, condition in enumerate(pod.status.conditions):
        if (condition.type, condition.status) != ("PodScheduled", "False"):
            continue
        if condition.reason == "Unschedulable" and not condition.message.startswith(SEEN_MARK):
            return at, condition.message
    return None
