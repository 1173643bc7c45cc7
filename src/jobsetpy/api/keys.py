"""Every label, annotation, reason and fixed name of the JobSet API, in one place."""

from __future__ import annotations

from typing import Final

GROUP: Final = "jobset.x-k8s.io"
VERSION: Final = "v1alpha2"
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

# Annotations only.
EXCLUSIVE_TOPOLOGY_ANNOTATION: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR_ANNOTATION: Final = "alpha.jobset.sigs.k8s.io/node-selector"
EPOCH_ANNOTATION: Final = "jobset.sigs.k8s.io/epoch"
RESTART_ANNOTATION: Final = "jobset.sigs.k8s.io/restart"
"""On a child Job, whatever its value: it is made anew, and nothing is counted (KEP-262)."""
COMPLETION_INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
IN_PLACE_AGENT_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-agent"
"""On a JobSet, ``sidecar`` or ``supervisor``: admission adds the in-place restart agent."""
IN_PLACE_CONTAINER_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-container"
IN_PLACE_GRACE_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-grace-seconds"
IN_PLACE_END_CODES_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-end-pod-exit-codes"
IN_PLACE_BARRIER_PORT_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-barrier-port"
"""Settings of an agent that admission adds; on the JobSet or on a pod template."""

# Annotations of Jobs and pods that take part in group scheduling (KEP-498); pods learn of them
# through the downward API.
GROUP_ATTEMPT: Final = "jobset.sigs.k8s.io/group-scheduling-attempt"
GROUP_SIZE: Final = "jobset.sigs.k8s.io/group-scheduling-size"
GROUP_TIMEOUT: Final = "jobset.sigs.k8s.io/group-scheduling-timeout"
GROUP_INIT_CONTAINER: Final = "group-scheduling-init"
GROUP_VOLUME: Final = "group-scheduling"

# Node labels and taints of the node-selector strategy.
NAMESPACED_JOB_LABEL: Final = "alpha.jobset.sigs.k8s.io/namespaced-job"
NO_SCHEDULE_TAINT: Final = "alpha.jobset.sigs.k8s.io/no-schedule"
PRIORITY_LABEL: Final = "jobset.sigs.k8s.io/priority"

# Pods under exclusive placement.
PLACEMENT_GATE: Final = "jobset.sigs.k8s.io/exclusive-placement"
"""Scheduling gate of a pod whose leader has no node yet."""
DISRUPTION_TARGET_CONDITION: Final = "DisruptionTarget"
PLACEMENT_VIOLATION_REASON: Final = "ExclusivePlacementViolation"
PLACEMENT_VIOLATION_MESSAGE: Final = "Pod violated JobSet exclusive placement policy"
TOPOLOGY_UNKNOWN_REASON: Final = "ExclusiveTopologyUnknown"

# Condition types of a JobSet.
COMPLETED_CONDITION: Final = "Completed"
FAILED_CONDITION: Final = "Failed"
SUSPENDED_CONDITION: Final = "Suspended"
RESTARTING_CONDITION: Final = "RestartingJobSet"
RESTARTING_IN_PLACE_CONDITION: Final = "RestartingInPlace"
BARRIER_STALLED_CONDITION: Final = "BarrierStalled"
STARTUP_IN_PROGRESS_CONDITION: Final = "StartupPolicyInProgress"
STARTUP_COMPLETED_CONDITION: Final = "StartupPolicyCompleted"
GROUP_IN_PROGRESS_CONDITION: Final = "GroupSchedulingInProgress"
GROUP_COMPLETED_CONDITION: Final = "GroupSchedulingCompleted"

# Reasons of conditions and events.
ALL_JOBS_COMPLETED_REASON: Final = "AllJobsCompleted"
FAILED_JOBS_REASON: Final = "FailedJobs"
REACHED_MAX_RESTARTS_REASON: Final = "ReachedMaxRestarts"
FAIL_JOBSET_REASON: Final = "FailJobSetFailurePolicyAction"
FAIL_JOB_REASON: Final = "FailJobFailurePolicyAction"
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
RESTART_JOBSET_REASON: Final = "RestartJobSetFailurePolicyAction"
JOB_CREATION_FAILED_REASON: Final = "JobCreationFailed"
SERVICE_CREATION_FAILED_REASON: Final = "HeadlessServiceCreationFailed"
PVC_CREATION_FAILED_REASON: Final = "PVCCreationFailed"
RESTART_REQUESTED_REASON: Final = "RestartRequested"
INVALID_EPOCH_REASON: Final = "InvalidEpoch"
INVALID_JOB_REASON: Final = "InvalidChildJob"
IN_PLACE_RESTART_STARTED_REASON: Final = "InPlaceRestartStarted"
IN_PLACE_RESTART_COMPLETED_REASON: Final = "InPlaceRestartCompleted"
IN_PLACE_GROUP_RESIZED_REASON: Final = "InPlaceGroupResized"
CONTAINER_FAILED_REASON: Final = "ContainerFailed"
POD_FAILED_REASON: Final = "PodFailed"
POD_DELETED_REASON: Final = "PodDeleted"
POD_RESTARTED_REASON: Final = "PodRestarted"
JOB_REMADE_REASON: Final = "JobRemade"
BARRIER_LIFTED_REASON: Final = "BarrierLifted"
PODS_MISSING_REASON: Final = "PodsMissing"
GROUP_STARTING_REASON: Final = "GroupPodsStarting"
GROUP_MISSING_REASON: Final = "GroupPodsMissing"
GROUP_STARTED_REASON: Final = "AllGroupPodsStarted"
GROUP_SUSPENDED_REASON: Final = "GroupSuspended"
GROUP_CREATION_FAILED_REASON: Final = "GroupSchedulingCreationFailed"
GROUP_FOREIGN_REASON: Final = "GroupConfigMapTaken"

# The in-place restart agent where admission adds it to a pod.
AGENT_NAME: Final = "jobset-agent"
"""Of its container, its volume and the service account of ``config/agent/account``."""
AGENT_FOLDER: Final = "/jobset-agent"
AGENT_PROGRAM: Final = "/jobset-agent/supervise"
AGENT_VARIABLE_PREFIX: Final = "JOBSET_AGENT_"
"""Prefix of the variables for a supervisor that its worker does not get to see."""

# Values.
RECREATE: Final = "Recreate"
BLOCKING_RECREATE: Final = "BlockingRecreate"
IN_PLACE_RESTART: Final = "InPlaceRestart"
TERMINAL_COMPLETED: Final = "Completed"
TERMINAL_FAILED: Final = "Failed"
INT32_MAX: Final = 2**31 - 1
