"""Processing of a request from its arrival to its response, over HTTP or in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import attrs
import msgspec

from jobsetpy.testing.apiserver import _answers as answers
from jobsetpy.testing.apiserver import _discovery, _http
from jobsetpy.testing.apiserver._admission import Admission
from jobsetpy.testing.apiserver._answers import StatusError
from jobsetpy.testing.apiserver._faults import Faults, Target
from jobsetpy.testing.apiserver._http import Route
from jobsetpy.testing.apiserver._registry import Registry
from jobsetpy.testing.apiserver._requests import Request, RequestLog
from jobsetpy.testing.apiserver._storage import Storage
from jobsetpy.testing.apiserver._verbs import Call, perform_admitted, resolve
from jobsetpy.testing.apiserver._watching import ConnectionCutError, Watch

_HEALTH = frozenset({"/readyz", "/healthz", "/livez"})
_MAX_BODY = 3 * 1024 * 1024


@attrs.frozen(kw_only=True)
class Arrival:
    """Request as received."""

    method: str
    path: str
    query: Mapping[str, str]
    content_type: str
    user_agent: str
    body: bytes
    authorization: str = ""


@attrs.frozen
class Reply:
    """Complete response."""

    status: int
    body: bytes
    headers: Mapping[str, str] = attrs.field(factory=dict)
    content_type: str = "application/json"


class Dispatcher:
    """Logs requests, applies fault rules, and executes the remaining requests.

    Args:
        storage: the objects.
        registry: the writes.
        settle: called after each request that was executed.
    """

    def __init__(self, storage: Storage, registry: Registry, settle: Callable[[], None]) -> None:
        self.faults = Faults()
        self.requests = RequestLog()
        self.admission = Admission(storage)
        self.token: str | None = None
        self.bookmark_s = 60.0
        self._storage = storage
        self._registry = registry
        self._settle = settle

    def log(self, arrival: Arrival) -> Request:
        """Determine the target of a request, and log it."""
        route = _http.parse_path(arrival.path)
        verb = arrival.method.lower()
        refused: StatusError | None = None
        if route is not None:
            try:
                verb = _http.verb_of(arrival.method, route, arrival.query, arrival.content_type)
            except StatusError as error:
                refused = error
        target = Target(
            verb=verb,
            resource=route.resource if route is not None else "",
            namespace=route.namespace if route is not None else "",
            name=route.name if route is not None else "",
            user_agent=arrival.user_agent,
            path=arrival.path,
        )
        entry = Request(
            target=target,
            method=arrival.method,
            query=dict(arrival.query),
            body=arrival.body,
            route=route,
            refused=refused,
        )
        self.requests.add(entry)
        return entry

    async def answer(self, arrival: Arrival, entry: Request) -> Reply | Watch:
        """Execute a request; a returned ``Watch`` has yet to be run.

        Raises:
            ConnectionCutError: a fault rule suppresses the response.
        """
        try:
            reply = await self._answer(arrival, entry)
        except StatusError as error:
            reply = failure(error)
        entry.status = reply.status if isinstance(reply, Reply) else 200
        return reply

    async def _answer(self, arrival: Arrival, entry: Request) -> Reply | Watch:
        target, route = entry.target, entry.route
        late = self.faults.take("latency", target)
        if late is not None:
            await asyncio.sleep(late.seconds)
        fault = self.faults.take("status", target)
        if fault is not None:
            raise answers.injected(fault.code, fault.retry_after, fault.message)
        if self.token and arrival.authorization != f"Bearer {self.token}":
            raise StatusError(401, "Unauthorized", "Unauthorized")
        if arrival.path in _HEALTH:
            return Reply(200, b"ok", content_type="text/plain")
        document = _discovery.discover(self._storage, arrival.path)
        if document is not None and arrival.method == "GET":
            return Reply(200, msgspec.json.encode(document))
        if route is None:
            raise answers.page_not_found()
        return await self._perform(arrival, entry, route)

    async def _perform(self, arrival: Arrival, entry: Request, route: Route) -> Reply | Watch:
        collection = resolve(self._storage, route)
        if entry.refused is not None:
            raise entry.refused
        if entry.verb == "watch":
            return Watch(
                storage=self._storage,
                collection=collection,
                namespace=route.namespace,
                options=_http.list_options(collection.kind, arrival.query, watch=True),
                target=entry.target,
                faults=self.faults,
                bookmark_s=self.bookmark_s,
            )
        if len(arrival.body) > _MAX_BODY:
            message = f"Request entity too large: limit is {_MAX_BODY}"
            raise StatusError(413, "RequestEntityTooLarge", message, {})
        call = Call(
            verb=entry.verb,
            route=route,
            query=arrival.query,
            content_type=arrival.content_type,
            user_agent=arrival.user_agent,
            body=arrival.body,
        )
        status, body = await perform_admitted(
            self._storage, self._registry, self.admission, collection, call
        )
        self._settle()
        if self.faults.take("lose", entry.target):
            raise ConnectionCutError(reset=False)
        return Reply(status, body)


def failure(error: StatusError) -> Reply:
    """Return the response for an exception."""
    if error.plain:
        return Reply(error.code, error.plain.encode(), content_type="text/plain")
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return Reply(error.code, msgspec.json.encode(error.body()), headers)
