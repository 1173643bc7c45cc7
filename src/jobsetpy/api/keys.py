"""All labels, annotations, reasons and fixed names of the JobSet API."""

from __future__ import annotations

from typing import Final

GROUP: Final = "jobset.x-k8s.io"
VERSION: Final = "v1alpha2"
SYSTEM_NAMESPACE: Final = "jobset-system"
"""Namespace of the manager's objects if it does not run in a pod, whose namespace it would use."""
AUTHORITY_NAME: Final = "jobset"
"""Name of the certificate authority that issues the certificates of webhooks and coscheduler."""
JOBSET_CONTROLLER_NAME: Final = "jobset.sigs.k8s.io/jobset-controller"

# Label and annotation, same value, on child Jobs and their pod templates.
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
REPLICATED_JOB_NAME: Final = "jobset.sigs.k8s.io/replicatedjob-name"
REPLICATED_JOB_REPLICAS: Final = "jobset.sigs.k8s.io/replicatedjob-replicas"
GLOBAL_REPLICAS: Final = "jobset.sigs.k8s.io/global-replicas"
JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
JOB_GLOBAL_INDEX: Final = "jobset.sigs.k8s.io/job-global-index"
JOB_KEY: Final = "jobset.sigs.k8s.io/job-key"
RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
JOB_RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/job-restart-attempt"
GROUP_NAME: Final = "jobset.sigs.k8s.io/group-name"
GROUP_REPLICAS: Final = "jobset.sigs.k8s.io/group-replicas"
JOB_GROUP_INDEX: Final = "jobset.sigs.k8s.io/job-group-index"
COORDINATOR: Final = "jobset.sigs.k8s.io/coordinator"

