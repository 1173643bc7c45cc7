"""Dry run of a controller, without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from jobsetpy.app.user_programs import Setup
from jobsetpy.client import ByteStream, Client, HttpRequest, HttpResponse
from jobsetpy.manager import Manager, Runnable
from jobsetpy.runtime._webhooks import ServedWebhooks


class _NoTransport:
    """Refuses to send anything."""

    async def request(self, request: HttpRequest) -> HttpResponse:
        raise ValueError(self._refusal(request))

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[ByteStream]:
        raise ValueError(self._refusal(request))

    async def refresh_credentials(self) -> None:
        """There are none."""

    async def aclose(self) -> None:
        """Nothing to close."""

    @staticmethod
    def _refusal(request: HttpRequest) -> str:
        return f"setup asks the API server ({request.method} {request.path}): leave that to run"


def served_by(setup: Setup) -> ServedWebhooks:
    """The webhooks that a setup function adds to its manager.

    Raises:
        ValueError: there are none, or it asks the API server.
    """
    for runnable in asyncio.run(_added(setup)):
        if isinstance(runnable, ServedWebhooks):
            return runnable
    msg = f"{setup!r} serves no webhooks: it has to call runtime.serve_webhooks(manager, ...)"
    raise ValueError(msg)


async def _added(setup: Setup) -> Sequence[Runnable]:
    manager = Manager(Client(_NoTransport()))
    asked = setup(manager)
    if asked is not None:
        await asked
    return manager.runnables
