"""Transport of the manager and of library users: supports any cluster and any login method.

kubernetes_asyncio reads the configuration and the credentials (kubeconfig files, exec plugins,
OpenID, service accounts), in ``_login``. HTTP uses aiohttp directly, in this module only, because
kubernetes_asyncio's own REST client logs bodies, Secrets included, replaces every timeout by
"none", and costs several times the request itself.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, Self

from jobsetpy.extras import require

require("jobsetpy.client.connect()", "runtime", "aiohttp", "kubernetes_asyncio")

import aiohttp
import yarl
from aiohttp.connector import Connection

from jobsetpy.client._fence import WriteFence
from jobsetpy.client._http import USER_AGENT, target
from jobsetpy.client._login import (
    KubeconfigLogin,
    Login,
    ServiceAccountLogin,
    credentials_error,
    ssl_context,
)
from jobsetpy.client._transport import ByteStream, HttpRequest, HttpResponse
from jobsetpy.client._watched_file import WatchedFile
from jobsetpy.errors import ConnectFailedError, StreamBrokenError, TransportError

MAX_CONNECTIONS = 64
"""Maximum number of concurrent requests; others are queued within their own deadlines."""

CONNECT_TIMEOUT_S = 10.0
"""Timeout for one connection with its TLS handshake, to detect silence before the deadline."""

KEEPALIVE_S = 30.0
"""Maximum idle time of a connection: less than that of servers and load balancers (60 s and more),
so that a request rarely uses a connection that is being closed."""

RELOAD_S = 60.0
"""Interval between checks of credential files for changes. Service account tokens are renewed after
80 % of their lifetime, minutes before they expire."""

FRESH_S = 1.0
"""Time after a reload of credentials in which a 401 does not reload them again: many requests with
the old ones may be in flight."""

_READ_BUFFER = 2**18
_LARGE_BODY = 2**20


class AiohttpTransport:
    """HTTP/1.1 on aiohttp with kubernetes_asyncio's configuration.

    Requests share a pool of keep-alive connections; each stream has its own connection, so that
    open watches do not use up the pool. Certificates are verified unless the configuration disables
    it. Bodies are never logged, redirects never followed. Responses are requested uncompressed:
    inside a cluster, CPU time costs more than bytes. A proxy is used if the kubeconfig names one
    (``proxy-url``); environment variables are ignored.

    Args:
        login: host, TLS and credentials, as of ``from_kubeconfig`` and ``in_cluster``.
        user_agent: the User-Agent header.
        max_connections: maximum number of connections for requests; streams are not counted.

    Raises:
        ConnectFailedError: the TLS files of the configuration cannot be used.
    """

    def __init__(
        self,
        login: Login,
        *,
        user_agent: str = USER_AGENT,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._login = login
        configuration = self._configuration = self._login.configuration
        self._renew_at = 0.0
        self._lock = asyncio.Lock()
        self._refreshes = 0
        self._fresh_until = 0.0
        self._base = str(configuration.host).rstrip("/")
        self.host = yarl.URL(self._base).authority
        self._ssl = ssl_context(configuration) if self._base.startswith("https:") else None
        self._tls_files = _tls_files(configuration, seen=True)
        self._user_agent = user_agent
        self._max_connections = max_connections
        self._requests: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._closed = False

    @classmethod
    async def from_kubeconfig(
        cls,
        path: str | os.PathLike[str],
        *,
        context: str | None = None,
        user_agent: str = USER_AGENT,
    ) -> AiohttpTransport:
        """Log in with a kubeconfig file.

        Token files are read again when they change; exec plugins and OpenID are run again when
        their credentials expire; after a 401 the whole file is read again.

        Args:
            path: path of the file, or several, separated as in ``$KUBECONFIG``.
            context: context to use; the file's current context if ``None``.
            user_agent: the User-Agent header.

        Raises:
            ConnectFailedError: the file, or a file or plugin named in it, cannot be used.
        """
        login = KubeconfigLogin(os.fspath(path), context)
        try:
            await login.load()
        except Exception as problem:  # loaders and plugins raise anything
            raise credentials_error(f"kubeconfig {path}", problem) from problem
        return cls(login, user_agent=user_agent)

    @classmethod
    def in_cluster(
        cls,
        *,
        token_file: str | None = None,
        ca_file: str | None = None,
        environ: Mapping[str, str] | None = None,
        user_agent: str = USER_AGENT,
    ) -> AiohttpTransport:
        """Log in with the Pod's service account.

        The token file is read again every minute, and immediately after a 401.

        Args:
            token_file: path of the token file; the standard one if ``None``.
            ca_file: path of the CA file; the standard one if ``None``.
            environ: environment variables; the process's environment if ``None``.
            user_agent: the User-Agent header.

        Raises:
            ConnectFailedError: the process is not in a Pod, or its files cannot be used.
        """
        login = ServiceAccountLogin(token_file=token_file, ca_file=ca_file, environ=environ)
        try:
            login.load_now()
        except Exception as problem:  # the loader has its own exceptions
            raise credentials_error("service account", problem) from problem
        return cls(login, user_agent=user_agent)

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Implement ``Transport.request``."""
        try:
            with AbortOnFailure(request.fence) as sending:
                session = self._requests = self._requests or self._session(self._max_connections)
                response = await self._send(session, request, request.timeout_s, sending)
                async with response:
                    body = await response.read()
                    return HttpResponse(response.status, response.headers, body)
        except _FAILURES as problem:
            raise self._translate(problem, request) from problem

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[ByteStream]:
        """Implement ``Transport.stream``."""
        try:
            with AbortOnFailure(request.fence) as sending:
                async with asyncio.timeout(request.timeout_s):
                    session = self._streams = self._streams or self._session(0)
                    response = await self._send(session, request, None, sending)
        except _FAILURES as problem:
            raise self._translate(problem, request) from problem
        try:
            yield _Stream(response)
        finally:
            _abort(response)

    async def _send(
        self,
        session: aiohttp.ClientSession,
        request: HttpRequest,
        total_s: float | None,
        sending: AbortOnFailure,
    ) -> aiohttp.ClientResponse:
        # No separate timeout if the deadline is shorter, so that it is clear which of them passed.
        connect_s = CONNECT_TIMEOUT_S if request.timeout_s > CONNECT_TIMEOUT_S else None
        headers = await self._headers(request)
        before = _sending.set(sending)
        try:
            return await session.request(
                request.method,
                yarl.URL(self._base + target(request.path, request.query), encoded=True),
                data=_data(request.body),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=total_s, sock_connect=connect_s),
                allow_redirects=False,
                proxy=self._configuration.proxy,
                ssl=self._ssl if self._ssl is not None else True,
                server_hostname=self._configuration.tls_server_name,
            )
        finally:
            _sending.reset(before)

    async def refresh_credentials(self) -> None:
        """Reload all credentials, once for all requests that were refused together.

        Raises:
            ConnectFailedError: the credentials cannot be read.
        """
        seen = self._refreshes
        clock = asyncio.get_running_loop().time
        keys = self._configuration.api_key
        async with self._lock:
            if self._refreshes != seen or clock() < self._fresh_until:
                return  # the refused request was sent with the previous credentials
            before = keys.get("BearerToken")
            try:
                await self._login.load()
                exchanged = self._reload_tls()
            except Exception as problem:
                raise credentials_error("credentials", problem) from problem
            self._refreshes += 1
            if exchanged or keys.get("BearerToken") != before:
                self._fresh_until = clock() + FRESH_S

    async def aclose(self) -> None:
        """Close all connections; requests after this fail."""
        self._closed = True
        for session in (self._requests, self._streams):
            if session is not None:
                await session.close()
        self._requests = self._streams = None
        await asyncio.sleep(0)  # aborted connections are closed in the loop's next iteration

    # ---- credentials ------------------------------------------------------------------------

    async def _headers(self, request: HttpRequest) -> dict[str, str]:
        configuration = self._configuration
        now = asyncio.get_running_loop().time()
        if now >= self._renew_at:
            self._renew_at = now + RELOAD_S
            await self._renew(request.timeout_s)
        headers = {"User-Agent": self._user_agent, "Accept": request.accept}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        try:
            token = await configuration.get_api_key_with_prefix("BearerToken")
        except Exception as problem:  # the hook belongs to a loader
            token = configuration.api_key.get("BearerToken")  # may still be valid
            if not token:
                raise credentials_error("credentials", problem) from problem
        if token:
            headers["Authorization"] = token.strip()  # token files often end with a line feed
        return headers

    async def _renew(self, timeout_s: float) -> None:
        async with self._lock:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._login.renew()
            except Exception as problem:
                # The present credentials may still be valid; if not, a 401 follows.
                if not self._configuration.api_key and not self._configuration.cert_file:
                    raise credentials_error("credentials", problem) from problem
        try:
            self._reload_tls()
        except (ConnectFailedError, OSError):
            self._renew_at = 0.0  # the file is being replaced: check again soon

    def _reload_tls(self) -> bool:
        """Use the files' present authorities and certificate for new connections.

        After a change, open connections are not used for further requests: for the API server, a
        connection belongs to the user of its handshake until that certificate expires.

        Returns:
            True if a file had changed.

        Raises:
            ConnectFailedError, OSError: a file cannot be read; the previous content stays in use.
        """
        configuration = self._configuration
        if self._ssl is None:
            return False
        paths = [path for path in _tls_paths(configuration) if path]
        if paths != [file.path for file in self._tls_files]:
            self._tls_files = _tls_files(configuration)
        try:
            # Every file is checked, so that each records the version used from now on.
            if not sum(file.changed() for file in self._tls_files):
                return False
            self._ssl = ssl_context(configuration)
        except BaseException:
            for file in self._tls_files:
                file.forget()
            raise
        return True

    # ---- connections ------------------------------------------------------------------------

    def _session(self, limit: int) -> aiohttp.ClientSession:
        if self._closed:
            raise TransportError("the transport is closed")
        connector = _Connector(limit=limit, keepalive_timeout=KEEPALIVE_S)
        session = aiohttp.ClientSession(
            connector=connector,
            request_class=_Request,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER,
            headers={"Accept-Encoding": "identity"},
        )
        # aiohttp also repeats PUT and DELETE when a kept connection was being closed; a delete
        # that arrived twice would return "not found". The client's retry table decides on retries.
        session._retry_connection = False  # noqa: SLF001 - there is no public switch
        return session

    def _translate(self, problem: Exception, request: HttpRequest) -> TransportError:
        what = f"{request.method} {request.path}: {type(problem).__name__}: {problem}"
        if isinstance(problem, aiohttp.ClientConnectorCertificateError):
            self._renew_at = 0.0  # perhaps the authorities were replaced: check before the retry
        match problem:
            case aiohttp.ConnectionTimeoutError():  # before TimeoutError, its base
                return ConnectFailedError(what)
            case TimeoutError():
                return request.timed_out()
            case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
                return ConnectFailedError(what)
            case _:
                return StreamBrokenError(what)


