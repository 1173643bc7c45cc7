"""HTTP server of webhooks, extender, health and metrics.

One socket whose TLS context can be replaced while it is served; limits on slow and silent clients;
an orderly stop. Handlers know neither aiohttp nor TLS. aiohttp's server is imported only when a
server listens: it takes 3 MB, and a program may serve nothing.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Literal

import attrs

from jobsetpy import aio
from jobsetpy.serving.guard import HEADERS_S, IDLE_S, Guard, Guards
from jobsetpy.serving.tls import common_name

if TYPE_CHECKING:
    from aiohttp import web

    from jobsetpy.serving.certificates import CertificateManager

Address = tuple[str, int]
"""Host ("" for all interfaces) and port (0 for any free one)."""

SHUTDOWN_S: Final = 3.0
"""Timeout of requests in progress when a server stops, in seconds."""


@attrs.frozen(kw_only=True)
class Limits:
    """Limits on clients.

    Args:
        headers_s: timeout of a handshake, and then of headers, in seconds.
        idle_s: timeout of a connection without a request, in seconds.
        shutdown_s: timeout of requests in progress when the server stops, in seconds.
        backlog: number of connections that may wait to be accepted; the kernel may allow fewer.
    """

    headers_s: float = HEADERS_S
    idle_s: float = IDLE_S
    shutdown_s: float = SHUTDOWN_S
    backlog: int = 128


class TooLargeError(Exception):
    """Body that exceeds its handler's limit; answered with 413."""


class Request:
    """HTTP request."""

    __slots__ = ("_http",)

    def __init__(self, http: web.Request) -> None:
        self._http = http

    @property
    def method(self) -> str:
        """Method in upper case."""
        return self._http.method

    @property
    def path(self) -> str:
        """Path without the query."""
        return self._http.path

    @property
    def client_name(self) -> str:
        """Common name of the client's certificate; "" if it has none."""
        transport = self._http.transport
        return common_name(transport.get_extra_info("peercert") if transport else None)

    def query(self, name: str) -> str:
        """Return a query parameter; "" if it is missing."""
        return self._http.query.get(name, "")

    def header(self, name: str) -> str:
        """Return the value of a header; "" if it is missing."""
        return self._http.headers.get(name, "")

    async def body(self, limit: int) -> bytearray:
        """Read the body.

        Raises:
            TooLargeError: it is longer than ``limit`` bytes.
        """
        content = bytearray()
        async for chunk in self._http.content.iter_any():
            content += chunk
            if len(content) > limit:
                raise TooLargeError(f"the request is longer than {limit} bytes")
        return content


@attrs.frozen
class Response:
    """HTTP response.

    Args:
        status: HTTP status.
        body: its content.
        headers: headers, including the content type.
        close: close the connection after this response.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    close: bool = False


JSON: Final[Mapping[str, str]] = {"Content-Type": "application/json"}


def text(status: int, content: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response in plain text."""
    plain = {"Content-Type": "text/plain; charset=utf-8"}
    return Response(status, content.encode(), plain | dict(headers or {}))


Handler = Callable[[Request], Awaitable[Response]]


@attrs.frozen
class Route:
    """Handler of the requests with a method and path."""

    method: Literal["GET", "POST"]
    path: str
    handler: Handler


