"""Fake API server: a :class:`World` behind real HTTP, with scripted faults."""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from jobsetpy.aio import Clock
from jobsetpy.client import Client, H11Transport
from jobsetpy.testing.apiserver._dispatch import Reply
from jobsetpy.testing.apiserver._faults import Target
from jobsetpy.testing.apiserver._watching import ConnectionCutError, Watch
from jobsetpy.testing.apiserver._world import World


class FakeApiServer(World):
    """Kubernetes API server in this process, reached over HTTP on the loopback interface.

    ::

        async with FakeApiServer() as server:
            server.register(JobSet)
            server.create(JobSet, make_jobset("a").replicated_job("w").build())
            client = server.client()
            server.faults.status(429, retry_after=1, verb="patch", resource="pods", count=3)
            ...
            assert server.get("jobs", "a-w-0") is not None

    It follows the API server's rules as far as controllers notice them; the contract suite runs
    the same tests against a real one. There are no quotas and no authorization, and only
    server-side apply owns fields. Custom resources are pruned, defaulted and validated by the
    schema of their CRD, except for its CEL rules.
    Admission webhooks are called for clients' writes (``serve_webhooks``). The inherited methods
    work at any time, even if the server is not running.

    Args:
        tls: serve HTTPS with this context.
        token: require this bearer token; the attribute ``token`` may be changed at any time.
        port: 0 for any free port, kept over ``stop()`` and ``start()``.
        bookmark_s: interval between bookmarks, in seconds; about 60 in a real server.
        clock: clock for timestamps.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        token: str | None = None,
        port: int = 0,
        bookmark_s: float = 60.0,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(clock=clock)
        self._dispatcher.token = token
        self._dispatcher.bookmark_s = bookmark_s
        self._tls = tls
        self.port = port
        """Port; 0 before the first start."""
        self._server: web.Server | None = None
        self._runner: web.ServerRunner | None = None
        self._clients: list[Client] = []

    # -- lifecycle ---------------------------------------------------------------------------

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
            self.port,
            ssl_context=self._tls,
            reuse_address=True,
        )
        await site.start()
        if not self.port:
            self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Reset every connection and stop listening, as if the machine had failed."""
        if self._runner is None or self._server is None:
            return
        for connection in tuple(self._server.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()
        self._runner = self._server = None

    @property
    def token(self) -> str | None:
        """Bearer token that is required; it may be changed at any time."""
        return self._dispatcher.token

    @token.setter
    def token(self, token: str | None) -> None:
        self._dispatcher.token = token

    @property
    def url(self) -> str:
        """URL: ``http://127.0.0.1:port`` (https with TLS)."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def client(self, **settings: Any) -> Client:
        """Return a client without rate limit by default, closed with the server.

        Args:
            **settings: arguments of ``Client``; ``ca_file``, ``cadata``, ``token``, ``token_file``
                and ``server_hostname`` are passed to the transport. TLS needs one of the first two.
        """
        names = {"ca_file", "cadata", "token", "token_file", "server_hostname"}
        access = {name: settings.pop(name) for name in names & settings.keys()}
        if self.token and not {"token", "token_file"} & access.keys():
            access["token"] = self.token
        client = Client(H11Transport(self.url, **access), **settings)
        self._clients.append(client)
        return client

    # -- requests ----------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        logged = self._dispatcher.log(
            request.method,
            request.path,
            {name: request.query[name] for name in request.query},
            content_type=request.headers.get("Content-Type", ""),
            user_agent=request.headers.get("User-Agent", ""),
            authorization=request.headers.get("Authorization", ""),
            body=await request.content.read() if request.can_read_body else b"",
        )
        try:
            reply = await self._dispatcher.answer(logged)
            if isinstance(reply, Watch):
                return await _stream(request, reply)
            return await self._send(request, logged.target, reply)
        except ConnectionCutError as cut:
            _drop(request, reset=cut.reset)
            return web.Response()

    async def _send(
        self, request: web.BaseRequest, target: Target, reply: Reply
    ) -> web.StreamResponse:
        headers = {**reply.headers, "Content-Type": "application/json"}
        rule = self.faults.take("cut", target) or self.faults.take("stall", target)
        if rule is None:
            return web.Response(status=reply.status, body=reply.body, headers=headers)
        partial = web.StreamResponse(status=reply.status, headers=headers)
        partial.content_length = len(reply.body)
        await partial.prepare(request)
        if rule.action == "cut":
            raise ConnectionCutError(reset=rule.reset)
        await rule.lifted.wait()
        await partial.write(reply.body)
        await partial.write_eof()
        return partial


async def _stream(request: web.BaseRequest, watch: Watch) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await watch.run(response.write)
    await response.write_eof()
    return response


def _drop(request: web.BaseRequest, *, reset: bool) -> None:
    transport = request.transport
    if transport is None:
        return
    if reset:
        transport.abort()
    else:
        transport.close()
