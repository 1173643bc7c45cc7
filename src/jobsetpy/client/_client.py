"""``Client``: the Kubernetes verbs on any transport.

This module is on the agent's start-up path and on the manager's hot path: few imports, and little
code between a verb and its transport.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self, TypeVar

import msgspec

from jobsetpy.aio import TokenBucket
from jobsetpy.client import _patches
from jobsetpy.client._fence import WriteFence
from jobsetpy.client._frames import WatchStream
from jobsetpy.client._models import Model, Page
from jobsetpy.client._retry import Safety
from jobsetpy.client._send import RequestObserver, Sender
from jobsetpy.client._transport import HttpRequest, HttpResponse, Transport

T = TypeVar("T")

Query = tuple[tuple[str, str], ...]

DEFAULT_QPS: Final = 500.0
DEFAULT_BURST: Final = 500
"""Rate limit of clients created by ``connect()``, in requests per second and in a burst."""

_SAFETY_OF_METHOD = {"GET": Safety.READ, "HEAD": Safety.READ, "POST": Safety.CREATE}


class Client:
    """Kubernetes verbs on wire classes: pass the class, get objects of that class back.

    Safe for any number of concurrent calls on one event loop. Every call has a deadline
    (``timeout_s``, or the client's default) that includes all retries and waiting for the rate
    limit. Retried by the client itself: 429 and 503 with Retry-After, and for reads also other 5xx
    and broken connections (the table is in ``jobsetpy.client._retry``). A create is never repeated
    after it may have reached the server.

    All calls raise the errors of ``jobsetpy.errors``, never those of an HTTP library.

    Args:
        transport: sends the requests; the client owns it and closes it.
        qps: client-side limit in requests per second; 0 for no limit.
        burst: maximum number of requests in a burst; 0 for those of one second.
        timeout_s: default deadline of a call, in seconds.
        observer: receives every request, for metrics.
        rand: source of uniform numbers in [0, 1) for the jitter of retries.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        qps: float = 0,
        burst: int = 0,
        timeout_s: float = 30.0,
        observer: RequestObserver | None = None,
        rand: Callable[[], float] = random.random,
    ) -> None:
        limiter = TokenBucket(qps, burst) if qps else None
        self._sender = Sender(transport, limiter=limiter, observer=observer, rand=rand)
        self._send = self._sender.send
        self._timeout_s = timeout_s
        self._fence: WriteFence | None = None
        self._dry: Query = ()
        self._models: dict[type[Any], Model[Any]] = {}

    @property
    def transport(self) -> Transport:
        """The transport of the client."""
        return self._sender.transport

    # ---- views of it ------------------------------------------------------------------------

    def fenced_by(self, fence: WriteFence) -> Self:
        """Return a view of this client, with shared limits and connections, that fences its writes.

        Writes that the fence refuses raise ``LeadershipLostError`` before anything is sent. A write
        in flight when the fence closes is aborted at that moment and not delivered later.
        """
        return self._view(_fence=fence)

    def dry_run(self) -> Self:
        """Return a view of this client whose writes are checked by the server but not stored.

        They return the object that would have been stored, or raise the refusal.
        """
        return self._view(_dry=(("dryRun", "All"),))

    def _view(self, **changes: Any) -> Self:
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__, **changes)
        return view

    def unpooled(self, *, qps: float = 0, burst: int = 0) -> Self:
        """Return a client with its own limit and a new connection per request, without a fence.

        It is not blocked by requests that hang or by connections that died silently; intended for a
        few requests per second. Both clients have one transport: closing one closes the other.
        """
        sender = self._sender.unpooled(TokenBucket(qps, burst) if qps else None)
        return self._view(_sender=sender, _send=sender.send, _fence=None, _dry=())

    # ---- reads ------------------------------------------------------------------------------

    async def get(
        self,
        cls: type[T],
        namespace: str,
        name: str,
        *,
        subresource: str | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Read one object; for a subresource with its own kind (``scale``) use ``raw``.

        Raises:
            NotFoundError: the object does not exist.
        """
        model = self._model(cls)
        path = model.object(namespace, name, subresource)
        request = HttpRequest(method="GET", path=path, timeout_s=self._timeout(timeout_s))
        resource = f"{model.plural}/{subresource}" if subresource else model.plural
        answer = await self._send("get", resource, Safety.READ, request)
        return model.decode(answer.body)

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
        timeout_s: float | None = None,
    ) -> Page[T]:
        """Read one page of a list, of all namespaces if ``namespace`` is "".

        An object that does not fit the model is left out of ``Page.items`` and described in
        ``Page.bad``.

        Raises:
            ExpiredError: the continue token is too old: list again from the start.
        """
        model = self._model(cls)
        query = _query(
            ("labelSelector", label_selector),
            ("fieldSelector", field_selector),
            ("limit", str(limit) if limit else ""),
            ("continue", continue_token),
            ("resourceVersion", resource_version),
        )
        request = HttpRequest(
            method="GET",
            path=model.collection(namespace),
            query=query,
            timeout_s=self._timeout(timeout_s),
        )
        answer = await self._send("list", model.plural, Safety.READ, request)
        return await model.decode_page(answer.body)

    @asynccontextmanager
    async def watch(
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
    ) -> AsyncIterator[WatchStream]:
        """Open a watch with bookmarks; leaving the block closes it immediately.

        Nothing is retried, except that refused credentials are read again once: the watcher decides
        when to open the next watch. Reads of the stream have no deadline.

        Args:
            cls: the wire class to watch.
            namespace: namespace to watch; "" for all.
            resource_version: version after which the watch starts; "" for the present state.
            label_selector: label selector of the objects.
            field_selector: field selector of the objects.
            timeout_seconds: time after which the server ends the watch.
            send_initial_events: begin with all present objects (KEP-3157, streaming lists).
            connect_timeout_s: deadline for opening it, including the wait for the rate limit.

        Raises:
            ApiError: the server refuses; after ``ExpiredError``, list again.
            TransportError: the server did not answer.
        """
        model = self._model(cls)
        query = _query(
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(timeout_seconds)),
            ("resourceVersion", resource_version),
            ("sendInitialEvents", "true" if send_initial_events else ""),
            ("resourceVersionMatch", "NotOlderThan" if send_initial_events else ""),
            ("labelSelector", label_selector),
            ("fieldSelector", field_selector),
        )
        request = HttpRequest(
            method="GET",
            path=model.collection(namespace),
            query=query,
            timeout_s=connect_timeout_s,
        )
        async with self._sender.stream("watch", model.plural, request) as stream:
            yield WatchStream(stream)

    # ---- writes -----------------------------------------------------------------------------

    async def create(
        self,
        cls: type[T],
        namespace: str,
        body: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
    ) -> T:
        """Create an object and return it as stored by the server.

        ``apiVersion`` and ``kind`` are filled in.

        After a ``StreamBrokenError`` or ``ApiTimeoutError`` the object may exist.

        Raises:
            AlreadyExistsError: an object of that name exists.
            InvalidError: the server refuses the content.
        """
        model = self._model(cls)
        _check_body(body)
        if "kind" not in body or "apiVersion" not in body:
            body = {"apiVersion": model.api_version, "kind": model.kind, **body}
        path = model.creation(namespace)
        request = self._change("POST", path, _patches.encode(body), timeout_s)
        answer = await self._send("create", model.plural, Safety.CREATE, request)
        return model.decode(answer.body)

    async def create_subresource(
        self,
        cls: type[Any],
        namespace: str,
        name: str,
        subresource: str,
        body: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """Create a subresource of an object, such as ``eviction`` or ``binding`` of a pod.

        Returns:
            The response as JSON data: the token for ``serviceaccounts/token``, a Status for others.

        Raises:
            NotFoundError: the object does not exist.
            RetryableApiError: not possible now, for example because of a disruption budget.
        """
        model = self._model(cls)
        path = model.object(namespace, name, subresource)
        request = self._change("POST", path, _patches.encode(body), timeout_s)
        resource = f"{model.plural}/{subresource}"
        answer = await self._send("create", resource, Safety.CREATE, request)
        return msgspec.json.decode(answer.body)

    async def replace(
        self,
        cls: type[T],
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Write a whole object; its ``metadata.resourceVersion`` is the precondition.

        ``apiVersion``, ``kind`` and the name are filled in.

        Raises:
            ConflictError: the object has changed since that version.
        """
        where = (namespace, name, subresource)
        body = _complete(self._model(cls), name, body)
        return await self._write("update", cls, where, body, _patches.JSON, timeout_s)

    async def merge_patch(
        self,
        cls: type[T],
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Patch by JSON merge (RFC 7386): ``None`` removes a field, a list replaces the list."""
        where = (namespace, name, subresource)
        return await self._write("patch", cls, where, body, _patches.MERGE_PATCH, timeout_s)

    async def json_patch(
        self,
        cls: type[T],
        namespace: str,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Patch by operations (RFC 6902).

        Raises:
            InvalidError: an operation does not apply, for example a ``test`` that fails.
        """
        where = (namespace, name, subresource)
        return await self._write("patch", cls, where, operations, _patches.JSON_PATCH, timeout_s)

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
        """Server-side apply as field manager ``owner``.

        ``apiVersion``, ``kind`` and the name are filled in. The object is created if it is
        missing, unless the body names a ``metadata.uid``; fields that this owner applied before
        and omits now are removed.

        Raises:
            ConflictError: without ``force``, another owner has set a field to another value.
        """
        body = _complete(self._model(cls), name, body)
        query = (("fieldManager", owner), ("force", "true" if force else "false"))
        where = (namespace, name, subresource)
        return await self._write("apply", cls, where, body, _patches.APPLY_PATCH, timeout_s, query)

    async def delete(
        self,
        cls: type[Any],
        namespace: str,
        name: str,
        *,
        propagation: str = "Background",
        uid: str = "",
        resource_version: str = "",
        grace_period_seconds: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Delete an object, which may remain until its finalizers are removed.

        Args:
            cls: wire class of its kind.
            namespace: its namespace.
            name: its name.
            propagation: deletion of its dependents: ``Background``, ``Foreground``, ``Orphan``, or
                "" for the server's default.
            uid: delete only the object with this uid, not another of the same name.
            resource_version: delete only if it has not changed since this version.
            grace_period_seconds: time for a pod to terminate; 0 deletes it by force, even if
                containers still run. The object's own value when absent.
            timeout_s: deadline in seconds.

        Raises:
            NotFoundError: no object has that name.
            ConflictError: a precondition is not met.
        """
        model = self._model(cls)
        options = _patches.delete_options(propagation, uid, resource_version, grace_period_seconds)
        path, body = model.object(namespace, name), _patches.encode(options)
        request = self._change("DELETE", path, body, timeout_s)
        await self._send("delete", model.plural, Safety.WRITE, request)

    async def raw(self, request: HttpRequest) -> HttpResponse:
        """Send any request, with the same limits, retries and deadline (``request.timeout_s``).

        A GET is retried as a read, a POST as a create, everything else as a write.

        Raises:
            ApiError: the response is not a success.
        """
        safety = _SAFETY_OF_METHOD.get(request.method, Safety.WRITE)
        if safety is not Safety.READ and self._fence is not None:
            request = msgspec.structs.replace(request, fence=self._fence)
        return await self._send("raw", "", safety, request)

    async def aclose(self) -> None:
        """Close the transport."""
        await self._sender.transport.aclose()

    def _timeout(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s

    def _change(
        self,
        method: str,
        path: str,
        body: bytes,
        timeout_s: float | None,
        query: Query = (),
        content_type: str = _patches.JSON,
    ) -> HttpRequest:
        """Return a write request with the fence and dry-run setting of this view."""
        return HttpRequest(
            method=method,
            path=path,
            query=(*query, *self._dry) if self._dry else query,
            body=body,
            content_type=content_type,
            timeout_s=self._timeout(timeout_s),
            fence=self._fence,
        )

    def _model(self, cls: type[T]) -> Model[T]:
        model = self._models.get(cls)
        if model is None:
            model = self._models[cls] = Model(cls)
        return model

    async def _write(
        self,
        verb: str,
        cls: type[T],
        where: tuple[str, str, str | None],
        body: Any,
        content_type: str,
        timeout_s: float | None,
        query: Query = (),
    ) -> T:
        model = self._model(cls)
        if content_type is not _patches.JSON_PATCH:
            _check_body(body)
        method = "PUT" if content_type is _patches.JSON else "PATCH"
        path, encoded = model.object(*where), _patches.encode(body)
        request = self._change(method, path, encoded, timeout_s, query, content_type)
        resource = f"{model.plural}/{where[2]}" if where[2] else model.plural
        answer = await self._send(verb, resource, Safety.WRITE, request)
        return model.decode(answer.body)


def _complete(model: Model[Any], name: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body of a whole object with API version, kind and name filled in."""
    _check_body(body)
    meta = {"name": name, **(body.get("metadata") or {})}
    return {"apiVersion": model.api_version, "kind": model.kind, **body, "metadata": meta}


def _check_body(body: object) -> None:
    """Check that a body is JSON data, not an object of a class.

    Raises:
        TypeError: the body is not a mapping.
    """
    if not isinstance(body, Mapping):
        raise TypeError(
            f"a body is JSON data such as {{'spec': ...}}, not {type(body).__name__}: "
            "runtime.to_json(...) makes it of an object"
        )


def _query(*pairs: tuple[str, str]) -> Query:
    """Return the query parameters that are not empty."""
    return tuple(pair for pair in pairs if pair[1])
