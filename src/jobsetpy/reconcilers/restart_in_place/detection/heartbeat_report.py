"""Reports of agents about neighbours in the ring that they do not hear, and their format.

A report is an annotation of the observing pod, ``EPOCH MOTION POD[,POD]``: the epoch that it is
about; ``moving``, ``stalled`` or ``unknown`` for the progress of the workers that the observer
knows of; and its silent neighbours as ``REPLICATEDJOB-JOB-INDEX``. ``EPOCH blocked`` means that no
heartbeat has ever come. Any client that may write a pod can write it, so it is parsed strictly.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

BLOCKED: Final = "blocked"
MOVING: Final = "moving"
STALLED: Final = "stalled"
UNKNOWN: Final = "unknown"

_REPORT: Final = re.compile(
    r"([1-9][0-9]{0,9}) "
    r"(?:blocked|(moving|stalled|unknown) ([a-z0-9-]{1,80}(?:,[a-z0-9-]{1,80})?))",
    re.ASCII,
)


class Report(NamedTuple):
    """Report of a pod on its neighbours.

    Args:
        epoch: epoch that it is about.
        motion: progress of workers, or ``BLOCKED``.
        pods: names of silent neighbours in the ring.
    """

    epoch: int
    motion: str
    pods: tuple[str, ...] = ()


def parse_report(text: str | None) -> Report | None:
    """Return an annotation as a report; ``None`` if it is missing or invalid."""
    found = _REPORT.fullmatch(text or "")
    if found is None:
        return None
    names = found[3].split(",") if found[3] else ()
    return Report(int(found[1]), found[2] or BLOCKED, tuple(names))
