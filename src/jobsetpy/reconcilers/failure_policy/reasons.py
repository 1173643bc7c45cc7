"""Checks of the reasons in failure policy rules: impossible ones, and misspellings."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final

JOB_FAILURE_REASONS: Final = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
"""Reasons set by the Job controller; later versions may add some, so others are no error."""

_REASON_MAX: Final = 1024
# Values that metav1.Condition allows in its field ``reason``.
_CONDITION_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_MISSPELLED: Final = 0.91
"""Minimum similarity of a reason that is taken for a misspelling: a letter or two differ."""
_BY_SMALL_LETTERS: Final = {reason.lower(): reason for reason in JOB_FAILURE_REASONS}


def reason_problem(reason: str) -> str:
    """Return why no Job can fail with this reason; "" if one can."""
    if reason in JOB_FAILURE_REASONS:
        return ""
    if len(reason) > _REASON_MAX or not _CONDITION_REASON.fullmatch(reason):
        known = ", ".join(JOB_FAILURE_REASONS)
        return "a Job's Failed condition cannot have it; the Job controller's own are " + known
    return ""


def reason_doubt(reason: str) -> str:
    """Return why a reason looks misspelled; "" if it does not.

    It is not an error: other controllers that manage Jobs may use such a reason.
    """
    if reason in JOB_FAILURE_REASONS or len(reason) > _REASON_MAX:
        return ""
    close = get_close_matches(reason.lower(), _BY_SMALL_LETTERS, 1, _MISSPELLED)
    if close and reason.isalpha():
        known = _BY_SMALL_LETTERS[close[0]]
        return f"the Job controller never gives the reason {reason!r}; its own is {known}"
    return ""