class HttpServer:
    """Bound socket and the acceptor of its connections; accepts none before :meth:`use`.

    Args:
        factory: creates the protocols of connections.
        bound: the socket.
        limits: limits on clients.
    """

    def __init__(
        self,
        factory: Callable[[], asyncio.Protocol],
        bound: socket.socket,
        limits: Limits,
    ) -> None:
        self._guards = Guards(factory, headers_s=limits.headers_s, idle_s=limits.idle_s)
        self._socket = bound
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._context: ssl.SSLContext | None = None
        self.port: int = bound.getsockname()[1]

    @property
    def serves(self) -> bool:
        """True if connections are accepted."""
        return self._server is not None

    async def use(self, context: ssl.SSLContext | None) -> None:
        """Accept new connections with ``context``; ``None``: plain HTTP.

        Requests in progress continue. Connections whose handshake began with another context end,
        since a client that the new context refuses could otherwise use one for ever: they are
        closed after their next response.
        """
        server = await asyncio.get_running_loop().create_server(
            self._guards,
            sock=self._socket.dup(),  # no connection is refused while a server replaces another
            ssl=context,
            ssl_handshake_timeout=None if context is None else self._limits.headers_s,
            backlog=self._limits.backlog,
        )
        old, self._server, self._context = self._server, server, context
        if old is not None:
            await _retire(old)

    def is_outdated(self, transport: asyncio.BaseTransport | None) -> bool:
        """Return whether a connection's handshake used a context that was replaced since."""
        tls = None if transport is None else transport.get_extra_info("ssl_object")
        return tls is not None and tls.context is not self._context

    def stop_listening(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def end(self) -> None:
        """Close the remaining connections."""
        await self._guards.end()


@asynccontextmanager
async def listening(
    routes: Iterable[Route],
    address: Address,
    *,
    limits: Limits | None = None,
    cancel_handlers: bool = False,
    draining: Callable[[], bool] = lambda: False,
) -> AsyncIterator[HttpServer]:
    """Run a server within the block; on exit requests have some time to end.

    Args:
        routes: routes; other paths get 404, other methods 405.
        address: address to listen on.
        limits: limits on clients; the defaults when absent.
        cancel_handlers: cancel the request of a client that has disconnected.
        draining: while it returns True, each response closes its connection, so that the client's
            next request goes to a current endpoint of the Service.

    Raises:
        OSError: the address cannot be bound.
    """
    from aiohttp import web

    def closes(http: web.Request) -> bool:
        return draining() or server.is_outdated(http.transport)

    limits = limits or Limits()
    app = web.Application(middlewares=[web.middleware(_under_guard)])
    add = {"GET": app.router.add_get, "POST": app.router.add_post}
    for route in routes:
        add[route.method](route.path, _answering(route.handler, closes))
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        handler_cancellation=cancel_handlers,
        shutdown_timeout=limits.shutdown_s,
        keepalive_timeout=limits.idle_s,
    )
    with _bound(address) as bound:
        await runner.setup()
        assert runner.server is not None, "aiohttp has set up no server"
        server = HttpServer(runner.server, bound, limits)
        try:
            yield server
        finally:
            server.stop_listening()
            await runner.cleanup()
            await server.end()


@asynccontextmanager
async def serving(
    server: HttpServer, certificates: CertificateManager | None
) -> AsyncIterator[None]:
    """Accept connections within the block.

    Args:
        server: server of :func:`listening`.
        certificates: its certificate, kept valid; ``None``: plain HTTP.
    """
    if certificates is None:
        await server.use(None)
        yield
        return
    async with aio.supervise() as tasks:
        tasks.start(certificates.run(server.use), name="certificates")
        yield


def parse_address(text: str) -> Address | None:
    """Parse ``host:port``, ``:port`` (all interfaces) or ``[v6]:port``; ``None`` for "" and "0".

    Raises:
        ValueError: the text is not an address; the message shows the expected form.
    """
    if text in {"", "0"}:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        msg = f"bind address {text!r}: expected host:port or :port, or 0 to switch the server off"
        raise ValueError(msg)
    return host.strip("[]"), int(port)


def _bound(address: Address) -> socket.socket:
    """Return a socket that refuses connections until a server listens on it.

    If it listened before there is a certificate, clients would connect and wait for an answer.
    """
    host, port = address
    six = ":" in host if host else socket.has_dualstack_ipv6()
    found = socket.socket(socket.AF_INET6 if six else socket.AF_INET)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if six:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise OSError(error.errno, f"{error.strerror} (address {host or '*'}:{port})") from None
    found.setblocking(False)
    return found


def _answering(
    handler: Handler, closes: Callable[[web.Request], bool]
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    from aiohttp import web

    async def handle(http: web.Request) -> web.StreamResponse:
        try:
            answer = await handler(Request(http))
        except TooLargeError as error:
            answer = attrs.evolve(text(413, f"{error}\n"), close=True)
        made = web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        if answer.close or closes(http):
            made.force_close()
        return made

    return handle


async def _under_guard(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Suspend the connection's guard while a request is being answered."""
    protocol = request.transport.get_protocol() if request.transport is not None else None
    with protocol.request() if isinstance(protocol, Guard) else nullcontext():
        return await handler(request)


async def _retire(server: asyncio.Server) -> None:
    """Close a server that another one has replaced, without losing a connection.

    asyncio creates the transport of a connection one turn of the loop after it has accepted it, and
    resets the connection if its server is closed in between.
    """
    loop = asyncio.get_running_loop()
    for each in server.sockets:
        loop.remove_reader(each.fileno())
    try:
        await asyncio.sleep(0)
    finally:
        server.close()
