"""The slice of a JobSet's pods that reconcilers cache.

Thousands of pods are cached, so only fields with a reader are kept, and strings that repeat from
pod to pod are interned. Labels are fields, not a dict; container statuses are reduced to a digest.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from jobsetpy.api import disruptions, keys
from jobsetpy.api._wire import field, wire
from jobsetpy.api.meta import OwnerReference, ResourceInfo, controller_of, resource

ENDED: Final = frozenset({"Failed", "Succeeded"})
"""Phases of terminated pods."""


_LACKS_FEATURES: Final = "didn't match Pod's required features"
"""The scheduler's message for nodes whose kubelets do not declare a feature that the pod needs."""
_WAITS_FOR_KUBELET: Final = "Unschedulable as nodes lack features that it requires"

_SHARED_ANNOTATIONS: Final = (
    *("epoch", "attempt", "completion_index", "jobset_uid", "exclusive_topology"),
    *("node_selector", "group_attempt", "coscheduling_backend"),
    *("restart_cause", "progress", "spares", "agent_state", "replaced_early"),
)
_REPORTS: Final = (
    ("restart_cause", 160),
    ("progress", 64),
    ("first_progress", 64),
    ("agent_state", 140),
    ("unheard", 200),
    ("unprobed", 64),
    ("log_report", 120),
)
"""Reports of agents, and the number of characters kept, plus one that marks a truncated report."""


def _intern(obj: Any, *names: str) -> None:
    for name in names:
        if value := getattr(obj, name):
            object.__setattr__(obj, name, sys.intern(value))


@lru_cache(maxsize=4096)
def _shared(value: Hashable) -> Any:
    """Return the first of equal values, so that pods share one."""
    return value


@lru_cache(maxsize=1024)
def _shared_selector(key: str, value: str) -> Mapping[str, str]:
    return MappingProxyType({key: value})


@wire
class ChildPodLabels:
    """Labels that identify a pod's JobSet, ReplicatedJob, Job and gang."""

    jobset_name: str = field(default="", name=keys.JOBSET_NAME)
    replicated_job_name: str = field(default="", name=keys.REPLICATED_JOB_NAME)
    restart_attempt: str = field(default="", name=keys.RESTART_ATTEMPT)
    job_restart_attempt: str = field(default="", name=keys.JOB_RESTART_ATTEMPT)
    job_index: str = field(default="", name=keys.JOB_INDEX)
    job_key: str = field(default="", name=keys.JOB_KEY)
    pod_group: str = field(default="", name=keys.POD_GROUP_NAME)
    pod_group_minimum: str = field(default="", name=keys.POD_GROUP_MIN_AVAILABLE)


_LABELS: Final = tuple(ChildPodLabels.__annotations__)


@lru_cache(maxsize=4096)
def _shared_labels(labels: ChildPodLabels) -> ChildPodLabels:
    """Return the first of equal labels, so that the pods of a Job share one."""
    _intern(labels, *_LABELS)
    return labels


@wire
class ChildPodAnnotations:
    """Reports of the pod's agent, its completion index and its placement.

    An agent of the Go project reports an attempt instead of an epoch.
    """

    epoch: str | None = field(default=None, name=keys.EPOCH_ANNOTATION)
    attempt: str | None = field(default=None, name=keys.ATTEMPT_ANNOTATION)
    restart_cause: str | None = field(default=None, name=keys.RESTART_CAUSE_ANNOTATION)
    progress: str | None = field(default=None, name=keys.PROGRESS_ANNOTATION)
    first_progress: str | None = field(default=None, name=keys.FIRST_PROGRESS_ANNOTATION)
    spares: str = field(default="", name=keys.IN_PLACE_SPARES_ANNOTATION)
    agent_state: str = field(default="", name=keys.AGENT_STATE_ANNOTATION)
    unheard: str | None = field(default=None, name=keys.UNHEARD_ANNOTATION)
    unprobed: str | None = field(default=None, name=keys.UNPROBED_ANNOTATION)
    log_report: str | None = field(default=None, name=keys.LOG_REPORT_ANNOTATION)
    completion_index: str | None = field(default=None, name=keys.COMPLETION_INDEX_ANNOTATION)
    jobset_uid: str = field(default="", name=keys.JOBSET_UID)
    exclusive_topology: str | None = field(default=None, name=keys.EXCLUSIVE_TOPOLOGY_ANNOTATION)
    node_selector: str | None = field(default=None, name=keys.NODE_SELECTOR_ANNOTATION)
    group_attempt: str | None = field(default=None, name=keys.GROUP_ATTEMPT)
    replaced_early: str | None = field(default=None, name=keys.REPLACED_EARLY_ANNOTATION)
    coscheduling_backend: str = field(default="", name=keys.COSCHEDULING_BACKEND_ANNOTATION)

    def __attrs_post_init__(self) -> None:
        """Truncate long reports, and share strings between the pods of a Job."""
        for name, longest in _REPORTS:
            text = getattr(self, name)
            if text and len(text) > longest:
                object.__setattr__(self, name, text[: longest + 1])
        _intern(self, *_SHARED_ANNOTATIONS)

    @property
    def report(self) -> str | None:
        """Epoch, or attempt, that the pod's agent reports."""
        return self.attempt if self.epoch is None else self.epoch

    @property
    def is_attempt(self) -> bool:
        """True if the report is an attempt."""
        return self.epoch is None and self.attempt is not None

    @property
    def placed_topology(self) -> str | None:
        """Node label of the topology domains, if the webhook and the manager place the pod."""
        return self.exclusive_topology if self.node_selector is None else None


