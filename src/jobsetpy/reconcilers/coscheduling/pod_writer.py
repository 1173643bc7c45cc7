"""Patch of a pod's labels and of the coscheduler's scheduling gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.client import HttpRequest

_STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
"""Content type for answers that are not read: the cheapest one for the API server."""
_UNCHECKED: Final = (("fieldValidation", "Ignore"),)
"""Option that skips the API server's check for unknown fields, which these bodies do not have."""


async def patch_pod(
    client: rt.Client,
    namespace: str,
    name: str,
    uid: str,
    *,
    labels: Mapping[str, str | None] | None = None,
    ungate: bool,
) -> None:
    """Change labels of a pod, and remove the coscheduler's gate; other gates stay.

    The UID protects another pod of that name.

    Raises:
        JobSetPyError: the write failed, or may have failed.
    """
    body: dict[str, Any] = {"metadata": {"uid": uid}}
    if labels is not None:
        body["metadata"]["labels"] = dict(labels)
    if ungate:
        body["spec"] = {"schedulingGates": [{"$patch": "delete", "name": keys.COSCHEDULING_GATE}]}
    await client.raw(
        HttpRequest(
            method="PATCH",
            path=f"/api/v1/namespaces/{namespace}/pods/{name}",
            query=_UNCHECKED,
            body=msgspec.json.encode(body),
            content_type=_STRATEGIC_MERGE,
            accept=_PROTOBUF,
        )
    )
