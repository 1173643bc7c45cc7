"""How many requests the process can hold: over HTTP/1.1 each is a connection, hence an open file.

Over HTTP/2 many share one, but nobody knows beforehand what clients will speak.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Final

from jobsetpy.observability.logging import get_logger

OTHERS: Final = 200
"""Files that are open beside: listeners, connections to the API server, probes, libraries."""

_SOMAXCONN: Final = Path("/proc/sys/net/core/somaxconn")


def raise_limit() -> int:
    """Raise the limit on open files as far as this process may; the limit now."""
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
    """How many requests may be held, with so many files open at most.

    Args:
        wanted: as configured.
        limit: on open files.
        writers: connections to the API server for writes.
    """
    return max(1, min(wanted, limit - OTHERS - writers))


def check(wanted: int, writers: int, backlog: int) -> int:
    """Raise the limit, say what it is too low for, and return how many requests may be held."""
    log = get_logger("coscheduler")
    limit = raise_limit()
    number = holdable(wanted, limit, writers)
    if number < wanted:
        log.warning(
            "fewer binds can be held than configured: the limit on open files is too low",
            limit=limit,
            configured=wanted,
            held_at_most=number,
        )
    try:
        allowed = int(_SOMAXCONN.read_text())
    except (OSError, ValueError):
        return number
    if allowed < backlog:
        log.warning(
            "the kernel lets fewer connections wait than configured",
            somaxconn=allowed,
            configured=backlog,
        )
    return number
