"""Writes of the coscheduler: binds, and marks on processed messages.

Each write contains the pod's UID, so that it never affects another pod of the same name.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from jobsetpy import runtime as rt
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.client import HttpRequest
from jobsetpy.coscheduler.engine.pods import QUEUED_CONDITION, SEEN_MARK, GroupPod, PathPart
from jobsetpy.reconcilers.coscheduling.pod_writer import UNCHECKED

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


class Writes:
    """Writes; each raises ``JobSetPyError`` when it failed, or may have failed.

    Args:
        client: API client of the leader.
    """

    def __init__(self, client: rt.Client) -> None:
        self._client = client

    async def bind(self, request: BindRequest) -> None:
        """Bind a pod to its node."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": request.name, "uid": request.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": request.node},
        }
        await self._client.raw(
            HttpRequest(
                method="POST",
                path=f"/api/v1/namespaces/{request.namespace}/pods/{request.name}/binding",
                query=UNCHECKED,
                body=msgspec.json.encode(body),
            )
        )

    async def keep_time(self, pod: GroupPod, since: float) -> None:
        """Set the condition that shows from when a pod's gang has waited.

        Args:
            pod: pod of the gang.
            since: time in seconds.
        """
        meta, conditions = pod.metadata, pod.status.conditions
        condition = {
            "type": QUEUED_CONDITION,
            "status": "True",
            "lastTransitionTime": seconds_text(datetime.fromtimestamp(since, UTC)),
            "reason": "OlderPodReplaced",
            "message": "the gang of this pod has waited since then",
        }
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": meta.uid}
        ]
        types = [each.type for each in conditions]
        if QUEUED_CONDITION in types:
            path = f"/status/conditions/{types.index(QUEUED_CONDITION)}"
            operations.append({"op": "test", "path": f"{path}/type", "value": QUEUED_CONDITION})
            operations.append({"op": "replace", "path": path, "value": condition})
        elif conditions:
            operations.append({"op": "add", "path": "/status/conditions/-", "value": condition})
        else:
            operations.append({"op": "add", "path": "/status/conditions", "value": [condition]})
        await self._client.json_patch(
            GroupPod, meta.namespace, meta.name, operations, subresource="status"
        )

    async def mark(self, pod: GroupPod, at: int, message: str) -> None:
        """Mark the scheduler's message as processed, so that its next one is a change.

        Args:
            pod: pod with the message.
            at: index of the condition with the message.
            message: message that was processed; a different one is left unchanged.
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
