"""JobSet (``jobset.x-k8s.io/v1alpha2``).

The embedded Job template is kept as plain JSON: the controller passes it on and must not lose
unknown fields.

The fields contain the data of the CRD, which ``schema`` reads. Types and wire names come from the
annotations, the rest is metadata:

* ``description``: the field's text in the CRD;
* ``required``: the object is refused without it;
* ``defaulted``: the API server sets the Python default (other defaults exist only in Python), or
  the value ``schema_default``;
* ``enum``, ``minimum``, ``max_items``, ``format``: value rules;
* ``map_keys`` or ``atomic``: merge rule of a list in server-side apply;
* ``immutable``: may not change once set, but may be added and removed;
* ``embed``: the built-in type whose schema is embedded, by its OpenAPI name.

A class's ``RULES`` are CEL rules as pairs of expression and message.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from jobsetpy.api import keys
from jobsetpy.api._wire import field, wire
from jobsetpy.api.child_pod import ChildPod as ChildPod  # noqa: PLC0414 - exported, too
from jobsetpy.api.meta import Condition, ObjectMeta, ResourceInfo, resource

MAX_RULES: Final = 128
"""Maximum number of rules of a failure policy."""
MAX_REASONS: Final = 128
"""Maximum number of reasons, and of patterns, of a rule."""

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
            "Group of ReplicatedJobs that this one belongs to, for the group labels of its Jobs."
        ),
    )
    replicas: int = field(
        default=1,
        defaulted=True,
        minimum=0,
        description="Number of Jobs created from the template.",
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
            "True if a headless Service gives pods the stable names "
            "<jobset>-<replicatedJob>-<job index>-<pod index> below the subdomain."
        ),
    )
    subdomain: str = field(
        default="", description="Name of that Service; the JobSet's own name when empty."
    )
    publish_not_ready_addresses: bool | None = field(
        default=None, description="True if the names resolve before the pods are ready."
    )


@wire
class SuccessPolicy:
    """Condition under which the JobSet is complete."""

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
        description=(
            "Name in conditions and events, unique within the policy; failurePolicyRule and the "
            "rule's index when empty."
        ),
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
            "Reaction to a matching failure. FailJobSet: the JobSet fails immediately. FailJob: "
            "only the Job stays failed. RestartJobSet, RestartReplicatedJob, RestartJob: all Jobs, "
            "those of the same ReplicatedJob, or the failed Job alone are recreated; with "
            "AndIgnoreMaxRestarts the restart does not count towards maxRestarts."
        ),
    )
    on_job_failure_reasons: tuple[str, ...] = field(
        default=(),
        max_items=MAX_REASONS,
        description="Reasons of the Job's Failed condition that match; any when empty.",
    )
    on_job_failure_message_patterns: tuple[str, ...] = field(
        default=(),
        max_items=MAX_REASONS,
        description=(
            "Regular expressions (RE2) of which one has to match the message of the Job's Failed "
            "condition; any message when empty."
        ),
    )
    target_replicated_jobs: tuple[str, ...] = field(default=(), atomic=True, description=_TARGETS)


@wire
class FailurePolicy:
    """Reaction to failed Jobs."""

    max_restarts: int = field(
        default=0, description="Maximum number of restarts before the JobSet fails."
    )
    restart_strategy: str = field(
        default=keys.RECREATE,
        defaulted=True,
        enum=(keys.RECREATE, keys.BLOCKING_RECREATE, keys.IN_PLACE_RESTART),
        description=(
            "Recreate: each Job is recreated as soon as its predecessor is gone. "
            "BlockingRecreate: no Job is created before all predecessors are gone. InPlaceRestart: "
            "running pods restart their containers where they are, only failed pods are replaced; "
            "a failed Job leads to Recreate."
        ),
    )
    rules: tuple[FailurePolicyRule, ...] = field(
        default=(),
        max_items=MAX_RULES,
        description=(
            "The first rule that matches a Job's failure decides. Without a match the whole "
            "JobSet restarts."
        ),
    )


@wire
class StartupPolicy:
    """Start order of ReplicatedJobs."""

    startup_policy_order: str = field(
        default="AnyOrder",
        required=True,
        enum=("AnyOrder", "InOrder"),
        description="InOrder: a ReplicatedJob starts when the one listed before it is ready.",
    )


@wire
class Coordinator:
    """The pod whose stable address is published to all others."""

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
    """Retention of volume claims when the JobSet is deleted."""

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
            "Templates of one claim each, named <template>-<jobset>; containers mount it by the "
            "template's name."
        ),
    )
    retention_policy: RetentionPolicy | None = field(
        default=None, description="Retention of the claims when the JobSet is deleted."
    )


@wire
class GroupSchedulingConfig:
    """KEP-498: main containers start only when all targeted pods have started."""

    timeout_after_seconds: int | None = field(
        default=None,
        minimum=1,
        description="Timeout of a pod for the start of the others. No limit when absent.",
    )
    target_replicated_jobs: tuple[str, ...] = field(default=(), atomic=True, description=_TARGETS)


@wire
class JobSetSpec:
    """Desired state of a JobSet."""

    RULES: ClassVar[tuple[tuple[str, str], ...]] = (
        (_IN_ORDER_WITH_DEPENDENCIES, "startupPolicy InOrder and dependsOn are mutually exclusive"),
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
        description="Condition of success; absent: all Jobs have to succeed.",
    )
    failure_policy: FailurePolicy | None = field(
        default=None,
        immutable=True,
        description="Reaction to failed Jobs; absent: the JobSet fails.",
    )
    startup_policy: StartupPolicy | None = field(
        default=None,
        immutable=True,
        description="Order in which ReplicatedJobs start. Prefer dependsOn, which replaces it.",
    )
    suspend: bool | None = field(
        default=None, description="While true, Jobs are suspended and have no pods."
    )
    coordinator: Coordinator | None = field(
        default=None,
        description=(
            "Pod whose stable address is written to all Jobs and pods as the label and annotation "
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
        description="Time in seconds after which the finished JobSet is deleted; never if absent.",
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

    @property
    def restarts_in_place(self) -> bool:
        """True if the failure policy specifies restarts in place."""
        policy = self.failure_policy
        return policy is not None and policy.restart_strategy == keys.IN_PLACE_RESTART


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
class TakenSeat:
    """Seat of a Job's worker that is held by another pod than that with its completion index."""

    job: str = field(default="", required=True, description="Name of the Job.")
    seat: int = field(
        default=0, required=True, minimum=0, description="The completion index whose work it does."
    )
    pod: str = field(default="", required=True, description="Name of the pod that holds it.")
    pod_uid: str = field(
        default="", name="podUID", required=True, description="The UID of that pod."
    )
    pod_index: int = field(default=0, minimum=0, description="The pod's own completion index.")
    address: str = field(default="", description="The pod's IP address.")


