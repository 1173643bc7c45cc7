"""Requests with plain JSON, for objects and paths that the typed client has no method for."""

from __future__ import annotations

import json
from typing import Any

from jobsetpy.client import Client, HttpRequest, HttpResponse

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


async def exchange(
    client: Client,
    method: str,
    path: str,
    body: Any = None,
    *,
    content_type: str = "",
    timeout_s: float = 30.0,
    **query: str,
) -> HttpResponse:
    """Send a request and return the response.

    Args:
        client: client of the API server.
        method: HTTP method.
        path: path without the query.
        body: JSON data; ``None`` sends no body.
        content_type: type of the body; a PATCH is a merge patch by default.
        timeout_s: timeout of the exchange, in seconds.
        query: parameters.

    Raises:
        ApiError: the API server refused the request.
    """
    request = HttpRequest(
        method=method,
        path=path,
        query=tuple(query.items()),
        body=None if body is None else json.dumps(body).encode(),
        content_type=content_type or (MERGE if method == "PATCH" else "application/json"),
        timeout_s=timeout_s,
    )
    return await client.raw(request)


async def send(client: Client, method: str, path: str, body: Any = None, **options: Any) -> Any:
    """Send a request and return the JSON data of the response; arguments of :func:`exchange`."""
    return json.loads((await exchange(client, method, path, body, **options)).body)
