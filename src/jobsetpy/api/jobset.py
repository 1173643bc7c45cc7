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

    name: str = field("Name of a ReplicatedJob earlier in the list.", default="", required=True)
    status: str = field(
        "Status to wait for. Ready: all its Jobs run or have finished. Complete: all its Jobs "
        "have succeeded.",
        default="",
        required=True,
        enum=("Ready", "Complete"),
    )


@wire
class ReplicatedJob:
    """``replicas`` Jobs made from one template."""

    name: str = field(
        "Name, unique within the JobSet; part of the names of its Jobs and pods.",
        default="",
        required=True,
    )
    group_name: str = field(
        "Group of ReplicatedJobs that this one belongs to, for the group labels of its Jobs.",
        default="default",
        defaulted=True,
    )
    replicas: int = field(
        "Number of Jobs created from the template.", default=1, defaulted=True, minimum=0
    )
    template: Mapping[str, Any] = field(
        "The Jobs' metadata and spec, as in batch/v1.",
        factory=dict,
        required=True,
        embed="io.k8s.api.batch.v1.JobTemplateSpec",
    )
    depends_on: tuple[DependsOn, ...] = field(
        "ReplicatedJobs that must reach a status before these Jobs are created.",
        default=(),
        map_keys=("name",),
        max_items=5,
        immutable=True,
    )


@wire
class Network:
    """DNS names of the pods."""

    enable_dns_hostnames: bool | None = field(
        "True if a headless Service gives pods the stable names "
        "<jobset>-<replicatedJob>-<job index>-<pod index> below the subdomain.",
        default=None,
        name="enableDNSHostnames",
    )
    subdomain: str = field(
        "Name of the headless Service; the JobSet's name when empty.", default=""
    )
    publish_not_ready_addresses: bool | None = field(
        "True if the stable names resolve before the pods are ready.", default=None
    )


@wire
class SuccessPolicy:
    """Condition under which the JobSet is complete."""

    operator: str = field(
        "Required Jobs of the targets. All: every Job has to succeed. Any: one Job is enough.",
        default="All",
        required=True,
        enum=("All", "Any"),
    )
    target_replicated_jobs: tuple[str, ...] = field(_TARGETS, default=(), atomic=True)


@wire
class FailurePolicyRule:
    """One rule of KEP-262."""

    name: str = field(
        "Name in conditions and events, unique within the policy; failurePolicyRule and the "
        "rule's index when empty.",
        default="",
    )
    action: str = field(
        "Reaction to a matching failure. FailJobSet: the JobSet fails immediately. FailJob: "
        "only the Job stays failed. RestartJobSet, RestartReplicatedJob, RestartJob: all Jobs, "
        "those of the same ReplicatedJob, or the failed Job alone are recreated; with "
        "AndIgnoreMaxRestarts the restart does not count towards maxRestarts.",
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
    )
    on_job_failure_reasons: tuple[str, ...] = field(
        "Reasons of the Job's Failed condition that match; any when empty.",
        default=(),
        max_items=MAX_REASONS,
    )
    on_job_failure_message_patterns: tuple[str, ...] = field(
        "Regular expressions (RE2) of which one has to match the message of the Job's Failed "
        "condition; any message when empty.",
        default=(),
        max_items=MAX_REASONS,
    )
    target_replicated_jobs: tuple[str, ...] = field(_TARGETS, default=(), atomic=True)


@wire
class FailurePolicy:
    """Reaction to failed Jobs."""

    max_restarts: int = field("Maximum number of restarts before the JobSet fails.", default=0)
    restart_strategy: str = field(
        "Recreate: each Job is recreated as soon as its predecessor is gone. "
        "BlockingRecreate: no Job is created before all predecessors are gone. InPlaceRestart: "
        "running pods restart their containers where they are, only failed pods are replaced; "
        "a failed Job leads to Recreate.",
        default=keys.RECREATE,
        defaulted=True,
        enum=(keys.RECREATE, keys.BLOCKING_RECREATE, keys.IN_PLACE_RESTART),
    )
    rules: tuple[FailurePolicyRule, ...] = field(
        "Rules for failed Jobs: the first one that matches decides. If none matches, the whole "
        "JobSet restarts.",
        default=(),
        max_items=MAX_RULES,
    )


