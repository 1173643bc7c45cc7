"""JobSet (``jobset.x-k8s.io/v1alpha2``), and the slice of its pods that reconcilers cache.

The embedded Job template is kept as the plain JSON it came as: the controller passes it on and
must not lose a field it does not know.

The fields carry what the custom resource definition says of them; ``schema`` reads it. Types
and wire names come from the annotations, the rest is metadata:

* ``description``: the field's text in the definition;
* ``required``: the object is refused without it;
* ``defaulted``: the API server fills in the Python default (others only exist here), or the
  value ``schema_default``;
* ``enum``, ``minimum``, ``max_items``, ``format``: value rules;
* ``map_keys`` or ``atomic``: how server-side apply merges a list;
* ``immutable``: may not change once set, but may be added and removed;
* ``embed``: the built-in type whose schema stands here, by its OpenAPI name.

A class's ``RULES`` are CEL rules as pairs of expression and message.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

from jobsetpy.api import keys
from jobsetpy.api._wire import field, wire
from jobsetpy.api.meta import (
    Condition,
    ObjectMeta,
    OwnerReference,
    ResourceInfo,
    controller_of,
    resource,
)

_TARGETS = "Names of ReplicatedJobs this applies to; all of them when empty."
_IN_ORDER_WITH_DEPENDENCIES = (
    "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder' && "
    "self.replicatedJobs.exists(job, has(job.dependsOn)))"
)


@wire
class DependsOn:
    """A ReplicatedJob that has to be ``Ready`` or ``Complete`` first."""

    name: str = field(
        default="",
        required=True,
        description="Name of a ReplicatedJob that stands earlier in the list.",
    )
    status: str = field(
        default="",
        required=True,
        enum=("Ready", "Complete"),
        description="Ready: its Jobs all run or have finished. Complete: they all succeeded.",
    )


@wire
class ReplicatedJob:
    """``replicas`` Jobs made from one template."""

    name: str = field(
        default="",
        required=True,
        description="Unique within the JobSet; part of the names of its Jobs and pods.",
    )
    group_name: str = field(
        default="default",
        defaulted=True,
        description=(
            "Group of ReplicatedJobs that this one is counted in, for the group labels of its Jobs."
        ),
    )
    replicas: int = field(
        default=1,
        defaulted=True,
        minimum=0,
        description="How many Jobs are made from the template.",
    )
    template: Mapping[str, Any] = field(
        factory=dict,
        required=True,
        embed="io.k8s.api.batch.v1.JobTemplateSpec",
        description="The Jobs' metadata and spec, as in batch/v1.",
    )
    depends_on: tuple[DependsOn, ...] = field(
        default=(),
        map_keys=("name",),
        max_items=5,
        immutable=True,
        description="Jobs are created only once every entry has reached its status.",
    )


@wire
class Network:
    """DNS names of the pods."""

    enable_dns_hostnames: bool | None = field(
        default=None,
        name="enableDNSHostnames",
        description=(
            "Whether pods get the stable names <jobset>-<replicatedJob>-<job index>-<pod index> "
            "below the subdomain, by a headless Service."
        ),
    )
    subdomain: str = field(
        default="", description="Name of that Service; the JobSet's own name when empty."
    )
    publish_not_ready_addresses: bool | None = field(
        default=None, description="Whether the names resolve before the pods are ready."
    )


@wire
class SuccessPolicy:
    """When the JobSet is complete."""

    operator: str = field(
        default="All",
        required=True,
        enum=("All", "Any"),
        description="All: every Job of the targets has to succeed. Any: one is enough.",
    )
    target_replicated_jobs: tuple[str, ...] = field(default=(), atomic=True, description=_TARGETS)


@wire
class FailurePolicyRule:
    """One rule of KEP-262."""

    name: str = field(
        default="",
        required=True,
        description="Unique within the policy; named in conditions and events.",
    )
    action: str = field(
        default="",
        required=True,
        enum=(
            "FailJobSet",
            "RestartJobSet",
            "RestartJobSetAndIgnoreMaxRestarts",
            "RestartReplicatedJob",
            "RestartReplicatedJobAndIgnoreMaxRestarts",
            "RestartJob",
            "RestartJobAndIgnoreMaxRestarts",
            "FailJob",
        ),
        description=(
            "What a matching failure leads to. FailJobSet: the JobSet fails at once. FailJob: only "
            "the Job stays failed. RestartJobSet, RestartReplicatedJob, RestartJob: all Jobs, "
            "those of the same ReplicatedJob, or the failed Job alone are recreated; with "
            "AndIgnoreMaxRestarts the restart does not count towards maxRestarts."
        ),
    )
    on_job_failure_reasons: tuple[str, ...] = field(
        default=(),
        description="Reasons of the Job's Failed condition that match; any when empty.",
    )
    on_job_failure_message_patterns: tuple[str, ...] = field(
        default=(),
        description=(
            "Regular expressions (RE2) of which one has to match the message of the Job's Failed "
            "condition; any message when empty."
        ),
    )
    target_replicated_jobs: tuple[str, ...] = field(default=(), atomic=True, description=_TARGETS)


@wire
class FailurePolicy:
    """What happens when a Job fails."""

    max_restarts: int = field(
        default=0, description="How many restarts are allowed before the JobSet fails."
    )
    restart_strategy: str = field(
        default=keys.RECREATE,
        defaulted=True,
        enum=(keys.RECREATE, keys.BLOCKING_RECREATE, keys.IN_PLACE_RESTART),
        description=(
            "Recreate: each Job is made anew as soon as its predecessor is gone. "
            "BlockingRecreate: no Job is made before all predecessors are gone. InPlaceRestart: "
            "running pods restart their containers where they are, only failed pods are replaced; "
            "a failed Job leads to Recreate."
        ),
    )
    rules: tuple[FailurePolicyRule, ...] = field(
        default=(),
        description=(
            "The first rule that matches a Job's failure decides. Without a match the whole "
            "JobSet restarts."
        ),
    )


@wire
class StartupPolicy:
    """In which order ReplicatedJobs start."""

    startup_policy_order: str = field(
        default="AnyOrder",
        required=True,
        enum=("AnyOrder", "InOrder"),
        description="InOrder: a ReplicatedJob starts when the one listed before it is ready.",
    )


@wire
class Coordinator:
    """The pod whose stable address all others learn."""

    replicated_job: str = field(
        default="", required=True, description="ReplicatedJob that the pod belongs to."
    )
    job_index: int = field(
        default=0, format=None, description="Index of the Job within the ReplicatedJob."
    )
    pod_index: int = field(
        default=0, format=None, description="Completion index of the pod within the Job."
    )


@wire
class RetentionPolicy:
    """What becomes of volume claims when the JobSet is deleted."""

    when_deleted: str | None = field(
        default=None,
        schema_default="Delete",
        enum=("Delete", "Retain"),
        description="Delete: the claims are deleted with the JobSet. Retain: they stay.",
    )


@wire
class VolumeClaimPolicy:
    """Volume claims shared by the JobSet's pods."""

    RULES: ClassVar[tuple[tuple[str, str], ...]] = (
        (
            "self.templates.all(c, !has(c.metadata.namespace) || c.metadata.namespace == '')",
            "a claim is made in the JobSet's namespace; namespace cannot be set",
        ),
    )
    templates: tuple[Mapping[str, Any], ...] = field(
        default=(),
        atomic=True,
        max_items=50,
        embed="io.k8s.api.core.v1.PersistentVolumeClaim",
        description=(
            "Each makes one claim, named <template>-<jobset>; containers mount it by the "
            "template's name."
        ),
    )
    retention_policy: RetentionPolicy | None = field(
        default=None, description="What becomes of the claims when the JobSet is deleted."
    )


