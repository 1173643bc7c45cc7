"""When a failed request may be sent again, and after how long.

The table (a failure not named is final; all within the call's deadline):

====================================  =====  ======  =====
failure                               READ   CREATE  WRITE
====================================  =====  ======  =====
429                                   yes    yes     yes
503 with Retry-After                  yes    yes     yes
no connection (nothing was sent)      yes    yes     yes
any other 5xx                         yes    no      no
connection broke (may have arrived)   yes    no      no
====================================  =====  ======  =====

A 429 and a 503 with Retry-After are the server's way to say that it did not start the work. A
create is never repeated after it may have arrived: the second one would fail with AlreadyExists,
or, with a generated name, make a second object. Patches, replaces and deletes are repeated by
their callers, who can look at the object first. Credentials (401) are the client's business.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable

from jobsetpy.aio import Backoff
from jobsetpy.errors import (
    ConnectFailedError,
    JobSetPyError,
    RetryableApiError,
    StreamBrokenError,
)

MAX_RETRIES = 5
"""Retries of one call when the server sent no Retry-After."""

MAX_RETRY_AFTER_RETRIES = 10
"""Retries of one call when the server said when."""

BACKOFF_BASE_S = 0.1
BACKOFF_CAP_S = 10.0


class Safety(enum.Enum):
    """What repeating a request could do wrong."""

    READ = "read"  # nothing
    CREATE = "create"  # a second object
    WRITE = "write"  # a change of someone else made in between


def is_retryable(failure: JobSetPyError, safety: Safety) -> bool:
    """Whether the table above allows to send the request again."""
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


class Retry:
    """The attempts of one call."""

    __slots__ = ("_backoff", "_safety")

    def __init__(self, safety: Safety, *, rand: Callable[[], float] = random.random) -> None:
        self._safety = safety
        self._backoff = Backoff(base=BACKOFF_BASE_S, cap=BACKOFF_CAP_S, rand=rand)

    def wait_after(self, failure: JobSetPyError, remaining_s: float) -> float | None:
        """Seconds to wait before the next attempt; ``None`` if there is to be none.

        There is none either if the wait would use up what remains of the deadline: the failure
        in hand says more than a timeout would, and sooner.
        """
        if not is_retryable(failure, self._safety):
            return None
        retry_after = failure.retry_after if isinstance(failure, RetryableApiError) else None
        if self._backoff.attempt >= (
            MAX_RETRIES if retry_after is None else MAX_RETRY_AFTER_RETRIES
        ):
            return None
        wait = self._backoff.next(retry_after)
        return wait if wait < remaining_s else None
