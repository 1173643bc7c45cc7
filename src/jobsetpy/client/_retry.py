"""Retry rules: which failed requests may be sent again, and after what delay.

The table (other failures are final; all retries are within the call's deadline):

====================================  =====  ======  =====
failure                               READ   CREATE  WRITE
====================================  =====  ======  =====
429                                   yes    yes     yes
503 with Retry-After                  yes    yes     yes
no connection (nothing was sent)      yes    yes     yes
any other 5xx                         yes    no      no
connection broke (may have arrived)   yes    no      no
====================================  =====  ======  =====

With a 429, or a 503 with Retry-After, the server states that it did not process the request. A
create is never repeated after it may have arrived: the second one would fail with AlreadyExists,
or, with a generated name, create a second object. Patches, replaces and deletes are repeated by
their callers, which can read the object first. Credentials (401) are handled by the sender.
"""

from __future__ import annotations

import enum

from jobsetpy.aio import Backoff
from jobsetpy.errors import ConnectFailedError, JobSetPyError, RetryableApiError, StreamBrokenError

MAX_RETRIES = 5
"""Maximum number of retries of one call without Retry-After."""

MAX_RETRY_AFTER_RETRIES = 10
"""Maximum number of retries of one call with Retry-After."""

BACKOFF_BASE_S = 0.1
BACKOFF_CAP_S = 10.0


class Safety(enum.Enum):
    """Possible damage by a repeated request."""

    READ = "read"  # none
    CREATE = "create"  # a second object
    WRITE = "write"  # loss of another client's change made in between


def is_retryable(failure: JobSetPyError, safety: Safety) -> bool:
    """Return whether the table of this module allows a retry of the request."""
    match failure:
        case RetryableApiError():
            return (
                failure.status == 429
                or (failure.status == 503 and failure.retry_after is not None)
                or safety is Safety.READ
            )
        case ConnectFailedError():
            return True
        case StreamBrokenError():
            return safety is Safety.READ
        case _:
            return False


def wait_after(
    failure: JobSetPyError, safety: Safety, backoff: Backoff, remaining_s: float
) -> float | None:
    """Return the seconds to wait before the next attempt; ``None`` for no further attempt.

    Also ``None`` if the wait would exceed the rest of the deadline: the present failure is more
    informative than a timeout, and earlier.
    """
    if not is_retryable(failure, safety):
        return None
    retry_after = failure.retry_after if isinstance(failure, RetryableApiError) else None
    if backoff.attempt >= (MAX_RETRIES if retry_after is None else MAX_RETRY_AFTER_RETRIES):
        return None
    wait = backoff.next(retry_after)
    return wait if wait < remaining_s else None