KUEUE_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""On a JobSet: Kueue suspends it until it is admitted."""

# Annotations only.
EXCLUSIVE_TOPOLOGY_ANNOTATION: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR_ANNOTATION: Final = "alpha.jobset.sigs.k8s.io/node-selector"
EPOCH_ANNOTATION: Final = "jobset.sigs.k8s.io/epoch"
RESTART_CAUSE_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-cause"
PROGRESS_ANNOTATION: Final = "jobset.sigs.k8s.io/progress"
FIRST_PROGRESS_ANNOTATION: Final = "jobset.sigs.k8s.io/first-progress"
"""Reports of supervisors about their worker's last run, with the epoch: its failure (format in
``reconcilers.restart_in_place.failures.reports``), the last step that it reported, and the first
step with the seconds from the start of the run."""
SLOW_PATCH_ANNOTATION: Final = "jobset.sigs.k8s.io/slow-patch"
"""Report of an agent that waits for a slow API server before it starts its worker: the epoch, and
the seconds that the last patch took. It is removed once the worker may start."""
ATTEMPT_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-attempt"
"""Report of agents of the Go project on their pods: an epoch, counted from 0."""
DISABLE_IN_PLACE_ANNOTATION: Final = "jobset.sigs.k8s.io/disable-in-place-restart"
"""On a JobSet, with any value: agents of the Go project lift the barrier and report nothing."""
RESTART_ANNOTATION: Final = "jobset.sigs.k8s.io/restart"
"""On a child Job, with any value: the Job is recreated, which is not counted (KEP-262)."""
COMPLETION_INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
COMPLETION_INDEX_LABEL: Final = COMPLETION_INDEX_ANNOTATION
"""The Job controller sets both on pods; the label since Kubernetes 1.28."""
IN_PLACE_AGENT_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-agent"
"""On a JobSet, ``sidecar`` or ``supervisor``: admission adds the agent."""
IN_PLACE_CONTAINER_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-container"
IN_PLACE_GRACE_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-grace-seconds"
IN_PLACE_END_CODES_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-end-pod-exit-codes"
IN_PLACE_UNFIT_CODES_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-unfit-node-exit-codes"
IN_PLACE_BARRIER_PORT_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-barrier-port"
"""Settings of an agent that admission adds; on the JobSet or on a pod template."""
IN_PLACE_HANG_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-hang-seconds"
IN_PLACE_HANG_FIRST_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-hang-first-seconds"
IN_PLACE_HANG_SECTIONS_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-hang-sections"
IN_PLACE_HANG_SIGNAL_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-hang-signal"
"""Likewise: timeouts after which a supervisor's worker is hung, and the signal sent to it then."""
IN_PLACE_STANDBY_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-standby"
IN_PLACE_PRELOAD_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-preload"
IN_PLACE_STANDBY_DELAY_ANNOTATION: Final = (
    "jobset.sigs.k8s.io/in-place-restart-standby-delay-seconds"
)
IN_PLACE_PROCESSES_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-processes"
"""Likewise: a supervisor's standby processes, their imports and delay, and the number of processes
of its worker."""
IN_PLACE_HEALTH_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-health-command"
IN_PLACE_HEALTH_SECONDS_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-health-seconds"
IN_PLACE_HEALTH_INTERVAL_ANNOTATION: Final = (
    "jobset.sigs.k8s.io/in-place-restart-health-interval-seconds"
)
"""Likewise: a supervisor's check of its machine before each epoch, its timeout, and the interval of
its checks in a pod that waits as a spare."""
UNFIT_EXIT_CODE: Final = 85
"""Exit code of an agent whose machine has failed that check: the pod ends and is replaced."""
INJECTED_REQUESTS_ANNOTATION: Final = "jobset.sigs.k8s.io/injected-requests"
INJECTED_LIMITS_ANNOTATION: Final = "jobset.sigs.k8s.io/injected-limits"
INJECTED_ANNOTATIONS: Final = (INJECTED_REQUESTS_ANNOTATION, INJECTED_LIMITS_ANNOTATION)
"""On a JobSet or a pod template, ``cpu=100m,memory=64Mi``: resources of containers that admission
adds."""
REPLACED_EARLY_ANNOTATION: Final = "jobset.sigs.k8s.io/replaced-early"
"""On a pod that the manager created: the number of its predecessors in a row that ended before they
had run."""
INDEX_FAILURES_ANNOTATION: Final = "batch.kubernetes.io/job-index-failure-count"
"""Set on pods of a Job with ``backoffLimitPerIndex``: failures of earlier pods of the index."""
AFTER_SUCCESS_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-after-success"
"""On a JobSet, ``Continue`` or ``Recreate``: restart of workers of which a pod has succeeded."""
MAX_WITHOUT_PROGRESS_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-max-without-progress"
"""On a JobSet: number of consecutive restarts without a new step after which the JobSet fails."""
IN_PLACE_SPARES_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-spares"
"""Number of pods of each Job that wait as spares; the manager sets it on Jobs and pods."""
START_WITHOUT_SPARES_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-start-without-spares"
"""On a JobSet, ``true``: its pods start without waiting for as many as it has spares; the manager
sets it on Jobs and pods of startup groups."""
IN_PLACE_SPARE_JOBS_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-spare-replicas"
"""Number of Jobs of a ReplicatedJob that wait as spares; the manager sets it on Jobs and pods."""
AGENT_STATE_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-state"
"""State of a supervisor, written by the agent. In a pod of a Job with spares, ``parked`` and
``ready`` without a seat, ``saving=SECONDS`` while its worker uses its grace period. In any pod,
``unfit: REASON`` before it ends because its health command has failed."""
UNFIT_STATE: Final = "unfit: "
IN_PLACE_HEARTBEAT_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-heartbeat-seconds"
"""On a JobSet: interval of the heartbeats between supervisors, in seconds, or ``auto``."""
HEARTBEAT_PORT: Final = 29400
"""UDP port of the heartbeats; below the ports of ``MASTER_PORT``."""
UNHEARD_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-unheard"
"""Report of a supervisor about neighbours that send no heartbeats (format in
``reconcilers.restart_in_place.detection.heartbeat_report``)."""
REPLACE_DELETED_ANNOTATION: Final = "jobset.sigs.k8s.io/replace-deleted-pods"
"""On a JobSet that does not restart in place, ``Immediately`` or ``AfterBackoff``, the default:
time at which its Jobs replace deleted pods."""
RESTART_IN_PLACE_ANNOTATION: Final = "jobset.sigs.k8s.io/restart-in-place"
"""On a JobSet: any new value restarts its workers in place once, without being counted."""
LOST_NODE_DEADLINE_ANNOTATION: Final = "jobset.sigs.k8s.io/lost-node-deadline"
"""On a JobSet, a duration: its pods on a node that is unreachable for longer are given up. On its
pods, for their agents: the effective duration."""
RESTART_BACKOFF_ANNOTATION: Final = "jobset.sigs.k8s.io/restart-backoff"
RESTART_BACKOFF_MAX_ANNOTATION: Final = "jobset.sigs.k8s.io/restart-backoff-max"
RESTART_BACKOFF_RESET_ANNOTATION: Final = "jobset.sigs.k8s.io/restart-backoff-reset-after"
MAX_RESTARTS_WINDOW_ANNOTATION: Final = "jobset.sigs.k8s.io/max-restarts-window"
RESTART_PACE_ANNOTATIONS: Final = (
    RESTART_BACKOFF_ANNOTATION,
    RESTART_BACKOFF_MAX_ANNOTATION,
    RESTART_BACKOFF_RESET_ANNOTATION,
    MAX_RESTARTS_WINDOW_ANNOTATION,
)
"""On a JobSet, durations: the back-off of its restarts, and the window for counting them."""