@wire
class TakenJob:
    """Job whose seats are all held by the pods of another Job of its ReplicatedJob."""

    job: str = field(default="", required=True, description="Name of the Job.")
    holder: str = field(
        default="", required=True, description="Name of the Job whose pods do its work."
    )


@wire
class InPlaceRestartStatus:
    """Restarts in place, and how epochs are charged to ``maxRestarts``.

    An epoch after the first represents one restart, unless the pods that opened it were only
    recreated: the JobSet was resumed or resized, or Jobs were recreated, which is counted
    separately. This is decided by comparing the pods with those at the latest synced epoch.
    """

    restarts: int = field(
        default=0, description="Number of restarts in place that counted towards maxRestarts."
    )
    uncounted_epochs: int = field(
        default=0, description="Number of epochs that were not opened by a failure."
    )
    last_uncounted_epoch: int = field(
        default=0, description="The latest of them; 0 if there is none."
    )
    pods: int = field(
        default=0,
        description="Number of pods that the group required when syncedEpoch was written.",
    )
    all_jobs_restarts_at_sync: int = field(
        default=0, description="The value of the status's restarts at that time."
    )
    job_restarts_at_sync: int = field(
        default=0, description="The sum of all jobRestarts at that time."
    )
    resume_time: datetime | None = field(
        default=None, description="Time of the last resume before that."
    )
    container_restarts: int = field(
        default=0,
        description=(
            "Highest restart count of a container when deprecatedEpoch was written: the next "
            "restart of each container belongs to that of the group."
        ),
    )
    crashes: int = field(
        default=0,
        description=(
            "Number of failures since then, with the barrier still closed, of the container that "
            "failed most; bounded by maxRestarts."
        ),
    )
    crashing_pod: str = field(default="", description="The pod of that container.")
    crashing_container: str = field(default="", description="The name of that container.")
    highest_step: int | None = field(
        default=None,
        format=None,
        description="The highest step that a supervisor has reported of its worker.",
    )
    restarts_without_progress: int = field(
        default=0,
        description="Number of successive counted restarts without a higher step.",
    )
    pods_digest: int = field(
        default=0,
        description=(
            "Digest of the UIDs of the pods at syncedEpoch, where steps are reported or limited: "
            "it shows if one of them was replaced since; 0 if unknown."
        ),
    )
    served_request: str = field(
        default="",
        description=(
            "Value of the annotation jobset.sigs.k8s.io/restart-in-place that has been served: the "
            "present workers were started after it was set."
        ),
    )
    ready_spares: int | None = field(
        default=None,
        minimum=0,
        description=(
            "Number of spares that could take a seat immediately; absent without the annotation "
            "jobset.sigs.k8s.io/in-place-restart-spares or in-place-restart-spare-replicas."
        ),
    )
    taken_seats: tuple[TakenSeat, ...] = field(
        default=(),
        atomic=True,
        description=(
            "Seats held by other pods than those with their completion indexes, as of syncedEpoch. "
            "All others are held by the pods with their indexes."
        ),
    )
    taken_jobs: tuple[TakenJob, ...] = field(
        default=(),
        atomic=True,
        description=(
            "Jobs whose seats are all held by another Job of their ReplicatedJob, as of "
            "syncedEpoch. The seats in takenSeats are then those of the Job that holds them."
        ),
    )
    crash_times: tuple[datetime, ...] = field(
        default=(),
        description=(
            "Times of counted restarts within the window of the annotation "
            "jobset.sigs.k8s.io/max-restarts-window, at most 101."
        ),
    )


