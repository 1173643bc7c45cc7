"""Observer of a client's requests, for tests of a manager's requests and rights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Requests(Counter[str]):
    """Counter of requests by verb and resource, such as ``patch configmaps``.

    Attributes:
        refused: requests for which the account had no right.
    """

    def __init__(self, counts: Iterable[str] = ()) -> None:
        super().__init__(counts)
        self.refused: list[str] = []

    def on_response(self, verb: str, resource: str, status: int | None, seconds: float) -> None:
        """Count one request."""
        self[f"{verb} {resource}"] += 1
        if status == 403:
            self.refused.append(f"{verb} {resource}")

    def on_throttled(self, seconds: float) -> None:
        """Do nothing."""