# Annotations of Jobs and pods of startup groups (KEP-498); containers read them through the
# downward API.
GROUP_ATTEMPT: Final = "jobset.sigs.k8s.io/group-scheduling-attempt"
GROUP_SIZE: Final = "jobset.sigs.k8s.io/group-scheduling-size"
GROUP_TIMEOUT: Final = "jobset.sigs.k8s.io/group-scheduling-timeout"
GROUP_INIT_CONTAINER: Final = "group-scheduling-init"
GROUP_IMAGE: Final = "bash"
"""Default image of the container in which pods of a startup group wait for each other."""
GROUP_VOLUME: Final = "group-scheduling"
GROUP_BARRIER_ANNOTATION: Final = "jobset.sigs.k8s.io/group-scheduling-barrier"
"""On a JobSet and its pods, ``init-container`` or ``supervisor``: holds pods until the release."""
GROUP_HELD: Final = "jobset.sigs.k8s.io/group-scheduling-held"
"""On a pod, set by admission: the agent holds its containers, each from within."""
GROUP_AGENT: Final = "group-scheduling-agent"
"""Init container and volume that bring the agent into the pod for that."""

# Coscheduling: labels of pods, and annotations of a JobSet.
POD_GROUP_NAME: Final = "pod-group.scheduling.x-k8s.io/name"
POD_GROUP_MIN_AVAILABLE: Final = "pod-group.scheduling.x-k8s.io/min-available"
COSCHEDULER_LEASE: Final = "coscheduler-queue.jobset.x-k8s.io"
"""Lease in which the coscheduler publishes its queue to managers."""
COSCHEDULER_QUEUE_ANNOTATION: Final = "jobset.x-k8s.io/coscheduler-queue"
COSCHEDULING_GATE: Final = "pod-group.scheduling.x-k8s.io/coscheduling"
"""Scheduling gate of a pod whose gang is not admitted yet."""
COSCHEDULING_ANNOTATION: Final = "jobset.sigs.k8s.io/coscheduling"
"""On a JobSet: the scope of its gangs, ``JobSet``, ``ReplicatedJob`` or ``Job``."""
COSCHEDULING_MIN_ANNOTATION: Final = "jobset.sigs.k8s.io/coscheduling-min-available"
COSCHEDULING_TARGETS_ANNOTATION: Final = "jobset.sigs.k8s.io/coscheduling-targets"
COSCHEDULING_TIMEOUT_ANNOTATION: Final = "jobset.sigs.k8s.io/coscheduling-timeout-seconds"
COSCHEDULING_CAPACITY_ANNOTATION: Final = "jobset.sigs.k8s.io/coscheduling-capacity-check"
"""``false``: gangs are admitted without free capacity, for schedulers or autoscalers that create
it."""
"""On a JobSet, and on the pods of its gangs."""
COSCHEDULING_BACKEND_ANNOTATION: Final = "jobset.sigs.k8s.io/coscheduling-backend"
"""On Jobs and pods of gangs: the backend they were created for, if other than labels."""
COSCHEDULING_BACKENDS: Final = ("auto", "labels", "coscheduler", "podgroup")
"""Backends that may schedule gangs; implemented in ``reconcilers.coscheduling.backends``."""
POD_GROUP_MEMBER_RESOURCE: Final = "pod-group.scheduling.x-k8s.io/member"
"""Resource that restricts the calls of a scheduler's extender to pods of gangs."""

