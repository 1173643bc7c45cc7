"""Routes for the API server's HTTPS requests to webhooks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping

from jobsetpy.errors import JobSetPyError
from jobsetpy.observability import metrics
from jobsetpy.observability.logging import get_logger
from jobsetpy.serving import http, review
from jobsetpy.serving.http import JSON, Request, Response, Route, TooLargeError, text

Handler = Callable[[review.ReviewRequest], Awaitable[review.Answer]]
"""Answers one request; an exception becomes a failure of the webhook call."""

_MARGIN_S = 0.5
"""Margin by which a response is due before the caller's timeout, in seconds."""

_SECONDS = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,9})?)s")
_log = get_logger("webhooks")


def deadline(asked: str, limit_s: float) -> float:
    """Return the seconds for a response: the caller's timeout (``timeout=10s``) minus a margin.

    Args:
        asked: the query parameter; "" and unknown forms are ignored.
        limit_s: the server's own limit, which is also the maximum.
    """
    found = _SECONDS.fullmatch(asked)
    if found is None:
        return limit_s
    return max(0.1, min(limit_s, float(found[1]) - _MARGIN_S))


def routes(handlers: Mapping[str, Handler], *, body_limit: int, deadline_s: float) -> list[Route]:
    """Return one route per webhook: bodies up to ``body_limit`` bytes, responses in time."""
    return [
        Route("POST", path, _endpoint(path, handler, body_limit, deadline_s))
        for path, handler in handlers.items()
    ]


def _endpoint(path: str, handler: Handler, body_limit: int, limit_s: float) -> http.Handler:
    counts = metrics.WebhookMetrics(path)

    async def answer(request: Request) -> Response:
        try:
            async with asyncio.timeout(deadline(request.query("timeout"), limit_s)):
                return await _answer(handler, request, body_limit)
        except TimeoutError:
            _log.warning("no answer in time", path=path)
            return text(504, "no answer in time\n")

    async def counted(request: Request) -> Response:
        status = 500
        try:
            with counts.serving():
                response = await answer(request)
            status = response.status
        except TooLargeError:
            status = 413
            raise
        finally:
            counts.answered(status)
        return response

    return counted


async def _answer(handler: Handler, sent: Request, body_limit: int) -> Response:
    body = await sent.body(body_limit)
    try:
        request = review.decode(body)
    except ValueError as error:
        return text(400, f"{error}\n")
    try:
        answer = await handler(request)
        content = review.encode(request.uid, answer)
    except JobSetPyError as error:
        # For example caches that have not synced: the caller's failurePolicy decides.
        _log.warning("a request could not be answered", path=sent.path, error=str(error))
        return text(500, f"{error}\n")
    except Exception as error:  # noqa: BLE001 - from a webhook that users wrote
        if not isinstance(error, RecursionError):
            metrics.webhook_panic()
            _log.exception("a webhook failed", path=sent.path)
            return text(500, f"the webhook failed: {type(error).__name__}: {error}\n")
        content = review.encode(request.uid, review.undecodable("the object is nested too deeply"))
    return Response(200, content, JSON)
