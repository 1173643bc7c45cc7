"""Scheduler extender: ``bind`` and ``preempt``.

The extender protocol (``k8s.io/kube-scheduler/extender/v1``) is JSON with Go's field names. An
answer with an ``Error`` makes the scheduler give up the pod's reservation; a broken connection or
another status does the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from jobsetpy.coscheduler import metrics
from jobsetpy.coscheduler.engine.engine import Engine
from jobsetpy.coscheduler.engine.pods import Preemptor
from jobsetpy.coscheduler.engine.writes import BindRequest
from jobsetpy.errors import NotLeadingError
from jobsetpy.observability.logging import get_logger
from jobsetpy.serving.http import JSON, Response, TooLargeError

BIND: Final = "bind"
PREEMPT: Final = "preempt"
BIND_BODY_LIMIT: Final = 16 * 1024
PREEMPT_BODY_LIMIT: Final = 64 * 1024 * 1024
"""Maximum size of a preemption's arguments in bytes: victims on thousands of nodes."""
BODY_LIMITS: Final[Mapping[str, int]] = {BIND: BIND_BODY_LIMIT, PREEMPT: PREEMPT_BODY_LIMIT}

_CANCELLED: Final = 499
"""Status counted for a client that disconnected or timed out."""

_WHY: Final = {
    404: "no such path",
    405: "only POST",
    408: "the request did not come in time",
    413: "the request is too long",
    500: "internal error",
}


class _MetaPod(msgspec.Struct):
    uid: str = msgspec.field(name="UID")


class _Victims(msgspec.Struct):
    """Pods that would be deleted on a node; the scheduler sends only their UIDs."""

    pods: tuple[_MetaPod, ...] | None = msgspec.field(name="Pods", default=())
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _Pod(msgspec.Struct):
    metadata: Preemptor


class _PreemptionArgs(msgspec.Struct):
    """Slice of ``ExtenderPreemptionArgs``."""

    victims: dict[str, _Victims] | None = msgspec.field(name="NodeNameToMetaVictims", default=None)
    pod: _Pod | None = msgspec.field(name="Pod", default=None)


def refusal(status: int, why: str = "") -> Response:
    """Return the response to a refused request; the client has to reconnect."""
    return Response(status, msgspec.json.encode({"Error": why or _WHY[status]}), JSON, close=True)


class ExtenderApi:
    """Decoder of requests and encoder of responses.

    Args:
        leading: returns the executor of requests; raises ``NotLeadingError`` if another replica
            leads.
        prefix: path in front of ``/bind`` and ``/preempt``.
        names: common names of clients that are admitted; ``None`` without certificates.
    """

    def __init__(
        self,
        leading: Callable[[], Engine],
        *,
        prefix: str = "",
        names: Collection[str] | None = None,
    ) -> None:
        self._leading = leading
        self._names = names
        self.verbs: Mapping[str, str] = {f"{prefix}/{verb}": verb for verb in BODY_LIMITS}
        """Verbs by their paths."""

    async def handle(
        self, verb: str, client: str, read: Callable[[], Awaitable[bytes | bytearray]]
    ) -> Response:
        """Answer a request. A bind may take as long as gangs wait.

        Args:
            verb: one of :data:`BODY_LIMITS`.
            client: name in the client's certificate, checked before the body is read.
            read: reads the body.
        """
        status = _CANCELLED
        try:
            response = await self._answer(verb, client, read)
            status = response.status
        finally:
            metrics.request(verb, status)
        return response

    async def _answer(
        self, verb: str, client: str, read: Callable[[], Awaitable[bytes | bytearray]]
    ) -> Response:
        if self._names is not None and client not in self._names:
            metrics.client_refused()
            return refusal(403, f"clients named {client!r} may not call this")
        try:
            body = await read()
            return await (self._bind(body) if verb == BIND else self._preempt(body))
        except NotLeadingError as error:
            # The scheduler should reconnect through the Service, to reach the replica that leads.
            return refusal(503, str(error))
        except (ValueError, RecursionError) as error:
            return refusal(400, str(error))
        except TooLargeError:
            return refusal(413)
        except TimeoutError:
            return refusal(408)
        except Exception:  # noqa: BLE001 - other requests continue, as with any server
            get_logger("coscheduler").exception("a request failed", verb=verb)
            return refusal(500)

    async def _bind(self, body: bytes | bytearray) -> Response:
        error = await self._leading().bind(msgspec.json.decode(body, type=BindRequest))
        return _BOUND if not error else _ok({"Error": error})

    async def _preempt(self, body: bytes | bytearray) -> Response:
        args = msgspec.json.decode(body, type=_PreemptionArgs)
        if args.victims is None:
            msg = "expected NodeNameToMetaVictims: set nodeCacheCapable for this extender"
            raise ValueError(msg)
        victims = {
            node: [pod.uid for pod in each.pods or ()] for node, each in args.victims.items()
        }
        preemptor = None if args.pod is None else args.pod.metadata
        kept = await self._leading().preempt(victims, preemptor)
        return _ok({"NodeNameToMetaVictims": {node: args.victims[node] for node in kept}})


def _ok(value: Any) -> Response:
    return Response(200, msgspec.json.encode(value), JSON)


_BOUND: Final = _ok({"Error": ""})