@wire
class GroupSchedulingConfig:
    """KEP-498: main containers start only when all targeted pods have started."""

    timeout_after_seconds: int | None = field(
        default=None,
        minimum=1,
        description="A pod fails if the others have not started by then. No limit when absent.",
    )
    target_replicated_jobs: tuple[str, ...] = field(default=(), atomic=True, description=_TARGETS)


@wire
class JobSetSpec:
    """What the user asks for."""

    RULES: ClassVar[tuple[tuple[str, str], ...]] = (
        (
            _IN_ORDER_WITH_DEPENDENCIES,
            "startupPolicy InOrder and dependsOn are mutually exclusive",
        ),
    )
    replicated_jobs: tuple[ReplicatedJob, ...] = field(
        default=(), map_keys=("name",), description="The Jobs, by kind."
    )
    network: Network | None = field(
        default=None, immutable=True, description="DNS names of the pods."
    )
    success_policy: SuccessPolicy | None = field(
        default=None,
        immutable=True,
        description="When the JobSet is complete; when all Jobs succeeded if absent.",
    )
    failure_policy: FailurePolicy | None = field(
        default=None,
        immutable=True,
        description="What happens when a Job fails; the JobSet fails if absent.",
    )
    startup_policy: StartupPolicy | None = field(
        default=None,
        immutable=True,
        description="In which order ReplicatedJobs start. Prefer dependsOn, which replaces it.",
    )
    suspend: bool | None = field(
        default=None, description="While true, Jobs are suspended and have no pods."
    )
    coordinator: Coordinator | None = field(
        default=None,
        description=(
            "A pod whose stable address is put on all Jobs and pods as the label and annotation "
            "jobset.sigs.k8s.io/coordinator."
        ),
    )
    managed_by: str | None = field(
        default=None,
        description=(
            "Controller in charge of this JobSet; this one if absent or "
            "jobset.sigs.k8s.io/jobset-controller."
        ),
    )
    ttl_seconds_after_finished: int | None = field(
        default=None,
        minimum=0,
        description="The finished JobSet is deleted after that time; never if absent.",
    )
    volume_claim_policies: tuple[VolumeClaimPolicy, ...] = field(
        default=(),
        atomic=True,
        max_items=50,
        immutable=True,
        description="Volume claims shared by the JobSet's pods.",
    )
    group_scheduling_config: GroupSchedulingConfig | None = field(
        default=None,
        immutable=True,
        description=(
            "If set, main containers of the targets start only when all their pods have started."
        ),
    )


