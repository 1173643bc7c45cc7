"""Transport of the agent and the plugin: one API server, one user, few imports.

A restart group waits for its agents, so their start-up time is part of every restart: asyncio, ssl
and h11 instead of aiohttp and kubernetes_asyncio save several hundred milliseconds of CPU time and
half of the memory.

Not supported; use ``AiohttpTransport`` for them: HTTP proxies (environment variables are ignored),
kubeconfig files, exec plugins, compressed responses.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from jobsetpy.client._connection import Connection, open_connection
from jobsetpy.client._http import USER_AGENT, Origin, parse_origin, target
from jobsetpy.client._transport import ByteStream, HttpRequest, HttpResponse
from jobsetpy.client._watched_file import WatchedFile
from jobsetpy.errors import ConnectFailedError, TransportError

SERVICE_ACCOUNT_DIR: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_FILE: Final = f"{SERVICE_ACCOUNT_DIR}/token"
CA_FILE: Final = f"{SERVICE_ACCOUNT_DIR}/ca.crt"

CHECK_FILES_S = 5.0
"""Interval between checks of the token file for changes."""

CONNECT_TIMEOUT_S = 10.0
"""Timeout for one connection with its TLS handshake."""

KEEPALIVE_S = 30.0
"""Maximum idle time of a connection that is reused; servers keep theirs for a minute or more."""

MAX_IDLE = 4
"""Maximum number of idle connections."""

MAX_CONNECTIONS = 32
"""Maximum number of concurrent requests; others are queued within their own deadlines."""


class H11Transport:
    """HTTP/1.1 on asyncio and h11 with a bearer token.

    Requests share a few kept connections; each stream has its own. TLS certificates are always
    verified, unless a ``tls`` context disables it. The token file and the CA file may change at any
    time, as those of service accounts do: the token is read again within ``CHECK_FILES_S`` or after
    a 401, the CA before the next connection.

    A request on a kept connection that the server is closing fails; the client's retry table
    decides whether it is sent again.

    Args:
        base_url: such as ``https://10.0.0.1:443`` or ``https://[fd00::1]``.
        ca_file: PEM file with the trusted authorities; the system's without ``ca_file`` and
            ``cadata``.
        cadata: trusted authorities as PEM text.
        token: a bearer token that never changes.
        token_file: path of a file with a bearer token that may change.
        server_hostname: name expected in the certificate, instead of the URL's host.
        tls: context to use unchanged, for example with a client certificate, instead of one created
            from the authorities.
        user_agent: the User-Agent header.

    Raises:
        ValueError: ``base_url`` is not a base URL.
    """

    def __init__(
        self,
        base_url: str,
        *,
        ca_file: str | None = None,
        cadata: str | None = None,
        token: str | None = None,
        token_file: str | None = None,
        server_hostname: str | None = None,
        tls: ssl.SSLContext | None = None,
        user_agent: str = USER_AGENT,
    ) -> None:
        self._origin: Origin = parse_origin(base_url)
        self.host = self._origin.authority
        self._ca = WatchedFile(ca_file) if ca_file is not None else None
        self._cadata = cadata
        self._context = tls
        self._token = token
        self._token_file = WatchedFile(token_file) if token_file is not None else None
        self._token_check_at = 0.0
        self._server_hostname = server_hostname or self._origin.host
        self._user_agent = user_agent
        self._turns = asyncio.Semaphore(MAX_CONNECTIONS)
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._closed = False

    @classmethod
    def in_cluster(
        cls,
        *,
        token_file: str = TOKEN_FILE,
        ca_file: str = CA_FILE,
        host: str | None = None,
        port: int | str | None = None,
        user_agent: str = USER_AGENT,
    ) -> H11Transport:
        """Return a transport to the Pod's own cluster, with the Pod's service account.

        Args:
            token_file: token file of the service account.
            ca_file: CA file of the service account.
            host: overrides ``$KUBERNETES_SERVICE_HOST``.
            port: overrides ``$KUBERNETES_SERVICE_PORT``.
            user_agent: the User-Agent header.

        Raises:
            ConnectFailedError: the environment names no API server.
        """
        host = host or os.environ.get("KUBERNETES_SERVICE_HOST")
        port = port or os.environ.get("KUBERNETES_SERVICE_PORT") or 443
        if not host:
            raise ConnectFailedError("not in a Pod: KUBERNETES_SERVICE_HOST is not set")
        bracketed = f"[{host}]" if ":" in host else host
        return cls(
            f"https://{bracketed}:{port}",
            ca_file=ca_file,
            token_file=token_file,
            user_agent=user_agent,
        )

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Implement ``Transport.request``."""
        try:
            async with asyncio.timeout(request.timeout_s), self._turns:
                connection = self._take_idle() or await self._connect(request)
                return await self._exchange(connection, request)
        except TimeoutError:
            raise request.timed_out() from None

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[ByteStream]:
        """Implement ``Transport.stream``."""
        connection: Connection | None = None
        try:
            try:
                async with asyncio.timeout(request.timeout_s):
                    connection = await self._connect(request)
                    self._send(connection, request)
                    await connection.response()
            except TimeoutError:
                raise request.timed_out() from None
            yield connection
        finally:
            if connection is not None:
                self._drop(connection)

    async def refresh_credentials(self) -> None:
        """Read the token file at the next request, changed or not."""
        self._token_check_at = 0.0
        if self._token_file is not None:
            self._token_file.forget()

    async def aclose(self) -> None:
        """Close all connections, also those in use; requests after this fail."""
        self._closed = True
        self._idle.clear()
        connections = tuple(self._open)
        for connection in connections:
            self._drop(connection)
        try:
            async with asyncio.timeout(1.0):
                for connection in connections:
                    await connection.lost
        except TimeoutError:
            pass

    # ---- one exchange -----------------------------------------------------------------------

    async def _exchange(self, connection: Connection, request: HttpRequest) -> HttpResponse:
        kept = False
        try:
            self._send(connection, request)
            await connection.response()
            pieces = []
            while piece := await connection.read():
                pieces.append(piece)
            kept = connection.finish() and self._keep(connection)
            return HttpResponse(connection.status, connection.headers, b"".join(pieces))
        finally:
            if not kept:
                self._drop(connection)

    def _send(self, connection: Connection, request: HttpRequest) -> None:
        body = request.body
        headers = [
            ("Host", self._origin.authority),
            ("User-Agent", self._user_agent),
            ("Accept", request.accept),
        ]
        if token := self._bearer():
            headers.append(("Authorization", f"Bearer {token}"))
        if body is not None:
            headers.append(("Content-Type", request.content_type))
            headers.append(("Content-Length", str(len(body))))
        path = self._origin.prefix + target(request.path, request.query)
        if request.fence is not None:
            request.fence.admit(connection.transport)
        connection.send(request.method, path, headers, body)

    # ---- connections ------------------------------------------------------------------------

    def _take_idle(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and now - connection.idle_since < KEEPALIVE_S:
                return connection
            self._drop(connection)
        return None

    def _keep(self, connection: Connection) -> bool:
        if self._closed or (len(self._idle) >= MAX_IDLE and not self._turns.locked()):
            return False  # with queued requests, the connection is not idle for long
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)
        return True

    def _drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.abort()

    async def _connect(self, request: HttpRequest) -> Connection:
        if self._closed:
            raise TransportError("the transport is closed")
        self._bearer()  # without credentials a connection is useless
        origin = self._origin
        what = f"{request.method} {request.path}: cannot connect to {origin.authority}"
        try:
            # A shorter deadline of the request is reported as such by the caller.
            limit = CONNECT_TIMEOUT_S if request.timeout_s > CONNECT_TIMEOUT_S else None
            async with asyncio.timeout(limit):
                connection = await open_connection(
                    origin.host, origin.port, self._tls(), self._server_hostname
                )
        except TimeoutError:
            raise ConnectFailedError(f"{what}: no answer") from None
        except OSError as problem:
            raise ConnectFailedError(f"{what}: {type(problem).__name__}: {problem}") from problem
        self._open.add(connection)
        return connection

    def _tls(self) -> ssl.SSLContext | None:
        if not self._origin.tls:
            return None
        changed = self._ca is not None and self._ca.changed()
        if self._context is None or changed:
            self._context = ssl.create_default_context(
                cafile=self._ca.path if self._ca is not None else None, cadata=self._cadata
            )
        return self._context

    def _bearer(self) -> str | None:
        file = self._token_file
        if file is None:
            return self._token
        now = asyncio.get_running_loop().time()
        if now >= self._token_check_at:
            try:
                if file.changed():
                    self._token = file.read().strip()
            except OSError as problem:
                file.forget()
                if not self._token:
                    msg = f"cannot read the token: {type(problem).__name__}: {problem}"
                    raise ConnectFailedError(msg) from problem
            self._token_check_at = now + CHECK_FILES_S
        return self._token