@wire
class StartupPolicy:
    """Start order of ReplicatedJobs."""

    startup_policy_order: str = field(
        "Order of the start. InOrder: a ReplicatedJob starts when the previous one in the list "
        "is ready.",
        default="AnyOrder",
        required=True,
        enum=("AnyOrder", "InOrder"),
    )


@wire
class Coordinator:
    """The pod whose stable address is published to all others."""

    replicated_job: str = field("ReplicatedJob that the pod belongs to.", default="", required=True)
    job_index: int = field("Index of the Job within the ReplicatedJob.", default=0, format=None)
    pod_index: int = field("Completion index of the pod within the Job.", default=0, format=None)


@wire
class RetentionPolicy:
    """Retention of volume claims when the JobSet is deleted."""

    when_deleted: str | None = field(
        "Delete: the claims are deleted with the JobSet. Retain: the claims are kept.",
        default=None,
        schema_default="Delete",
        enum=("Delete", "Retain"),
    )


@wire
class VolumeClaimPolicy:
    """Volume claims shared by the JobSet's pods."""

    RULES: ClassVar[tuple[tuple[str, str], ...]] = (
        (
            "self.templates.all(c, !has(c.metadata.namespace) || c.metadata.namespace == '')",
            "a claim is created in the JobSet's namespace; namespace cannot be set",
        ),
    )
    templates: tuple[Mapping[str, Any], ...] = field(
        "Templates of one claim each, named <template>-<jobset>; containers mount it by the "
        "template's name.",
        default=(),
        atomic=True,
        max_items=50,
        embed="io.k8s.api.core.v1.PersistentVolumeClaim",
    )
    retention_policy: RetentionPolicy | None = field(
        "Retention of the claims when the JobSet is deleted.", default=None
    )


@wire
class GroupSchedulingConfig:
    """KEP-498: main containers start only when all targeted pods have started."""

    timeout_after_seconds: int | None = field(
        "Timeout of a pod for the start of the others. No limit when absent.",
        default=None,
        minimum=1,
    )
    target_replicated_jobs: tuple[str, ...] = field(_TARGETS, default=(), atomic=True)


_NATIVE: Final = "io.k8s.api.scheduling.v1alpha3.WorkloadPodGroup"
_ONLY_NATIVE: Final = "Only where the API server schedules gangs."


@wire
class GangFields:
    """Fields of a PodGroup."""

    scheduling_policy: Mapping[str, Any] | None = field(
        "Exactly one of gang (all pods of the group start together, or minCount of them) and "
        "basic (no gang). A gang of all pods when absent.",
        default=None,
        embed=f"{_NATIVE}SchedulingPolicy",
    )
    scheduling_constraints: Mapping[str, Any] | None = field(
        f"Topology that the pods of a group share. {_ONLY_NATIVE}",
        default=None,
        embed=f"{_NATIVE}SchedulingConstraints",
    )
    disruption_mode: Mapping[str, Any] | None = field(
        f"Unit of preemption: exactly one of single (a pod) and all (the group). {_ONLY_NATIVE}",
        default=None,
        embed=f"{_NATIVE}DisruptionMode",
    )


