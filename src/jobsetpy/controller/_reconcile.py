"""Contract between a controller and its reconciler: a request in, a result or an error out."""

from __future__ import annotations

from typing import Protocol

from jobsetpy.api.reconcile import Request, Result


class Reconciler(Protocol):
    """Brings the cluster closer to the desired state of one object.

    It is level-based: read the current state (usually from the caches), compare, act, return. It
    must tolerate calls without need, late calls, calls after a crash half-way, and calls for an
    object that is gone. Two calls for the same key never run concurrently; calls for different
    keys do, as the controller has several workers.
    """

    async def reconcile(self, request: Request) -> Result:
        """Reconcile one object.

        Raises:
            TerminalError: a retry cannot succeed until the object changes.
            Exception: anything else is retried with growing delays; ``ConflictError`` is expected
                and logged as such; ``RetryableApiError.retry_after`` is honoured.
        """
        ...
