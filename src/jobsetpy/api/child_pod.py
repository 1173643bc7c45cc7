"""The slice of a JobSet's pods that reconcilers cache.

Thousands of these are held, so it keeps only what some reader reads; texts that repeat from pod to
pod are interned. Labels are fields here, not a dict, and of container statuses only a digest stays.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from jobsetpy.api import keys
from jobsetpy.api._wire import field, wire
from jobsetpy.api.meta import OwnerReference, ResourceInfo, controller_of, resource

ENDED: Final = frozenset({"Failed", "Succeeded"})
"""Phases of pods that have ended."""


_LACKS_FEATURES: Final = "didn't match Pod's required features"
"""The scheduler's words of nodes whose kubelets do not declare what the pod needs."""
_WAITS_FOR_KUBELET: Final = "Unschedulable as nodes lack features that it requires"

_SHARED_LABELS: Final = (
    *("jobset_name", "replicated_job_name", "restart_attempt", "job_restart_attempt"),
    *("job_index", "job_key", "pod_group", "pod_group_minimum"),
)
_SHARED_ANNOTATIONS: Final = (
    *("epoch", "attempt", "completion_index", "jobset_uid", "exclusive_topology"),
    *("node_selector", "group_attempt", "group_held", "coscheduling_backend"),
    *("restart_cause", "progress"),
)
_REPORTS: Final = (("restart_cause", 160), ("progress", 64), ("first_progress", 64))
"""Reports of agents, and the number of characters that are kept, plus one that shows a cut."""


def _intern(obj: Any, *names: str) -> None:
    for name in names:
        value = getattr(obj, name)
        if value:
            object.__setattr__(obj, name, sys.intern(value))


@lru_cache(maxsize=256)
def _shared_finalizers(finalizers: tuple[str, ...]) -> tuple[str, ...]:
    return finalizers


@lru_cache(maxsize=1024)
def _shared_selector(key: str, value: str) -> Mapping[str, str]:
    return MappingProxyType({key: value})


@wire
class ChildPodLabels:
    """The labels that tell which Job of which JobSet a pod belongs to, and its group."""

    jobset_name: str = field(default="", name=keys.JOBSET_NAME)
    replicated_job_name: str = field(default="", name=keys.REPLICATED_JOB_NAME)
    restart_attempt: str = field(default="", name=keys.RESTART_ATTEMPT)
    job_restart_attempt: str = field(default="", name=keys.JOB_RESTART_ATTEMPT)
    job_index: str = field(default="", name=keys.JOB_INDEX)
    job_key: str = field(default="", name=keys.JOB_KEY)
    pod_group: str = field(default="", name=keys.POD_GROUP_NAME)
    pod_group_minimum: str = field(default="", name=keys.POD_GROUP_MIN_AVAILABLE)

    def __attrs_post_init__(self) -> None:
        """Share the texts between the pods of a Job."""
        _intern(self, *_SHARED_LABELS)


@wire
class ChildPodAnnotations:
    """The agent's epoch, which completion index the pod has, and how it is placed.

    An agent of the Go project reports an attempt instead of an epoch.
    """

    epoch: str | None = field(default=None, name=keys.EPOCH_ANNOTATION)
    attempt: str | None = field(default=None, name=keys.ATTEMPT_ANNOTATION)
    restart_cause: str | None = field(default=None, name=keys.RESTART_CAUSE_ANNOTATION)
    progress: str | None = field(default=None, name=keys.PROGRESS_ANNOTATION)
    first_progress: str | None = field(default=None, name=keys.FIRST_PROGRESS_ANNOTATION)
    completion_index: str | None = field(default=None, name=keys.COMPLETION_INDEX_ANNOTATION)
    jobset_uid: str = field(default="", name=keys.JOBSET_UID)
    exclusive_topology: str | None = field(default=None, name=keys.EXCLUSIVE_TOPOLOGY_ANNOTATION)
    node_selector: str | None = field(default=None, name=keys.NODE_SELECTOR_ANNOTATION)
    group_attempt: str | None = field(default=None, name=keys.GROUP_ATTEMPT)
    group_held: str | None = field(default=None, name=keys.GROUP_HELD)
    coscheduling_backend: str = field(default="", name=keys.COSCHEDULING_BACKEND_ANNOTATION)

    def __attrs_post_init__(self) -> None:
        """Share the texts between the pods of a Job."""
        for name, longest in _REPORTS:
            text = getattr(self, name)
            if text and len(text) > longest:
                object.__setattr__(self, name, text[: longest + 1])
        _intern(self, *_SHARED_ANNOTATIONS)

    @property
    def report(self) -> str | None:
        """What the pod's agent reports: an epoch, or an attempt."""
        return self.attempt if self.epoch is None else self.epoch

    @property
    def is_attempt(self) -> bool:
        """Whether the report is an attempt."""
        return self.epoch is None and self.attempt is not None

    @property
    def placed_topology(self) -> str | None:
        """The node label that names domains, if the webhook and the manager place the pod."""
        return self.exclusive_topology if self.node_selector is None else None


