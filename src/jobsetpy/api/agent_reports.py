"""Words in the annotations that agents write on their pods, and the manager reads."""

from __future__ import annotations

from enum import StrEnum
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

MAX_CAUSE_TEXT: Final = 120
"""Maximum number of characters of the text of a cause."""


class EndKind(StrEnum):
    """Kind of a worker's failure: ``KIND=NUMBER TEXT`` is the cause of a restart."""

    EXIT_CODE = "exit-code"
    """The number is the exit code, 128 + n for signal n; the text is what the worker reports."""
    NO_PROGRESS = "no-progress"
    """It was killed because it hung: the number is the seconds without progress."""
    LOG_RULE = "log-rule"
    """The number is 1; the text is the rule on output, and what it has found."""


MAX_STEP: Final = 2**63 - 1
"""Highest step."""
