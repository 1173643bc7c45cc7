"""All labels, annotations, reasons and fixed names of the JobSet API.

Annotations are defined by their table.
"""

from __future__ import annotations

from typing import Final

from jobsetpy.api.annotations import *  # noqa: F403 - their names are names of the API, too

GROUP: Final = "jobset.x-k8s.io"
VERSION: Final = "v1alpha2"
SYSTEM_NAMESPACE: Final = "jobset-system"
"""Namespace of the manager's objects if it does not run in a pod, whose namespace it would use."""
AUTHORITY_NAME: Final = "jobset"
"""Name of the certificate authority that issues the certificates of webhooks and coscheduler."""
JOBSET_CONTROLLER_NAME: Final = "jobset.sigs.k8s.io/jobset-controller"

KUEUE_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""On a JobSet: Kueue suspends it until it is admitted."""

COMPLETION_INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
COMPLETION_INDEX_LABEL: Final = COMPLETION_INDEX_ANNOTATION
"""The Job controller sets both on pods; the label since Kubernetes 1.28."""
UNFIT_EXIT_CODE: Final = 85
"""Exit code of an agent whose health command has failed: the pod ends and is replaced."""
LOG_RULE_EXIT_CODE: Final = 86
"""Exit code of an agent that ends its pod by a rule on the worker's output."""
INDEX_FAILURES_ANNOTATION: Final = "batch.kubernetes.io/job-index-failure-count"
"""Set on pods of a Job with ``backoffLimitPerIndex``: failures of earlier pods of the index."""
UNFIT_STATE: Final = "unfit: "
"""Start of an agent's state in a pod that ends because its health command has failed."""
HEARTBEAT_PORT: Final = 29400
"""UDP port of the heartbeats; below the ports of ``MASTER_PORT``."""

# Pods of startup groups (KEP-498).
GROUP_INIT_CONTAINER: Final = "group-scheduling-init"
GROUP_IMAGE: Final = "bash"
"""Default image of the container in which pods of a startup group wait for each other."""
GROUP_VOLUME: Final = "group-scheduling"

# Coscheduling: labels of pods.
POD_GROUP_NAME: Final = "pod-group.scheduling.x-k8s.io/name"
POD_GROUP_MIN_AVAILABLE: Final = "pod-group.scheduling.x-k8s.io/min-available"
GROUP_TEMPLATE_ANNOTATION: Final = "scheduling.k8s.io/group-template-name"
"""Annotation of a Job: the template of its pods' group in the ``Workload`` (KEP-969)."""
COSCHEDULER_LEASE: Final = "coscheduler-queue.jobset.x-k8s.io"
"""Lease in which the coscheduler publishes its queue to managers."""
COSCHEDULER_QUEUE_ANNOTATION: Final = "jobset.x-k8s.io/coscheduler-queue"
COSCHEDULING_GATE: Final = "pod-group.scheduling.x-k8s.io/coscheduling"
"""Scheduling gate of a pod whose gang is not admitted yet."""
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
IN_PLACE_CONDITIONS: Final = frozenset({RESTARTING_IN_PLACE_CONDITION, BARRIER_STALLED_CONDITION})
"""Conditions set only by the restart in place reconciler; other reconcilers ignore them."""
DELETION_STALLED_CONDITION: Final = "DeletionStalled"
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
FAILED_RESOURCE_PROPAGATION_REASON: Final = "FailedResourcePropagation"
OLD_DEFINITION_REASON: Final = "OutdatedDefinition"
DEADLINE_EXCEEDED_REASON: Final = "DeadlineExceeded"
REACHED_MAX_RESTARTS_REASON: Final = "ReachedMaxRestarts"
FAIL_JOBSET_REASON: Final = "FailJobSetFailurePolicyAction"
FAIL_JOB_REASON: Final = "FailJobFailurePolicyAction"
FAILURE_POLICY_APPLIED_REASON: Final = "FailurePolicyApplied"
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
LOG_RULE_REASON: Final = "LogRule"
LEAVING_POD_COUNTED_REASON: Final = "LeavingPodCounted"
POD_LEAVING_REASON: Final = "PodLeaving"
NODE_UNFIT_REASON: Final = "NodeUnfit"
POD_SILENT_REASON: Final = "PodSilent"
HEARTBEATS_MISSING_REASON: Final = "HeartbeatsMissing"
HEARTBEATS_BLOCKED_REASON: Final = "HeartbeatsBlocked"
WORKER_EARLY_REASON: Final = "WorkerStartedEarly"
NO_PROGRESS_REASON: Final = "NoProgress"
JOB_REMADE_REASON: Final = "JobRemade"
BARRIER_LIFTED_REASON: Final = "BarrierLifted"
SEAT_TAKEN_REASON: Final = "SeatTaken"
GROUP_GROWS_REASON: Final = "GroupGrows"
GROUP_RESIZED_REASON: Final = "GroupResized"
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
POD_GROUP_REFUSED_REASON: Final = "PodGroupCreationFailed"
POD_GROUP_DISRUPTED_REASON: Final = "PodGroupDisrupted"
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
MAX_EPOCH: Final = 2_000_000_000
"""Maximum valid epoch. Agents join one above the highest epoch ever synced or deprecated, so after
a valid report of 2147483647 no further epoch would fit int32."""
