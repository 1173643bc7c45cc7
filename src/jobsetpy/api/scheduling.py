"""Slices of ``scheduling.k8s.io/v1alpha2``, served with the feature gate ``GenericWorkload``.

Specs are kept as JSON: an alpha version may change, and only few fields are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from jobsetpy.api._wire import field, wire
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource

GROUP: Final = "scheduling.k8s.io"
VERSION: Final = "v1alpha2"

POD_GROUP_FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"
"""Finalizer of each ``PodGroup``, set by the API server; removed when no pod names the group."""


@resource(GROUP, VERSION, "PodGroup", "podgroups")
@wire
class SchedulingPodGroup:
    """Pods that are scheduled together, or not at all."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = field(factory=dict)


@resource(GROUP, VERSION, "Workload", "workloads")
@wire
class SchedulingWorkload:
    """Templates of the PodGroups of one owner."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = field(factory=dict)
