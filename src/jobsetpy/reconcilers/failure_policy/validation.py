"""Rules for the failure policy of a new JobSet (KEP-262)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from jobsetpy.api.jobset import MAX_REASONS, MAX_RULES
from jobsetpy.reconcilers.failure_policy.actions import SINGLE, WHOLE
from jobsetpy.reconcilers.failure_policy.decision import MAX_REPLICAS_OF_PARTIAL_RESTARTS
from jobsetpy.reconcilers.failure_policy.patterns import patterns_problems
from jobsetpy.reconcilers.failure_policy.reasons import reason_doubt, reason_problem
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.field_errors import (
    FieldError,
    FieldWarning,
    invalid,
    plain,
    too_many,
)
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, objects, text, texts
from jobsetpy.reconcilers.rules.replicated_jobs import replicas_of

RULE_NAME_MAX = 128

_RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def failure_policy(spec: Json, names: set[str], features: Features) -> list[FieldError]:
    """Validate the failure policy.

    Args:
        spec: spec of the JobSet.
        names: names of its ReplicatedJobs.
        features: enabled feature gates.
    """
    policy = child(spec, "failurePolicy")
    rules = objects(policy, "rules")
    too_long = _too_many(rules)
    if too_long:
        return too_long
    problems: list[FieldError] = []
    wanted = {text(rule, "action") for _, rule in rules}
    partial = next((each for each in (SINGLE, WHOLE) if each & wanted), None)
    if partial is not None:
        actions = " and ".join(sorted(partial))
        if not features.restart_job:
            why = "are not allowed while the feature gate RestartJob is disabled"
            return [plain(f"failure policy actions {actions} {why}")]
        if _restarts_too_many(spec, rules, names):
            why = (
                "are only supported if every replicatedJob that their rules target has at most "
                f"{MAX_REPLICAS_OF_PARTIAL_RESTARTS} replicas"
            )
            problems.append(plain(f"failure policy actions {actions} {why}"))
    for at, rule in rules:
        problems += _rule(rule, f"spec.failurePolicy.rules[{at}]", names)
    return problems + _patterns(rules) + _duplicates(rules)


def _too_many(rules: list[tuple[int, Json]]) -> list[FieldError]:
    """Return errors for lists longer than in the CRD; the webhook may be called without it."""
    path = "spec.failurePolicy.rules"
    lists = [(path, rules, MAX_RULES)] + [
        (f"{path}[{at}].{field}", items(rule, field), MAX_REASONS)
        for at, rule in rules[:MAX_RULES]
        for field in ("onJobFailureReasons", "onJobFailureMessagePatterns")
    ]
    return [
        too_many(field, len(found), limit) for field, found, limit in lists if len(found) > limit
    ]


def _patterns(rules: list[tuple[int, Json]]) -> list[FieldError]:
    """Return errors for the patterns; some limits apply to all of them together."""
    given = [
        (f"spec.failurePolicy.rules[{at}].onJobFailureMessagePatterns[{nth}]", pattern)
        for at, rule in rules
        for nth, pattern in enumerate(items(rule, "onJobFailureMessagePatterns"))
    ]
    found = patterns_problems(tuple(each if isinstance(each, str) else "" for _, each in given))
    return [
        invalid(field, pattern, problem if isinstance(pattern, str) else "must be a string")
        for (field, pattern), problem in zip(given, found, strict=True)
        if problem or not isinstance(pattern, str)
    ]


def _restarts_too_many(spec: Json, rules: list[tuple[int, Json]], names: set[str]) -> bool:
    """Return True if a rule restarts single Jobs of a ReplicatedJob that has too many for that."""
    found: set[str] = set()
    for _, rule in rules:
        if text(rule, "action") in SINGLE | WHOLE:
            found.update(texts(rule, "targetReplicatedJobs") or names)
    return any(
        replicas_of(job) > MAX_REPLICAS_OF_PARTIAL_RESTARTS and text(job, "name") in found
        for _, job in objects(spec, "replicatedJobs")
    )


def failure_policy_warnings(spec: Json) -> list[FieldWarning]:
    """Return warnings for reasons that look like misspelled reasons of the Job controller."""
    return [
        FieldWarning(f"spec.failurePolicy.rules[{at}].onJobFailureReasons[{nth}]", doubt)
        for at, rule in objects(child(spec, "failurePolicy"), "rules")[:MAX_RULES]
        for nth, reason in enumerate(items(rule, "onJobFailureReasons")[:MAX_REASONS])
        if isinstance(reason, str) and (doubt := reason_doubt(reason))
    ]


def _rule(rule: Json, path: str, names: set[str]) -> Iterator[FieldError]:
    name = text(rule, "name")
    if not 1 <= len(name.encode()) <= RULE_NAME_MAX:
        why = (
            f"invalid failure policy rule name of length {len(name.encode())}, the rule name "
            f"must be 1 to {RULE_NAME_MAX} characters long"
        )
        yield invalid(f"{path}.name", name, why)
    if not _RULE_NAME.fullmatch(name):
        why = (
            "invalid failure policy rule name, a failure policy rule name must start with an "
            "alphabetic character, optionally followed by a string of alphanumeric characters "
            "or '_,:', and must end with an alphanumeric character or '_'"
        )
        yield invalid(f"{path}.name", name, why)
    for at, target in enumerate(items(rule, "targetReplicatedJobs")):
        if target not in names:
            why = (
                f"invalid replicatedJob name '{target}' in failure policy does not appear in "
                ".spec.ReplicatedJobs"
            )
            yield invalid(f"{path}.targetReplicatedJobs[{at}]", target, why)
    for at, reason in enumerate(items(rule, "onJobFailureReasons")):
        problem = reason_problem(reason) if isinstance(reason, str) else "must be a string"
        if problem:
            why = f"invalid job failure reason '{reason}' in failure policy: {problem}"
            yield invalid(f"{path}.onJobFailureReasons[{at}]", reason, why)
    yield from _repeated(rule, path)


def _repeated(rule: Json, path: str) -> Iterator[FieldError]:
    """Return errors for values that a list of a rule has several times."""
    for field in ("onJobFailureReasons", "targetReplicatedJobs"):
        first: dict[str, int] = {}
        for at, value in enumerate(texts(rule, field)):
            if first.setdefault(value, at) != at:
                yield invalid(f"{path}.{field}[{at}]", value, "is listed twice: remove it")


def _duplicates(rules: list[tuple[int, Mapping[str, object]]]) -> list[FieldError]:
    indices: dict[str, list[int]] = {}
    for at, rule in rules:
        indices.setdefault(text(rule, "name"), []).append(at)
    return [
        invalid(
            f"spec.failurePolicy.rules[{where[1]}].name",
            name,
            f"rule names are not unique: the rules with the indices {where} all have the name "
            f"'{name}'",
        )
        for name, where in indices.items()
        if len(where) > 1
    ]
