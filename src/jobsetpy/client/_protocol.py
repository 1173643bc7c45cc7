"""The two seams of the client: ``Transport`` moves bytes, ``Client`` speaks Kubernetes.

A ``Transport`` knows a server, its credentials and HTTP. There are two: one on kubernetes_asyncio
(manager, library users) and a slim one for the agent. ``KubeClient`` implements ``Client`` on any
of them, so retries, errors, limits and deadlines are written once.

This module is on the agent's start-up path: standard library and msgspec only, no attrs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from jobsetpy.errors import DecodeError

if TYPE_CHECKING:
    from jobsetpy.api.meta import ObjectKey

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, without credentials (the transport adds them).

    ``query`` values are not yet percent-encoded. ``timeout_s`` bounds the whole exchange of
    ``Transport.request``, and connecting plus response headers of ``Transport.stream``.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    timeout_s: float = 30.0


class HttpResponse(msgspec.Struct, frozen=True):
    """A complete answer of any status; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ByteStream(Protocol):
    """A response whose body is still coming."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...

    async def read(self) -> bytes:
        """The next bytes as they come, of any length; b"" at a clean end.

        Raises:
            StreamBrokenError: the connection broke off.
        """
        ...


class Transport(Protocol):
    """Sends requests to one API server as one user.

    It follows no redirects and retries nothing. Credentials are read again when they rotate; after
    a 401 the caller may call ``refresh_credentials`` once and send again.
    """

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Send and read the whole answer, whatever its status.

        Raises:
            ConnectFailedError, StreamBrokenError, ApiTimeoutError
        """
        ...

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[ByteStream]:
        """Send and yield the answer when its headers are there; leaving closes it at once."""
        ...

    async def refresh_credentials(self) -> None:
        """Forget cached credentials; the next request reads them anew."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list.

    ``continue_token`` is "" on the last page. ``bad`` holds a DecodeError for each object that
    does not fit the model: it is left out of ``items``, so that one bad object stalls nothing.
    """

    items: list[T]
    resource_version: str
    continue_token: str
    bad: list[DecodeError] = []


class WatchFrame(msgspec.Struct, frozen=True):
    """One line of a watch: ``type`` as sent and the object's undecoded JSON."""

    type: str
    object: msgspec.Raw


class WatchStream(Protocol):
    """A watch that is open."""

    async def read(self) -> Sequence[WatchFrame]:
        """All frames that have come (at least one), or an empty sequence at a clean end.

        Raises:
            StreamBrokenError: the connection broke off; ``DecodeError``: a line is no JSON.
        """
        ...


class Client(Protocol):
    """Kubernetes verbs on wire classes: pass the class, get that class back.

    Every call has a deadline (``timeout_s``, or the client's default) that includes all retries
    and waiting for the rate limit. Retried by the client itself: 429 and 503 with Retry-After, and
    for reads also other 5xx and broken connections. A create is never repeated after it may have
    reached the server.

    All raise the errors of ``jobsetpy.errors``; none raises an HTTP library's own.
    """

    async def get(
        self, cls: type[T], namespace: str, name: str, *, timeout_s: float | None = None
    ) -> T: ...

    async def list_page(
        self,
        cls: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
        resource_version_match: str = "",
        timeout_s: float | None = None,
    ) -> Page[T]: ...

    def watch(
        self,
        cls: type[Any],
        namespace: str = "",
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int,
        send_initial_events: bool = False,
        connect_timeout_s: float = 30.0,
    ) -> AbstractAsyncContextManager[WatchStream]:
        """Open a watch with bookmarks; entering raises ``ApiError`` if the server refuses.

        ``timeout_seconds`` is when the server is to end it. ``send_initial_events`` asks for the
        streaming list (with ``resourceVersionMatch=NotOlderThan``).
        """
        ...

    async def create(
        self,
        cls: type[T],
        namespace: str,
        body: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
    ) -> T: ...

    async def replace(
        self,
        cls: type[T],
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        timeout_s: float | None = None,
    ) -> T: ...

    async def merge_patch(
        self,
        cls: type[T],
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        timeout_s: float | None = None,
    ) -> T: ...

    async def json_patch(
        self,
        cls: type[T],
        namespace: str,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str | None = None,
        timeout_s: float | None = None,
    ) -> T: ...

    async def apply(
        self,
        cls: type[T],
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        owner: str,
        force: bool = True,
        subresource: str | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Server-side apply as field manager ``owner``."""
        ...

    async def apply_labels(
        self, cls: type[T], key: ObjectKey, labels: Mapping[str, str], *, owner: str
    ) -> T:
        """Set labels of an object that is there, as field manager ``owner``; others stay."""
        ...

    async def delete(
        self,
        cls: type[Any],
        namespace: str,
        name: str,
        *,
        propagation: str = "Background",
        uid: str = "",
        resource_version: str = "",
        timeout_s: float | None = None,
    ) -> None:
        """Delete; ``uid`` and ``resource_version`` become preconditions.

        Raises:
            NotFoundError: nothing of that name; ConflictError: a precondition does not hold.
        """
        ...

    async def raw(self, request: HttpRequest) -> HttpResponse:
        """Any request (for example to ``/readyz`` or ``/openapi/v3``), with the same protection."""
        ...

    async def aclose(self) -> None: ...
