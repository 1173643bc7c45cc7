"""The scheduler extender: ``bind`` and ``preempt`` over HTTP(S).

The scheduler's extender protocol (``k8s.io/kube-scheduler/extender/v1``) is JSON with Go's field
names, which are read here without regard to case, as Go does. An answer with an ``Error`` makes the
scheduler give up the pod's reservation; a broken connection or another status does the same.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final, Protocol

from aiohttp import web

from jobsetpy.coscheduler._tls import common_name
from jobsetpy.coscheduler._writes import BindRequest
from jobsetpy.errors import NotLeadingError
from jobsetpy.observability import coscheduler_metrics as metrics
from jobsetpy.serving.guard import IDLE_S, Guard, Guards

BACKLOG: Final = 4096
"""A whole group asks at once, each pod on a connection of its own."""

BIND_BODY_LIMIT: Final = 16 * 1024
PREEMPT_BODY_LIMIT: Final = 64 * 1024 * 1024
"""Of a preemption's arguments: victims on thousands of nodes."""

HEADERS_S: Final = 30.0
"""For a handshake, and then for headers: a few thousand handshakes at once take seconds."""

BODY_S: Final = 30.0
SHUTDOWN_S: Final = 3.0

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Extender(Protocol):
    """Answers the scheduler; ``Engine`` does."""

    async def bind(self, request: BindRequest) -> str:
        """Have a pod bound: "" if it is, else why not.

        Raises:
            NotLeadingError: another replica answers.
        """
        ...

    def preempt(
        self, victims: Mapping[str, Iterable[str]], preemptor: str = ""
    ) -> dict[str, list[str]]:
        """The nodes that remain, for the pod with the UID ``preemptor``.

        Raises:
            NotLeadingError: another replica answers.
        """
        ...


def application(
    extender: Extender,
    *,
    prefix: str = "",
    names: Collection[str] | None = None,
    body_s: float = BODY_S,
) -> web.Application:
    """The routes.

    Args:
        extender: answers.
        prefix: in front of the routes.
        names: common names of clients that are let in; ``None``: there are no certificates.
        body_s: how long a body may take to come, in seconds.
    """

    async def bind(http: web.Request) -> web.Response:
        request = bind_request(await _body(http, BIND_BODY_LIMIT, body_s))
        return web.json_response({"Error": await extender.bind(request)})

    async def preempt(http: web.Request) -> web.Response:
        body = await _body(http, PREEMPT_BODY_LIMIT, body_s)
        victims, whole = _victims(body)
        kept = extender.preempt(victims, _preemptor(body))
        return web.json_response({"NodeNameToMetaVictims": {node: whole[node] for node in kept}})

    app = web.Application(middlewares=[_guarded])
    for verb, handler in (("bind", bind), ("preempt", preempt)):
        app.router.add_post(f"{prefix}/{verb}", _checked(verb, handler, names))
    return app


@web.middleware
async def _guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Tell the connection's guard while a request is being answered."""
    protocol = request.transport.get_protocol() if request.transport is not None else None
    with protocol.request() if isinstance(protocol, Guard) else nullcontext():
        return await handler(request)


def _checked(verb: str, handler: _Handler, names: Collection[str] | None) -> _Handler:
    async def answer(http: web.Request) -> web.StreamResponse:
        if names is not None and _client(http) not in names:
            metrics.client_refused()
            return _refusal(403, f"clients named {_client(http)!r} may not call this")
        try:
            return await handler(http)
        except NotLeadingError as error:
            # The scheduler should connect anew, by the Service, and find the one that leads.
            return _refusal(503, str(error))
        except TimeoutError:
            return _refusal(408, "the request did not come in time")
        except ValueError as error:
            return _refusal(400, str(error))

    async def counted(http: web.Request) -> web.StreamResponse:
        status = 500
        try:
            response = await answer(http)
            status = response.status
        except web.HTTPException as error:
            status = error.status
            raise
        except asyncio.CancelledError:
            status = 499  # the scheduler is gone, or has lost its patience
            raise
        finally:
            metrics.request(verb, status)
        return response

    return counted


def _client(http: web.Request) -> str:
    certificate = http.transport.get_extra_info("peercert") if http.transport else None
    return common_name(certificate)


def _refusal(status: int, why: str) -> web.Response:
    response = web.json_response({"Error": why}, status=status)
    response.force_close()
    return response


async def _body(http: web.Request, limit: int, limit_s: float) -> Any:
    """The body's JSON.

    Raises:
        TimeoutError: it takes too long to come.
        ValueError: it is no JSON.
        web.HTTPException: it is too long.
    """
    content = bytearray()
    async with asyncio.timeout(limit_s):
        async for chunk in http.content.iter_any():
            content += chunk
            if len(content) > limit:
                raise web.HTTPRequestEntityTooLarge(limit, len(content))
    try:
        return json.loads(content)
    except RecursionError:
        msg = "nested too deeply"
        raise ValueError(msg) from None


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
    if any(set(part) & set("/?#%") or part in {".", ".."} for part in (namespace, name)):
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


def _preemptor(body: Any) -> str:
    """UID of the pod of ``ExtenderPreemptionArgs``; "" if it is missing."""
    pod = _lower(body).get("pod")
    meta = pod.get("metadata") if isinstance(pod, Mapping) else None
    return str(meta.get("uid", "")) if isinstance(meta, Mapping) else ""


def _lower(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        msg = "expected an object"
        raise ValueError(msg)  # noqa: TRY004 - a bad request, as all of them
    return {str(name).lower(): item for name, item in value.items()}


class ExtenderServer:
    """A listening socket, and servers behind it one after the other, each with its TLS context.

    Args:
        runner: the application's, set up.
        listening: the socket; each server gets a duplicate, so that no connection is refused while
            one takes over from the other.
        backlog: so many connections may wait to be accepted.
    """

    def __init__(self, runner: web.AppRunner, listening: socket.socket, *, backlog: int) -> None:
        assert runner.server is not None
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
        """Serve new connections with ``context``; those that are open go on."""
        server = await asyncio.get_running_loop().create_server(
            self._guards,
            sock=self._listening.dup(),
            ssl=context,
            ssl_handshake_timeout=None if context is None else HEADERS_S,
            backlog=self._backlog,
        )
        if self._server is not None:
            self._server.close()
        self._server = server

    def stop_listening(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._listening.close()

    async def end(self) -> None:
        """Give up what is still connected."""
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
        prefix: see :func:`application`.
        names: see :func:`application`.
        backlog: see :class:`ExtenderServer`.
        body_s: see :func:`application`.

    Raises:
        OSError: the address cannot be bound.
    """
    # A scheduler that is gone holds nothing: its requests are cancelled with their connections.
    runner = web.AppRunner(
        application(extender, prefix=prefix, names=names, body_s=body_s),
        access_log=None,
        handle_signals=False,
        handler_cancellation=True,
        shutdown_timeout=SHUTDOWN_S,
        keepalive_timeout=IDLE_S,
    )
    await runner.setup()
    try:
        server = ExtenderServer(runner, _socket(address), backlog=backlog)
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
