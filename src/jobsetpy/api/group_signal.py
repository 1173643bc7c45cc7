"""Format of the ConfigMap by which startup groups are released (KEP-498).

Defined in one module, since the controller writes it, and a shell loop and the agent read it.
Imported by the agent: standard library only.

The key ``started`` contains ``<JobSet's UID> <attempt>`` and a line feed. It releases every pod of
that JobSet whose attempt is this one or an older one. A value of an earlier JobSet with the same
name, or of an earlier attempt, releases no other pods, however late a node shows it.

The key ``waiting`` contains ``<UID> <attempt> <started> <expected> <time>``, for messages only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

CONFIG_MAP_SUFFIX: Final = "-group-scheduling"
STARTED: Final = "started"
WAITING: Final = "waiting"
MOUNT_PATH: Final = "/mnt/group-scheduling"


class Progress(NamedTuple):
    """Number of started and of expected pods at a time (RFC 3339, UTC)."""

    started: int
    expected: int
    time: str


def config_map_name(jobset: str) -> str:
    """Return the name of a JobSet's ConfigMap."""
    return f"{jobset}{CONFIG_MAP_SUFFIX}"


def started_value(uid: str, attempt: int) -> str:
    """Return the value that releases the pods of a JobSet's attempts up to this one."""
    return f"{uid} {attempt}\n"


def lifted_attempt(value: str | None, uid: str) -> int:
    """Return the latest attempt of that JobSet that a value releases; 0 for none."""
    parts = (value or "").split()
    return _number(parts[1]) if len(parts) == 2 and parts[0] == uid else 0


def waiting_value(uid: str, attempt: int, progress: Progress) -> str:
    """Return the value that reports the progress of an attempt."""
    return f"{uid} {attempt} {progress.started} {progress.expected} {progress.time}\n"


def progress_of(value: str | None, uid: str, attempt: int) -> Progress | None:
    """Return the progress of an attempt; ``None`` if the value is not about it."""
    parts = (value or "").split()
    if len(parts) != 5 or parts[0] != uid or _number(parts[1]) < attempt:
        return None
    return Progress(_number(parts[2]), _number(parts[3]), parts[4])


def timed_out_message(seconds: int, progress: Progress | None, size: str) -> str:
    """Return a pod's message after a timeout; ``size`` is that of the startup group, if known."""
    head = f"group scheduling timed out after {seconds} s: "
    if progress is None:
        return f"{head}fewer than {size or 'all'} pods had started"
    return f"{head}{progress.started} of {progress.expected} pods had started at {progress.time}"


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