# Node labels and taints of the node-selector strategy.
NAMESPACED_JOB_LABEL: Final = "alpha.jobset.sigs.k8s.io/namespaced-job"
NO_SCHEDULE_TAINT: Final = "alpha.jobset.sigs.k8s.io/no-schedule"
PRIORITY_LABEL: Final = "jobset.sigs.k8s.io/priority"

# Pods under exclusive placement.
PLACEMENT_GATE: Final = "jobset.sigs.k8s.io/exclusive-placement"
"""Scheduling gate of a follower whose leader has no node yet."""
JOB_TRACKING_FINALIZER: Final = "batch.kubernetes.io/job-tracking"
"""Finalizer of pods whose end the Job controller has not counted yet."""
DISRUPTION_TARGET_CONDITION: Final = "DisruptionTarget"
TAINT_EVICTION_REASON: Final = "DeletionByTaintManager"
LEAVING_REASONS: Final = frozenset(
    {"EvictionByEvictionAPI", TAINT_EVICTION_REASON, "PreemptionByScheduler"}
)
"""Reasons of that condition with which a healthy pod has to leave its node."""
PLACEMENT_VIOLATION_REASON: Final = "ExclusivePlacementViolation"
PLACEMENT_VIOLATION_MESSAGE: Final = "Pod violated JobSet exclusive placement policy"
TOPOLOGY_UNKNOWN_REASON: Final = "ExclusiveTopologyUnknown"

RESTART_ALL_FEATURE: Final = "RestartAllContainersOnContainerExits"
"""Feature gate of Kubernetes, and the feature that kubelets declare if it is enabled."""

# Pods of lost nodes.
NODE_UNREACHABLE_TAINT: Final = "node.kubernetes.io/unreachable"
NODE_NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
NODE_LOST_REASON: Final = "NodeLost"
"""Reason of the pods' condition ``DisruptionTarget``, of the JobSet's event, and of restarts."""

