"""The scheduler extender's server: HTTP/2 for those who speak it over TLS, else HTTP/1.1."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, nullcontext
from typing import Final

from aiohttp import web

from jobsetpy import aio
from jobsetpy.coscheduler._answers import BODY_LIMITS, Answers, Extender, counted, refusal
from jobsetpy.coscheduler._http2_connection import Http2Connections, Negotiated
from jobsetpy.coscheduler._tls import common_name
from jobsetpy.serving.guard import IDLE_S, Guard, Guards

BACKLOG: Final = 4096
"""A whole group asks at once; over HTTP/1.1 each pod on a connection of its own."""

HEADERS_S: Final = 30.0
"""For a handshake, and then for headers: a few thousand handshakes at once take seconds."""

BODY_S: Final = 30.0
SHUTDOWN_S: Final = 3.0

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(answers: Answers, *, body_s: float = BODY_S) -> web.Application:
    """The routes, for clients that speak HTTP/1.1.

    Args:
        answers: to requests.
        body_s: how long a body may take to come, in seconds.
    """
    app = web.Application(middlewares=[_guarded])
    for path, verb in answers.verbs.items():
        app.router.add_post(path, _handler(answers, verb, body_s))
    return app


@web.middleware
async def _guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Tell the connection's guard while a request is being answered."""
    protocol = request.transport.get_protocol() if request.transport is not None else None
    with protocol.request() if isinstance(protocol, Guard) else nullcontext():
        return await handler(request)


def _handler(answers: Answers, verb: str, body_s: float) -> _Handler:
    async def handle(http: web.Request) -> web.StreamResponse:
        with counted(verb) as status:
            try:
                answer = answers.stranger(_client(http))
                if answer is None:
                    body = await _body(http, BODY_LIMITS[verb], body_s)
                    answer = await answers.answer(verb, body)
            except TimeoutError:
                answer = refusal(408, "the request did not come in time")
            except web.HTTPException as error:
                status.append(error.status)
                raise
            status.append(answer.status)
        response = web.Response(
            body=answer.content, status=answer.status, content_type="application/json"
        )
        if answer.leave:
            response.force_close()
        return response

    return handle


def _client(http: web.Request) -> str:
    certificate = http.transport.get_extra_info("peercert") if http.transport else None
    return common_name(certificate)


async def _body(http: web.Request, limit: int, limit_s: float) -> bytearray:
    """What the client sends.

    Raises:
        TimeoutError: it takes too long to come.
        web.HTTPException: it is too long.
    """
    content = bytearray()
    async with asyncio.timeout(limit_s):
        async for chunk in http.content.iter_any():
            content += chunk
            if len(content) > limit:
                raise web.HTTPRequestEntityTooLarge(limit, len(content))
    return content


class ExtenderServer:
    """A listening socket, and servers behind it one after the other, each with its TLS context.

    Args:
        runner: the application's, set up; for clients that speak HTTP/1.1.
        http2: connections of the others.
        listening: the socket; each server gets a duplicate, so that no connection is refused while
            one takes over from the other.
        backlog: maximum connections that wait to be accepted.
    """

    def __init__(
        self,
        runner: web.AppRunner,
        http2: Http2Connections,
        listening: socket.socket,
        *,
        backlog: int,
    ) -> None:
        assert runner.server is not None
        self._http2 = http2
        self._guards = Guards(runner.server, headers_s=HEADERS_S, idle_s=IDLE_S)
        self._listening = listening
        self._backlog = backlog
        self._server: asyncio.Server | None = None
        self.port: int = listening.getsockname()[1]

    @property
    def serves(self) -> bool:
        """Whether connections are accepted."""
        return self._server is not None

    async def use(self, context: ssl.SSLContext | None) -> None:
        """Serve new connections with ``context``.

        Requests that are held on others go on. Over HTTP/2 these get no new ones: whom the new
        context does not let in would else go on with an old connection for ever.
        """
        server = await asyncio.get_running_loop().create_server(
            lambda: Negotiated(self._guards(), self._http2),
            sock=self._listening.dup(),
            ssl=context,
            ssl_handshake_timeout=None if context is None else HEADERS_S,
            backlog=self._backlog,
        )
        if self._server is not None:
            self._server.close()
            self._http2.leave()
        self._server = server

    def stop_listening(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._listening.close()

    async def end(self) -> None:
        """Give up what is still connected, after a while for requests over HTTP/2."""
        await self._http2.end(SHUTDOWN_S)
        await self._guards.end()


@asynccontextmanager
async def listening(
    extender: Extender,
    address: tuple[str, int],
    *,
    prefix: str = "",
    names: Collection[str] | None = None,
    backlog: int = BACKLOG,
    body_s: float = BODY_S,
) -> AsyncIterator[ExtenderServer]:
    """The extender's server within the block; nothing is accepted before ``use``.

    Args:
        extender: answers.
        address: host ("" for all interfaces) and port; 0 takes a free one.
        prefix: see :class:`Answers`.
        names: see :class:`Answers`.
        backlog: see :class:`ExtenderServer`.
        body_s: see :func:`application`.

    Raises:
        OSError: the address cannot be bound.
    """
    # A scheduler that is gone holds nothing: its requests are cancelled with their connections.
    answers = Answers(extender, prefix=prefix, names=names)
    runner = web.AppRunner(
        application(answers, body_s=body_s),
        access_log=None,
        handle_signals=False,
        handler_cancellation=True,
        shutdown_timeout=SHUTDOWN_S,
        keepalive_timeout=IDLE_S,
    )
    await runner.setup()
    try:
        async with aio.supervise() as tasks:
            http2 = Http2Connections(answers, tasks, body_s=body_s, headers_s=HEADERS_S)
            server = ExtenderServer(runner, http2, _socket(address), backlog=backlog)
            try:
                yield server
            finally:
                server.stop_listening()
                await runner.cleanup()
                await server.end()
    finally:
        await runner.cleanup()


def _socket(address: tuple[str, int]) -> socket.socket:
    host, port = address
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        found = socket.create_server((host, port), family=family)
    elif socket.has_dualstack_ipv6():
        found = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        found = socket.create_server(("", port))
    found.setblocking(False)
    return found


@asynccontextmanager
async def serving(
    extender: Extender, host: str, port: int, context: ssl.SSLContext | None
) -> AsyncIterator[int]:
    """Serve the extender within the block, with one context, to every client that it lets in.

    Args:
        extender: answers.
        host: address to listen on.
        port: 0 takes a free one.
        context: ``None`` only where nobody else can reach it.

    Yields:
        The port.

    Raises:
        OSError: the address cannot be bound.
    """
    async with listening(extender, (host, port)) as server:
        await server.use(context)
        yield server.port
