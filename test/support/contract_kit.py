"""Access of contract tests to a server by plain HTTP, without jobsetpy's client."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import attrs

from jobsetpy.testing import FakeApiServer
from support import patience
from support.patience import eventually

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
USER_AGENT = "contract/1.0"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@attrs.frozen
class Answer:
    """An answer: its status, and its body as JSON data or as text."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def failure(self) -> tuple[int, int | None, str | None]:
        """HTTP status, and code and reason of the Status object."""
        return self.status, self.body.get("code"), self.body.get("reason")

    @property
    def causes(self) -> list[tuple[str, str]]:
        """Reason and field of each cause, without repetitions."""
        found = [(c["reason"], c["field"]) for c in self.body["details"]["causes"]]
        return list(dict.fromkeys(found))

    @property
    def meta(self) -> dict[str, Any]:
        return self.body["metadata"]

    @property
    def version(self) -> str:
        return self.body["metadata"]["resourceVersion"]

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]


class Events:
    """Lines of an open watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response

    async def next(self) -> dict[str, Any] | None:
        """Return the next event; None at the end of the stream."""
        async with patience.timeout(15):
            line = await self._response.content.readline()
        return json.loads(line) if line.strip() else None

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Return type and object name of the next events."""
        return [brief(await self.next()) for _ in range(count)]

    async def rest(self) -> list[dict[str, Any]]:
        """Return every event until the end."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found


def brief(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


@attrs.frozen
class Endpoint:
    """Address of a server, and how to reach it."""

    url: str
    headers: dict[str, str]
    tls: ssl.SSLContext | None
    fake: FakeApiServer | None = None


class Api:
    """A server under test, and a namespace for one test."""

    def __init__(self, endpoint: Endpoint, session: aiohttp.ClientSession, namespace: str) -> None:
        self._endpoint = endpoint
        self._session = session
        self.ns = namespace
        self.is_fake = endpoint.fake is not None
        self.configmaps = f"/api/v1/namespaces/{namespace}/configmaps"
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self.leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        self.widgets = f"/apis/contract.example.com/v1/namespaces/{namespace}/widgets"

    async def call(
        self, method: str, path: str, body: Any = None, content_type: str = JSON, **query: Any
    ) -> Answer:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if data is not None else {}
        params = {name.rstrip("_"): str(value) for name, value in query.items()}
        async with (
            patience.timeout(20),
            self._session.request(
                method, path, params=params, data=data, headers=headers
            ) as response,
        ):
            text = await response.text()
            plain = response.content_type != JSON
            return Answer(
                response.status, text if plain else json.loads(text), dict(response.headers)
            )

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.call("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.call("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.call("PUT", path, body, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        return await self.call("DELETE", path, body, **query)

    async def merge(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.call("PATCH", path, body, MERGE, **query)

    async def apply(self, path: str, body: Any, manager: str, **query: Any) -> Answer:
        return await self.call("PATCH", path, body, APPLY, fieldManager=manager, **query)

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[Events]:
        params = {"watch": "1", **{name.rstrip("_"): str(value) for name, value in query.items()}}
        params.setdefault("timeoutSeconds", "10")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with self._session.get(path, params=params, timeout=timeout) as response:
            yield Events(response)

    async def make(self, name: str, *, labels: Any = None, data: Any = None, **meta: Any) -> Answer:
        """Create a ConfigMap."""
        if labels:
            meta["labels"] = labels
        answer = await self.post(
            self.configmaps, {"metadata": {"name": name, **meta}, "data": data}
        )
        assert answer.status == 201, answer.body
        return answer

    async def make_pod(self, name: str, **meta: Any) -> Answer:
        answer = await self.post(self.pods, pod(name, **meta))
        assert answer.status == 201, answer.body
        return answer

    async def make_widget(self, name: str, **fields: Any) -> Answer:
        answer = await self.post(self.widgets, widget(name, **fields))
        assert answer.status == 201, answer.body
        return answer

    def like_a_cluster(self) -> None:
        """Enable features of clusters that the fake does not have by default."""
        if self._endpoint.fake is not None:
            self._endpoint.fake.graceful_pods = True
            self._endpoint.fake.garbage_collect = True

    def expire(self) -> None:
        """Forget old versions; a real server does so within seconds."""
        if self._endpoint.fake is not None:
            self._endpoint.fake.expire()


def pod(name: str, **meta: Any) -> dict[str, Any]:
    spec = {
        "containers": [{"name": "main", "image": "example/main"}],
        "automountServiceAccountToken": False,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **meta},
        "spec": spec,
    }


def widget(name: str, meta: Any = None, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "contract.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, **(meta or {})},
        **fields,
    }


def reference(owner: dict[str, Any], *, block: bool = True) -> dict[str, Any]:
    """Return an owner reference to an object of a built-in kind."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": block,
    }


def config_map(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}


def definition(plural: str, kind: str) -> dict[str, Any]:
    """Return a CRD with lists of every type, for server-side apply."""
    named = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
    }
    condition = {
        "type": "object",
        "required": ["type"],
        "properties": {
            name: {"type": "string"} for name in ("type", "status", "reason", "message")
        },
    }
    spec = {
        "type": "object",
        "properties": {
            "size": {"type": "integer"},
            "options": {"type": "object", "additionalProperties": {"type": "string"}},
            "whole": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "x-kubernetes-map-type": "atomic",
            },
            "parts": {
                "type": "array",
                "items": {**named, "required": ["name"]},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
            "tags": {
                "type": "array",
                "items": {"type": "string"},
                "x-kubernetes-list-type": "set",
            },
            "steps": {"type": "array", "items": {"type": "string"}},
        },
    }
    status = {
        "type": "object",
        "properties": {
            "ready": {"type": "integer"},
            "total": {"type": "integer"},
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        },
    }
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.contract.example.com"},
        "spec": {
            "group": "contract.example.com",
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "listKind": f"{kind}List",
            },
            "versions": [version],
        },
    }


async def define(api: Api, body: dict[str, Any]) -> None:
    """Create a kind, and wait until it is served."""
    made = await api.post(DEFINITIONS, body)
    assert made.status in {201, 409}, made.body
    name = body["spec"]["names"]["plural"]
    path = f"/apis/contract.example.com/v1/namespaces/{api.ns}/{name}"

    async def served() -> bool:
        return (await api.get(path)).status == 200

    await eventually(served, 20)
