"""Names and values that the agent needs as well as the manager.

Every start of an agent imports them. The table of annotations alone would take it 4 ms.
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "jobset.x-k8s.io"
VERSION: Final = "v1alpha2"
IN_PLACE_RESTART: Final = "InPlaceRestart"
MAX_EPOCH: Final = 2_000_000_000
"""Maximum valid epoch. Agents join one above the highest epoch ever synced or deprecated, so after
a valid report of 2147483647 no further epoch would fit int32."""
HEARTBEAT_PORT: Final = 29400
"""UDP port of the heartbeats; below the ports of ``MASTER_PORT``."""
UNFIT_EXIT_CODE: Final = 85
"""Exit code of an agent whose health command has failed: the pod ends and is replaced."""
LOG_RULE_EXIT_CODE: Final = 86
"""Exit code of an agent that ends its pod by a rule on the worker's output."""
UNFIT_STATE: Final = "unfit: "
"""Start of an agent's state in a pod that ends because its health command has failed."""
AGENT_VARIABLE_PREFIX: Final = "JOBSET_AGENT_"
"""Prefix of the supervisor's environment variables that are hidden from its worker."""

# Annotations; their table is ``annotations``.
LOST_NODE_DEADLINE_ANNOTATION: Final = "jobset.sigs.k8s.io/lost-node-deadline"
EPOCH_ANNOTATION: Final = "jobset.sigs.k8s.io/epoch"
RESTART_CAUSE_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-cause"
PROGRESS_ANNOTATION: Final = "jobset.sigs.k8s.io/progress"
FIRST_PROGRESS_ANNOTATION: Final = "jobset.sigs.k8s.io/first-progress"
PACE_ANNOTATION: Final = "jobset.sigs.k8s.io/pace"
AGENT_STATE_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-state"
LOG_REPORT_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-log-report"
UNHEARD_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-unheard"
UNPROBED_ANNOTATION: Final = "jobset.sigs.k8s.io/in-place-restart-unprobed"
