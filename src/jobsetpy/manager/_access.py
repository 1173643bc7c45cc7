"""Who may read metrics: the API server is asked who a token belongs to, and what that one may do.

TokenReview and SubjectAccessReview for ``get`` on the path, as kube-rbac-proxy and today's
controller do; an administrator decides by a ClusterRole with ``nonResourceURLs``.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import attrs

from jobsetpy import aio
from jobsetpy.api._wire import field, wire
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource
from jobsetpy.client import Client
from jobsetpy.errors import JobSetPyError
from jobsetpy.observability.logging import get_logger

Verdict = Literal[200, 401, 403, 503]
"""HTTP status: go on; who are you?; you may not; cannot tell just now."""

ALLOWED_S = 60.0
"""How long a yes counts: after that a revoked token or role is noticed."""
DENIED_S = 10.0
"""How long a no counts: a role that was just bound is soon noticed."""
MAX_REMEMBERED = 256
MAX_TOKEN = 16 * 1024
_TIMEOUT_S = 5.0


@wire
class _User:
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(factory=dict)


@wire
class _TokenStatus:
    authenticated: bool = False
    user: _User = _User()


@resource("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)
@wire
class TokenReview:
    """The user of a token."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    status: _TokenStatus = _TokenStatus()


@wire
class _AccessStatus:
    allowed: bool = False


@resource(
    "authorization.k8s.io",
    "v1",
    "SubjectAccessReview",
    "subjectaccessreviews",
    namespaced=False,
)
@wire
class SubjectAccessReview:
    """Whether a user may do something."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    status: _AccessStatus = _AccessStatus()


@attrs.frozen
class _Remembered:
    verdict: Verdict
    until: float


class AccessReviewer:
    """Decides by bearer token. Anonymous requests are never let through.

    Verdicts are remembered for a while, under a hash of the token. Few reviews go on at the same
    time, and few a second: whoever guesses tokens is slowed down, not the API server.

    Args:
        client: allowed to create TokenReviews and SubjectAccessReviews; it has its own limits.
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
        self._remembered: OrderedDict[tuple[bytes, str, str], _Remembered] = OrderedDict()
        self._turns = asyncio.Semaphore(4)
        self._log = get_logger("metrics")

    async def verdict(self, authorization: str, verb: str, path: str) -> Verdict:
        """Whether a request may be answered.

        Args:
            authorization: the header's value; "" when there is none.
            verb: the method in lower case.
            path: of the request.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN:
            return 401
        key = (hashlib.sha256(token.encode()).digest(), verb, path)
        known = self._remembered.get(key)
        if known is not None and known.until > self._clock():
            return known.verdict
        async with self._turns:
            known = self._remembered.get(key)  # somebody may have asked meanwhile
            if known is not None and known.until > self._clock():
                return known.verdict
            try:
                async with asyncio.timeout(2 * _TIMEOUT_S):
                    verdict = await self._ask(token, verb, path)
            except (JobSetPyError, TimeoutError) as error:
                self._log.warning("cannot tell who may read metrics", error=str(error))
                return 503
        lasts_s = ALLOWED_S if verdict == 200 else DENIED_S
        self._remembered[key] = _Remembered(verdict, self._clock() + lasts_s)
        self._remembered.move_to_end(key)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
        return verdict

    async def _ask(self, token: str, verb: str, path: str) -> Verdict:
        review = await self._client.create(
            TokenReview, "", {"spec": {"token": token}}, timeout_s=_TIMEOUT_S
        )
        if not review.status.authenticated:
            return 401
        user = review.status.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": dict(user.extra),
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        access = await self._client.create(
            SubjectAccessReview, "", {"spec": spec}, timeout_s=_TIMEOUT_S
        )
        return 200 if access.status.allowed else 403
