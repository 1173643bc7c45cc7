"""Observer of the CRD of JobSets, by the schema that the API server publishes.

Every account may read that schema, so a manager needs no permission for CRDs.
"""

from __future__ import annotations

from typing import Final

import msgspec

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock, LoopClock
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import HttpRequest
from jobsetpy.errors import ApiError, TransportError
from jobsetpy.observability.logging import get_logger
from jobsetpy.reconcilers.rules.definition import explanation, missing_fields

EVERY_S: Final = 60.0
"""Minimum interval between two looks at the schema, in seconds."""
_LOOK_S: Final = 5.0
_LOG: Final = get_logger("manager")


class _Object(msgspec.Struct, frozen=True):
    properties: dict[str, msgspec.Raw] = {}


class _Parts(msgspec.Struct, frozen=True):
    spec: _Object | None = None
    status: _Object | None = None


class _Schema(msgspec.Struct, frozen=True):
    properties: _Parts | None = None


class _Components(msgspec.Struct, frozen=True):
    schemas: dict[str, _Schema] = {}


class _Document(msgspec.Struct, frozen=True):
    components: _Components = _Components()


class Definition:
    """Fields of this release that the installed CRD does not have.

    Args:
        client: client that reads the schema.
        clock: measures the interval between two looks.
    """

    def __init__(self, client: rt.Client, clock: Clock | None = None) -> None:
        self.missing: frozenset[str] = frozenset()
        """Paths of these fields; empty if the schema could not be read."""
        self._client = client
        self._clock = clock or LoopClock()
        self._next_s = float("-inf")

    async def check(self) -> None:
        """Look at the schema, unless it was looked at within the last minute; log what changes."""
        now = self._clock.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + EVERY_S
        info = JobSet.RESOURCE
        path = f"/openapi/v3/apis/{info.api_version}"
        try:
            answer = await self._client.raw(HttpRequest(method="GET", path=path, timeout_s=_LOOK_S))
            document = msgspec.json.decode(answer.body, type=_Document)
        except (ApiError, TransportError, msgspec.MsgspecError) as error:
            # It may come later; without the answer, all fields are written.
            _LOG.debug("the schema of JobSets cannot be read", error=str(error))
            return
        for name, schema in document.components.schemas.items():
            if name.endswith(f".{info.kind}") and schema.properties is not None:
                self._compare(schema.properties)

    def _compare(self, parts: _Parts) -> None:
        spec, status = parts.spec or _Object(), parts.status or _Object()
        missing = missing_fields({"spec": spec.properties, "status": status.properties})
        if missing == self.missing:
            return
        self.missing = missing
        if missing:
            _LOG.warning(explanation(missing))
        else:
            _LOG.info("the CRD of JobSets has all fields of this release again")
