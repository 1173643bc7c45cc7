"""Actions of failure policy rules (KEP-262)."""

from __future__ import annotations

from typing import Final

FAIL_JOBSET: Final = "FailJobSet"
RESTART_JOBSET: Final = "RestartJobSet"
RESTART_JOBSET_UNCOUNTED: Final = "RestartJobSetAndIgnoreMaxRestarts"
RESTART_JOB: Final = "RestartJob"
RESTART_JOB_UNCOUNTED: Final = "RestartJobAndIgnoreMaxRestarts"
RESTART_REPLICATED_JOB: Final = "RestartReplicatedJob"
RESTART_REPLICATED_JOB_UNCOUNTED: Final = "RestartReplicatedJobAndIgnoreMaxRestarts"
FAIL_JOB: Final = "FailJob"

SINGLE: Final = frozenset({RESTART_JOB, RESTART_JOB_UNCOUNTED})
"""Actions that recreate the Job that failed."""
WHOLE: Final = frozenset({RESTART_REPLICATED_JOB, RESTART_REPLICATED_JOB_UNCOUNTED})
"""Actions that recreate all Jobs of a ReplicatedJob."""