@wire
class ReplicatedJobStatus:
    """Counters of one ReplicatedJob, over the Jobs of the current attempt."""

    name: str = field(default="", required=True, description="The ReplicatedJob.")
    ready: int = field(
        default=0, required=True, description="Jobs of which enough pods are ready or succeeded."
    )
    succeeded: int = field(default=0, required=True, description="Jobs that are complete.")
    failed: int = field(default=0, required=True, description="Jobs that failed.")
    active: int = field(default=0, required=True, description="Jobs with a pod at work.")
    suspended: int = field(default=0, required=True, description="Jobs that are suspended.")
    job_restarts: tuple[int, ...] = field(
        default=(),
        atomic=True,
        max_items=1024,
        description="Restarts of single Jobs, by Job index.",
    )
    job_restarts_count_towards_max: tuple[int, ...] = field(
        default=(),
        atomic=True,
        max_items=1024,
        description="Those of jobRestarts that count towards maxRestarts.",
    )


@wire
class JobSetStatus:
    """What the controllers say."""

    conditions: tuple[Condition, ...] = field(
        default=(),
        map_keys=("type",),
        description=(
            "Completed, Failed, Suspended, RestartingJobSet, StartupPolicyInProgress and "
            "StartupPolicyCompleted, as far as they apply."
        ),
    )
    restarts: int = field(default=0, description="How often all Jobs were recreated.")
    restarts_count_towards_max: int = field(
        default=0, description="Those of restarts that count towards maxRestarts."
    )
    terminal_state: str = field(
        default="", description="Completed or Failed once the JobSet has finished."
    )
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = field(
        default=(), map_keys=("name",), description="Counters per ReplicatedJob."
    )
    synced_epoch: int = field(
        default=0,
        defaulted=True,
        description=(
            "Latest epoch that all pods reached: those at it run their workers. Written by the "
            "controller, read by the agents of the strategy InPlaceRestart."
        ),
    )
    deprecated_epoch: int = field(
        default=0,
        defaulted=True,
        description=(
            "Pods at this epoch or an older one restart in place. Written by the controller, read "
            "by the agents of the strategy InPlaceRestart."
        ),
    )
    previous_in_place_restart_attempt: int | None = field(
        default=None,
        minimum=0,
        description="Kept for objects written by other controllers; deprecatedEpoch rules here.",
    )
    current_in_place_restart_attempt: int | None = field(
        default=None,
        minimum=0,
        description="Kept for objects written by other controllers; syncedEpoch rules here.",
    )


