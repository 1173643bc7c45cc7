"""Partial models of kinds that only these reconcilers read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from jobsetpy.api._wire import field, wire
from jobsetpy.api.child_pod import ChildPodMeta, ChildPodSpec
from jobsetpy.api.core import ConfigMap
from jobsetpy.api.meta import Condition, ObjectMeta, ResourceInfo, resource


@resource("rbac.authorization.k8s.io", "v1", "Role", "roles")
@wire
class Role:
    """A Role, for creation only."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()


@resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
@wire
class RoleBinding:
    """A RoleBinding, for creation only."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()


GROUP_KINDS: Final = {"ConfigMap": ConfigMap, "Role": Role, "RoleBinding": RoleBinding}
"""Kinds that group scheduling needs, by name."""


@wire
class TemplatedJobSpec:
    """A Job's spec, with its pod template as JSON."""

    template: Mapping[str, Any] = field(factory=dict)


@resource("batch", "v1", "Job", "jobs")
@wire
class TemplatedJob:
    """A Job with its pod template, which the cached model omits."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: TemplatedJobSpec = TemplatedJobSpec()


@resource("batch", "v1", "Job", "jobs")
@wire
class CreatedJob:
    """A created Job: nothing is decoded from the answer, which is faster with many Jobs."""

    RESOURCE: ClassVar[ResourceInfo]


@wire
class ListedPodStatus:
    """A pod's phase and conditions."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


@resource("", "v1", "Pod", "pods")
@wire
class ListedPod:
    """A pod of a JobSet read from the API server, with its conditions."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ChildPodMeta = ChildPodMeta()
    spec: ChildPodSpec = ChildPodSpec()
    status: ListedPodStatus = ListedPodStatus()
