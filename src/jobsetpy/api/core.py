"""Slices of core/v1 kinds with only the fields that are read from the cache."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from jobsetpy.api import keys
from jobsetpy.api._frozen import EMPTY, FrozenDict
from jobsetpy.api._wire import field, wire
from jobsetpy.api.meta import Condition, ObjectMeta, ResourceInfo, resource


@wire
class ContainerStateTerminated:
    """Reason and time of a container's termination."""

    exit_code: int = 0
    reason: str = ""
    finished_at: datetime | None = None


@wire
class ContainerStateRunning:
    """Start time of a running container."""

    started_at: datetime | None = None


@wire
class ContainerState:
    """State of a container: running, terminated, or waiting if both fields are ``None``."""

    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


@wire
class ContainerStatus:
    """Status of one container, as reported by the kubelet."""

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
    pod_ip: str = field(default="", name="podIP")
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
    """A Service: its existence and owner."""

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
    """Identity and labels; strings that repeat from node to node are shared."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(factory=dict, frozen=True)

    def __attrs_post_init__(self) -> None:
        """Share the strings of labels; thousands of nodes have the same few."""
        shared = {sys.intern(key): sys.intern(value) for key, value in self.labels.items()}
        object.__setattr__(self, "labels", FrozenDict(shared) if shared else EMPTY)


@wire
class _NodeTaint:
    key: str = ""
    effect: str = ""
    time_added: datetime | None = None


@wire
class _NodeSpec:
    taints: tuple[_NodeTaint, ...] = ()


@wire
class _NodeCondition:
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


@wire
class _NodeStatus:
    conditions: tuple[_NodeCondition, ...] = ()
    declared_features: tuple[str, ...] = ()


_NO_SPEC, _NO_STATUS = _NodeSpec(), _NodeStatus()


@resource("", "v1", "Node", "nodes", namespaced=False)
@wire
class LabelledNode:
    """A Node as the manager caches it, reduced to the fields that are read.

    Args:
        metadata: name and labels of the node.
        unreachable_since: time since when the node is unreachable; ``None`` while it reports, even
            as not ready. Requires both the condition ``Ready`` with status Unknown and the taint
            by which pods are evicted, and is the later of their times: if no node of a zone
            reports, the node controller removes the taints, since it may itself be disconnected.
        ready: ``False`` while its condition ``Ready`` is false or unknown: pods evicted by its
            taints meanwhile were lost with it.
        restarts_all: true if its kubelet declares the feature of the rule ``RestartAllContainers``.
        spec: empty once decoded, as is ``status``.
    """

    RESOURCE: ClassVar[ResourceInfo]
    metadata: LabelledMeta = LabelledMeta()
    unreachable_since: datetime | None = None
    ready: bool = True
    restarts_all: bool = False
    spec: _NodeSpec = _NO_SPEC
    status: _NodeStatus = _NO_STATUS

    def __attrs_post_init__(self) -> None:
        """Compute the digest of conditions and taints, and drop its sources."""
        if self.status.conditions or self.spec.taints:
            object.__setattr__(self, "unreachable_since", self._unreachable_since())
            if any(
                each.type == "Ready" and each.status != "True" for each in self.status.conditions
            ):
                object.__setattr__(self, "ready", False)
        if keys.RESTART_ALL_FEATURE in self.status.declared_features:
            object.__setattr__(self, "restarts_all", True)
        object.__setattr__(self, "spec", _NO_SPEC)
        object.__setattr__(self, "status", _NO_STATUS)

    def _unreachable_since(self) -> datetime | None:
        unknown = [
            each.last_transition_time
            for each in self.status.conditions
            if each.type == "Ready" and each.status == "Unknown"
        ]
        tainted = [
            each.time_added
            for each in self.spec.taints
            if each.key == keys.NODE_UNREACHABLE_TAINT and each.effect == "NoExecute"
        ]
        if not unknown or not tainted:
            return None
        return max(filter(None, (*unknown, *tainted)), default=None)


@resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
@wire
class PersistentVolumeClaim:
    """A volume claim: its existence."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()


@resource("", "v1", "ConfigMap", "configmaps")
@wire
class ConfigMap:
    """A ConfigMap, for tests and small controllers."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


@resource("", "v1", "Secret", "secrets")
@wire
class Secret:
    """A Secret; values are base64."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: Mapping[str, str] | None = None

    def values(self) -> dict[str, bytes]:
        """Return the decoded values; a value that is not base64 counts as missing."""
        out = {}
        for name, value in (self.data or {}).items():
            try:
                out[name] = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                continue
        return out


@resource("", "v1", "Namespace", "namespaces", namespaced=False)
@wire
class Namespace:
    """A Namespace: its name and labels."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
