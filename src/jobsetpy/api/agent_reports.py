"""Words in the annotations that agents write on their pods, and the manager reads."""

from __future__ import annotations

from typing import Final

READY: Final = "ready"
"""Agent's state: it has no seat, and its standby process is prepared or there is none."""
PARKED: Final = "parked"
"""Agent's state: it has no seat, and its standby process is not prepared yet."""
PREPARED: Final = "prepared"
"""Agent's state: its worker runs in a smaller group, and its standby process is prepared or there
is none."""
SAVING: Final = "saving="
"""Beginning of the agent's state while its worker uses its grace period, with its seconds."""

TOUCHED: Final = "touched"
"""Value in place of a step: the worker has shown progress without a number."""

LOG_RULE: Final = "log-rule=1"
"""Beginning of the cause of a restart by a rule on output, with its name and what it has found."""

MAX_STEP: Final = 2**63 - 1