@wire
class ReplicatedJobScheduling(GangFields):
    """PodGroup of some ReplicatedJobs, or of each Job of one."""

    target_replicated_jobs: tuple[str, ...] = field(
        "ReplicatedJobs whose pods share the PodGroup.",
        default=(),
        required=True,
        atomic=True,
        min_items=1,
        max_items=50,
    )
    resource_claims: tuple[Mapping[str, Any], ...] = field(
        f"Resource claims that the pods of a group share. {_ONLY_NATIVE}",
        default=(),
        map_keys=("name",),
        max_items=4,
        embed=f"{_NATIVE}ResourceClaim",
    )
    job: Mapping[str, Any] | None = field(
        "If set, each Job of the only target has a PodGroup of its own, with these fields; the "
        "fields next to it are then absent.",
        default=None,
        embed="io.k8s.api.batch.v1.JobSchedulingConfiguration",
    )


@wire
class Scheduling(GangFields):
    """KEP-969: groups of pods that the scheduler handles as a unit."""

    replicated_jobs: tuple[ReplicatedJobScheduling, ...] = field(
        "Groups of ReplicatedJobs in place of one for the JobSet; each ReplicatedJob is in "
        "exactly one. Excludes the fields next to it.",
        default=(),
        atomic=True,
        max_items=50,
    )


@wire
class JobSetSpec:
    """Desired state of a JobSet."""

    RULES: ClassVar[tuple[tuple[str, str], ...]] = (
        (_IN_ORDER_WITH_DEPENDENCIES, "startupPolicy InOrder and dependsOn are mutually exclusive"),
    )
    replicated_jobs: tuple[ReplicatedJob, ...] = field(
        "Job templates, each with its number of Jobs.", default=(), map_keys=("name",)
    )
    network: Network | None = field("DNS names of the pods.", default=None, immutable=True)
    success_policy: SuccessPolicy | None = field(
        "Condition of success; absent: all Jobs have to succeed.", default=None, immutable=True
    )
    failure_policy: FailurePolicy | None = field(
        "Reaction to failed Jobs; absent: the JobSet fails.", default=None, immutable=True
    )
    startup_policy: StartupPolicy | None = field(
        "Order in which ReplicatedJobs start. Prefer dependsOn, which replaces it.",
        default=None,
        immutable=True,
    )
    suspend: bool | None = field("While true, Jobs are suspended and have no pods.", default=None)
    coordinator: Coordinator | None = field(
        "Pod whose stable address is written to all Jobs and pods as the label and annotation "
        "jobset.sigs.k8s.io/coordinator.",
        default=None,
    )
    managed_by: str | None = field(
        "Controller in charge of this JobSet; this one if absent or "
        "jobset.sigs.k8s.io/jobset-controller.",
        default=None,
    )
    ttl_seconds_after_finished: int | None = field(
        "Time in seconds after which the finished JobSet is deleted; never if absent.",
        default=None,
        minimum=0,
    )
    active_deadline_seconds: int | None = field(
        "Time in seconds after status.startTime at which the JobSet fails with the reason "
        "DeadlineExceeded; no limit if absent. It may be changed at any time.",
        default=None,
        minimum=1,
        format="int64",
    )
    volume_claim_policies: tuple[VolumeClaimPolicy, ...] = field(
        "Volume claims shared by the JobSet's pods.",
        default=(),
        atomic=True,
        max_items=50,
        immutable=True,
    )
    group_scheduling_config: GroupSchedulingConfig | None = field(
        "If set, main containers of the targets start only when all their pods have started.",
        default=None,
        immutable=True,
    )

    scheduling: Scheduling | None = field(
        "Gangs of the pods. Empty: one gang of all pods, or one for each ReplicatedJob if they "
        "start in an order. May be changed only while the JobSet is suspended.",
        default=None,
    )

    @property
    def restarts_in_place(self) -> bool:
        """True if the failure policy specifies restarts in place."""
        policy = self.failure_policy
        return policy is not None and policy.restart_strategy == keys.IN_PLACE_RESTART

    @property
    def in_order(self) -> bool:
        """True if each ReplicatedJob waits until the one before it has started."""
        policy = self.startup_policy
        return policy is not None and policy.startup_policy_order == "InOrder"


