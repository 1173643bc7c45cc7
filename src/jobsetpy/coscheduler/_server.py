"""The scheduler extender's server: HTTP/2 for those who speak it over TLS, else HTTP/1.1."""

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
"""A whole group asks at once; over HTTP/1.1 each pod on a connection of its own."""

HEADERS_S: Final = 30.0
"""For a handshake, and then for headers: a few thousand handshakes at once take seconds."""

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
    """The extender's server within the block; nothing is accepted before ``use``.

    Args:
        extender: answers.
        address: to listen on.
        prefix: see :class:`ExtenderApi`.
        names: see :class:`ExtenderApi`.
        backlog: maximum connections that wait to be accepted.
        body_s: how long a body may take to come, in seconds.

    Raises:
        OSError: the address cannot be bound.
    """
    api = ExtenderApi(extender, prefix=prefix, names=names)
    routes = [Route("POST", path, _handler(api, verb, body_s)) for path, verb in api.verbs.items()]
    async with aio.supervise() as tasks:
        http2 = Http2Connections(api, tasks, body_s=body_s, headers_s=HEADERS_S)
        limits = Limits(headers_s=HEADERS_S, backlog=backlog)
        # A scheduler that is gone holds nothing: its requests are cancelled with their connections.
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