@wire
class ChildPodMeta:
    """Identity, owner and the labels above."""

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
        """Share the namespace's text, and the finalizers between the pods of Jobs."""
        _intern(self, "namespace")
        if self.finalizers:
            object.__setattr__(self, "finalizers", _shared_finalizers(self.finalizers))

    @property
    def tracked(self) -> bool:
        """Tell if the Job controller has yet to count how the pod ends.

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
    """What keeps the scheduler from looking at a pod."""

    name: str = ""


@lru_cache(maxsize=1024)
def _shared_gates(gates: tuple[SchedulingGate, ...]) -> tuple[SchedulingGate, ...]:
    return gates


@wire
class ChildPodSpec:
    """Where the pod runs, and what decides that under exclusive placement.

    Of a cached pod, ``node_selector`` is at most the entry of the exclusive topology, and
    ``scheduling_gates`` is empty unless one of them is ours: :class:`ChildPod` drops the rest.
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
        """Whether the gate of exclusive placement is there."""
        return any(gate.name == keys.PLACEMENT_GATE for gate in self.scheduling_gates)


@wire
class _Running:
    """That a container runs; nothing else of it is read."""


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
    def has_started(self) -> bool:
        """Whether it runs, or ran before."""
        state = self.state
        return (
            state.running is not None
            or state.terminated is not None
            or self.restart_count > 0
            or self.last_state.terminated is not None
        )

    @property
    def at_barrier(self) -> bool:
        """Whether it is the barrier of group scheduling, and runs, has been passed, or ran before.

        One that gave up and waits to run again, or whose pod was restarted in place, has started:
        KEP-498 counts pods that have, and those that fail in turn never run all at once.
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
        """Why the pod is not scheduled; "" of any other condition."""
        if self.type != "PodScheduled" or self.status != "False":
            return ""
        return _WAITS_FOR_KUBELET if _LACKS_FEATURES in self.message else self.reason

    @property
    def is_notice(self) -> bool:
        """Whether it asks the pod to leave its node."""
        return (
            self.type == keys.DISRUPTION_TARGET_CONDITION
            and self.status == "True"
            and self.reason in keys.LEAVING_REASONS
        )


@wire
class FailedContainer:
    """A container that has ended with another exit code than 0."""

    name: str = ""
    exit_code: int = 0
    reason: str = ""


class ContainerRestarts(NamedTuple):
    """That a container was restarted, so many ``times``.

    ``failed`` says whether the latest restart was for a failure; one that ended with 0 had none.
    """

    name: str
    times: int
    failed: bool


@lru_cache(maxsize=1024)
def _shared_restarts(restarts: tuple[ContainerRestarts, ...]) -> tuple[ContainerRestarts, ...]:
    return restarts


@wire
class ChildPodStatus:
    """The pod's phase, and a digest of its containers' statuses, which are not kept themselves.

    What the digest holds is empty, or a text shared by all pods, unless something failed. All of it
    is of one moment, since the kubelet writes a pod's status as a whole.

    Args:
        phase: of the pod.
        reason: why the pod is in its phase, such as ``Evicted``; mostly "".
        running: names of the ordinary containers that run, with a space between them.
        failed: ordinary containers that have ended with another code than 0 and were not started
            again yet, the first to end in front.
        waiting: why the pod does not run: that of the first container that waits, or why it is not
            scheduled.
        restarts: containers that were restarted, init containers included; shared by the pods that
            have the same.
        at_barrier: whether the init container of group scheduling (KEP-498) has started.
        started: whether all ordinary containers have started, once at least.
        leaving: why the pod, which may work well, is asked to leave its node; mostly "".
        conditions: empty once decoded, as are the two that follow.
    """

    phase: str = ""
    reason: str = ""
    running: str = ""
    failed: tuple[FailedContainer, ...] = ()
    waiting: str = ""
    restarts: tuple[ContainerRestarts, ...] = ()
    at_barrier: bool = False
    started: bool = False
    leaving: str = ""
    conditions: tuple[_PodCondition, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Make the digest, drop what it was made of, and share texts between pods."""
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
        put(self, "started", bool(ordinary) and all(c.has_started for c in ordinary))
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
            ended.sort(key=_moment)
            put(self, "failed", tuple([failed for _, failed in ended]))
        restarts = []
        for status in (*self.init_container_statuses, *ordinary):
            state = status.state
            if state.waiting is not None and not self.waiting:
                put(self, "waiting", state.waiting.reason)
            if status.restart_count:
                # The end before the latest start is the last state's, if the kubelet knows it.
                before = state if status.last_state.terminated is None else status.last_state
                restarts.append(ContainerRestarts(status.name, status.restart_count, before.failed))
            if status.at_barrier:
                put(self, "at_barrier", True)
        if restarts:
            put(self, "restarts", _shared_restarts(tuple(restarts)))


def _moment(item: tuple[str, FailedContainer]) -> str:
    return item[0]


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
        """Whether it has not ended and is not being deleted."""
        return self.metadata.deletion_timestamp is None and self.status.phase not in ENDED

    @property
    def group_started(self) -> bool:
        """Whether it counts as started for group scheduling (KEP-498).

        Where its containers are held from within, all of them have to run, their images included.
        """
        held = self.metadata.annotations.group_held is not None
        return self.status.started if held else self.status.at_barrier

    def __attrs_post_init__(self) -> None:
        """Keep of selector and gates what exclusive placement reads, shared between pods."""
        spec = self.spec
        if spec.node_selector is None and not spec.scheduling_gates:
            return
        topology = self.metadata.annotations.placed_topology
        value = (spec.node_selector or {}).get(topology) if topology is not None else None
        selector = _shared_selector(topology, value) if topology and value is not None else None
        object.__setattr__(spec, "node_selector", selector)
        held = topology is not None and spec.held
        object.__setattr__(
            spec, "scheduling_gates", _shared_gates(spec.scheduling_gates) if held else ()
        )
