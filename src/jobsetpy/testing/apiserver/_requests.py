"""Log of the requests to a fake server, bounded, with unbounded counters."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import attrs
import msgspec

from jobsetpy.testing.apiserver._answers import StatusError
from jobsetpy.testing.apiserver._faults import Pattern, Target
from jobsetpy.testing.apiserver._http import Route


@attrs.define(kw_only=True)
class Request:
    """One request; ``status`` is 0 until it is answered, or for ever if it was cut before."""

    target: Target
    method: str
    query: dict[str, str]
    content_type: str = ""
    authorization: str = ""
    body: bytes = b""
    status: int = 0
    route: Route | None = None
    refused: StatusError | None = None

    @property
    def verb(self) -> str:
        """One of get, list, watch, create, update, patch, apply, delete."""
        return self.target.verb

    @property
    def resource(self) -> str:
        """Plural, with ``/status`` and the like for subresources."""
        return self.target.resource

    @property
    def namespace(self) -> str:
        """Namespace; "" for all or none."""
        return self.target.namespace

    @property
    def json(self) -> Any:
        """Body as JSON data; ``None`` if there is none."""
        return msgspec.json.decode(self.body) if self.body.strip() else None

    @property
    def name(self) -> str:
        """Name of the object; "" for collections."""
        return self.target.name


class RequestLog:
    """Latest requests, oldest first, and counters by verb and resource.

    Args:
        limit: maximum number of requests to keep; the counters count all.
    """

    def __init__(self, limit: int = 20_000) -> None:
        self._log: deque[Request] = deque(maxlen=limit)
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, request: Request) -> None:
        """Add a request."""
        self._log.append(request)
        self._counts[request.verb, request.resource] += 1

    def count(self, verb: str = "*", resource: str = "*") -> int:
        """Return the number of requests since the last ``clear``; patterns as in ``fnmatch``."""
        pattern = Pattern(verb=verb, resource=resource)
        return sum(
            count
            for (one_verb, one_resource), count in self._counts.items()
            if pattern.matches(Target(verb=one_verb, resource=one_resource))
        )

    def matching(
        self, verb: str = "*", resource: str = "*", name: str = "*", user_agent: str = "*"
    ) -> list[Request]:
        """Return the kept requests that match all patterns."""
        pattern = Pattern(verb=verb, resource=resource, name=name, user_agent=user_agent)
        return [request for request in self._log if pattern.matches(request.target)]

    @property
    def writes(self) -> list[Request]:
        """Kept requests that may have changed something."""
        return [request for request in self._log if request.method not in {"GET", "HEAD"}]

    def clear(self) -> None:
        """Clear the log and the counters, for example after the set-up of a test."""
        self._log.clear()
        self._counts.clear()

    def __iter__(self) -> Iterator[Request]:
        return iter(tuple(self._log))

    def __len__(self) -> int:
        return len(self._log)
