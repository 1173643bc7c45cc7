"""The fake API server: a :class:`World` behind real HTTP, with faults by script."""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec
from aiohttp import web

from jobsetpy.aio import Clock
from jobsetpy.testing import _answers as answers
from jobsetpy.testing import _discovery, _http
from jobsetpy.testing._answers import StatusError
from jobsetpy.testing._faults import Faults, Target
from jobsetpy.testing._http import Route
from jobsetpy.testing._requests import Request, RequestLog
from jobsetpy.testing._storage import Collection
from jobsetpy.testing._verbs import Call, perform, resolve
from jobsetpy.testing._watching import ConnectionCutError, Watch
from jobsetpy.testing._world import World

if TYPE_CHECKING:
    from jobsetpy.client import KubeClient

_HEALTH = frozenset({"/readyz", "/healthz", "/livez"})
_MAX_BODY = 3 * 1024 * 1024


class FakeApiServer(World):
    """A Kubernetes API server in this process, reached over HTTP on the loopback interface.

    ::

        async with FakeApiServer() as server:
            server.register(JobSet)
            server.create(JobSet, make_jobset("a").replicated_job("w").build())
            client = server.client()
            server.faults.status(429, retry_after=1, verb="patch", resource="pods", count=3)
            ...
            assert server.get("jobs", "a-w-0") is not None

    It keeps the API server's rules as far as controllers notice them; the contract suite runs the
    same tests against a real one. It knows no admission, no quotas, no authorization and no
    schemas. The inherited methods work without a running server and at any time.

    Args:
        tls: serve HTTPS with this context.
        token: demand this bearer token; the attribute ``token`` may be changed at any time.
        port: 0 for any free port, kept over ``stop()`` and ``start()``.
        bookmark_s: seconds between bookmarks; a real server takes about 60.
        clock: for timestamps.
        history_limit: how many changes each kind remembers for watches.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        token: str | None = None,
        port: int = 0,
        bookmark_s: float = 60.0,
        clock: Clock | None = None,
        history_limit: int = 20_000,
    ) -> None:
        super().__init__(clock=clock, history_limit=history_limit)
        self.token = token
        self.bookmark_s = bookmark_s
        self.faults = Faults()
        self.requests = RequestLog()
        self._tls = tls
        self._port = port
        self._server: web.Server | None = None
        self._runner: web.ServerRunner | None = None
        self._clients: list[KubeClient] = []

    # -- life --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the clients made by ``client()`` and stop."""
        for client in self._clients:
            await client.aclose()
        self._clients.clear()
        await self.stop()

    async def start(self) -> None:
        """Listen; after a ``stop()`` on the same port and with the same objects."""
        if self._runner is not None:
            return
        self._server = web.Server(
            self._handle, handler_cancellation=True, access_log=None, tcp_keepalive=False
        )
        self._runner = web.ServerRunner(self._server, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(
            self._runner,
            "127.0.0.1",
            self._port,
            ssl_context=self._tls,
            reuse_address=True,
        )
        await site.start()
        if not self._port:
            self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Reset every connection and listen no more, as if the machine had gone."""
        if self._runner is None or self._server is None:
            return
        for connection in tuple(self._server.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()
        self._runner = self._server = None

    @property
    def port(self) -> int:
        """The port; 0 before the first start."""
        return self._port

    @property
    def url(self) -> str:
        """``http://127.0.0.1:port`` (https with TLS)."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def client(self, **settings: Any) -> KubeClient:
        """A client of this server, closed with the server; settings go to ``KubeClient``."""
        from jobsetpy.testing._client import make_client

        client = make_client(self, **settings)
        self._clients.append(client)
        return client

    # -- requests ----------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        query = {name: request.query[name] for name in request.query}
        route = _http.parse_path(request.path)
        refused: StatusError | None = None
        verb = request.method.lower()
        if route is not None:
            try:
                content_type = request.headers.get("Content-Type", "")
                verb = _http.verb_of(request.method, route, query, content_type)
            except StatusError as error:
                refused = error
        target = Target(
            verb=verb,
            resource=route.resource if route is not None else "",
            namespace=route.namespace if route is not None else "",
            name=route.name if route is not None else "",
            user_agent=request.headers.get("User-Agent", ""),
            path=request.path,
        )
        entry = Request(target=target, method=request.method, query=query)
        self.requests.add(entry)
        try:
            response = await self._respond(request, route, target, query, refused)
        except StatusError as error:
            response = _failure(error)
        except ConnectionCutError as cut:
            _drop(request, reset=cut.reset)
            return web.Response()
        entry.status = response.status
        return await self._spoil(request, target, response)

    async def _respond(
        self,
        request: web.BaseRequest,
        route: Route | None,
        target: Target,
        query: dict[str, str],
        refused: StatusError | None,
    ) -> web.StreamResponse:
        late = self.faults.take("latency", target)
        if late is not None:
            await asyncio.sleep(late.seconds)
        fault = self.faults.take("status", target)
        if fault is not None:
            raise answers.injected(fault.code, fault.retry_after, fault.message)
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            raise StatusError(401, "Unauthorized", "Unauthorized")
        if request.path in _HEALTH:
            return web.Response(text="ok")
        document = _discovery.discover(self._storage, request.path)
        if document is not None and request.method == "GET":
            return _json(200, msgspec.json.encode(document))
        if route is None:
            raise answers.page_not_found()
        collection = resolve(self._storage, route)
        if refused is not None:
            raise refused
        if target.verb == "watch":
            return await self._watch(request, collection, route, target, query)
        body = await request.content.read() if request.can_read_body else b""
        if len(body) > _MAX_BODY:
            message = f"Request entity too large: limit is {_MAX_BODY}"
            raise StatusError(413, "RequestEntityTooLarge", message, {})
        call = Call(
            verb=target.verb,
            route=route,
            query=query,
            content_type=request.headers.get("Content-Type", ""),
            user_agent=target.user_agent,
            body=body,
        )
        response = _json(*perform(self._storage, self._registry, collection, call))
        self._settle()
        if self.faults.take("lose", target):
            raise ConnectionCutError(reset=False)
        return response

    async def _watch(
        self,
        request: web.BaseRequest,
        collection: Collection,
        route: Route,
        target: Target,
        query: dict[str, str],
    ) -> web.StreamResponse:
        watch = Watch(
            storage=self._storage,
            collection=collection,
            namespace=route.namespace,
            options=_http.list_options(collection.kind, query, watch=True),
            target=target,
            faults=self.faults,
            bookmark_s=self.bookmark_s,
        )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await watch.run(response.write)
        await response.write_eof()
        return response

    # -- faults that spoil an answer ---------------------------------------------------------

    async def _spoil(
        self, request: web.BaseRequest, target: Target, response: web.StreamResponse
    ) -> web.StreamResponse:
        if target.verb == "watch" or not isinstance(response, web.Response):
            return response
        rule = self.faults.take("cut", target) or self.faults.take("stall", target)
        if rule is None:
            return response
        body = response.body if isinstance(response.body, bytes) else b""
        partial = web.StreamResponse(status=response.status, headers=response.headers)
        partial.content_length = len(body)
        await partial.prepare(request)
        await partial.write(body[: rule.after_bytes or 0])
        if rule.action == "cut":
            _drop(request, reset=rule.reset)
            return partial
        await rule.lifted.wait()
        await partial.write(body[rule.after_bytes or 0 :])
        await partial.write_eof()
        return partial


def _drop(request: web.BaseRequest, *, reset: bool) -> None:
    transport = request.transport
    if transport is None:
        return
    if reset:
        transport.abort()
    else:
        transport.close()


def _json(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")


def _failure(error: StatusError) -> web.Response:
    if error.plain:
        return web.Response(status=error.code, text=error.plain)
    response = _json(error.code, msgspec.json.encode(error.body()))
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response
