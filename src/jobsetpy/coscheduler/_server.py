"""The scheduler extender: ``bind`` and ``preempt`` over HTTP(S).

The scheduler's extender protocol (``k8s.io/kube-scheduler/extender/v1``) is JSON with Go's field
names, which are read here without regard to case, as Go does. An answer with an ``Error`` makes the
scheduler give up the pod's reservation; a broken connection does the same.

Whoever can reach this can have pods bound, so it demands a client's certificate
(:func:`mutual_tls`).
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from jobsetpy.coscheduler._engine import BindRequest, Engine

BACKLOG: Final = 4096
"""A whole group asks at once, each pod on a connection of its own."""

BODY_LIMIT: Final = 64 * 1024 * 1024
"""Of a preemption's arguments: victims on thousands of nodes."""

_SHUTDOWN_S: Final = 1.0


def mutual_tls(certificate: Path, key: Path, client_authority: Path) -> ssl.SSLContext:
    """TLS that lets in only clients with a certificate of that authority.

    Raises:
        OSError: a file cannot be read.
        ssl.SSLError: a file does not hold what it should.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(client_authority))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate, key)
    return context


def application(engine: Engine) -> web.Application:
    """The routes."""

    async def bind(http: web.Request) -> web.Response:
        try:
            request = bind_request(await http.json())
        except ValueError as error:
            return web.json_response({"Error": str(error)}, status=400)
        return web.json_response({"Error": await engine.bind(request)})

    async def preempt(http: web.Request) -> web.Response:
        try:
            victims, whole = _victims(await http.json())
        except ValueError as error:
            return web.json_response({"Error": str(error)}, status=400)
        kept = engine.preempt(victims)
        return web.json_response({"NodeNameToMetaVictims": {node: whole[node] for node in kept}})

    app = web.Application(client_max_size=BODY_LIMIT)
    app.router.add_post("/bind", bind)
    app.router.add_post("/preempt", preempt)
    return app


def bind_request(body: Any) -> BindRequest:
    """``ExtenderBindingArgs``.

    Raises:
        ValueError: something is missing.
    """
    given = _lower(body)
    values = [given.get(name) for name in ("podnamespace", "podname", "poduid", "node")]
    if not all(isinstance(value, str) and value for value in values):
        msg = "expected PodNamespace, PodName, PodUID and Node"
        raise ValueError(msg)
    namespace, name, uid, node = map(str, values)
    if any("/" in part or part in {".", ".."} for part in (namespace, name)):
        msg = "no such pod"  # they become parts of a path
        raise ValueError(msg)
    return BindRequest(namespace=namespace, name=name, uid=uid, node=node)


def _victims(body: Any) -> tuple[dict[str, list[str]], dict[str, dict[str, Any]]]:
    """UIDs by node of ``ExtenderPreemptionArgs``, and each node's entry as it is answered.

    The scheduler sends UIDs alone to an extender that is ``nodeCacheCapable``.
    """
    given = _lower(body).get("nodenametometavictims")
    if not isinstance(given, Mapping):
        msg = "expected NodeNameToMetaVictims: set nodeCacheCapable for this extender"
        raise ValueError(msg)  # noqa: TRY004 - a bad request, as all of them
    uids, whole = {}, {}
    for node, entry in given.items():
        fields = _lower(entry or {})
        uids[node] = [str(_lower(pod).get("uid", "")) for pod in fields.get("pods") or ()]
        whole[node] = {
            "Pods": [{"UID": uid} for uid in uids[node]],
            "NumPDBViolations": fields.get("numpdbviolations", 0),
        }
    return uids, whole


def _lower(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        msg = "expected an object"
        raise ValueError(msg)  # noqa: TRY004 - a bad request, as all of them
    return {str(name).lower(): item for name, item in value.items()}


@asynccontextmanager
async def serving(
    engine: Engine, host: str, port: int, context: ssl.SSLContext | None
) -> AsyncIterator[int]:
    """Serve the extender within the block.

    Args:
        engine: answers.
        host: address to listen on.
        port: 0 takes a free one.
        context: of :func:`mutual_tls`; ``None`` only where nobody else can reach it.

    Yields:
        The port.

    Raises:
        OSError: the address cannot be bound.
    """
    # A scheduler that is gone holds nothing: its requests are cancelled with their connections.
    runner = web.AppRunner(
        application(engine),
        access_log=None,
        handle_signals=False,
        handler_cancellation=True,
        shutdown_timeout=_SHUTDOWN_S,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=context, backlog=BACKLOG)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
