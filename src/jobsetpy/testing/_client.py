"""Real client of a world in memory, for tests."""

from __future__ import annotations

from typing import Any

from jobsetpy.client import Client
from jobsetpy.testing.apiserver._requests import Request
from jobsetpy.testing.apiserver._world import World


class RecordingClient(Client):
    """``Client`` of a world in memory, for tests of a reconciler's writes.

    ::

        client = RecordingClient()
        client.world.create(JobSet, make_jobset("a").build())
        ...
        assert [("create", "jobs", "a-w-0")] == client.calls

    Responses are those of the fake API server, including ``world.faults``.

    Args:
        world: the objects; an empty world when absent.
        **settings: arguments of ``Client``.
    """

    def __init__(self, world: World | None = None, **settings: Any) -> None:
        self.world = world if world is not None else World()
        super().__init__(self.world.transport(), **settings)

    @property
    def writes(self) -> list[Request]:
        """Requests that may have changed an object, oldest first."""
        return self.world.requests.writes

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """Writes as verb, resource and name; the name of a create is the one in its body."""
        return [(one.verb, one.resource, one.name or _body_name(one)) for one in self.writes]


def _body_name(request: Request) -> str:
    body = request.json
    meta = body.get("metadata") if isinstance(body, dict) else None
    name = meta.get("name") or meta.get("generateName") if isinstance(meta, dict) else ""
    return name or ""
