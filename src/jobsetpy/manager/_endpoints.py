"""HTTP endpoints of a manager: health, readiness and metrics.

Health endpoints report the state at that moment, so that a kubelet's probe and a person with curl
see the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from jobsetpy.manager._access import AccessReviewer
from jobsetpy.serving.http import Handler, Request, Response, Route, text

Check = Callable[[], Iterable[str]]
"""Health check: yields one line per problem; none means healthy."""

_REFUSALS = {
    401: "a valid bearer token is needed\n",
    403: "not allowed: bind a ClusterRole with get on this nonResourceURL\n",
    503: "the API server could not be asked for the right to read this\n",
}


def problems(checks: Mapping[str, Check]) -> list[str]:
    """Return the current problems, one line each, prefixed with the name of the check."""
    return [f"{name}: {line}" for name, check in checks.items() for line in check()]


def health_routes(
    live: Mapping[str, Check],
    ready: Mapping[str, Check],
    paths: tuple[str, str] = ("/healthz", "/readyz"),
) -> list[Route]:
    """Return the routes of liveness and readiness: 200 ``ok``, or 500 with one line per problem.

    Args:
        live: named checks for liveness.
        ready: named checks for readiness.
        paths: paths of the two; a leading slash may be left out.
    """

    def answering(checks: Mapping[str, Check]) -> Handler:
        async def handle(_: Request) -> Response:
            if found := problems(checks):
                return text(500, "\n".join(found) + "\n")
            return text(200, "ok")

        return handle

    return [
        Route("GET", f"/{path.lstrip('/')}", answering(checks))
        for path, checks in zip(paths, (live, ready), strict=True)
    ]


def metrics_route(
    registries: Iterable[CollectorRegistry], reviewer: AccessReviewer | None = None
) -> Route:
    """Return the route ``/metrics`` in Prometheus' text format, one registry after another.

    Args:
        registries: registries to serve.
        reviewer: authorizes readers; ``None`` allows everyone.
    """

    async def handle(request: Request) -> Response:
        if reviewer is not None:
            verdict = await reviewer.verdict(
                request.header("Authorization"), request.method.lower(), request.path
            )
            if verdict != 200:
                headers = {"WWW-Authenticate": "Bearer"} if verdict == 401 else {}
                return text(verdict, _REFUSALS[verdict], headers)
        content = b"".join(generate_latest(registry) for registry in registries)
        return Response(200, content, {"Content-Type": CONTENT_TYPE_LATEST})

    return Route("GET", "/metrics", handle)
