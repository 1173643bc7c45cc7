"""Slice of apps/v1 Deployment: the fields that controllers of Deployments read."""

from __future__ import annotations

from typing import ClassVar

from jobsetpy.api._wire import wire
from jobsetpy.api.meta import Condition, ObjectMeta, ResourceInfo, resource


@wire
class DeploymentSpec:
    """Slice of apps/v1 DeploymentSpec; the pod template is never read back."""

    replicas: int = 1
    paused: bool = False


@wire
class DeploymentStatus:
    """Slice of apps/v1 DeploymentStatus."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


@resource("apps", "v1", "Deployment", "deployments")
@wire
class Deployment:
    """A Deployment: its size and how much of it is ready."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()
