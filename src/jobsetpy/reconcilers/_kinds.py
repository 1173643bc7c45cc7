"""Slices of kinds that only these reconcilers read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jobsetpy.api._wire import field, wire
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource


@resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
@wire
class VolumeClaim:
    """A volume claim: only that it is there."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()


@wire
class PodTemplate:
    """A Job's pod template; the pod spec as the JSON it is."""

    spec: Mapping[str, Any] = field(factory=dict)


@wire
class TemplatedJobSpec:
    """A Job's spec: its template."""

    template: PodTemplate = PodTemplate()


@resource("batch", "v1", "Job", "jobs")
@wire
class TemplatedJob:
    """A Job with its pod spec, which the cached slice leaves out."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: TemplatedJobSpec = TemplatedJobSpec()
