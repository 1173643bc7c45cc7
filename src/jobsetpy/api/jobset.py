"""JobSet (``jobset.x-k8s.io/v1alpha2``), and the slice of its pods that reconcilers cache.

The embedded Job template is kept as the plain JSON it came as: the controller passes it on and
must not lose a field it does not know.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
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


@wire
class DependsOn:
    """A ReplicatedJob that has to be ``Ready`` or ``Complete`` first."""

    name: str = ""
    status: str = ""


@wire
class ReplicatedJob:
    """``replicas`` Jobs made from one template."""

    name: str = ""
    group_name: str = "default"
    replicas: int = 1
    template: Mapping[str, Any] = field(factory=dict)
    depends_on: tuple[DependsOn, ...] = ()


@wire
class Network:
    """DNS names of the pods."""

    enable_dns_hostnames: bool | None = field(default=None, name="enableDNSHostnames")
    subdomain: str = ""
    publish_not_ready_addresses: bool | None = None


@wire
class SuccessPolicy:
    """When the JobSet is complete."""

    operator: str = "All"
    target_replicated_jobs: tuple[str, ...] = ()


@wire
class FailurePolicyRule:
    """One rule of KEP-262."""

    name: str = ""
    action: str = ""
    on_job_failure_reasons: tuple[str, ...] = ()
    on_job_failure_message_patterns: tuple[str, ...] = ()
    target_replicated_jobs: tuple[str, ...] = ()


@wire
class FailurePolicy:
    """What happens when a Job fails."""

    max_restarts: int = 0
    restart_strategy: str = keys.RECREATE
    rules: tuple[FailurePolicyRule, ...] = ()


@wire
class StartupPolicy:
    """In which order ReplicatedJobs start."""

    startup_policy_order: str = "AnyOrder"


@wire
class Coordinator:
    """The pod whose stable address all others learn."""

    replicated_job: str = ""
    job_index: int = 0
    pod_index: int = 0


@wire
class RetentionPolicy:
    """What becomes of volume claims when the JobSet is deleted."""

    when_deleted: str | None = None


@wire
class VolumeClaimPolicy:
    """Volume claims shared by the JobSet's pods."""

    templates: tuple[Mapping[str, Any], ...] = ()
    retention_policy: RetentionPolicy | None = None


@wire
class GroupSchedulingConfig:
    """KEP-498: main containers start only when all targeted pods have started."""

    timeout_after_seconds: int | None = None
    target_replicated_jobs: tuple[str, ...] = ()


@wire
class JobSetSpec:
    """What the user asks for."""

    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    network: Network | None = None
    success_policy: SuccessPolicy | None = None
    failure_policy: FailurePolicy | None = None
    startup_policy: StartupPolicy | None = None
    suspend: bool | None = None
    coordinator: Coordinator | None = None
    managed_by: str | None = None
    ttl_seconds_after_finished: int | None = None
    volume_claim_policies: tuple[VolumeClaimPolicy, ...] = ()
    group_scheduling_config: GroupSchedulingConfig | None = None


@wire
class ReplicatedJobStatus:
    """Counters of one ReplicatedJob, over the Jobs of the current attempt."""

    name: str = ""
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    active: int = 0
    suspended: int = 0
    job_restarts: tuple[int, ...] = ()
    job_restarts_count_towards_max: tuple[int, ...] = ()


@wire
class JobSetStatus:
    """What the controllers say."""

    conditions: tuple[Condition, ...] = ()
    restarts: int = 0
    restarts_count_towards_max: int = 0
    terminal_state: str = ""
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = ()
    synced_epoch: int = 0
    deprecated_epoch: int = 0


@resource(keys.GROUP, keys.VERSION, "JobSet", "jobsets")
@wire
class JobSet:
    """A set of Jobs that start together, fail together and restart together."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


# --------------------------------------------------------------------------------------------------
# The cached slice of a child pod. Thousands of these are held, so it keeps only what some reader
# reads; texts that repeat from pod to pod are interned. Labels are fields here, not a dict.


def _intern(obj: Any, *names: str) -> None:
    for name in names:
        value = getattr(obj, name)
        if value:
            object.__setattr__(obj, name, sys.intern(value))


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
        _intern(self, "jobset_name", "replicated_job_name", "restart_attempt", "job_index",
                "job_key")


@wire
class ChildPodAnnotations:
    """The agent's epoch, and which completion index the pod has."""

    epoch: str | None = field(default=None, name=keys.EPOCH_ANNOTATION)
    completion_index: str | None = field(default=None, name=keys.COMPLETION_INDEX_ANNOTATION)
    jobset_uid: str = field(default="", name=keys.JOBSET_UID)

    def __attrs_post_init__(self) -> None:
        """Share the texts between the pods of a Job."""
        _intern(self, "epoch", "completion_index", "jobset_uid")


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
class ChildPodSpec:
    """Where the pod runs."""

    node_name: str = ""

    def __attrs_post_init__(self) -> None:
        """Share the node name between the pods of a node."""
        _intern(self, "node_name")


@wire
class ChildPodStatus:
    """The pod's phase."""

    phase: str = ""

    def __attrs_post_init__(self) -> None:
        """Share the text of the phase."""
        _intern(self, "phase")


@resource("", "v1", "Pod", "pods")
@wire
class ChildPod:
    """A pod of a JobSet, as cached by the manager."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ChildPodMeta = ChildPodMeta()
    spec: ChildPodSpec = ChildPodSpec()
    status: ChildPodStatus = ChildPodStatus()
