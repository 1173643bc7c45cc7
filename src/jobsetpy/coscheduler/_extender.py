"""Scheduler extender over HTTP/1.1 and HTTP/2: ``bind`` and ``preempt``.

The extender protocol (``k8s.io/kube-scheduler/extender/v1``) is JSON with Go's field names, which
are matched without regard to case, as in Go. An answer with an ``Error`` makes the scheduler give
up the pod's reservation; a broken connection or another status does the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

from jobsetpy.api import keys
from jobsetpy.coscheduler import metrics
from jobsetpy.coscheduler._pods import Preemptor
from jobsetpy.coscheduler._writes import BindRequest
from jobsetpy.errors import NotLeadingError
from jobsetpy.serving.http import JSON, Response

BIND: Final = "bind"
PREEMPT: Final = "preempt"
BIND_BODY_LIMIT: Final = 16 * 1024
PREEMPT_BODY_LIMIT: Final = 64 * 1024 * 1024
"""Maximum size of a preemption's arguments in bytes: victims on thousands of nodes."""
BODY_LIMITS: Final[Mapping[str, int]] = {BIND: BIND_BODY_LIMIT, PREEMPT: PREEMPT_BODY_LIMIT}

_CANCELLED: Final = 499
"""Status counted for a client that disconnected or timed out."""


class Extender(Protocol):
    """Executor of the scheduler's requests; implemented by ``Engine``."""

    async def bind(self, request: BindRequest) -> str:
        """Bind a pod; return "" if it is bound, else the reason.

        Raises:
            NotLeadingError: another replica leads.
        """
        ...

    async def preempt(
        self, victims: Mapping[str, Iterable[str]], preemptor: Preemptor | None = None
    ) -> dict[str, list[str]]:
        """Return the remaining nodes, each with the UIDs of all its pods that would be deleted.

        Raises:
            NotLeadingError: another replica leads.
        """
        ...


def refusal(status: int, why: str) -> Response:
    """Return the response to a refused request; the client has to reconnect."""
    return Response(status, _json({"Error": why}), JSON, close=True)


class ExtenderApi:
    """Decoder of requests and encoder of responses.

    Args:
        extender: executor of requests.
        prefix: path in front of ``/bind`` and ``/preempt``.
        names: common names of clients that are admitted; ``None`` without certificates.
    """

    def __init__(
        self, extender: Extender, *, prefix: str = "", names: Collection[str] | None = None
    ) -> None:
        self._extender = extender
        self._names = names
        self.verbs: Mapping[str, str] = {f"{prefix}/{verb}": verb for verb in BODY_LIMITS}
        """Verbs by their paths."""

    def check_client(self, client: str) -> Response | None:
        """Check the name in a client's certificate; return a refusal, or ``None`` if admitted."""
        if self._names is None or client in self._names:
            return None
        metrics.client_refused()
        return refusal(403, f"clients named {client!r} may not call this")

    async def answer(self, verb: str, body: bytes | bytearray) -> Response:
        """Execute a request. A bind may take as long as gangs wait."""
        try:
            given = _parsed(body)
            if verb == BIND:
                error = await self._extender.bind(bind_request(given))
                return _BOUND if not error else _ok({"Error": error})
            victims, whole = _victims(given)
            kept = await self._extender.preempt(victims, _preemptor(given))
        except NotLeadingError as error:
            # The scheduler should reconnect through the Service, to reach the replica that leads.
            return refusal(503, str(error))
        except ValueError as error:
            return refusal(400, str(error))
        return _ok({"NodeNameToMetaVictims": {node: whole[node] for node in kept}})


@contextmanager
def counted(verb: str) -> Iterator[list[int]]:
    """Count a request under the last status of the yielded list; 500 if it stays empty."""
    statuses = [500]
    try:
        yield statuses
    except asyncio.CancelledError:
        statuses.append(_CANCELLED)
        raise
    finally:
        metrics.request(verb, statuses[-1])


def bind_request(body: Any) -> BindRequest:
    """Decode ``ExtenderBindingArgs``.

    Raises:
        ValueError: a field is missing.
    """
    given = _lower(body)
    values = [given.get(name) for name in ("podnamespace", "podname", "poduid", "node")]
    if not all(isinstance(value, str) and value for value in values):
        msg = "expected PodNamespace, PodName, PodUID and Node"
        raise ValueError(msg)
    namespace, name, uid, node = map(str, values)
    _check_path_parts(namespace, name)
    return BindRequest(namespace=namespace, name=name, uid=uid, node=node)


def _victims(body: Any) -> tuple[dict[str, list[str]], dict[str, dict[str, Any]]]:
    """Decode ``ExtenderPreemptionArgs``: UIDs by node, and each node's entry for the answer.

    The scheduler sends only UIDs to an extender that is ``nodeCacheCapable``.
    """
    given = _lower(body).get("nodenametometavictims")
    if not isinstance(given, Mapping):
        msg = "expected NodeNameToMetaVictims: set nodeCacheCapable for this extender"
        raise ValueError(msg)  # noqa: TRY004 - a bad request, as all of them
    uids, whole = {}, {}
    for node, entry in given.items():
        fields = _lower(entry or {})
        uids[node] = [str(_lower(pod).get("uid", "")) for pod in fields.get("pods") or ()]
        whole[node] = {
            "Pods": [{"UID": uid} for uid in uids[node]],
            "NumPDBViolations": fields.get("numpdbviolations", 0),
        }
    return uids, whole


def _preemptor(body: Any) -> Preemptor | None:
    """Return the pod of ``ExtenderPreemptionArgs``; ``None`` if it is missing."""
    pod = _lower(body).get("pod")
    meta = pod.get("metadata") if isinstance(pod, Mapping) else None
    if not isinstance(meta, Mapping):
        return None
    namespace, name, uid = (str(meta.get(key) or "") for key in ("namespace", "name", "uid"))
    _check_path_parts(namespace, name)
    labels = meta.get("labels")
    in_group = isinstance(labels, Mapping) and bool(labels.get(keys.POD_GROUP_NAME))
    return Preemptor(namespace=namespace, name=name, uid=uid, in_group=in_group)


def _check_path_parts(*parts: str) -> None:
    """Check values that become parts of a path.

    Raises:
        ValueError: one is not valid.
    """
    if any(set(part) & set("/?#%") or part in {".", ".."} for part in parts):
        msg = "no such pod"
        raise ValueError(msg)


def _lower(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        msg = "expected an object"
        raise ValueError(msg)  # noqa: TRY004 - a bad request, as all of them
    return {str(name).lower(): item for name, item in value.items()}


def _parsed(body: bytes | bytearray) -> Any:
    try:
        return json.loads(body)
    except RecursionError:
        msg = "nested too deeply"
        raise ValueError(msg) from None


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _ok(value: Any) -> Response:
    return Response(200, _json(value), JSON)


_BOUND: Final = _ok({"Error": ""})
