"""Protocol of transports, which send requests to one API server, independent of Kubernetes.

There are two: one on kubernetes_asyncio and aiohttp (manager, library users), and a small one on
h11 for the agent. Retries, errors, limits and deadlines are implemented once, in ``Client``.

This module is on the agent's start-up path: standard library and msgspec only, no attrs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from jobsetpy.client._fence import WriteFence
from jobsetpy.errors import ApiTimeoutError


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, without credentials (the transport adds them).

    ``query`` values are not yet percent-encoded. ``timeout_s`` limits the whole exchange of
    ``Transport.request``, and connecting plus response headers of ``Transport.stream``. ``fence``
    is the fence of a leader's write, ``None`` for other requests.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    timeout_s: float = 30.0
    fence: WriteFence | None = None

    def with_timeout(self, seconds: float) -> HttpRequest:
        """Return the request with another ``timeout_s``, at least a millisecond."""
        return msgspec.structs.replace(self, timeout_s=max(seconds, 0.001))

    def timed_out(self) -> ApiTimeoutError:
        """Return the error for no response within ``timeout_s``."""
        msg = f"{self.method} {self.path}: no answer in {self.timeout_s:.3g} s"
        return ApiTimeoutError(msg)


class HttpResponse(msgspec.Struct, frozen=True):
    """A complete response of any status; headers are found by lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ByteStream(Protocol):
    """A response whose body is still being received."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self) -> bytes:
        """Return the next received bytes, of any length; b"" at a clean end.

        Raises:
            StreamBrokenError: the connection broke.
        """
        ...


class Transport(Protocol):
    """Sends requests to one API server as one user.

    It follows no redirects and has no retries. Credentials are read again when they rotate; after
    a 401 the caller may call ``refresh_credentials`` once and send again.

    A request with a fence is sent only if ``fence.admit`` allows it when a connection is ready.
    If such a request fails or is cancelled, its connection is aborted, not closed, so that no part
    of it is delivered later.
    """

    @property
    def host(self) -> str:
        """Host and port of the API server, as in its URL."""
        ...

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Send a request and return the whole response, whatever its status.

        Raises:
            ConnectFailedError: nothing was sent; also for missing credentials.
            StreamBrokenError: the connection broke; the request may have been executed.
            ApiTimeoutError: ``timeout_s`` passed.
            LeadershipLostError: the request's fence is closed; nothing was sent.
        """
        ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[ByteStream]:
        """Send a request and yield the response after its headers; leaving closes it immediately.

        ``timeout_s`` limits connecting and the headers, not later reads.

        Raises:
            ConnectFailedError, StreamBrokenError, ApiTimeoutError, LeadershipLostError: as for
                ``request``.
        """
        ...

    async def refresh_credentials(self) -> None:
        """Drop cached credentials; the next request reads them again."""
        ...

    async def aclose(self) -> None:
        """Close all connections; requests after this fail."""
        ...
