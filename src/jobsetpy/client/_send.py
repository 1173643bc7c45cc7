"""One call with its rate limit, deadline, credentials, retries and metrics."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from jobsetpy.aio import Backoff, TokenBucket
from jobsetpy.client._errors import MAX_BODY, error_from_response
from jobsetpy.client._fence import WriteFence
from jobsetpy.client._retry import BACKOFF_BASE_S, BACKOFF_CAP_S, Safety, wait_after
from jobsetpy.client._transport import ByteStream, HttpRequest, HttpResponse, Transport
from jobsetpy.client._write_log import SHOWN, written
from jobsetpy.errors import ApiTimeoutError, JobSetPyError, StreamBrokenError, TransportError

Exchange = Callable[[HttpRequest], Awaitable[HttpResponse]]


class RequestObserver(Protocol):
    """Callbacks for metrics of requests. Must not block and must not raise."""

    def on_response(self, verb: str, resource: str, status: int | None, seconds: float) -> None:
        """One attempt ended.

        Args:
            verb: ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``apply``,
                ``delete`` or ``raw``.
            resource: plural, with the subresource after a slash; never the name of an object.
            status: HTTP status code, or ``None`` without a response.
            seconds: duration; for a watch, until its headers were received.
        """
        ...

    def on_throttled(self, seconds: float) -> None:
        """A request waited ``seconds`` for the client-side rate limit."""
        ...


class Sender:
    """Sender of requests over a transport, with the rules of ``jobsetpy.client._retry``.

    The deadline of a call is ``HttpRequest.timeout_s`` after its start and includes waiting for the
    rate limit, connecting, attempts, delays between them, and reading credentials.

    Args:
        transport: sends single attempts.
        limiter: client-side rate limit; ``None`` for no limit.
        observer: receives every attempt, for metrics.
        rand: source of uniform numbers in [0, 1) for jitter.
    """

    __slots__ = ("_limiter", "_rand", "exchange", "observer", "transport")

    def __init__(
        self,
        transport: Transport,
        *,
        limiter: TokenBucket | None = None,
        observer: RequestObserver | None = None,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self.transport = transport
        self.observer = observer
        self._rand = rand
        self._limiter = limiter
        self.exchange: Exchange = transport.request
        """Sends one attempt."""

    async def send(
        self, verb: str, resource: str, safety: Safety, request: HttpRequest
    ) -> HttpResponse:
        """Send a request, with retries, until it succeeds or must not be sent again.

        Args:
            verb: verb in errors and metrics.
            resource: resource in metrics.
            safety: possible damage by a repetition.
            request: the request; ``timeout_s`` is the deadline of the whole call; with a fence, no
                attempt begins or continues after the fence closed.

        Raises:
            ApiError: the last response is not a success (2xx).
            TransportError: there was no response; ``ApiTimeoutError`` at the deadline.
            LeadershipLostError: the fence refuses this write.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + request.timeout_s
        backoff: Backoff | None = None
        refreshed = False
        attempt = request
        while True:
            if self._limiter is not None and (wait_s := self._limiter.take(clock())):
                await self._throttle(wait_s, deadline, verb, request)
                attempt = request.with_timeout(deadline - clock())
            failure: JobSetPyError
            try:
                response = await self._attempt(verb, resource, attempt)
            except TransportError as broken:
                failure = broken
            else:
                status = response.status
                if 200 <= status < 300:
                    _note_write(verb, request)
                    return response
                failure = error_from_response(
                    status, response.headers, response.body, verb=verb, target=target_of(request)
                )
                if status == 401 and not refreshed:
                    # With refused credentials nothing was done: any request may be repeated.
                    refreshed = True
                    await self._refresh(deadline, verb, request)
                    attempt = request.with_timeout(deadline - clock())
                    continue
            if backoff is None:
                backoff = Backoff(base=BACKOFF_BASE_S, cap=BACKOFF_CAP_S, rand=self._rand)
            wait = wait_after(failure, safety, backoff, deadline - clock())
            if wait is None:
                raise failure
            await asyncio.sleep(wait)
            attempt = request.with_timeout(deadline - clock())

    async def _attempt(self, verb: str, resource: str, request: HttpRequest) -> HttpResponse:
        started, fence = asyncio.get_running_loop().time(), request.fence
        try:
            if fence is None:
                response = await self.exchange(request)
            else:
                response = await _while_open(fence, self.exchange, request)
        except TransportError:
            self._observe(verb, resource, None, started)
            raise
        self._observe(verb, resource, response.status, started)
        return response

    def _observe(self, verb: str, resource: str, status: int | None, started: float) -> None:
        if self.observer is not None:
            seconds = asyncio.get_running_loop().time() - started
            self.observer.on_response(verb, resource, status, seconds)

    @asynccontextmanager
    async def stream(
        self, verb: str, resource: str, request: HttpRequest
    ) -> AsyncIterator[ByteStream]:
        """Open a stream without retries, except that refused credentials are read again once.

        ``request.timeout_s`` is the deadline for opening it.

        Raises:
            ApiError: the response is not a success.
            TransportError: there was no response.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + request.timeout_s
        refreshed = False
        while True:
            if self._limiter is not None and (wait_s := self._limiter.take(clock())):
                await self._throttle(wait_s, deadline, verb, request)
            started = clock()
            answered = False
            try:
                async with self.transport.stream(
                    request.with_timeout(deadline - started)
                ) as stream:
                    answered = True
                    status, headers = stream.status, stream.headers
                    self._observe(verb, resource, status, started)
                    if 200 <= status < 300:
                        yield stream
                        return
                    body = await _read_refusal(stream, deadline)
            except TransportError:
                if not answered:
                    self._observe(verb, resource, None, started)
                raise
            if status != 401 or refreshed:
                raise error_from_response(
                    status, headers, body, verb=verb, target=target_of(request)
                )
            refreshed = True
            await self._refresh(deadline, verb, request)

    def unpooled(self, limiter: TokenBucket | None) -> Sender:
        """Return a sender on the same transport that uses a new connection for each request."""
        sender = Sender(self.transport, limiter=limiter, observer=self.observer, rand=self._rand)
        sender.exchange = sender._on_own_connection
        return sender

    async def _on_own_connection(self, request: HttpRequest) -> HttpResponse:
        """Send a request as a stream, which is in no pool.

        It is never blocked by others that hang, nor lost on a kept connection that died silently.
        """
        try:
            async with asyncio.timeout(request.timeout_s), self.transport.stream(request) as stream:
                pieces = []
                while piece := await stream.read():
                    pieces.append(piece)
                return HttpResponse(stream.status, stream.headers, b"".join(pieces))
        except TimeoutError:
            raise request.timed_out() from None

    async def _throttle(
        self, wait_s: float, deadline: float, verb: str, request: HttpRequest
    ) -> None:
        """Wait for a token that was taken; give it back if the request ends before."""
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            async with _until(deadline, verb, request, "waiting for the rate limit"):
                await asyncio.sleep(wait_s)
        except BaseException:
            assert self._limiter is not None, "a token was taken of no limiter"
            self._limiter.give_back()
            raise
        finally:
            if self.observer is not None:
                self.observer.on_throttled(clock() - started)

    async def _refresh(self, deadline: float, verb: str, request: HttpRequest) -> None:
        async with _until(deadline, verb, request, "reading credentials"):
            await self.transport.refresh_credentials()


def _note_write(verb: str, request: HttpRequest) -> None:
    """Add a write that has succeeded to those of the current reconcile, if one is recorded."""
    if request.method != "GET" and (noted := written()) is not None:
        noted.count += 1
        if noted.count <= SHOWN:
            noted.shown.append(f"{verb} {target_of(request)}")


async def _while_open(fence: WriteFence, exchange: Exchange, attempt: HttpRequest) -> HttpResponse:
    """Send a leader's write, and abort it when the fence closes.

    A renewal extends the time of writes that are in flight: an API server that needs longer for a
    large object than one claim lasts can still answer.
    """
    fence.check()
    loop = asyncio.get_running_loop()
    started = loop.time()
    closing = asyncio.timeout(None)
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal timer
        left_s = fence.remaining_s()
        if left_s > 0:
            timer = loop.call_later(left_s, look)
        else:
            closing.reschedule(loop.time())

    timer = loop.call_later(fence.remaining_s(), look)
    try:
        async with closing:
            return await exchange(attempt)
    except TimeoutError:
        raise attempt.with_timeout(loop.time() - started).timed_out() from None
    finally:
        timer.cancel()


@asynccontextmanager
async def _until(
    deadline: float, verb: str, request: HttpRequest, doing: str
) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError:
        msg = f"{verb} {target_of(request)}: the deadline passed while {doing}"
        raise ApiTimeoutError(msg) from None


def target_of(request: HttpRequest) -> str:
    """Return a description of a request's target: ``jobs default/a``, or its path."""
    parts = request.path.split("/")
    # "", "api", version, ... or "", "apis", group, version, ...
    rest = parts[3:] if parts[1:2] == ["api"] else parts[4:] if parts[1:2] == ["apis"] else []
    match rest:
        case ["namespaces", namespace, plural, name, *sub]:
            return "/".join([plural, *sub]) + f" {namespace}/{name}"
        case ["namespaces", namespace, plural]:
            return f"{plural} in {namespace}"
        case [plural, name, *sub]:
            return "/".join([plural, *sub]) + f" {name}"
        case [plural]:
            return plural
        case _:
            return request.path


async def _read_refusal(stream: ByteStream, deadline: float) -> bytes:
    """Return the start of an error response, as much as arrives; the status matters more."""
    body = b""
    try:
        async with asyncio.timeout_at(deadline):
            while len(body) < MAX_BODY and (piece := await stream.read()):
                body += piece
    except (TimeoutError, StreamBrokenError):
        pass
    return body