class AbortOnFailure:
    """Context that aborts a request's connection if the block fails or is cancelled.

    A close instead of an abort may take long: TLS waits for the peer's answer.

    Args:
        fence: fence of the request, if it has one.
    """

    __slots__ = ("_fence", "_used")

    def __init__(self, fence: WriteFence | None) -> None:
        self._fence = fence
        self._used: list[tuple[Connection, asyncio.Transport]] = []

    def admit(self, connection: Connection) -> None:
        """Call ``fence.admit``, if there is a fence, immediately before the request is sent."""
        transport = connection.transport
        if self._fence is not None:
            self._fence.admit(transport)
        if transport is not None:
            self._used.append((connection, transport))

    def __enter__(self) -> Self:
        """Enter the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Abort the connection after a failure."""
        if kind is None:
            return
        for connection, transport in self._used:
            # A connection that was returned to the pool may carry another request by now.
            if connection.transport is transport or transport.is_closing():
                transport.abort()


_FAILURES: Final = (TimeoutError, aiohttp.ClientError, OSError)
"""Exceptions that aiohttp raises."""

_sending: Final[ContextVar[AbortOnFailure]] = ContextVar("sending")
"""Passed to the object that aiohttp creates for a request; a middleware costs more CPU time."""


class _Connector(aiohttp.TCPConnector):
    """Connector whose sockets are opened by the event loop, and never by Python.

    uvloop may close a Python socket that it was given a second time after a connection attempt was
    cancelled. The number may be that of another connection by then, and the process ends: with
    ``RuntimeError: File descriptor is used by transport``, or an abort of libuv.
    """

    async def _wrap_create_connection(
        self, *args: Any, addr_infos: list[Any], **options: Any
    ) -> tuple[asyncio.Transport, Any]:
        failed: Exception | None = None
        for *_, (host, port, *_) in addr_infos:
            try:
                return await self._wrap_existing_connection(*args, host=host, port=port, **options)
            except (aiohttp.ClientConnectorError, TimeoutError) as problem:
                failed = problem
        assert failed is not None, "aiohttp connects to no address at all"
        raise failed


class _Request(aiohttp.ClientRequest):
    """Request that checks the fence again on its connection, which may have taken long to open."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        _sending.get().admit(conn)
        return await super().send(conn)


class _Stream:
    __slots__ = ("_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as problem:
            msg = f"the stream broke: {type(problem).__name__}: {problem}"
            raise StreamBrokenError(msg) from problem


def _abort(response: aiohttp.ClientResponse) -> None:
    """Close a stream's connection without TLS's close_notify, which would outlive the transport."""
    connection = response.connection
    transport = None if connection is None else connection.transport
    response.close()
    if transport is not None:
        transport.abort()


def _data(body: bytes | None) -> bytes | io.BytesIO | None:
    """Send large bodies in pieces: aiohttp warns about one large write, which blocks the loop."""
    return io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body


def _tls_paths(configuration: Any) -> tuple[str | None, str | None]:
    return configuration.ssl_ca_cert, configuration.cert_file


def _tls_files(configuration: Any, *, seen: bool = False) -> list[WatchedFile]:
    """Return the files to watch for changes; ``seen``: their present content is in use."""
    files = [WatchedFile(path) for path in _tls_paths(configuration) if path]
    if seen:
        for file in files:
            with suppress(OSError):
                file.changed()
    return files