@wire
class RestartCause:
    """Cause of a restart, as far as it was observed; long texts are truncated."""

    reason: str = field(
        default="",
        description=(
            "ContainerFailed, PodFailed, PodDeleted, PodsMissing, NodeLost, WorkerFailed or "
            "WorkerHung (as its supervisor says), PodRestarted (a pod has come to the next "
            "epoch), JobRemade, RestartRequested, PodLeaving, InPlaceGroupResized, or the reason "
            "of a Job's failure."
        ),
    )
    job: str = field(default="", description="Job that failed, or was recreated on request.")
    pod: str = field(default="", description="The pod that was seen to fail.")
    node: str = field(default="", description="The node of that pod.")
    container: str = field(default="", description="The container that failed.")
    exit_code: int | None = field(
        default=None, description="Its exit code; above 128 that number and a signal's."
    )
    message: str = field(default="", description="Further details for people.")


@wire
class RestartRecord:
    """One restart of any kind. Durations are in milliseconds."""

    kind: str = field(
        default="",
        required=True,
        enum=("InPlace", "Recreate", "RestartReplicatedJob", "RestartJob"),
        description=(
            "InPlace: all pods restarted where they are. Recreate, RestartReplicatedJob, "
            "RestartJob: all Jobs, those of one ReplicatedJob, or single ones were recreated."
        ),
    )
    number: int = field(
        default=0,
        description=(
            "Epoch that a restart in place opened; for other kinds the resulting value of restarts "
            "or jobRestarts, 0 if it is not numbered."
        ),
    )
    target: str = field(default="", description="The Job or ReplicatedJob that was recreated.")
    more_jobs: int = field(
        default=0,
        description="Number of further Jobs that the same rule recreated at the same time.",
    )
    rule: str = field(
        default="", description="Rule of the failure policy that required it; none when empty."
    )
    counted: bool = field(default=False, description="True if it counts towards maxRestarts.")
    began_at: datetime | None = field(
        default=None, description="Time of the first sign of it; whole seconds for failed Jobs."
    )
    cause: RestartCause | None = field(default=None, description="Cause of the restart.")
    detection_millis: int | None = field(
        default=None, minimum=0, description="From the first sign to the decision to restart."
    )
    deprecation_millis: int | None = field(
        default=None,
        minimum=0,
        description="In place: until the last pod had left the epochs before.",
    )
    gathering_millis: int | None = field(
        default=None,
        minimum=0,
        description="From then until all pods had come, or all Jobs were ready.",
    )
    lift_millis: int | None = field(
        default=None,
        minimum=0,
        description=(
            "In place: duration of the write of syncedEpoch; known once the status is written "
            "for another reason."
        ),
    )
    last_pod: str = field(default="", description="In place: the pod that came last.")
    last_node: str = field(default="", description="The node of that pod.")
    seats_taken: int = field(
        default=0, description="In place: number of seats that spares have taken over with it."
    )
    outcome: str = field(
        default="",
        enum=("", "Completed", "Interrupted"),
        description=(
            "Interrupted: another restart, a suspension or the end of the JobSet came before its "
            "end. Empty while it is under way."
        ),
    )


