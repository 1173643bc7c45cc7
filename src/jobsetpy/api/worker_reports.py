"""Reports of agents: the epoch, and a supervisor's report on the worker's last run.

Any client that may write a pod can write these annotations, so they are parsed strictly. Reports on
a run name a cause and a step for users and metrics; only the epoch shows that a restart has begun.
"""

from __future__ import annotations

import re
import signal
from functools import lru_cache
from typing import Final, NamedTuple

from jobsetpy.api import keys
from jobsetpy.api.agent_reports import MAX_CAUSE_TEXT, MAX_STEP, TOUCHED, EndKind
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.epoch_report import INVALID, parse_decimal, parse_epoch

_CAUSE: Final = re.compile(
    rf"({'|'.join(EndKind)})=(0|[1-9][0-9]{{0,6}})(?: (.{{1,{MAX_CAUSE_TEXT}}}))?", re.ASCII
)

_STEP: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)

_FIRST: Final = re.compile(r"([0-9]{1,19}) ([0-9]{1,7}\.[0-9]{3})", re.ASCII)

_LONGEST_S: Final = 366 * 86400


class WorkerEnd(NamedTuple):
    """Failure of a worker.

    Args:
        kind: kind of the failure.
        number: number of that kind.
        text: text of that kind, one line; "" for none.
    """

    kind: EndKind
    number: int
    text: str = ""


def parse_cause(text: str | None) -> WorkerEnd | None:
    """Return an annotation as the end of a worker; ``None`` if it is missing or invalid."""
    found = _CAUSE.fullmatch(text or "")
    if found is None:
        return None
    kind, number = EndKind(found[1]), int(found[2])
    highest = 255 if kind is EndKind.EXIT_CODE else _LONGEST_S
    words = found[3] if found[3] and found[3].isprintable() else ""
    return WorkerEnd(kind, number, words) if 1 <= number <= highest else None


def parse_progress(text: str | None) -> int | None:
    """Return an annotation as a step, -1 for ``TOUCHED``; ``None`` if it is missing or invalid."""
    if text == TOUCHED:
        return -1
    if text is None or _STEP.fullmatch(text) is None:
        return None
    step = int(text)
    return step if step <= MAX_STEP else None


class FirstProgress(NamedTuple):
    """First step that a run has reported, and the seconds since the worker's start."""

    step: int
    seconds: float


def parse_first(text: str | None) -> FirstProgress | None:
    """Return an annotation as the first progress of a run; ``None`` if it is invalid."""
    found = _FIRST.fullmatch(text or "")
    step = None if found is None else parse_progress(found[1])
    if found is None or step is None:
        return None
    return FirstProgress(step, float(found[2]))


def signal_name(exit_code: int) -> str:
    """Return the name of the signal that an exit code stands for, or ""."""
    try:
        return signal.Signals(exit_code - 128).name
    except ValueError:
        return ""


@lru_cache(maxsize=256)  # called several times per event of a pod; a group has two or three
def parse_report(text: str | None, is_attempt: bool) -> int:
    """Return an agent's report as an epoch; attempts of the Go project count from 0."""
    if not is_attempt:
        return parse_epoch(text)
    attempt = parse_decimal(text)
    return INVALID if attempt is None or attempt >= keys.MAX_EPOCH else attempt + 1


def epoch_of(pod: ChildPod) -> int:
    """Return the epoch that a pod's agent has reported, as :func:`parse_report`."""
    notes = pod.metadata.annotations
    return parse_report(notes.report, notes.is_attempt)
