"""Connections of HTTP/2 clients: deadlines, tasks and shutdown.

The protocol is in ``_http2``, the requests are in ``_extender``.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final
from weakref import WeakSet

from jobsetpy.aio import Supervisor
from jobsetpy.coscheduler import metrics
from jobsetpy.coscheduler.extender.extender import (
    BODY_LIMITS,
    PREEMPT_BODY_LIMIT,
    ExtenderApi,
    refusal,
)
from jobsetpy.coscheduler.extender.http2 import (
    Bounds,
    Cancelled,
    Http2Error,
    Refused,
    Request,
    Session,
)
from jobsetpy.observability.logging import get_logger
from jobsetpy.serving.guard import IDLE_S
from jobsetpy.serving.http import Http2Protocol, Response
from jobsetpy.serving.tls import common_name

STREAMS: Final = 1000
"""Maximum concurrent requests on one connection; the scheduler opens another one for more."""

MAX_AGE_S: Final = 600.0
"""Age in seconds after which a client has to reconnect, and present its certificate again."""

UNSENT: Final = 8 * 1024 * 1024
"""Maximum number of unsent bytes for a client that does not read."""

_CHECK_S: Final = 1.0
_POLL_S: Final = 0.02


class Http2Connection(Http2Protocol):
    """Connection of one client.

    Args:
        api: handler of requests.
        tasks: supervisor of request tasks; each ends with its connection.
        body_s: maximum time in seconds for receiving a body, and for a client not to read.
        headers_s: maximum time in seconds until the first request.
    """

    def __init__(
        self, api: ExtenderApi, tasks: Supervisor, *, body_s: float, headers_s: float
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._api = api
        self._tasks = tasks
        self._body_s = body_s
        self._headers_s = headers_s
        self._transport: asyncio.Transport | None = None
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._began = self._busy_at = loop.time()
        self._paused_at: float | None = None
        self._flushing = False
        self._client = ""
        self._session = Session(
            Bounds(
                streams=STREAMS,
                bodies={path: BODY_LIMITS[verb] for path, verb in api.verbs.items()},
                unread=PREEMPT_BODY_LIMIT + STREAMS * 1024,
                body_s=body_s,
                spare=4 * STREAMS,
            ),
            self._began,
        )

    # -- the transport ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the deadlines; the client's certificate is checked for every request."""
        self._transport = transport  # type: ignore[assignment] # TLS has full transports
        self._client = common_name(transport.get_extra_info("peercert"))
        self._timer = self._loop.call_later(_CHECK_S, self._check)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - protocol
        """Cancel the requests of the connection."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._requests.values()):
            task.cancel()

    def data_received(self, data: bytes) -> None:
        """Process frames."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > UNSENT:
            self._transport.abort()  # the client sends requests and does not read
            return
        try:
            for each in self._session.receive(data, self._loop.time()):
                match each:
                    case Request():
                        self._begin(each)
                    case Refused():
                        self._refuse(each)
                    case Cancelled(stream):
                        if stream in self._requests:
                            self._requests[stream].cancel()
        except Http2Error as error:
            get_logger("coscheduler").info("a connection is given up", error=str(error))
            self._flush()
            self._transport.close()
            return
        self._flush()

    def pause_writing(self) -> None:
        """Record that the client reads slowly."""
        self._paused_at = self._loop.time()

    def resume_writing(self) -> None:
        """Record that the client has read enough."""
        self._paused_at = None

    # -- requests -----------------------------------------------------------------------------

    def _begin(self, request: Request) -> None:
        task = self._tasks.start(self._serve(request), name="extender-request")
        self._requests[request.stream] = task
        task.add_done_callback(lambda _: self._requests.pop(request.stream, None))

    async def _serve(self, request: Request) -> None:
        async def read() -> bytes:
            return request.body

        answer = await self._api.handle(self._api.verbs[request.path], self._client, read)
        self._answer(request.stream, answer)

    def _refuse(self, refused: Refused) -> None:
        verb = self._api.verbs.get(refused.path)
        if verb is not None:
            metrics.request(verb, refused.status)
        self._answer(refused.stream, refusal(refused.status))

    def _answer(self, stream: int, answer: Response) -> None:
        self._session.answer(stream, answer.status, answer.body)
        self._busy_at = self._loop.time()
        if answer.close:
            self._session.leave()
        if not self._flushing:  # answers of a gang come together: one write for all of them
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._transport is None or self._transport.is_closing():
            return
        data = self._session.to_send()
        if data:
            self._transport.write(data)
        if self._session.leaving and not self._session.open:
            self._transport.close()

    # -- shutdown -----------------------------------------------------------------------------

    def _check(self) -> None:
        """Enforce the deadlines, once a second."""
        if self._transport is None:
            return
        now, session = self._loop.time(), self._session
        stuck = self._paused_at is not None and now - self._paused_at > self._body_s
        if stuck or (not session.used and now - self._began > self._headers_s):
            self._transport.abort()
            return
        for refused in session.late(now):
            self._refuse(refused)
        if now - self._began > MAX_AGE_S or (not session.open and now - self._busy_at > IDLE_S):
            session.leave()
        self._flush()
        self._timer = self._loop.call_later(_CHECK_S, self._check)

    @property
    def ended(self) -> bool:
        """Return whether the connection is closed."""
        return self._transport is None

    def leave(self) -> None:
        """Make the client reconnect for further requests."""
        self._session.leave()
        self._flush()

    def end(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()


class Http2Connections:
    """Connections of a server: a protocol factory.

    Args:
        api, tasks, body_s, headers_s: see :class:`Http2Connection`.
    """

    def __init__(
        self, api: ExtenderApi, tasks: Supervisor, *, body_s: float, headers_s: float
    ) -> None:
        self._make = partial(Http2Connection, api, tasks, body_s=body_s, headers_s=headers_s)
        self._connections: WeakSet[Http2Connection] = WeakSet()

    def __call__(self) -> Http2Connection:
        """Return the protocol for a connection that was just accepted."""
        made = self._make()
        self._connections.add(made)
        return made

    def leave(self) -> None:
        """Make all clients reconnect: the rules for their certificates have changed."""
        for each in list(self._connections):
            each.leave()

    async def end(self, grace_s: float) -> None:
        """Refuse new requests, wait a while for open ones, and close all connections."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + grace_s
        self.leave()
        while loop.time() < ends_at:
            if all(each.ended for each in self._connections):
                return
            await asyncio.sleep(_POLL_S)
        for each in list(self._connections):
            each.end()
