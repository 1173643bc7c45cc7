"""Access control of metrics: the API server identifies a token's user and authorizes the request.

Uses TokenReview and SubjectAccessReview for ``get`` on the path, as kube-rbac-proxy and the Go
controller do; an administrator grants access by a ClusterRole with ``nonResourceURLs``.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Literal

import attrs

from jobsetpy import aio
from jobsetpy.api.meta import ResourceInfo
from jobsetpy.api.unstructured import unstructured
from jobsetpy.client import Client
from jobsetpy.errors import JobSetPyError
from jobsetpy.observability.logging import get_logger

Verdict = Literal[200, 401, 403, 503]
"""HTTP status: allowed, not authenticated, not allowed, or not decidable at the moment."""

ALLOWED_S = 60.0
"""Lifetime of a positive verdict in seconds: a revoked token or role is noticed after that."""
DENIED_S = 10.0
"""Lifetime of a negative verdict in seconds; short, so that a new role binding is soon noticed."""
MAX_REMEMBERED = 256
MAX_WAITING = 64
"""Maximum number of unknown tokens under review or waiting for it; further ones get 503."""
MAX_TOKEN = 16 * 1024
_TIMEOUT_S = 5.0


TokenReview: Final = unstructured(
    ResourceInfo("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", False)
)
SubjectAccessReview: Final = unstructured(
    ResourceInfo("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", False)
)


@attrs.frozen
class _Remembered:
    verdict: Verdict
    until: float


class AccessReviewer:
    """Authorizes requests by bearer token. Anonymous requests are always refused.

    Verdicts are cached for a limited time, under a hash of the token. The number of concurrent
    reviews and their rate are limited, so guesses are slowed down without loading the API server.
    Tokens that were allowed before have a separate limit, so that guesses do not delay them.

    Args:
        client: client that may create TokenReviews and SubjectAccessReviews; has its own limits.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Callable[[], float] = lambda: aio.LoopClock().monotonic(),
    ) -> None:
        self._client = client
        self._clock = clock
        self._allowed: OrderedDict[tuple[bytes, str, str], _Remembered] = OrderedDict()
        self._refused: OrderedDict[tuple[bytes, str, str], _Remembered] = OrderedDict()
        self._turns = asyncio.Semaphore(4)
        self._turns_of_known = asyncio.Semaphore(4)
        self._waiting = 0
        self._log = get_logger("metrics")

    async def verdict(self, authorization: str, verb: str, path: str) -> Verdict:
        """Return the verdict on a request.

        Args:
            authorization: value of the header; "" when there is none.
            verb: the method in lower case.
            path: path of the request.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN:
            return 401
        key = (hashlib.sha256(token.encode()).digest(), verb, path)
        known = self._known(key)
        if known is not None:
            return known
        if key in self._allowed:
            return await self._review(self._turns_of_known, key, token)
        if self._waiting >= MAX_WAITING:
            return 503
        self._waiting += 1
        try:
            return await self._review(self._turns, key, token)
        finally:
            self._waiting -= 1

    def _known(self, key: tuple[bytes, str, str]) -> Verdict | None:
        known = self._allowed.get(key) or self._refused.get(key)
        return known.verdict if known is not None and known.until > self._clock() else None

    async def _review(
        self, turns: asyncio.Semaphore, key: tuple[bytes, str, str], token: str
    ) -> Verdict:
        async with turns:
            known = self._known(key)  # another request may have been reviewed meanwhile
            if known is not None:
                return known
            try:
                async with asyncio.timeout(2 * _TIMEOUT_S):
                    verdict = await self._ask(token, *key[1:])
            except (JobSetPyError, TimeoutError) as error:
                self._log.warning("cannot check who may read metrics", error=str(error))
                return 503
        allowed = verdict == 200
        into, other = self._allowed, self._refused
        if not allowed:
            into, other = other, into
        other.pop(key, None)
        into[key] = _Remembered(verdict, self._clock() + (ALLOWED_S if allowed else DENIED_S))
        into.move_to_end(key)
        if len(into) > MAX_REMEMBERED:
            into.popitem(last=False)
        return verdict

    async def _ask(self, token: str, verb: str, path: str) -> Verdict:
        review = await self._client.create(
            TokenReview, "", {"spec": {"token": token}}, timeout_s=_TIMEOUT_S
        )
        if review.at("status.authenticated") is not True:
            return 401
        user = review.at("status.user") or {}
        spec = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or (),
            "extra": user.get("extra") or {},
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        access = await self._client.create(
            SubjectAccessReview, "", {"spec": spec}, timeout_s=_TIMEOUT_S
        )
        return 200 if access.at("status.allowed") is True else 403
