"""The coscheduler's writes: gates, binds, evictions, marks that a message was seen.

Each write names the pod's UID, so that it is never about another pod of the same name.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgspec

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.client import HttpRequest
from jobsetpy.coscheduler._pods import SEEN_MARK, GroupPod

_STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
"""What is asked for where the answer is not read: the cheapest to make for the API server."""
_UNCHECKED: Final = (("fieldValidation", "Ignore"),)
"""Bodies are made here: the API server need not look for fields that it does not know."""


@attrs.frozen(kw_only=True)
class BindRequest:
    """A request to bind a pod.

    Args:
        namespace: of the pod.
        name: of the pod.
        uid: of the pod; only that very pod is bound.
        node: where to.
    """

    namespace: str
    name: str
    uid: str
    node: str


class Writes:
    """Each raises ``JobSetPyError`` when it was not done, or may not have been.

    Args:
        client: the leader's.
    """

    def __init__(self, client: rt.Client) -> None:
        self._client = client

    async def lift(self, pod: GroupPod) -> None:
        """Remove the coscheduler's gate; others stay."""
        meta = pod.metadata
        body: dict[str, Any] = {
            "metadata": {"uid": meta.uid},
            "spec": {"schedulingGates": [{"$patch": "delete", "name": keys.COSCHEDULING_GATE}]},
        }
        await self._client.raw(
            HttpRequest(
                method="PATCH",
                path=f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}",
                query=_UNCHECKED,
                body=msgspec.json.encode(body),
                content_type=_STRATEGIC_MERGE,
                accept=_PROTOBUF,
            )
        )

    async def bind(self, request: BindRequest) -> None:
        """Bind a pod to its node."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": request.name, "uid": request.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": request.node},
        }
        pods = f"/api/v1/namespaces/{request.namespace}/pods"
        await self._client.raw(
            HttpRequest(
                method="POST",
                path=f"{pods}/{request.name}/binding",
                query=_UNCHECKED,
                body=msgspec.json.encode(body),
            )
        )

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Have a pod deleted as a disruption, unless a PodDisruptionBudget forbids it."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._client.raw(
            HttpRequest(
                method="POST",
                path=f"/api/v1/namespaces/{namespace}/pods/{name}/eviction",
                body=msgspec.json.encode(body),
            )
        )

    async def mark(self, pod: GroupPod, at: int, message: str) -> None:
        """Mark the scheduler's message as seen, so that its next one is a change.

        Args:
            pod: whose.
            at: index of the condition with the message.
            message: as it was seen; another one is left alone.
        """
        meta = pod.metadata
        path = f"/status/conditions/{at}"
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": meta.uid},
            {"op": "test", "path": f"{path}/type", "value": "PodScheduled"},
            {"op": "test", "path": f"{path}/message", "value": message},
            {"op": "replace", "path": f"{path}/message", "value": SEEN_MARK + message},
        ]
        await self._client.json_patch(
            GroupPod, meta.namespace, meta.name, operations, subresource="status"
        )