@wire
class ReplicatedJobStatus:
    """Counters of one ReplicatedJob, over the Jobs of the current attempt."""

    name: str = field("Name of the ReplicatedJob.", default="", required=True)
    ready: int = field(
        "Number of Jobs with enough ready or succeeded pods.", default=0, required=True
    )
    succeeded: int = field("Number of complete Jobs.", default=0, required=True)
    failed: int = field("Number of failed Jobs.", default=0, required=True)
    active: int = field(
        "Number of Jobs with active pods, or with pods that still end before the Job fails.",
        default=0,
        required=True,
    )
    suspended: int = field("Number of suspended Jobs.", default=0, required=True)
    job_restarts: tuple[int, ...] = field(
        "Numbers of restarts of single Jobs, by Job index.", default=(), atomic=True, max_items=1024
    )
    job_restarts_count_towards_max: tuple[int, ...] = field(
        "Numbers of restarts of single Jobs that count towards maxRestarts, by Job index.",
        default=(),
        atomic=True,
        max_items=1024,
    )


@wire
class TakenSeat:
    """Seat of a Job's worker that is held by another pod than that with its completion index."""

    job: str = field("Name of the Job.", default="", required=True)
    seat: int = field("Completion index of the seat.", default=0, required=True, minimum=0)
    pod: str = field("Name of the pod that holds the seat.", default="", required=True)
    pod_uid: str = field(
        "UID of the pod that holds the seat.", default="", name="podUID", required=True
    )
    pod_index: int = field("Completion index of the pod that holds the seat.", default=0, minimum=0)
    address: str = field("IP address of the pod that holds the seat.", default="")


@wire
class TakenJob:
    """Job whose seats are all held by the pods of another Job of its ReplicatedJob."""

    job: str = field("Name of the Job.", default="", required=True)
    holder: str = field("Name of the Job whose pods hold its seats.", default="", required=True)


@wire
class JobSize:
    """Job that works with fewer pods than its template states."""

    job: str = field("Name of the Job.", default="", required=True)
    seats: int = field("Number of its seats, numbered from 0.", default=0, required=True, minimum=0)
    missing: int = field("Number of seats that it would have in addition.", default=0, minimum=0)
    done: bool = field(
        "True once all of these seats have succeeded; without a seat, those of the other Jobs of "
        "its ReplicatedJob.",
        default=False,
    )


