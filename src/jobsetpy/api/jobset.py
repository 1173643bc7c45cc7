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
        description="Name of a ReplicatedJob earlier in the list.",
    )
    status: str = field(
        default="",
        required=True,
        enum=("Ready", "Complete"),
        description=(
            "Status to wait for. Ready: all its Jobs run or have finished. Complete: all its Jobs "
            "have succeeded."
        ),
    )


@wire
class ReplicatedJob:
    """``replicas`` Jobs made from one template."""

    name: str = field(
        default="",
        required=True,
        description="Name, unique within the JobSet; part of the names of its Jobs and pods.",
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
        description="ReplicatedJobs that must reach a status before these Jobs are created.",
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
        default="", description="Name of the headless Service; the JobSet's name when empty."
    )
    publish_not_ready_addresses: bool | None = field(
        default=None, description="True if the stable names resolve before the pods are ready."
    )


@wire
class SuccessPolicy:
    """Condition under which the JobSet is complete."""

    operator: str = field(
        default="All",
        required=True,
        enum=("All", "Any"),
        description=(
            "Required Jobs of the targets. All: every Job has to succeed. Any: one Job is enough."
        ),
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
            "Rules for failed Jobs: the first one that matches decides. If none matches, the whole "
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
        description=(
            "Order of the start. InOrder: a ReplicatedJob starts when the previous one in the list "
            "is ready."
        ),
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
        description=(
            "Delete: the claims are deleted with the JobSet. Retain: the claims are kept."
        ),
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


_NATIVE: Final = "io.k8s.api.scheduling.v1alpha3.WorkloadPodGroup"
_ONLY_NATIVE: Final = "Only where the API server schedules gangs."


@wire
class GangFields:
    """Fields of a PodGroup."""

    scheduling_policy: Mapping[str, Any] | None = field(
        default=None,
        embed=f"{_NATIVE}SchedulingPolicy",
        description=(
            "Exactly one of gang (all pods of the group start together, or minCount of them) and "
            "basic (no gang). A gang of all pods when absent."
        ),
    )
    scheduling_constraints: Mapping[str, Any] | None = field(
        default=None,
        embed=f"{_NATIVE}SchedulingConstraints",
        description=f"Topology that the pods of a group share. {_ONLY_NATIVE}",
    )
    disruption_mode: Mapping[str, Any] | None = field(
        default=None,
        embed=f"{_NATIVE}DisruptionMode",
        description=(
            f"Unit of preemption: exactly one of single (a pod) and all (the group). {_ONLY_NATIVE}"
        ),
    )


@wire
class ReplicatedJobScheduling(GangFields):
    """PodGroup of some ReplicatedJobs, or of each Job of one."""

    target_replicated_jobs: tuple[str, ...] = field(
        default=(),
        required=True,
        atomic=True,
        min_items=1,
        max_items=50,
        description="ReplicatedJobs whose pods share the PodGroup.",
    )
    resource_claims: tuple[Mapping[str, Any], ...] = field(
        default=(),
        map_keys=("name",),
        max_items=4,
        embed=f"{_NATIVE}ResourceClaim",
        description=f"Resource claims that the pods of a group share. {_ONLY_NATIVE}",
    )
    job: Mapping[str, Any] | None = field(
        default=None,
        embed="io.k8s.api.batch.v1.JobSchedulingConfiguration",
        description=(
            "If set, each Job of the only target has a PodGroup of its own, with these fields; the "
            "fields next to it are then absent."
        ),
    )


@wire
class Scheduling(GangFields):
    """KEP-969: groups of pods that the scheduler handles as a unit."""

    replicated_jobs: tuple[ReplicatedJobScheduling, ...] = field(
        default=(),
        atomic=True,
        max_items=50,
        description=(
            "Groups of ReplicatedJobs in place of one for the JobSet; each ReplicatedJob is in "
            "exactly one. Excludes the fields next to it."
        ),
    )


@wire
class JobSetSpec:
    """Desired state of a JobSet."""

    RULES: ClassVar[tuple[tuple[str, str], ...]] = (
        (_IN_ORDER_WITH_DEPENDENCIES, "startupPolicy InOrder and dependsOn are mutually exclusive"),
    )
    replicated_jobs: tuple[ReplicatedJob, ...] = field(
        default=(), map_keys=("name",), description="Job templates, each with its number of Jobs."
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
    active_deadline_seconds: int | None = field(
        default=None,
        minimum=1,
        format="int64",
        description=(
            "Time in seconds after status.startTime at which the JobSet fails with the reason "
            "DeadlineExceeded; no limit if absent. It may be changed at any time."
        ),
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

    scheduling: Scheduling | None = field(
        default=None,
        description=(
            "Gangs of the pods. Empty: one gang of all pods, or one for each ReplicatedJob if they "
            "start in an order. May be changed only while the JobSet is suspended."
        ),
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

    name: str = field(default="", required=True, description="Name of the ReplicatedJob.")
    ready: int = field(
        default=0, required=True, description="Number of Jobs with enough ready or succeeded pods."
    )
    succeeded: int = field(default=0, required=True, description="Number of complete Jobs.")
    failed: int = field(default=0, required=True, description="Number of failed Jobs.")
    active: int = field(
        default=0,
        required=True,
        description="Number of Jobs with active pods, or with pods that still end before the Job "
        "fails.",
    )
    suspended: int = field(default=0, required=True, description="Number of suspended Jobs.")
    job_restarts: tuple[int, ...] = field(
        default=(),
        atomic=True,
        max_items=1024,
        description="Numbers of restarts of single Jobs, by Job index.",
    )
    job_restarts_count_towards_max: tuple[int, ...] = field(
        default=(),
        atomic=True,
        max_items=1024,
        description=(
            "Numbers of restarts of single Jobs that count towards maxRestarts, by Job index."
        ),
    )


@wire
class TakenSeat:
    """Seat of a Job's worker that is held by another pod than that with its completion index."""

    job: str = field(default="", required=True, description="Name of the Job.")
    seat: int = field(
        default=0, required=True, minimum=0, description="Completion index of the seat."
    )
    pod: str = field(default="", required=True, description="Name of the pod that holds the seat.")
    pod_uid: str = field(
        default="", name="podUID", required=True, description="UID of the pod that holds the seat."
    )
    pod_index: int = field(
        default=0, minimum=0, description="Completion index of the pod that holds the seat."
    )
    address: str = field(default="", description="IP address of the pod that holds the seat.")


@wire
class TakenJob:
    """Job whose seats are all held by the pods of another Job of its ReplicatedJob."""

    job: str = field(default="", required=True, description="Name of the Job.")
    holder: str = field(
        default="", required=True, description="Name of the Job whose pods hold its seats."
    )


@wire
class JobSize:
    """Job that works with fewer pods than its template states."""

    job: str = field(default="", required=True, description="Name of the Job.")
    seats: int = field(
        default=0,
        required=True,
        minimum=0,
        description="Number of its seats, numbered from 0.",
    )
    missing: int = field(
        default=0, minimum=0, description="Number of seats that it would have in addition."
    )
    done: bool = field(default=False, description="True once all of these seats have succeeded.")


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
        default=0, description="Number of epochs that began without a failure."
    )
    last_uncounted_epoch: int = field(
        default=0, description="Latest epoch that began without a failure; 0 if none."
    )
    pods: int = field(
        default=0,
        description="Number of pods that the group required when syncedEpoch was written.",
    )
    all_jobs_restarts_at_sync: int = field(
        default=0, description="Value of status.restarts when syncedEpoch was written."
    )
    job_restarts_at_sync: int = field(
        default=0, description="Sum of all jobRestarts when syncedEpoch was written."
    )
    resume_time: datetime | None = field(
        default=None, description="Time of the last resume before syncedEpoch was written."
    )
    container_restarts: int = field(
        default=0,
        description=(
            "Highest restart count of a container when deprecatedEpoch was written: the next "
            "restart of each container is part of the group's restart."
        ),
    )
    crashes: int = field(
        default=0,
        description=(
            "Number of failures, since deprecatedEpoch was written and before the barrier lifts, "
            "of the container that failed most; bounded by maxRestarts."
        ),
    )
    crashing_pod: str = field(
        default="", description="Name of the pod with the container of crashes."
    )
    crashing_container: str = field(default="", description="Name of the container of crashes.")
    highest_step: int | None = field(
        default=None,
        format=None,
        description="Highest step that a supervisor has reported for its worker.",
    )
    restarts_without_progress: int = field(
        default=0,
        description="Number of successive counted restarts without a higher step.",
    )
    pods_digest: int = field(
        default=0,
        description=(
            "Digest of the UIDs of the pods at syncedEpoch, which shows if one of them was "
            "replaced since; only where steps are reported or limited; 0 if unknown."
        ),
    )
    served_request: str = field(
        default="",
        description=(
            "Value of the annotation jobset.sigs.k8s.io/restart-in-place of the last requested "
            "restart: the current workers were started after it was set."
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
    job_sizes: tuple[JobSize, ...] = field(
        default=(),
        atomic=True,
        description=(
            "Jobs that work with fewer pods, as of syncedEpoch, by the annotation "
            "jobset.sigs.k8s.io/in-place-restart-min-pods. All others have all their seats."
        ),
    )
    resize_time: datetime | None = field(
        default=None,
        description="Time at which the group last became smaller, or began to grow.",
    )
    growths: int = field(
        default=0,
        description="Number of successive restarts to the full size; each doubles the next delay.",
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
            "ContainerFailed, PodFailed, PodDeleted, PodsMissing, NodeLost, WorkerFailed, "
            "WorkerHung or LogRule (reported by the supervisor), PodRestarted (a pod has reached "
            "the next epoch), JobRemade, RestartRequested, PodLeaving, InPlaceGroupResized, "
            "GroupGrows (missing pods are ready), or the reason of a Job's failure."
        ),
    )
    job: str = field(default="", description="Job that failed, or was recreated on request.")
    pod: str = field(default="", description="Name of the failed pod.")
    node: str = field(default="", description="Node of the failed pod.")
    container: str = field(default="", description="Name of the failed container.")
    exit_code: int | None = field(
        default=None,
        description="Exit code of the failed container; for a signal, 128 plus its number.",
    )
    message: str = field(default="", description="Further details for users.")


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
    target: str = field(default="", description="Name of the recreated Job or ReplicatedJob.")
    more_jobs: int = field(
        default=0,
        description="Number of further Jobs that the same rule recreated at the same time.",
    )
    rule: str = field(
        default="", description="Name of the failure policy's rule that matched; none when empty."
    )
    counted: bool = field(
        default=False, description="True if the restart counts towards maxRestarts."
    )
    began_at: datetime | None = field(
        default=None,
        description="Time of the first sign of the failure; whole seconds for failed Jobs.",
    )
    cause: RestartCause | None = field(default=None, description="Cause of the restart.")
    detection_millis: int | None = field(
        default=None,
        minimum=0,
        description="Time from the first sign of the failure to the decision to restart.",
    )
    deprecation_millis: int | None = field(
        default=None,
        minimum=0,
        description=(
            "In place: time from the decision until the last pod had left the earlier epochs."
        ),
    )
    gathering_millis: int | None = field(
        default=None,
        minimum=0,
        description="Time from then until all pods had arrived, or all Jobs were ready.",
    )
    lift_millis: int | None = field(
        default=None,
        minimum=0,
        description=(
            "In place: duration of the write of syncedEpoch; known once the status is written "
            "for another reason."
        ),
    )
    last_pod: str = field(default="", description="In place: name of the last pod to arrive.")
    last_node: str = field(default="", description="In place: node of the last pod to arrive.")
    seats_taken: int = field(
        default=0, description="In place: number of seats that spares took over."
    )
    pods: int = field(
        default=0,
        description="In place: number of pods that work since then, where it has changed.",
    )
    outcome: str = field(
        default="",
        enum=("", "Completed", "Interrupted"),
        description=(
            "Interrupted: another restart, a suspension or the end of the JobSet came before the "
            "restart completed. Empty while the restart is in progress."
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
            "Number of restarts in quick succession: each run between them was shorter than the "
            "back-off's reset time."
        ),
    )
    series_start_time: datetime | None = field(
        default=None, description="Time of the first restart of the series."
    )
    last_start_time: datetime | None = field(
        default=None, description="Time of the latest or next start of the workers."
    )
    not_before: datetime | None = field(
        default=None, description="Earliest time of the next start of the workers."
    )
    counted_times: tuple[datetime, ...] = field(
        default=(),
        description=(
            "Times of restarts that counted towards maxRestarts. With the annotation "
            "jobset.sigs.k8s.io/max-restarts-window: those within the window, at most 101."
        ),
    )


@wire
class RestartTime:
    """Restarts of one kind and cause that are over, and the time that they took."""

    kind: str = field(default="", required=True, description="Kind of the restarts.")
    cause: str = field(
        default="",
        required=True,
        description="Reason of their first sign; Other for those beyond the bound of the list.",
    )
    count: int = field(default=0, minimum=0, description="Number of restarts that are over.")
    millis: int = field(
        default=0,
        minimum=0,
        format="int64",
        description="Time from their first signs until workers ran again.",
    )


@wire
class TimeSpent:
    """Use of the JobSet's time until ``since``, in milliseconds; ``activity`` has continued since.

    Its parts are queuedMillis, waitingMillis, runningMillis and those of restarts. It is written
    only with changes of the status that are written anyway.
    """

    activity: str = field(
        default="",
        required=True,
        enum=("Queued", "Waiting", "Running", "Restarting", "Ended"),
        description=(
            "Activity since then. Queued: suspended, by a queue or a user. Waiting: for pods to "
            "start. Running: workers run. Ended: all times are final."
        ),
    )
    began_at: datetime | None = field(
        default=None,
        description="Time from which on the JobSet's time is accounted for: usually its creation.",
    )
    since: datetime | None = field(
        default=None, description="Time of the latest change; the durations end there."
    )
    queued_millis: int = field(
        default=0, minimum=0, format="int64", description="Time in queues, or suspended."
    )
    waiting_millis: int = field(
        default=0,
        minimum=0,
        format="int64",
        description="Time for which pods were waited for, outside restarts.",
    )
    running_millis: int = field(
        default=0, minimum=0, format="int64", description="Time in which workers ran."
    )
    starting_millis: int = field(
        default=0,
        minimum=0,
        format="int64",
        description="Part of runningMillis until the first steps of runs, as workers reported.",
    )
    repeating_millis: int = field(
        default=0,
        minimum=0,
        format="int64",
        description="Part of runningMillis in steps that an earlier run had done, likewise.",
    )
    reported_millis: int = field(
        default=0,
        minimum=0,
        format="int64",
        description="Part of runningMillis of which workers have reported the use.",
    )
    repeated_steps: int = field(
        default=0, minimum=0, format="int64", description="Number of steps done again."
    )
    first_start_millis: int | None = field(
        default=None,
        minimum=0,
        format="int64",
        description="Time for which pods were waited for before workers ran for the first time.",
    )
    restarts: tuple[RestartTime, ...] = field(
        default=(),
        atomic=True,
        max_items=16,
        description="Restarts by kind and cause.",
    )


@wire
class JobSetStatus:
    """Observed state of a JobSet, written by the controllers."""

    conditions: tuple[Condition, ...] = field(
        default=(),
        map_keys=("type",),
        description=(
            "Completed, Failed, Suspended, RestartingJobSet, RestartingInPlace, BarrierStalled, "
            "PodsRefused, DeletionStalled, StartupPolicyInProgress, StartupPolicyCompleted, "
            "GroupSchedulingInProgress, GroupSchedulingCompleted, CoschedulingInProgress and "
            "CoschedulingCompleted, as far as they apply."
        ),
    )
    restarts: int = field(default=0, description="Number of times that all Jobs were recreated.")
    restarts_count_towards_max: int = field(
        default=0, description="Number of restarts that count towards maxRestarts."
    )
    terminal_state: str = field(
        default="", description="Completed or Failed once the JobSet has finished."
    )
    start_time: datetime | None = field(
        default=None,
        description=(
            "Start of the current run: set when the JobSet is not suspended, cleared by a "
            "suspension, set again by a resumption, a restart of all Jobs or a restart in place."
        ),
    )
    execution_attempts: int | None = field(
        default=None,
        minimum=0,
        description=(
            "Number of resumptions and restarts of all Jobs; absent until the JobSet first runs."
        ),
    )
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = field(
        default=(), map_keys=("name",), description="Counters per ReplicatedJob."
    )
    synced_epoch: int = field(
        default=0,
        defaulted=True,
        description=(
            "Latest epoch that all pods reached: pods at this epoch run their workers. Written by "
            "the controller, read by the agents of the strategy InPlaceRestart."
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
        description="State of the strategy InPlaceRestart, by which each restart is counted once.",
    )
    state: str = field(
        default="",
        description=(
            "Summary of the status as of its latest write: Running, Restarting, Waiting, "
            "Suspended, Completed or Failed."
        ),
    )
    ready_pods: str = field(
        default="",
        description=("Ready and wanted pods at the latest write of the counters, such as 14/16."),
    )
    restart_history: tuple[RestartRecord, ...] = field(
        default=(),
        atomic=True,
        max_items=10,
        description="Latest restarts of any kind, the oldest first.",
    )
    restart_pacing: RestartPacing | None = field(
        default=None, description="Frequency of restarts, and their delay."
    )
    time_spent: TimeSpent | None = field(
        default=None, description="Use of the JobSet's time so far, for kubectl jobset report."
    )
    previous_in_place_restart_attempt: int | None = field(
        default=None,
        minimum=0,
        description=(
            "deprecatedEpoch - 1, for agents of the Go project: pods at this attempt or an older "
            "one restart in place. Only present if pods have such agents."
        ),
    )
    current_in_place_restart_attempt: int | None = field(
        default=None,
        minimum=0,
        description=(
            "syncedEpoch - 1, for agents of the Go project: pods at this attempt run their "
            "workers. Only present if pods have such agents."
        ),
    )


@resource(keys.GROUP, keys.VERSION, "JobSet", "jobsets")
@wire
class JobSet:
    """A set of Jobs that start together, fail together and restart together."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSetSpec = field(default=JobSetSpec(), description="Desired state of the JobSet.")
    status: JobSetStatus = field(
        default=JobSetStatus(), description="Observed state of the JobSet."
    )
