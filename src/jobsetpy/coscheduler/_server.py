"""Server of the scheduler extender: HTTP/2 for clients that support it over TLS, else HTTP/1.1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Final

from jobsetpy import aio
from jobsetpy.coscheduler._extender import BODY_LIMITS, Extender, ExtenderApi, counted, refusal
from jobsetpy.coscheduler._http2_connection import Http2Connections
from jobsetpy.serving import http
from jobsetpy.serving.http import HttpServer, Limits, Request, Response, Route, TooLargeError

BACKLOG: Final = 4096
"""Maximum number of pending connections: over HTTP/1.1 all pods of a gang open one together."""

HEADERS_S: Final = 30.0
"""Timeout in seconds for a handshake, and for headers: thousands of handshakes take seconds."""

BODY_S: Final = 30.0


@asynccontextmanager
async def listening(
    extender: Extender,
    address: http.Address,
    *,
    prefix: str = "",
    names: Collection[str] | None = None,
    backlog: int = BACKLOG,
    body_s: float = BODY_S,
) -> AsyncIterator[HttpServer]:
    """Run the extender's server within the block; it accepts connections after ``use``.

    Args:
        extender: executor of requests.
        address: address to listen on.
        prefix: see :class:`ExtenderApi`.
        names: see :class:`ExtenderApi`.
        backlog: maximum connections that wait to be accepted.
        body_s: maximum time for receiving a body, in seconds.

    Raises:
        OSError: the address cannot be bound.
    """
    api = ExtenderApi(extender, prefix=prefix, names=names)
    routes = [Route("POST", path, _handler(api, verb, body_s)) for path, verb in api.verbs.items()]
    async with aio.supervise() as tasks:
        http2 = Http2Connections(api, tasks, body_s=body_s, headers_s=HEADERS_S)
        limits = Limits(headers_s=HEADERS_S, backlog=backlog)
        # Requests of a scheduler that disconnects are cancelled with their connections.
        async with http.listening(
            routes, address, limits=limits, http2=http2, cancel_handlers=True
        ) as server:
            yield server


def _handler(api: ExtenderApi, verb: str, body_s: float) -> http.Handler:
    async def answer(request: Request) -> Response:
        refused = api.check_client(request.client_name)
        if refused is not None:
            return refused
        try:
            async with asyncio.timeout(body_s):
                body = await request.body(BODY_LIMITS[verb])
        except TimeoutError:
            return refusal(408, "the request did not come in time")
        return await api.answer(verb, body)

    async def handle(request: Request) -> Response:
        with counted(verb) as status:
            try:
                response = await answer(request)
            except TooLargeError:
                status.append(413)
                raise
            status.append(response.status)
        return response

    return handle