@wire
class InPlaceRestartStatus:
    """Restarts in place, and how epochs are charged to ``maxRestarts``.

    An epoch after the first represents one restart, unless the pods that opened it were only
    recreated: the JobSet was resumed or resized, or Jobs were recreated, which is counted
    separately. This is decided by comparing the pods with those at the latest synced epoch.
    """

    restarts: int = field(
        "Number of restarts in place that counted towards maxRestarts.", default=0
    )
    uncounted_epochs: int = field("Number of epochs that began without a failure.", default=0)
    last_uncounted_epoch: int = field(
        "Latest epoch that began without a failure; 0 if none.", default=0
    )
    pods: int = field(
        "Number of pods that the group required when syncedEpoch was written.", default=0
    )
    all_jobs_restarts_at_sync: int = field(
        "Value of status.restarts when syncedEpoch was written.", default=0
    )
    job_restarts_at_sync: int = field(
        "Sum of all jobRestarts when syncedEpoch was written.", default=0
    )
    resume_time: datetime | None = field(
        "Time of the last resume before syncedEpoch was written.", default=None
    )
    container_restarts: int = field(
        "Highest restart count of a container when deprecatedEpoch was written: the next "
        "restart of each container is part of the group's restart.",
        default=0,
    )
    crashes: int = field(
        "Number of failures, since deprecatedEpoch was written and before the barrier lifts, "
        "of the container that failed most; bounded by maxRestarts.",
        default=0,
    )
    crashing_pod: str = field("Name of the pod with the container of crashes.", default="")
    crashing_container: str = field("Name of the container of crashes.", default="")
    highest_step: int | None = field(
        "Highest step that a supervisor has reported for its worker.", default=None, format=None
    )
    restarts_without_progress: int = field(
        "Number of successive counted restarts without a higher step.", default=0
    )
    pods_digest: int = field(
        "Digest of the UIDs of the pods at syncedEpoch, which shows if one of them was "
        "replaced since; only where steps are reported or limited; 0 if unknown.",
        default=0,
    )
    served_request: str = field(
        "Value of the annotation jobset.sigs.k8s.io/restart-in-place of the last requested "
        "restart: the current workers were started after it was set.",
        default="",
    )
    ready_spares: int | None = field(
        "Number of spares that could take a seat immediately; absent without the annotation "
        "jobset.sigs.k8s.io/in-place-restart-spares or in-place-restart-spare-replicas.",
        default=None,
        minimum=0,
    )
    taken_seats: tuple[TakenSeat, ...] = field(
        "Seats held by other pods than those with their completion indexes, as of syncedEpoch. "
        "All others are held by the pods with their indexes.",
        default=(),
        atomic=True,
    )
    taken_jobs: tuple[TakenJob, ...] = field(
        "Jobs whose seats are all held by another Job of their ReplicatedJob, as of "
        "syncedEpoch. The seats in takenSeats are then those of the Job that holds them.",
        default=(),
        atomic=True,
    )
    job_sizes: tuple[JobSize, ...] = field(
        "Jobs that work with fewer pods, or with none, as of syncedEpoch, by the annotation "
        "jobset.sigs.k8s.io/in-place-restart-min-pods or in-place-restart-min-replicas. All others "
        "have all their seats.",
        default=(),
        atomic=True,
    )
    resize_time: datetime | None = field(
        "Time at which the group last became smaller, or began to grow.", default=None
    )
    growths: int = field(
        "Number of successive restarts to the full size; each doubles the next delay.", default=0
    )


@wire
class RestartCause:
    """Cause of a restart, as far as it was observed; long texts are truncated."""

    reason: str = field(
        "ContainerFailed, PodFailed, PodDeleted, PodsMissing, NodeLost, WorkerFailed, "
        "WorkerHung or LogRule (reported by the supervisor), PodRestarted (a pod has reached "
        "the next epoch), JobRemade, RestartRequested, PodLeaving, InPlaceGroupResized, "
        "GroupGrows (missing pods are ready), or the reason of a Job's failure.",
        default="",
    )
    job: str = field("Job that failed, or was recreated on request.", default="")
    pod: str = field("Name of the failed pod.", default="")
    node: str = field("Node of the failed pod.", default="")
    container: str = field("Name of the failed container.", default="")
    exit_code: int | None = field(
        "Exit code of the failed container; for a signal, 128 plus its number.", default=None
    )
    message: str = field("Further details for users.", default="")


