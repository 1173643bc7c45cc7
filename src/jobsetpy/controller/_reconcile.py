"""The contract between a controller and its reconciler: a request in, a result or an error out."""

from __future__ import annotations

from typing import Protocol

from jobsetpy.api.reconcile import Request, Result


class Reconciler(Protocol):
    """Brings the world a step nearer to what one object asks for.

    It is level-based: look at the present state (usually in the caches), compare, act, return. It
    must get along with being called without need, late, again after a crash half-way, or for an
    object that is gone. Never are two calls for one key in progress at once; calls for different
    keys are, as the controller has several workers.
    """

    async def reconcile(self, request: Request) -> Result:
        """Reconcile one object.

        Raises:
            TerminalError: a retry cannot help until the object changes.
            Exception: anything else is retried with growing delays; ``ConflictError`` is an
                ordinary event and logged as such; ``RetryableApiError.retry_after`` is obeyed.
        """
        ...
