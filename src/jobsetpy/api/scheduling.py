"""Slices of ``PodGroup`` and ``Workload`` (``scheduling.k8s.io``), in each supported version.

Kubernetes 1.36 serves ``v1alpha2``, 1.37 ``v1beta1``, each only if its administrator enables it.
Specs are kept as JSON: the API still changes, and only few fields are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeVar, cast

import attrs

from jobsetpy.api._wire import field, wire
from jobsetpy.api.meta import Condition, ObjectMeta, ResourceInfo, resource

T = TypeVar("T")

GROUP: Final = "scheduling.k8s.io"
VERSIONS: Final = ("v1", "v1beta1", "v1alpha2")
"""Supported versions, the best first."""

POD_GROUP_FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"
"""Finalizer of each ``PodGroup``, set by the API server; removed when no pod names the group."""


@wire
class PodGroupStatus:
    """State of a group, as the scheduler reports it."""

    conditions: tuple[Condition, ...] = ()


@resource(GROUP, "v1beta1", "PodGroup", "podgroups")
@wire
class SchedulingPodGroup:
    """Pods that are scheduled together, or not at all."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = field(factory=dict)
    status: PodGroupStatus = PodGroupStatus()


@resource(GROUP, "v1beta1", "Workload", "workloads")
@wire
class SchedulingWorkload:
    """Templates of the PodGroups of one owner."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = field(factory=dict)


@attrs.frozen
class NativeApi:
    """One version of the API.

    Args:
        version: its name.
        pod_group: class of its PodGroups.
        workload: class of its Workloads.
    """

    version: str
    pod_group: type[SchedulingPodGroup]
    workload: type[SchedulingWorkload]

    @property
    def alpha(self) -> bool:
        """Return whether specs are immutable, and so is the size of a Job with a ``PodGroup``."""
        return self.version == "v1alpha2"


def _in(base: type[T], version: str) -> type[T]:
    """Return the class for a version; ``base`` if it is the one of that version."""
    info: ResourceInfo = attrs.evolve(base.RESOURCE, version=version)  # type: ignore[attr-defined]
    if info == base.RESOURCE:  # type: ignore[attr-defined]
        return base
    own: Any = wire(type(base.__name__, (base,), {"__module__": __name__, "__slots__": ()}))
    own.RESOURCE = info
    return cast("type[T]", own)


NATIVE_APIS: Final = tuple(
    NativeApi(version, _in(SchedulingPodGroup, version), _in(SchedulingWorkload, version))
    for version in VERSIONS
)
"""The API in each supported version, the best first."""