@wire
class RestartRecord:
    """One restart of any kind. Durations are in milliseconds."""

    kind: str = field(
        "InPlace: all pods restarted where they are. Recreate, RestartReplicatedJob, "
        "RestartJob: all Jobs, those of one ReplicatedJob, or single ones were recreated.",
        default="",
        required=True,
        enum=("InPlace", "Recreate", "RestartReplicatedJob", "RestartJob"),
    )
    number: int = field(
        "Epoch that a restart in place opened; for other kinds the resulting value of restarts "
        "or jobRestarts, 0 if it is not numbered.",
        default=0,
    )
    target: str = field("Name of the recreated Job or ReplicatedJob.", default="")
    more_jobs: int = field(
        "Number of further Jobs that the same rule recreated at the same time.", default=0
    )
    rule: str = field(
        "Name of the failure policy's rule that matched; none when empty.", default=""
    )
    counted: bool = field("True if the restart counts towards maxRestarts.", default=False)
    began_at: datetime | None = field(
        "Time of the first sign of the failure; whole seconds for failed Jobs.", default=None
    )
    cause: RestartCause | None = field("Cause of the restart.", default=None)
    detection_millis: int | None = field(
        "Time from the first sign of the failure to the decision to restart.",
        default=None,
        minimum=0,
    )
    deprecation_millis: int | None = field(
        "In place: time from the decision until the last pod had left the earlier epochs.",
        default=None,
        minimum=0,
    )
    gathering_millis: int | None = field(
        "Time from then until all pods had arrived, or all Jobs were ready.",
        default=None,
        minimum=0,
    )
    lift_millis: int | None = field(
        "In place: duration of the write of syncedEpoch; known once the status is written "
        "for another reason.",
        default=None,
        minimum=0,
    )
    last_pod: str = field("In place: name of the last pod to arrive.", default="")
    last_node: str = field("In place: node of the last pod to arrive.", default="")
    seats_taken: int = field("In place: number of seats that spares took over.", default=0)
    pods: int = field(
        "In place: number of pods that work since then, where it has changed.", default=0
    )
    outcome: str = field(
        "Interrupted: another restart, a suspension or the end of the JobSet came before the "
        "restart completed. Empty while the restart is in progress.",
        default="",
        enum=("", "Completed", "Interrupted"),
    )


@wire
class RestartPacing:
    """Restarts over time: their frequency, and the times of those that count.

    A manager that takes over continues the same back-off.
    """

    series: int = field(
        "Number of restarts in quick succession: each run between them was shorter than the "
        "back-off's reset time.",
        default=0,
    )
    series_start_time: datetime | None = field(
        "Time of the first restart of the series.", default=None
    )
    last_start_time: datetime | None = field(
        "Time of the latest or next start of the workers.", default=None
    )
    not_before: datetime | None = field(
        "Earliest time of the next start of the workers.", default=None
    )
    counted_times: tuple[datetime, ...] = field(
        "Times of restarts that counted towards maxRestarts. With the annotation "
        "jobset.sigs.k8s.io/max-restarts-window: those within the window, at most 101.",
        default=(),
    )


def _sum(description: str) -> Any:
    """Return a field for a sum that grows without a bound."""
    return field(description, default=0, minimum=0, format="int64")


@wire
class RestartTime:
    """Restarts of one kind and cause that are over, and the time that they took."""

    kind: str = field("Kind of the restarts.", default="", required=True)
    cause: str = field(
        "Reason of their first sign; Other for those beyond the bound of the list.",
        default="",
        required=True,
    )
    count: int = field("Number of restarts that are over.", default=0, minimum=0)
    millis: int = _sum("Time from their first signs until workers ran again.")


@wire
class TimeSpent:
    """Use of the JobSet's time until ``since``, in milliseconds; ``activity`` has continued since.

    Its parts are queuedMillis, waitingMillis, runningMillis and those of restarts. It is written
    only with changes of the status that are written anyway.
    """

    activity: str = field(
        "Activity since then. Queued: suspended, by a queue or a user. Waiting: for pods to "
        "start. Running: workers run. Ended: all times are final.",
        default="",
        required=True,
        enum=("Queued", "Waiting", "Running", "Restarting", "Ended"),
    )
    began_at: datetime | None = field(
        "Time from which on the JobSet's time is accounted for: usually its creation.", default=None
    )
    since: datetime | None = field(
        "Time of the latest change; the durations end there.", default=None
    )
    queued_millis: int = _sum("Time in queues, or suspended.")
    waiting_millis: int = _sum("Time for which pods were waited for, outside restarts.")
    running_millis: int = _sum("Time in which workers ran.")
    missing_millis: int = _sum(
        "Part of runningMillis in seats without a pod: the time times the share of those seats, "
        "while a group with minimum continues with fewer pods. The next two leave that share out."
    )
    starting_millis: int = _sum(
        "Part of runningMillis until the first steps of runs, as workers reported."
    )
    repeating_millis: int = _sum(
        "Part of runningMillis in steps that an earlier run had done, likewise."
    )
    reported_millis: int = _sum("Part of runningMillis of which workers have reported the use.")
    repeated_steps: int = _sum("Number of steps done again.")
    first_start_millis: int | None = field(
        "Time for which pods were waited for before workers ran for the first time.",
        default=None,
        minimum=0,
        format="int64",
    )
    restarts: tuple[RestartTime, ...] = field(
        "Restarts by kind and cause.", default=(), atomic=True, max_items=16
    )


