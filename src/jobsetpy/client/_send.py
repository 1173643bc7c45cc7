"""One call with its rate limit, deadline, credentials, retries and metrics."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from jobsetpy.client._errors import MAX_BODY, error_from_response
from jobsetpy.client._ratelimit import RateLimiter
from jobsetpy.client._retry import Retry, Safety
from jobsetpy.client._transport import ByteStream, HttpRequest, HttpResponse, Transport
from jobsetpy.client._write_log import SHOWN, written
from jobsetpy.errors import ApiTimeoutError, JobSetPyError, StreamBrokenError, TransportError


class RequestObserver(Protocol):
    """Told of every request, for metrics. Must not block and must not raise."""

    def on_response(self, verb: str, resource: str, status: int | None, seconds: float) -> None:
        """One attempt ended.

        Args:
            verb: ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``apply``,
                ``delete`` or ``raw``.
            resource: plural, with the subresource after a slash; never the name of an object.
            status: HTTP status code, or ``None`` if no answer came.
            seconds: how long it took; for a watch, until its headers came.
        """
        ...

    def on_throttled(self, seconds: float) -> None:
        """A request waited that long for the client's own rate limit."""
        ...


class Sender:
    """Sends requests over a transport by the rules of ``jobsetpy.client._retry``.

    The deadline of a call is ``HttpRequest.timeout_s`` after its start and bounds everything:
    waiting for the rate limit, connecting, attempts, pauses between them, reading credentials.

    Args:
        transport: moves the bytes.
        limiter: ``None`` for no limit.
        observer: told of every attempt.
        rand: uniform numbers in [0, 1) for jitter.
    """

    __slots__ = ("_limiter", "observer", "rand", "transport")

    def __init__(
        self,
        transport: Transport,
        *,
        limiter: RateLimiter | None = None,
        observer: RequestObserver | None = None,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self.transport = transport
        self.observer = observer
        self.rand = rand
        self._limiter = limiter

    async def send(
        self, verb: str, resource: str, safety: Safety, request: HttpRequest
    ) -> HttpResponse:
        """Send until it succeeds or must not be sent again.

        Args:
            verb: for errors and metrics.
            resource: for metrics.
            safety: what a repetition could spoil.
            request: ``timeout_s`` is the deadline of the whole call; with a fence, no attempt
                begins or goes on after that closed.

        Raises:
            ApiError: the last answer, if it is no success (2xx).
            TransportError: no answer; ``ApiTimeoutError`` at the deadline.
            LeadershipLostError: the fence refuses this write.
        """
        clock = asyncio.get_running_loop().time
        fence = request.fence
        started = clock()
        deadline = started + request.timeout_s
        observer = self.observer
        retry: Retry | None = None
        refreshed = False
        attempt = request
        while True:
            if self._limiter is not None and not self._limiter.try_acquire():
                await self._throttle(deadline, verb, request)
                attempt = request.with_timeout(deadline - clock())
            if observer is not None:
                started = clock()
            failure: JobSetPyError
            try:
                if fence is not None:
                    fence.check()
                    attempt = attempt.with_timeout(min(attempt.timeout_s, fence.remaining_s()))
                response = await self.transport.request(attempt)
            except TransportError as broken:
                if observer is not None:
                    observer.on_response(verb, resource, None, clock() - started)
                failure = broken
            else:
                status = response.status
                if observer is not None:
                    observer.on_response(verb, resource, status, clock() - started)
                if 200 <= status < 300:
                    if request.method != "GET" and (noted := written()) is not None:
                        noted.count += 1
                        if noted.count <= SHOWN:
                            noted.shown.append(f"{verb} {target_of(request)}")
                    return response
                failure = error_from_response(
                    status, response.headers, response.body, verb=verb, target=target_of(request)
                )
                if status == 401 and not refreshed:
                    # Refused credentials mean that nothing was done: any request may go again.
                    refreshed = True
                    await self._refresh(deadline, verb, request)
                    attempt = request.with_timeout(deadline - clock())
                    continue
            if retry is None:
                retry = Retry(safety, rand=self.rand)
            wait = retry.wait_after(failure, deadline - clock())
            if wait is None:
                raise failure
            await asyncio.sleep(wait)
            attempt = request.with_timeout(deadline - clock())

    @asynccontextmanager
    async def stream(
        self, verb: str, resource: str, request: HttpRequest
    ) -> AsyncIterator[ByteStream]:
        """Open a stream; nothing is retried, but refused credentials are read anew once.

        ``request.timeout_s`` is the deadline of opening it.

        Raises:
            ApiError: the answer is no success.
            TransportError: no answer.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + request.timeout_s
        refreshed = False
        while True:
            if self._limiter is not None and not self._limiter.try_acquire():
                await self._throttle(deadline, verb, request)
            started = clock()
            answered = False
            try:
                async with self.transport.stream(
                    request.with_timeout(deadline - started)
                ) as stream:
                    answered = True
                    status, headers = stream.status, stream.headers
                    if self.observer is not None:
                        self.observer.on_response(verb, resource, status, clock() - started)
                    if 200 <= status < 300:
                        yield stream
                        return
                    body = await _read_refusal(stream, deadline)
            except TransportError:
                if not answered and self.observer is not None:
                    self.observer.on_response(verb, resource, None, clock() - started)
                raise
            if status != 401 or refreshed:
                raise error_from_response(
                    status, headers, body, verb=verb, target=target_of(request)
                )
            refreshed = True
            await self._refresh(deadline, verb, request)

    async def _throttle(self, deadline: float, verb: str, request: HttpRequest) -> None:
        limiter = self._limiter
        assert limiter is not None
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            async with _until(deadline, verb, request, "waiting for the rate limit"):
                await limiter.acquire()
        finally:
            if self.observer is not None:
                self.observer.on_throttled(clock() - started)

    async def _refresh(self, deadline: float, verb: str, request: HttpRequest) -> None:
        async with _until(deadline, verb, request, "reading credentials"):
            await self.transport.refresh_credentials()


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
    """What a request is about, for people: ``jobs default/a``, or its path."""
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
    """The start of an error answer; whatever of it comes, the answer itself is the news."""
    body = b""
    try:
        async with asyncio.timeout_at(deadline):
            while len(body) < MAX_BODY and (piece := await stream.read()):
                body += piece
    except (TimeoutError, StreamBrokenError):
        pass
    return body
