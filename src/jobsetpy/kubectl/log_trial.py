"""Trial of the patterns and rules of a JobSet on a log, as its agents would match it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.annotations import AUTO, read
from jobsetpy.api.durations import in_words
from jobsetpy.api.log_lines import (
    BUILT_IN,
    LogRule,
    Matcher,
    Seen,
    Splitter,
    bounded,
    progress_patterns,
)
from jobsetpy.reconcilers.rules.json_tree import child, objects, pod_notes, text

_PIECE: Final = 1 << 17
_SHOWN: Final = 80
_STAMP: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8})[0-9.]*(Z|[+-][0-9]{2}:[0-9]{2}) "
    r"(?:std(?:out|err) [FP] )?"
)


@attrs.define
class Tally:
    """Lines of one pattern so far.

    Args:
        rule: the rule; ``None`` for the pattern of progress.
        lines: their number.
        first: number and text of the first line that shows progress, or breaks the rule.
        last: the last step.
        at: time of the last line.
        gap_s: longest time between two lines, or from the beginning of the log to the first one.
    """

    rule: LogRule | None
    lines: int = 0
    first: tuple[int, str] | None = None
    last: int = -1
    at: datetime | None = None
    gap_s: float = 0.0
    start_s: float = 0.0


def try_jobset(jobset: Mapping[str, Any], path: str) -> list[str]:
    """Return sentences on what the lines of a log mean for a JobSet; ``auto`` without one.

    Raises:
        OSError: the log cannot be read.
    """
    if not jobset:
        return try_log(path, AUTO, ())
    shared, tried = child(jobset, "metadata", "annotations"), dict[tuple[Any, ...], str]()
    for _, job in objects(child(jobset, "spec"), "replicatedJobs"):
        own = pod_notes(job)
        pattern = read(keys.PROGRESS_PATTERN_ANNOTATION, own, shared, default="")
        rules = read(keys.LOG_RULES_ANNOTATION, own, shared, default=())
        if pattern or rules:
            tried.setdefault((pattern, *rules), text(job, "name"))
    return [
        f"{name}: {said}" if len(tried) > 1 else said
        for (pattern, *rules), name in tried.items()
        for said in try_log(path, pattern, rules)
    ] or ["no pattern and no rule: set progress-pattern or log-rules"]


def try_log(path: str, pattern: str, rules: Sequence[LogRule]) -> list[str]:
    """Return sentences on the lines of a log that match.

    Args:
        path: the log, with or without the time stamps of ``kubectl logs --timestamps``.
        pattern: pattern of progress; "" for none.
        rules: rules on lines.

    Raises:
        OSError: it cannot be read.
    """
    progress = Tally(None)
    tallies = {rule.name: Tally(rule) for rule in rules}
    matcher = Matcher(progress_patterns(pattern) if pattern else {}, rules, limit=bounded())
    slow: list[str] = []
    name, since, until, number = "", None, None, 0
    for number, (at, line) in enumerate(_lines(path), 1):
        since, until = since or at, at or until
        seen = Seen()
        matcher.take([line], seen)
        slow += seen.slow
        if seen.progress:
            name = seen.pattern or name
            progress.first = progress.first or (seen.step, line)
            progress.lines, progress.last = progress.lines + 1, seen.step
        for each in seen.seen:
            _note(tallies[each], at, since)
        for each, why in seen.broken.items():
            tallies[each].first = tallies[each].first or (number, why)
    said = [_progress_said(progress, pattern, name, number)] if pattern else []
    said += [_rule_said(each, until) for each in tallies.values()]
    said += [f"pattern {each} takes too long: the agent would no longer use it" for each in slow]
    return said


def _lines(path: str) -> Iterator[tuple[datetime | None, str]]:
    lines = Splitter()
    with open(path, "rb") as file:  # noqa: PTH123 - /dev/stdin as well
        while piece := file.read(_PIECE):
            for line in lines.feed(piece):
                yield _stamped(line)
        for line in lines.feed(b"\n"):
            yield _stamped(line)


def _stamped(line: str) -> tuple[datetime | None, str]:
    found = _STAMP.match(line)
    if found is None:
        return None, line
    return datetime.fromisoformat(found[1] + found[2].replace("Z", "+00:00")), line[found.end() :]


def _note(tally: Tally, at: datetime | None, since: datetime | None) -> None:
    tally.lines += 1
    if at is None or since is None:
        return
    if tally.at is None:
        tally.start_s = (at - since).total_seconds()
    else:
        tally.gap_s = max(tally.gap_s, (at - tally.at).total_seconds())
    tally.at = at


def _progress_said(tally: Tally, pattern: str, name: str, lines: int) -> str:
    what = f"progress-pattern {pattern}" if pattern in (AUTO, *BUILT_IN) else "progress-pattern"
    if tally.first is None:
        return f"{what}: none of {lines} lines shows progress"
    used = f" ({name})" if name and pattern == AUTO else ""
    steps = "without a step"
    if tally.last >= 0:
        steps = f"steps {tally.first[0]} to {tally.last}"
    return f"{what}{used}: {tally.lines} of {lines} lines show progress, {steps}"


def _rule_said(tally: Tally, until: datetime | None) -> str:
    rule = tally.rule
    assert rule is not None, "the tally is of a progress pattern"
    what = f"rule {rule.name}: {tally.lines} {'line' if tally.lines == 1 else 'lines'}"
    if tally.first is not None:
        number, text = tally.first
        return f"{what}; {rule.then} at line {number}: {text[:_SHOWN]}"
    if not rule.is_timed:
        return f"{what}; no outcome"
    if until is None:
        return f"{what}; times are unknown: use kubectl logs --timestamps"
    gap_s = (
        tally.gap_s if tally.at is None else max(tally.gap_s, (until - tally.at).total_seconds())
    )
    times = (("within", rule.within, tally.start_s), ("again-within", rule.again_within, gap_s))
    late = [
        f"{key} {in_words(limit)} is exceeded: {in_words(took)}"
        for key, limit, took in times
        if 0 < limit < took
    ]
    if rule.within and not tally.lines:
        late = ["no line"]
    return f"{what}; {rule.then}: {', '.join(late)}" if late else f"{what}; in time"
