"""Why a failure policy's rule can never fire, or not as it reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from jobsetpy.api import keys
from jobsetpy.api.jobset import FailurePolicy
from jobsetpy.domain import conditions as cond
from jobsetpy.domain.jobs.patterns import pattern_problem
from jobsetpy.domain.plan import EmitEvent

JOB_FAILURE_REASONS: Final = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
"""The Job controller's own; it may learn new ones, so others are no problem by themselves."""

_REASON_MAX: Final = 1024
# What metav1.Condition allows in its field ``reason``.
_CONDITION_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_MISSPELLED: Final = 0.91
"""Similarity from which on a reason is taken for a misspelled one: a letter or two."""
_BY_SMALL_LETTERS: Final = {reason.lower(): reason for reason in JOB_FAILURE_REASONS}


@lru_cache(maxsize=1024)
def reason_problem(reason: str) -> str:
    """Why no Job fails for a reason; "" if some Job may."""
    if reason in JOB_FAILURE_REASONS:
        return ""
    if len(reason) > _REASON_MAX or not _CONDITION_REASON.fullmatch(reason):
        known = ", ".join(JOB_FAILURE_REASONS)
        return "a Job's Failed condition cannot have it; the Job controller's own are " + known
    close = get_close_matches(reason.lower(), _BY_SMALL_LETTERS, 1, _MISSPELLED)
    if close and reason.isalpha():
        return f"no Job fails for it; the Job controller's is {_BY_SMALL_LETTERS[close[0]]}"
    return ""


def stored_rules_notice(policy: FailurePolicy | None) -> Iterator[EmitEvent]:
    """A warning about rules that admission would refuse, if there are any."""
    if policy is None:
        return
    problems = [
        f"rules[{at}].{field}[{nth}] {value!r}: {problem}"
        for at, rule in enumerate(policy.rules)
        for field, values, judge in (
            ("onJobFailureReasons", rule.on_job_failure_reasons, reason_problem),
            (
                "onJobFailureMessagePatterns",
                rule.on_job_failure_message_patterns,
                pattern_problem,
            ),
        )
        for nth, value in enumerate(values)
        if (problem := judge(value))
    ]
    if problems:
        text = "parts of the failure policy can never apply: " + "; ".join(problems)
        yield EmitEvent(cond.WARNING, keys.FAILURE_POLICY_NEVER_APPLIES_REASON, text[:1000])
