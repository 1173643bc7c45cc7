"""Partial models of kinds that only these reconcilers read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from jobsetpy.api import keys
from jobsetpy.api._wire import field, wire
from jobsetpy.api.batch import Job, JobSpec, JobStatus
from jobsetpy.api.child_pod import ENDED, ChildPodMeta, ChildPodSpec
from jobsetpy.api.core import ConfigMap, PersistentVolumeClaim, Service
from jobsetpy.api.meta import Condition, ObjectMeta, ResourceInfo, condition_true, resource
from jobsetpy.api.unstructured import unstructured

_RBAC: Final = "rbac.authorization.k8s.io"

Role: Final = unstructured(ResourceInfo(_RBAC, "v1", "Role", "roles"))
RoleBinding: Final = unstructured(ResourceInfo(_RBAC, "v1", "RoleBinding", "rolebindings"))

CREATED_KINDS: Final = {
    cls.RESOURCE.kind: cls for cls in (Service, PersistentVolumeClaim, ConfigMap, Role, RoleBinding)
}
"""Kinds of the objects besides Jobs that pods need, by name."""


@resource("batch", "v1", "Job", "jobs")
@wire
class WholeJob:
    """A Job read from the API server, with its spec as JSON."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = field(factory=dict)
    status: JobStatus = JobStatus()

    @property
    def cached(self) -> Job:
        """The Job as it is cached."""
        spec = msgspec.convert(self.spec, JobSpec)
        return Job(metadata=self.metadata, spec=spec, status=self.status)


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

    @property
    def live(self) -> bool:
        """True if the pod is neither terminated nor being deleted."""
        return self.metadata.deletion_timestamp is None and self.status.phase not in ENDED

    @property
    def disrupted(self) -> bool:
        """True if the pod has the condition ``DisruptionTarget``."""
        return condition_true(self.status.conditions, keys.DISRUPTION_TARGET_CONDITION) is not None


@resource("", "v1", "Pod", "pods")
@wire
class CreatedPod:
    """A created pod: nothing is decoded from the answer."""

    RESOURCE: ClassVar[ResourceInfo]
