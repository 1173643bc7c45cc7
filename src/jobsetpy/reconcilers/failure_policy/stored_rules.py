"""Checks for failure policy rules that can never fire, or differ from what they seem to say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from jobsetpy.api import keys
from jobsetpy.api.jobset import MAX_REASONS, MAX_RULES, FailurePolicy
from jobsetpy.reconcilers.failure_policy.patterns import patterns_problems
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.plan import EmitEvent

JOB_FAILURE_REASONS: Final = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)
"""Reasons set by the Job controller; later versions may add some, so others are no error."""

_REASON_MAX: Final = 1024
_SHOWN: Final = 64
# Values that metav1.Condition allows in its field ``reason``.
_CONDITION_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_MISSPELLED: Final = 0.91
"""Minimum similarity of a reason that is taken for a misspelling: a letter or two differ."""
_BY_SMALL_LETTERS: Final = {reason.lower(): reason for reason in JOB_FAILURE_REASONS}


@lru_cache(maxsize=1024)
def reason_problem(reason: str) -> str:
    """Return why no Job can fail with this reason; "" if one can."""
    if reason in JOB_FAILURE_REASONS:
        return ""
    if len(reason) > _REASON_MAX or not _CONDITION_REASON.fullmatch(reason):
        known = ", ".join(JOB_FAILURE_REASONS)
        return "a Job's Failed condition cannot have it; the Job controller's own are " + known
    return ""


@lru_cache(maxsize=1024)
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


def stored_rules_notice(policy: FailurePolicy | None) -> Iterator[EmitEvent]:
    """Return a warning about rules that admission would reject or warn about, if there are any."""
    if policy is None:
        return
    # A JobSet stored before its CRD had these limits may have more rules.
    patterns = [
        rule.on_job_failure_message_patterns[:MAX_REASONS] for rule in policy.rules[:MAX_RULES]
    ]
    found = iter(patterns_problems(tuple(each for some in patterns for each in some)))
    problems = [
        f"rules[{at}].{field}[{nth}] {_shown(value)}: {problem}"
        for at, rule in enumerate(policy.rules[:MAX_RULES])
        for field, values, judge in (
            ("onJobFailureReasons", rule.on_job_failure_reasons, reason_problem),
            ("onJobFailureReasons", rule.on_job_failure_reasons, reason_doubt),
            ("onJobFailureMessagePatterns", patterns[at], lambda _: next(found)),
        )
        for nth, value in enumerate(values[:MAX_REASONS])
        if (problem := judge(value))
    ]
    problems += [
        f"rules[{at}].name {_shown(rule.name)}: another rule has this name, too"
        for at, rule in enumerate(policy.rules[:MAX_RULES])
        if rule.name and any(rule.name == other.name for other in policy.rules[:at])
    ]
    if problems:
        text = "the failure policy may not do what it reads: " + "; ".join(problems)
        yield EmitEvent(cond.WARNING, keys.FAILURE_POLICY_NEVER_APPLIES_REASON, text[:1000])


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}...")