# Condition types of a JobSet.
COMPLETED_CONDITION: Final = "Completed"
FAILED_CONDITION: Final = "Failed"
SUSPENDED_CONDITION: Final = "Suspended"
RESTARTING_CONDITION: Final = "RestartingJobSet"
RESTARTING_IN_PLACE_CONDITION: Final = "RestartingInPlace"
BARRIER_STALLED_CONDITION: Final = "BarrierStalled"
SPARES_EXHAUSTED_CONDITION: Final = "SparesExhausted"
IN_PLACE_CONDITIONS: Final = frozenset(
    {RESTARTING_IN_PLACE_CONDITION, BARRIER_STALLED_CONDITION, SPARES_EXHAUSTED_CONDITION}
)
"""Conditions set only by the restart in place reconciler; other reconcilers ignore them."""
PODS_REFUSED_CONDITION: Final = "PodsRefused"
PODS_REFUSED_REASON: Final = "FailedCreate"
"""Reason of the Job controller's event, and of the condition that repeats it."""
POD_CREATED_REASON: Final = "SuccessfulCreate"
"""Reason of the Job controller's event about a pod that it has created."""
LATE_POD_DELETED_REASON: Final = "SuccessfulDelete"
"""Reason of the Job controller's event about a pod that it has deleted."""
PODS_CREATED_REASON: Final = "PodsCreated"
STARTUP_IN_PROGRESS_CONDITION: Final = "StartupPolicyInProgress"
STARTUP_COMPLETED_CONDITION: Final = "StartupPolicyCompleted"
GROUP_IN_PROGRESS_CONDITION: Final = "GroupSchedulingInProgress"
GROUP_COMPLETED_CONDITION: Final = "GroupSchedulingCompleted"
COSCHEDULING_IN_PROGRESS_CONDITION: Final = "CoschedulingInProgress"
COSCHEDULING_NOT_SERVED_CONDITION: Final = "CoschedulingNotServed"
COSCHEDULING_COMPLETED_CONDITION: Final = "CoschedulingCompleted"

