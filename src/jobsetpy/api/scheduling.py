"""Slices of ``scheduling.k8s.io/v1alpha2``, served where the gate ``GenericWorkload`` is on.

Specs are kept as the JSON they are: an alpha version may change, and only few fields are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from jobsetpy.api._wire import field, wire
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource

GROUP: Final = "scheduling.k8s.io"
VERSION: Final = "v1alpha2"

POD_GROUP_FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"
"""Put on each ``PodGroup`` by the API server; it goes when no pod names the group any more."""


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
    """The templates that groups of one owner are made from."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = field(factory=dict)
