"""Slices of core/v1 kinds: what readers of the cache need, nothing else."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from jobsetpy.api._wire import field, wire
from jobsetpy.api.meta import Condition, ObjectMeta, ResourceInfo, resource


@wire
class ContainerStateTerminated:
    """Why and when a container ended."""

    exit_code: int = 0
    reason: str = ""
    finished_at: datetime | None = None


@wire
class ContainerStateRunning:
    """Since when a container runs."""

    started_at: datetime | None = None


@wire
class ContainerState:
    """At most one of the two is there; neither means waiting."""

    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


@wire
class ContainerStatus:
    """What the kubelet says of one container."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


@wire
class PodStatus:
    """Slice of v1.PodStatus."""

    phase: str = ""
    reason: str = ""
    pod_ip: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


@wire
class PodSpec:
    """Slice of v1.PodSpec."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None


@resource("", "v1", "Pod", "pods")
@wire
class Pod:
    """A Pod for general use; the JobSet reconcilers cache the smaller ``ChildPod`` instead."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


@resource("", "v1", "Service", "services")
@wire
class Service:
    """A Service: only that it is there and whose it is."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()


@resource("", "v1", "Node", "nodes", namespaced=False)
@wire
class Node:
    """A Node: its labels."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()


@wire
class LabelledMeta:
    """Identity and labels; texts that repeat from node to node are shared."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        """Share the texts of labels; a cluster has thousands of nodes with the same few."""
        shared = {sys.intern(key): sys.intern(value) for key, value in self.labels.items()}
        object.__setattr__(self, "labels", shared)


@resource("", "v1", "Node", "nodes", namespaced=False)
@wire
class LabelledNode:
    """A Node as the manager caches it: every node of the cluster, so only its labels."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: LabelledMeta = LabelledMeta()


@resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
@wire
class PersistentVolumeClaim:
    """A volume claim: only that it is there."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()


@resource("", "v1", "ConfigMap", "configmaps")
@wire
class ConfigMap:
    """A ConfigMap; tests and small controllers use it."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


@resource("", "v1", "Namespace", "namespaces", namespaced=False)
@wire
class Namespace:
    """A Namespace: its name and labels."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
