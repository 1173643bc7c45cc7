"""Discovery of the kinds that the API server has."""

from __future__ import annotations

from typing import Any

import msgspec

from jobsetpy.api.meta import ResourceInfo
from jobsetpy.api.unstructured import Unstructured, unstructured
from jobsetpy.client import Client, HttpRequest
from jobsetpy.errors import NotFoundError


async def discover(client: Client, api_version: str, kind: str) -> type[Unstructured]:
    """Return the class of untyped objects of a kind, from the API server's discovery.

    ::

        async def setup(manager: rt.Manager) -> None:
            Widget = await rt.discover(manager.client, "example.com/v1", "Widget")
            widgets = manager.informer(Widget)

    Args:
        client: client of the server.
        api_version: ``v1``, or group and version such as ``apps/v1``.
        kind: such as ``Deployment``.

    Raises:
        NotFoundError: the server has no such kind; the message lists those that exist. For a kind
            that may be installed later use ``unstructured(ResourceInfo(...))`` and
            ``manager.informer(..., optional=True)``.
    """
    group, _, version = api_version.rpartition("/")
    root = f"/apis/{api_version}" if group else f"/api/{api_version}"
    try:
        answer = await client.raw(HttpRequest(method="GET", path=root, timeout_s=30.0))
    except NotFoundError:
        msg = (
            f"the API server has nothing in {api_version} (kind {kind}): is the "
            "CustomResourceDefinition installed, with this version served?"
        )
        raise NotFoundError(404, "NotFound", msg, verb="discover", target=kind) from None
    resources: list[Any] = msgspec.json.decode(answer.body).get("resources") or []
    for each in resources:
        if each["kind"] == kind and "/" not in each["name"]:
            info = ResourceInfo(group, version, kind, each["name"], bool(each["namespaced"]))
            return unstructured(info)
    known = ", ".join(sorted({each["kind"] for each in resources if "/" not in each["name"]}))
    msg = f"the API server has no kind {kind} in {api_version}; it has {known or 'none'}"
    raise NotFoundError(404, "NotFound", msg, verb="discover", target=kind)
