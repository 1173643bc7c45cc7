"""Maximum number of held requests under the limit on open files.

Each is a connection, hence an open file.
"""

from __future__ import annotations

import resource
from typing import Final

from jobsetpy.observability.logging import get_logger

OTHERS: Final = 200
"""Number of other open files: listeners, connections to the API server, probes, libraries."""


def raise_limit() -> int:
    """Raise the limit on open files as far as this process may; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = 1 << 20  # some kernels do not take "infinite" for files
    if soft != resource.RLIM_INFINITY and soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
        return hard
    return hard if soft == resource.RLIM_INFINITY else soft


def holdable(wanted: int, limit: int, writers: int) -> int:
    """Return the maximum number of held requests under a limit on open files.

    Args:
        wanted: configured maximum.
        limit: limit on open files.
        writers: number of connections to the API server for writes.
    """
    return max(1, min(wanted, limit - OTHERS - writers))


def check(wanted: int, writers: int) -> int:
    """Raise the limit, warn if it is too low, and return the maximum of held requests."""
    limit = raise_limit()
    number = holdable(wanted, limit, writers)
    if number < wanted:
        get_logger("coscheduler").warning(
            "fewer binds can be held than configured: the limit on open files is too low",
            limit=limit,
            configured=wanted,
            held_at_most=number,
        )
    return number
