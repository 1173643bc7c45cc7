"""Partial types of kinds that only admission reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jobsetpy.api._wire import field, wire
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource


@resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
@wire
class StoredClaim:
    """Volume claim with its spec as plain JSON."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = field(factory=dict)


@resource("", "v1", "LimitRange", "limitranges")
@wire
class LimitRange:
    """Bounds on the resources of a namespace's containers, as plain JSON."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = field(factory=dict)