@wire
class JobSetStatus:
    """Observed state of a JobSet, written by the controllers."""

    conditions: tuple[Condition, ...] = field(
        "Completed, Failed, Suspended, RestartingJobSet, RestartingInPlace, BarrierStalled, "
        "PodsRefused, DeletionStalled, StartupPolicyInProgress, StartupPolicyCompleted, "
        "GroupSchedulingInProgress, GroupSchedulingCompleted, CoschedulingInProgress and "
        "CoschedulingCompleted, as far as they apply.",
        default=(),
        map_keys=("type",),
    )
    restarts: int = field("Number of times that all Jobs were recreated.", default=0)
    restarts_count_towards_max: int = field(
        "Number of restarts that count towards maxRestarts.", default=0
    )
    terminal_state: str = field("Completed or Failed once the JobSet has finished.", default="")
    start_time: datetime | None = field(
        "Start of the current run: set when the JobSet is not suspended, cleared by a "
        "suspension, set again by a resumption, a restart of all Jobs or a restart in place.",
        default=None,
    )
    execution_attempts: int | None = field(
        "Number of resumptions and restarts of all Jobs; absent until the JobSet first runs.",
        default=None,
        minimum=0,
    )
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = field(
        "Counters per ReplicatedJob.", default=(), map_keys=("name",)
    )
    synced_epoch: int = field(
        "Latest epoch that all pods reached: pods at this epoch run their workers. Written by "
        "the controller, read by the agents of the strategy InPlaceRestart.",
        default=0,
        defaulted=True,
    )
    deprecated_epoch: int = field(
        "Pods at this epoch or an older one restart in place. Written by the controller, read "
        "by the agents of the strategy InPlaceRestart.",
        default=0,
        defaulted=True,
    )
    in_place_restart: InPlaceRestartStatus | None = field(
        "State of the strategy InPlaceRestart, by which each restart is counted once.", default=None
    )
    state: str = field(
        "Summary of the status as of its latest write: Running, Restarting, Waiting, "
        "Suspended, Completed or Failed.",
        default="",
    )
    ready_pods: str = field(
        "Ready and wanted pods at the latest write of the counters, such as 14/16.", default=""
    )
    restart_history: tuple[RestartRecord, ...] = field(
        "Latest restarts of any kind, the oldest first.", default=(), atomic=True, max_items=10
    )
    restart_pacing: RestartPacing | None = field(
        "Frequency of restarts, and their delay.", default=None
    )
    time_spent: TimeSpent | None = field(
        "Use of the JobSet's time so far, for kubectl jobset report.", default=None
    )
    previous_in_place_restart_attempt: int | None = field(
        "deprecatedEpoch - 1, for agents of the Go project: pods at this attempt or an older "
        "one restart in place. Only present if pods have such agents.",
        default=None,
        minimum=0,
    )
    current_in_place_restart_attempt: int | None = field(
        "syncedEpoch - 1, for agents of the Go project: pods at this attempt run their "
        "workers. Only present if pods have such agents.",
        default=None,
        minimum=0,
    )


@resource(keys.GROUP, keys.VERSION, "JobSet", "jobsets")
@wire
class JobSet:
    """A set of Jobs that start together, fail together and restart together."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSetSpec = field("Desired state of the JobSet.", default=JobSetSpec())
    status: JobSetStatus = field("Observed state of the JobSet.", default=JobSetStatus())
