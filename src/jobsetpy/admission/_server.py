"""The HTTPS server that the API server calls."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext

from aiohttp import web

from jobsetpy.admission import _review as review
from jobsetpy.admission._handlers import Handler
from jobsetpy.errors import JobSetPyError
from jobsetpy.observability import metrics
from jobsetpy.observability.logging import get_logger
from jobsetpy.serving.guard import HEADERS_S, IDLE_S, Guard, Guards

SHUTDOWN_S = 3.0
"""How long requests under way may take when the manager stops."""
_MARGIN_S = 0.5
"""An answer has to be there before the caller gives up."""

_SECONDS = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,9})?)s")
_log = get_logger("webhooks")


def deadline(asked: str, limit_s: float) -> float:
    """Seconds for an answer: what the caller waits (``timeout=10s``) less a margin, or the limit.

    Args:
        asked: the query parameter; "" or unknown forms count for nothing.
        limit_s: the server's own limit.
    """
    found = _SECONDS.fullmatch(asked)
    if found is None:
        return limit_s
    return max(0.1, min(limit_s, float(found[1]) - _MARGIN_S))


def application(
    handlers: Mapping[str, Handler],
    *,
    body_limit: int,
    deadline_s: float,
    leaving: Callable[[], bool] = lambda: False,
) -> web.Application:
    """The routes: POST only, bodies up to ``body_limit`` bytes, every answer in time.

    While ``leaving()``, each answer is its connection's last, so that the next call of that API
    server goes to whom the Service names then.
    """

    async def end_connection(_: web.Request, response: web.StreamResponse) -> None:
        if leaving():
            response.headers["Connection"] = "close"
            response.force_close()

    app = web.Application(client_max_size=body_limit, middlewares=[_under_guard])
    app.on_response_prepare.append(end_connection)
    for path, handler in handlers.items():
        app.router.add_post(path, _endpoint(path, handler, deadline_s))
    return app


def _endpoint(
    path: str, handler: Handler, limit_s: float
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    counts = metrics.WebhookMetrics(path)

    async def answer(http: web.Request) -> web.StreamResponse:
        try:
            async with asyncio.timeout(deadline(http.query.get("timeout", ""), limit_s)):
                return await _answer(http, handler)
        except TimeoutError:
            _log.warning("no answer in time", path=http.path)
            return web.Response(status=504, text="no answer in time\n")

    async def counted(http: web.Request) -> web.StreamResponse:
        status = 500
        try:
            with counts.serving():
                response = await answer(http)
            status = response.status
        except web.HTTPException as error:
            status = error.status
            raise
        finally:
            counts.answered(status)
        return response

    return counted


@web.middleware
async def _under_guard(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Tell the connection's guard while a request is being answered."""
    protocol = request.transport.get_protocol() if request.transport is not None else None
    with protocol.request() if isinstance(protocol, Guard) else nullcontext():
        return await handler(request)


async def _answer(http: web.Request, handler: Handler) -> web.Response:
    body = await http.read()  # beyond the limit, aiohttp answers 413
    try:
        request = review.decode(body)
    except ValueError as error:
        return web.Response(status=400, text=f"{error}\n")
    try:
        answer = await handler(request)
        content = review.encode(request.uid, answer)
    except JobSetPyError as error:
        # Such as caches that are not synced: the caller's failurePolicy decides.
        _log.warning("a request could not be answered", path=http.path, error=str(error))
        return web.Response(status=500, text=f"{error}\n")
    except RecursionError:
        content = review.encode(request.uid, review.undecodable("the object is nested too deeply"))
    return web.Response(body=content, content_type="application/json")


@asynccontextmanager
async def serving(
    app: web.Application,
    address: tuple[str, int],
    context: ssl.SSLContext,
    *,
    headers_s: float = HEADERS_S,
    idle_s: float = IDLE_S,
) -> AsyncIterator[int]:
    """Serve ``app`` within the block.

    Args:
        app: what to serve.
        address: host ("" for all interfaces) and port (0 takes a free one).
        context: its certificate may change meanwhile.
        headers_s: how long handshake, and then headers, may take, in seconds.
        idle_s: how long a connection may be without a request, in seconds.

    Yields:
        The port that is listened on.

    Raises:
        OSError: the address cannot be bound.
    """
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=SHUTDOWN_S,
        keepalive_timeout=idle_s,
    )
    await runner.setup()
    assert runner.server is not None
    guards = Guards(runner.server, headers_s=headers_s, idle_s=idle_s)
    try:
        # Not aiohttp's own site: it knows no deadline for headers.
        server = await asyncio.get_running_loop().create_server(
            guards,
            address[0] or None,
            address[1],
            ssl=context,
            ssl_handshake_timeout=headers_s,
            backlog=128,
        )
        try:
            port: int = server.sockets[0].getsockname()[1]
            yield port
        finally:
            server.close()
    finally:
        await runner.cleanup()
        await guards.end()
