"""The only write of the coscheduler: a bind, with the UID of the pod that is meant."""

from __future__ import annotations

from typing import Annotated

import msgspec

from jobsetpy import runtime as rt
from jobsetpy.client import HttpRequest
from jobsetpy.coscheduler.engine.pods import PathPart

_NotEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class BindRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request to bind a pod, decoded from ``ExtenderBindingArgs``.

    Args:
        namespace: namespace of the pod.
        name: name of the pod.
        uid: UID of the pod; no other pod of that name is bound.
        node: node of the pod.
    """

    namespace: PathPart = msgspec.field(name="PodNamespace")
    name: PathPart = msgspec.field(name="PodName")
    uid: _NotEmpty = msgspec.field(name="PodUID")
    node: _NotEmpty = msgspec.field(name="Node")


async def bind(client: rt.Client, request: BindRequest) -> None:
    """Bind a pod to its node.

    Raises:
        JobSetPyError: it failed, or may have failed.
    """
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": request.name, "uid": request.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": request.node},
    }
    await client.raw(
        HttpRequest(
            method="POST",
            path=f"/api/v1/namespaces/{request.namespace}/pods/{request.name}/binding",
            query=(("fieldValidation", "Ignore"),),  # it has known fields only
            body=msgspec.json.encode(body),
        )
    )