# Reasons of conditions and events.
ALL_JOBS_COMPLETED_REASON: Final = "AllJobsCompleted"
FAILED_JOBS_REASON: Final = "FailedJobs"
REACHED_MAX_RESTARTS_REASON: Final = "ReachedMaxRestarts"
FAIL_JOBSET_REASON: Final = "FailJobSetFailurePolicyAction"
FAIL_JOB_REASON: Final = "FailJobFailurePolicyAction"
FAILURE_POLICY_APPLIED_REASON: Final = "FailurePolicyApplied"
FAILURE_POLICY_NEVER_APPLIES_REASON: Final = "FailurePolicyNeverApplies"
FAILURE_POLICY_NOT_APPLICABLE_REASON: Final = "FailurePolicyNotApplicable"
WAITING_FOR_DEPENDENCIES_REASON: Final = "WaitingForDependencies"
WAITING_FOR_DELETION_REASON: Final = "WaitingForDeletion"
SUSPENDED_REASON: Final = "SuspendedJobs"
RESUMED_REASON: Final = "ResumeJobs"
DEFAULT_FAILURE_POLICY_REASON: Final = "DefaultFailurePolicy"
FAILURE_POLICY_REASON_PREFIX: Final = "FailurePolicy_"
JOBS_READY_REASON: Final = "JobsReady"
JOBSET_FAILED_REASON: Final = "JobSetFailed"
JOBSET_COMPLETED_REASON: Final = "JobSetCompleted"
JOBSET_SUSPENDED_REASON: Final = "JobSetSuspended"
IN_ORDER_IN_PROGRESS_REASON: Final = "InOrderStartupPolicyInProgress"
IN_ORDER_COMPLETED_REASON: Final = "InOrderStartupPolicyCompleted"
JOB_CREATION_FAILED_REASON: Final = "JobCreationFailed"
SERVICE_CREATION_FAILED_REASON: Final = "HeadlessServiceCreationFailed"
PVC_CREATION_FAILED_REASON: Final = "PVCCreationFailed"
RESTART_REQUESTED_REASON: Final = "RestartRequested"
INVALID_EPOCH_REASON: Final = "InvalidEpoch"
INVALID_JOB_REASON: Final = "InvalidChildJob"
TOO_MANY_JOBS_REASON: Final = "TooManyJobs"
IN_PLACE_RESTART_STARTED_REASON: Final = "InPlaceRestartStarted"
IN_PLACE_RESTART_COMPLETED_REASON: Final = "InPlaceRestartCompleted"
IN_PLACE_GROUP_RESIZED_REASON: Final = "InPlaceGroupResized"
CONTAINER_FAILED_REASON: Final = "ContainerFailed"
POD_FAILED_REASON: Final = "PodFailed"
POD_DELETED_REASON: Final = "PodDeleted"
POD_RESTARTED_REASON: Final = "PodRestarted"
WORKER_FAILED_REASON: Final = "WorkerFailed"
WORKER_HUNG_REASON: Final = "WorkerHung"
LEAVING_POD_COUNTED_REASON: Final = "LeavingPodCounted"
POD_LEAVING_REASON: Final = "PodLeaving"
NODE_SUSPECT_REASON: Final = "NodeSuspect"
NODE_UNFIT_REASON: Final = "NodeUnfit"
POD_SILENT_REASON: Final = "PodSilent"
HEARTBEATS_MISSING_REASON: Final = "HeartbeatsMissing"
HEARTBEATS_BLOCKED_REASON: Final = "HeartbeatsBlocked"
PODS_LEAVE_OFTEN_REASON: Final = "PodsLeaveOften"
JOB_HELD_REASON: Final = "JobHeldByFinalizers"
API_SERVER_SLOW_REASON: Final = "APIServerSlow"
NO_PROGRESS_REASON: Final = "NoProgress"
JOB_REMADE_REASON: Final = "JobRemade"
BARRIER_LIFTED_REASON: Final = "BarrierLifted"
SEAT_TAKEN_REASON: Final = "SeatTaken"
NO_READY_SPARE_REASON: Final = "NoReadySpare"
SPARES_READY_REASON: Final = "SparesReady"
PODS_MISSING_REASON: Final = "PodsMissing"
PODS_SUCCEEDED_REASON: Final = "PodsSucceeded"
RESTART_BACKOFF_REASON: Final = "RestartBackoff"
NO_RESTARTS_LEFT_REASON: Final = "NoRestartsLeft"
GROUP_STARTING_REASON: Final = "GroupPodsStarting"
GROUP_MISSING_REASON: Final = "GroupPodsMissing"
GROUP_STARTED_REASON: Final = "AllGroupPodsStarted"
GROUP_SUSPENDED_REASON: Final = "GroupSuspended"
GROUP_FINISHED_REASON: Final = "GroupFinished"
GROUP_CREATION_FAILED_REASON: Final = "GroupSchedulingCreationFailed"
GROUP_FOREIGN_REASON: Final = "GroupConfigMapTaken"
POD_GROUPS_WAITING_REASON: Final = "PodGroupsWaiting"
POD_GROUPS_BOUND_REASON: Final = "AllPodGroupsBound"
POD_GROUPS_SUSPENDED_REASON: Final = "PodGroupsSuspended"
POD_GROUPS_FINISHED_REASON: Final = "PodGroupsFinished"
POD_GROUP_PRIORITIES_REASON: Final = "PodGroupPrioritiesDiffer"
COSCHEDULING_INVALID_REASON: Final = "InvalidCoscheduling"
NO_COSCHEDULER_REASON: Final = "NoCoscheduler"
COSCHEDULING_SERVED_REASON: Final = "CoschedulingServed"
POD_GROUPS_NOT_SERVED_REASON: Final = "PodGroupsNotServed"

# The agent, as added to a pod by admission.
AGENT_NAME: Final = "jobset-agent"
"""Name of its container, its volume and the service account of ``config/agent/account``."""
AGENT_FOLDER: Final = "/jobset-agent"
AGENT_PROGRAM: Final = "/jobset-agent/supervise"
AGENT_VARIABLE_PREFIX: Final = "JOBSET_AGENT_"
"""Prefix of the supervisor's environment variables that are hidden from its worker."""

# Values.
RECREATE: Final = "Recreate"
BLOCKING_RECREATE: Final = "BlockingRecreate"
IN_PLACE_RESTART: Final = "InPlaceRestart"
TERMINAL_COMPLETED: Final = "Completed"
TERMINAL_FAILED: Final = "Failed"
INT32_MAX: Final = 2**31 - 1
MAX_EPOCH: Final = 2_000_000_000
"""Maximum valid epoch. Agents join one above the highest epoch ever synced or deprecated, so after
a valid report of 2147483647 no further epoch would fit int32."""
