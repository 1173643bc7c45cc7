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
from jobsetpy.testing.apiserver._registry import Registry
from jobsetpy.testing.apiserver._requests import Request, RequestLog
from jobsetpy.testing.apiserver._verbs import Call, perform_admitted, resolve
from jobsetpy.testing.apiserver._watching import ConnectionCutError, Watch


@attrs.frozen
class Reply:
    """Complete response."""

    status: int
    body: bytes
    headers: Mapping[str, str] = attrs.field(factory=dict)


class Dispatcher:
    """Logs requests, applies fault rules, and executes the remaining requests.

    Args:
        registry: the objects.
        settle: called after each request that was executed.
    """

    def __init__(self, registry: Registry, settle: Callable[[], None]) -> None:
        self.faults = Faults()
        self.requests = RequestLog()
        self.admission = Admission(registry.storage)
        self.token: str | None = None
        self.bookmark_s = 60.0
        self._registry = registry
        self._settle = settle

    def log(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        content_type: str,
        user_agent: str,
        body: bytes,
        authorization: str = "",
    ) -> Request:
        """Log a request as received; return it with its target."""
        route = _http.parse_path(path)
        verb = method.lower()
        refused: StatusError | None = None
        target = Target(verb=verb, user_agent=user_agent, path=path)
        if route is not None:
            try:
                verb = _http.verb_of(method, route, query, content_type)
            except StatusError as error:
                refused = error
            place = {"namespace": route.namespace, "name": route.name}
            target = attrs.evolve(target, verb=verb, resource=route.resource, **place)
        request = Request(
            target=target,
            method=method,
            query=dict(query),
            content_type=content_type,
            authorization=authorization,
            body=body,
            route=route,
            refused=refused,
        )
        self.requests.add(request)
        return request

    async def answer(self, request: Request) -> Reply | Watch:
        """Execute a request; a returned ``Watch`` has yet to be run.

        Raises:
            ConnectionCutError: a fault rule suppresses the response.
        """
        try:
            reply = await self._answer(request)
        except StatusError as error:
            reply = failure(error)
        request.status = reply.status if isinstance(reply, Reply) else 200
        return reply

    async def _answer(self, request: Request) -> Reply | Watch:
        target = request.target
        late = self.faults.take("latency", target)
        if late is not None:
            await asyncio.sleep(late.seconds)
        fault = self.faults.take("status", target)
        if fault is not None:
            raise answers.injected(fault.code, fault.retry_after, fault.message)
        if self.token and request.authorization != f"Bearer {self.token}":
            raise StatusError(401, "Unauthorized", "Unauthorized")
        document = _discovery.discover(self._registry.storage, target.path)
        if document is not None and request.method == "GET":
            return Reply(200, msgspec.json.encode(document))
        if request.route is None:
            raise answers.no_such_path()
        collection = resolve(self._registry.storage, request.route)
        if request.refused is not None:
            raise request.refused
        call = Call(request, request.route, collection)
        if request.verb != "watch":
            return await self._perform(call)
        return Watch(
            storage=self._registry.storage,
            collection=collection,
            namespace=call.route.namespace,
            options=call.list_options(),
            target=target,
            faults=self.faults,
            bookmark_s=self.bookmark_s,
        )

    async def _perform(self, call: Call) -> Reply:
        status, body = await perform_admitted(self._registry, self.admission, call)
        self._settle()
        if self.faults.take("lose", call.request.target):
            raise ConnectionCutError(reset=False)
        return Reply(status, body)


def failure(error: StatusError) -> Reply:
    """Return the response for an exception."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return Reply(error.code, msgspec.json.encode(error.body()), headers)
