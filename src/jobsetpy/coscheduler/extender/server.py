"""Server of the scheduler extender."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final

from jobsetpy.coscheduler._settings import BACKLOG
from jobsetpy.coscheduler.engine.engine import Engine
from jobsetpy.coscheduler.extender.extender import BODY_LIMITS, ExtenderApi
from jobsetpy.serving import http
from jobsetpy.serving.http import HttpServer, Limits, Request, Response, Route

HEADERS_S: Final = 30.0
"""Timeout in seconds for a handshake, and for headers: thousands of handshakes take seconds."""

BODY_S: Final = 30.0


@asynccontextmanager
async def listening(
    leading: Callable[[], Engine],
    address: http.Address,
    *,
    prefix: str = "",
    names: Collection[str] | None = None,
    body_s: float = BODY_S,
) -> AsyncIterator[HttpServer]:
    """Run the extender's server within the block; it accepts connections after ``use``.

    Args:
        leading: see :class:`ExtenderApi`.
        address: address to listen on.
        prefix: see :class:`ExtenderApi`.
        names: see :class:`ExtenderApi`.
        body_s: maximum time for receiving a body, in seconds.

    Raises:
        OSError: the address cannot be bound.
    """
    api = ExtenderApi(leading, prefix=prefix, names=names)
    routes = [Route("POST", path, _handler(api, verb, body_s)) for path, verb in api.verbs.items()]
    limits = Limits(headers_s=HEADERS_S, backlog=BACKLOG)
    # Requests of a scheduler that disconnects are cancelled with their connections.
    async with http.listening(routes, address, limits=limits, cancel_handlers=True) as server:
        yield server


def _handler(api: ExtenderApi, verb: str, body_s: float) -> http.Handler:
    async def handle(request: Request) -> Response:
        async def read() -> bytearray:
            async with asyncio.timeout(body_s):
                return await request.body(BODY_LIMITS[verb])

        return await api.handle(verb, request.client_name, read)

    return handle
