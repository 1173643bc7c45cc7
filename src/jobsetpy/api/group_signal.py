"""What the ConfigMap of group scheduling says, and who reads it (KEP-498).

The controller writes it, a shell loop and the agent read it, so its form is decided in one place.
Imported by the agent: nothing but the standard library.

The key ``started`` holds ``<JobSet's UID> <attempt>`` and a line's end. It lifts the barrier of
every pod of that JobSet whose own attempt is that one or an older one. Neither a value left by a
JobSet of the same name nor one of an earlier attempt lifts any other, however late a node shows it.

The key ``waiting`` holds ``<UID> <attempt> <started> <expected> <time>``; it only serves messages.
"""

from __future__ import annotations

from typing import Final, NamedTuple

CONFIG_MAP_SUFFIX: Final = "-group-scheduling"
STARTED: Final = "started"
WAITING: Final = "waiting"
MOUNT_PATH: Final = "/mnt/group-scheduling"


class Progress(NamedTuple):
    """How many of how many pods had started at a time (RFC 3339, UTC)."""

    started: int
    expected: int
    time: str


def config_map_name(jobset: str) -> str:
    """Name of the ConfigMap of a JobSet."""
    return f"{jobset}{CONFIG_MAP_SUFFIX}"


def started_value(uid: str, attempt: int) -> str:
    """The value that lifts the barriers of a JobSet's attempts up to this one."""
    return f"{uid} {attempt}\n"


def lifted_attempt(value: str | None, uid: str) -> int:
    """Up to which attempt a value lifts barriers of that JobSet; 0 for none."""
    parts = (value or "").split()
    return _number(parts[1]) if len(parts) == 2 and parts[0] == uid else 0


def waiting_value(uid: str, attempt: int, progress: Progress) -> str:
    """The value that tells how far an attempt has come."""
    return f"{uid} {attempt} {progress.started} {progress.expected} {progress.time}\n"


def progress_of(value: str | None, uid: str, attempt: int) -> Progress | None:
    """How far that attempt had come; ``None`` if the value is about something else."""
    parts = (value or "").split()
    if len(parts) != 5 or parts[0] != uid or _number(parts[1]) < attempt:
        return None
    return Progress(_number(parts[2]), _number(parts[3]), parts[4])


def timed_out_message(seconds: int, progress: Progress | None, size: str) -> str:
    """What a pod says when it gives up; ``size`` is the group's as far as it is known."""
    head = f"group scheduling timed out after {seconds} s: "
    if progress is None:
        return f"{head}fewer than {size or 'all'} pods had started"
    return f"{head}{progress.started} of {progress.expected} pods had started at {progress.time}"


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