@wire
class RestartPacing:
    """Restarts over time: their frequency, and the times of those that count.

    A manager that takes over continues the same back-off.
    """

    series: int = field(
        default=0,
        description=(
            "Restarts in quick succession: none of the runs between them lasted as long as the "
            "back-off's reset."
        ),
    )
    series_start_time: datetime | None = field(
        default=None, description="When the first restart of the series began."
    )
    last_start_time: datetime | None = field(
        default=None, description="When workers were last let run, or will be."
    )
    not_before: datetime | None = field(
        default=None, description="Workers are not let run again before."
    )
    counted_times: tuple[datetime, ...] = field(
        default=(),
        description=(
            "When restarts were that counted towards maxRestarts, with the annotation "
            "jobset.sigs.k8s.io/max-restarts-window: those within the window, at most 101."
        ),
    )


@wire
class JobSetStatus:
    """Observed state of a JobSet, written by the controllers."""

    conditions: tuple[Condition, ...] = field(
        default=(),
        map_keys=("type",),
        description=(
            "Completed, Failed, Suspended, RestartingJobSet, RestartingInPlace, BarrierStalled, "
            "PodsRefused, StartupPolicyInProgress, StartupPolicyCompleted, "
            "GroupSchedulingInProgress, GroupSchedulingCompleted, CoschedulingInProgress and "
            "CoschedulingCompleted, as far as they apply."
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
    in_place_restart: InPlaceRestartStatus | None = field(
        default=None,
        description="What the strategy InPlaceRestart has to remember to count each restart once.",
    )
    state: str = field(
        default="",
        description=(
            "Running, Restarting, Waiting, Suspended, Completed or Failed: what the rest of the "
            "status comes to, as of its latest write."
        ),
    )
    ready_pods: str = field(
        default="",
        description=(
            "Pods that were ready at the latest write of the counters, of all that there are to "
            "be, such as 14/16."
        ),
    )
    restart_history: tuple[RestartRecord, ...] = field(
        default=(),
        atomic=True,
        max_items=10,
        description="The latest restarts of any kind, the oldest first.",
    )
    restart_pacing: RestartPacing | None = field(
        default=None, description="How restarts follow each other, and are delayed."
    )
    previous_in_place_restart_attempt: int | None = field(
        default=None,
        minimum=0,
        description=(
            "deprecatedEpoch - 1, for agents of the Go project: pods at this attempt or an older "
            "one restart in place. Only there if pods have such agents."
        ),
    )
    current_in_place_restart_attempt: int | None = field(
        default=None,
        minimum=0,
        description=(
            "syncedEpoch - 1, for agents of the Go project: pods at this attempt run their "
            "workers. Only there if pods have such agents."
        ),
    )


@resource(keys.GROUP, keys.VERSION, "JobSet", "jobsets")
@wire
class JobSet:
    """A set of Jobs that start together, fail together and restart together."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSetSpec = field(default=JobSetSpec(), description="What the user asks for.")
    status: JobSetStatus = field(default=JobSetStatus(), description="What the controllers say.")