@resource(keys.GROUP, keys.VERSION, "JobSet", "jobsets")
@wire
class JobSet:
    """A set of Jobs that start together, fail together and restart together."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSetSpec = field(default=JobSetSpec(), description="What the user asks for.")
    status: JobSetStatus = field(default=JobSetStatus(), description="What the controllers say.")


# --------------------------------------------------------------------------------------------------
# The cached slice of a child pod. Thousands of these are held, so it keeps only what some reader
# reads; texts that repeat from pod to pod are interned. Labels are fields here, not a dict.


def _intern(obj: Any, *names: str) -> None:
    for name in names:
        value = getattr(obj, name)
        if value:
            object.__setattr__(obj, name, sys.intern(value))


@lru_cache(maxsize=1024)
def _shared_selector(key: str, value: str) -> Mapping[str, str]:
    return MappingProxyType({key: value})


@wire
class ChildPodLabels:
    """The labels that tell which Job of which JobSet a pod belongs to."""

    jobset_name: str = field(default="", name=keys.JOBSET_NAME)
    replicated_job_name: str = field(default="", name=keys.REPLICATED_JOB_NAME)
    restart_attempt: str = field(default="", name=keys.RESTART_ATTEMPT)
    job_index: str = field(default="", name=keys.JOB_INDEX)
    job_key: str = field(default="", name=keys.JOB_KEY)

    def __attrs_post_init__(self) -> None:
        """Share the texts between the pods of a Job."""
        _intern(
            self, "jobset_name", "replicated_job_name", "restart_attempt", "job_index", "job_key"
        )


@wire
class ChildPodAnnotations:
    """The agent's epoch, which completion index the pod has, and how it is placed."""

    epoch: str | None = field(default=None, name=keys.EPOCH_ANNOTATION)
    completion_index: str | None = field(default=None, name=keys.COMPLETION_INDEX_ANNOTATION)
    jobset_uid: str = field(default="", name=keys.JOBSET_UID)
    exclusive_topology: str | None = field(default=None, name=keys.EXCLUSIVE_TOPOLOGY_ANNOTATION)
    node_selector: str | None = field(default=None, name=keys.NODE_SELECTOR_ANNOTATION)
    group_attempt: str | None = field(default=None, name=keys.GROUP_ATTEMPT)

    def __attrs_post_init__(self) -> None:
        """Share the texts between the pods of a Job."""
        _intern(self, "epoch", "completion_index", "jobset_uid", "exclusive_topology")
        _intern(self, "node_selector", "group_attempt")

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
    labels: ChildPodLabels = ChildPodLabels()
    annotations: ChildPodAnnotations = ChildPodAnnotations()
    owner_references: tuple[OwnerReference, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Share the namespace's text."""
        _intern(self, "namespace")

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
    node_selector: Mapping[str, str] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Share the node name between the pods of a node."""
        _intern(self, "node_name")

    @property
    def held(self) -> bool:
        """Whether the gate of exclusive placement is there."""
        return any(gate.name == keys.PLACEMENT_GATE for gate in self.scheduling_gates)


@wire
class InitTerminated:
    """How an init container ended."""

    exit_code: int = 0


@wire
class InitState:
    """An init container's state; neither of the two is there while it waits."""

    running: Mapping[str, Any] | None = None
    terminated: InitTerminated | None = None


@wire
class InitStatus:
    """What the kubelet says of an init container."""

    name: str = ""
    state: InitState = InitState()

    @property
    def at_barrier(self) -> bool:
        """Whether it is the barrier of group scheduling, and runs or has been passed."""
        if self.name != keys.GROUP_INIT_CONTAINER:
            return False
        ended = self.state.terminated
        return self.state.running is not None or (ended is not None and ended.exit_code == 0)


_AT_BARRIER = (InitStatus(name=keys.GROUP_INIT_CONTAINER, state=InitState(running={})),)


@wire
class ChildPodStatus:
    """The pod's phase, and whether it has come to the barrier of group scheduling.

    ``init_container_statuses`` of a cached pod only answers that; all pods share the answer.
    """

    phase: str = ""
    init_container_statuses: tuple[InitStatus, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Share the text of the phase; keep of the init containers only the answer."""
        _intern(self, "phase")
        if self.init_container_statuses:
            started = any(status.at_barrier for status in self.init_container_statuses)
            object.__setattr__(self, "init_container_statuses", _AT_BARRIER if started else ())

    @property
    def group_started(self) -> bool:
        """Whether the pod counts as started for group scheduling (KEP-498)."""
        return bool(self.init_container_statuses)


@resource("", "v1", "Pod", "pods")
@wire
class ChildPod:
    """A pod of a JobSet, as cached by the manager."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ChildPodMeta = ChildPodMeta()
    spec: ChildPodSpec = ChildPodSpec()
    status: ChildPodStatus = ChildPodStatus()

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