@wire
class ChildPodMeta:
    """Identity, owner, labels and annotations of a child pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: ChildPodLabels = ChildPodLabels()
    annotations: ChildPodAnnotations = ChildPodAnnotations()
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Share the namespace's string, the labels and the finalizers between pods."""
        _intern(self, "namespace")
        object.__setattr__(self, "labels", _shared_labels(self.labels))
        if self.finalizers:
            object.__setattr__(self, "finalizers", _shared(self.finalizers))

    @property
    def tracked(self) -> bool:
        """True if the Job controller has yet to count the pod's end.

        A Job counts a pod as succeeded or failed only while the pod has this finalizer
        (https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-tracking-with-finalizers).
        """
        return keys.JOB_TRACKING_FINALIZER in self.finalizers

    @property
    def controller_uid(self) -> str:
        """UID of the Job that manages the pod, or ""."""
        owner = controller_of(self.owner_references)
        return owner.uid if owner is not None else ""


@wire
class SchedulingGate:
    """Scheduling gate, which keeps a pod out of the scheduler's queue."""

    name: str = ""


@wire
class ChildPodSpec:
    """The pod's node, and the fields that decide about it under exclusive placement.

    In a cached pod, ``node_selector`` contains at most the entry of the exclusive topology, and
    ``scheduling_gates`` has all gates if one of them is that of exclusive placement, and otherwise
    only that of gangs: :class:`ChildPod` drops the rest.
    """

    node_name: str = ""
    priority: int | None = None
    node_selector: Mapping[str, str] | None = field(default=None, frozen=True)  # by ChildPod
    scheduling_gates: tuple[SchedulingGate, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Share the node name between the pods of a node."""
        _intern(self, "node_name")

    @property
    def held(self) -> bool:
        """True if the pod has the gate of exclusive placement."""
        return any(gate.name == keys.PLACEMENT_GATE for gate in self.scheduling_gates)


@wire
class _Running:
    """State of a running container; its fields are not read."""


@wire
class _Waiting:
    reason: str = ""


@wire
class _Terminated:
    exit_code: int = 0
    reason: str = ""
    finished_at: str | None = None  # the kubelet may not know it


@wire
class _ContainerState:
    running: _Running | None = None
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None

    @property
    def failed(self) -> bool:
        return self.terminated is not None and self.terminated.exit_code != 0


@wire
class _ContainerStatus:
    name: str = ""
    restart_count: int = 0
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()

    @property
    def at_barrier(self) -> bool:
        """True if it is the init container of the startup group and runs, succeeded, or ran before.

        After a timeout, while it waits to run again, or after a restart in place it has started:
        KEP-498 counts pods that have started, and pods that fail in turn never all run together.
        """
        if self.name != keys.GROUP_INIT_CONTAINER:
            return False
        ended = self.state.terminated
        again = self.restart_count > 0 or self.last_state.terminated is not None
        return (
            again or self.state.running is not None or (ended is not None and ended.exit_code == 0)
        )


@wire
class _PodCondition:
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""

    @property
    def waiting(self) -> str:
        """Reason why the pod is not scheduled; "" for any other condition."""
        if self.type != "PodScheduled" or self.status != "False":
            return ""
        return _WAITS_FOR_KUBELET if _LACKS_FEATURES in self.message else self.reason

    @property
    def is_notice(self) -> bool:
        """True if it announces that the pod has to leave its node."""
        return (
            self.type == keys.DISRUPTION_TARGET_CONDITION
            and self.status == "True"
            and self.reason in disruptions.LEAVING_REASONS
        )


@wire
class FailedContainer:
    """A container that terminated with an exit code other than 0."""

    name: str = ""
    exit_code: int = 0
    reason: str = ""


class ContainerRestarts(NamedTuple):
    """A container's number of restarts, ``times``.

    ``failed`` is true if the latest restart followed a failure; exit code 0 is not a failure.
    """

    name: str
    times: int
    failed: bool


@wire
class ChildPodStatus:
    """The pod's phase, and a digest of its containers' statuses, which are not kept themselves.

    Fields of the digest are empty, or strings shared by all pods, unless a container failed. They
    are consistent, since the kubelet writes a pod's status as a whole.

    Args:
        phase: phase of the pod.
        reason: reason of the phase, such as ``Evicted``; usually "".
        running: names of the running ordinary containers, separated by spaces.
        failed: ordinary containers that terminated with an exit code other than 0 and were not
            restarted yet, in the order of their termination.
        waiting: reason why the pod does not run: that of the first waiting container, or why the
            pod is not scheduled.
        restarts: restarted containers, including init containers; shared between pods with equal
            values.
        at_barrier: true if the init container of the startup group (KEP-498) has started.
        leaving: reason why the pod, which may be healthy, has to leave its node; usually "".
        pod_ip: address of the pod; "" in a cached pod whose Job has no spares: :class:`ChildPod`
            drops it.
        conditions: empty once decoded, as are ``init_container_statuses`` and
            ``container_statuses``.
    """

    phase: str = ""
    reason: str = ""
    running: str = ""
    failed: tuple[FailedContainer, ...] = ()
    waiting: str = ""
    restarts: tuple[ContainerRestarts, ...] = ()
    at_barrier: bool = False
    leaving: str = ""
    pod_ip: str = field(default="", name="podIP")
    conditions: tuple[_PodCondition, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Compute the digest, drop its sources, and share strings between pods."""
        put = object.__setattr__
        if self.container_statuses or self.init_container_statuses:
            self._digest()
            put(self, "init_container_statuses", ())
            put(self, "container_statuses", ())
        if self.conditions:
            for condition in self.conditions:
                if waiting := condition.waiting:
                    put(self, "waiting", waiting)
                elif condition.is_notice:
                    put(self, "leaving", condition.reason)
            put(self, "conditions", ())
        _intern(self, "phase", "reason", "running", "waiting", "leaving")

    def _digest(self) -> None:
        put = object.__setattr__
        ordinary = self.container_statuses
        put(self, "running", " ".join([c.name for c in ordinary if c.state.running is not None]))
        ended = [
            (
                end.finished_at or "",
                FailedContainer(name=c.name, exit_code=end.exit_code, reason=end.reason),
            )
            for c in ordinary
            if (end := c.state.terminated) is not None and end.exit_code != 0
        ]
        if ended:
            ended.sort(key=itemgetter(0))
            put(self, "failed", tuple([failed for _, failed in ended]))
        restarts = []
        for status in (*self.init_container_statuses, *ordinary):
            state = status.state
            if state.waiting is not None and not self.waiting:
                put(self, "waiting", state.waiting.reason)
            if status.restart_count:
                # The latest restart followed the end in last_state, if the kubelet knows it.
                before = state if status.last_state.terminated is None else status.last_state
                restarts.append(ContainerRestarts(status.name, status.restart_count, before.failed))
            if status.at_barrier:
                put(self, "at_barrier", True)
        if restarts:
            put(self, "restarts", _shared(tuple(restarts)))


@resource("", "v1", "Pod", "pods")
@wire
class ChildPod:
    """A pod of a JobSet, as cached by the manager."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ChildPodMeta = ChildPodMeta()
    spec: ChildPodSpec = ChildPodSpec()
    status: ChildPodStatus = ChildPodStatus()

    @property
    def live(self) -> bool:
        """True if the pod is neither terminated nor being deleted."""
        return self.metadata.deletion_timestamp is None and self.status.phase not in ENDED

    @property
    def is_interrupted(self) -> bool:
        """True if the pod is being deleted, or was ended by its kubelet: its end proves nothing.

        The kubelet deletes no pod. It sets phase and condition in one update, after the end.
        """
        if self.metadata.deletion_timestamp is not None:
            return True
        status = self.status
        return status.phase in ENDED and status.leaving in disruptions.UNDELETED_REASONS

    def __attrs_post_init__(self) -> None:
        """Reduce selector and gates to the part that exclusive placement reads, shared by pods."""
        spec = self.spec
        if self.status.pod_ip and not self.metadata.annotations.spares:
            object.__setattr__(self.status, "pod_ip", "")
        if spec.node_selector is None and not spec.scheduling_gates:
            return
        topology = self.metadata.annotations.placed_topology
        value = (spec.node_selector or {}).get(topology) if topology is not None else None
        selector = _shared_selector(topology, value) if topology and value is not None else None
        object.__setattr__(spec, "node_selector", selector)
        held = topology is not None and spec.held
        gates = spec.scheduling_gates
        if not held:
            gates = tuple(each for each in gates if each.name == keys.COSCHEDULING_GATE)
        object.__setattr__(spec, "scheduling_gates", _shared(gates))
