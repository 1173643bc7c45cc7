"""The small HTTP servers of a manager: health, readiness and metrics.

Health is plain HTTP; metrics may be behind TLS and access control. HTTP/1.1 only. Health
endpoints answer from the state at that moment, so that a kubelet's probe and a person with curl see
the same truth.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from jobsetpy.manager._access import AccessReviewer

Check = Callable[[], Iterable[str]]
"""A health check: yields one line per problem; nothing means healthy."""

HANDSHAKE_S = 10.0
"""How long a TLS handshake may take."""

_REFUSALS = {
    401: "a valid bearer token is needed\n",
    403: "not allowed: bind a ClusterRole with get on this nonResourceURL\n",
    503: "the API server could not be asked who may read this\n",
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def parse_address(text: str) -> tuple[str, int] | None:
    """``host:port``, ``:port`` (all interfaces) or ``[v6]:port``; ``None`` for "" and "0".

    Raises:
        ValueError: the text is no such address; the message says what would be right.
    """
    if text in {"", "0"}:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        msg = f"bind address {text!r}: expected host:port or :port, or 0 to switch the server off"
        raise ValueError(msg)
    return host.strip("[]"), int(port)


def problems(checks: Mapping[str, Check]) -> list[str]:
    """What the checks find now, a line for each problem with the check's name in front."""
    return [f"{name}: {line}" for name, check in checks.items() for line in check()]


def health_routes(
    live: Mapping[str, Check],
    ready: Mapping[str, Check],
    paths: tuple[str, str] = ("/healthz", "/readyz"),
) -> dict[str, _Handler]:
    """Liveness and readiness: 200 ``ok``, or 500 with one line per problem.

    Args:
        live: named checks for liveness.
        ready: named checks for readiness.
        paths: of the two; a leading slash may be left out.
    """

    def answer(checks: Mapping[str, Check]) -> _Handler:
        async def handle(_: web.Request) -> web.StreamResponse:
            if found := problems(checks):
                return web.Response(status=500, text="\n".join(found) + "\n")
            return web.Response(text="ok")

        return handle

    live_path, ready_path = (f"/{path.lstrip('/')}" for path in paths)
    return {live_path: answer(live), ready_path: answer(ready)}


def metrics_route(registries: Iterable[CollectorRegistry]) -> dict[str, _Handler]:
    """``/metrics`` in Prometheus' text format, one registry after another."""

    async def handle(_: web.Request) -> web.StreamResponse:
        body = b"".join(generate_latest(registry) for registry in registries)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return {"/metrics": handle}


def behind(reviewer: AccessReviewer, routes: Mapping[str, _Handler]) -> dict[str, _Handler]:
    """``routes`` for those whom ``reviewer`` lets through."""

    def checked(handler: _Handler) -> _Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            verdict = await reviewer.verdict(
                request.headers.get("Authorization", ""), request.method.lower(), request.path
            )
            if verdict != 200:
                headers = {"WWW-Authenticate": "Bearer"} if verdict == 401 else {}
                return web.Response(status=verdict, text=_REFUSALS[verdict], headers=headers)
            return await handler(request)

        return handle

    return {path: checked(handler) for path, handler in routes.items()}


@asynccontextmanager
async def serving(
    address: tuple[str, int] | None,
    routes: Mapping[str, _Handler],
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[int | None]:
    """Serve ``routes`` within the block; over TLS with ``context``, whose certificate may change.

    Yields:
        The port that is listened on (useful with port 0), or ``None`` when ``address`` is.

    Raises:
        OSError: the address cannot be bound.
    """
    if address is None:
        yield None
        return
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        assert runner.server is not None
        server = await asyncio.get_running_loop().create_server(
            runner.server,
            address[0] or None,
            address[1],
            ssl=context,
            ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
        )
        try:
            port: int = server.sockets[0].getsockname()[1]
            yield port
        finally:
            server.close()
    finally:
        await runner.cleanup()
