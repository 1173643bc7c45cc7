"""Credentials of a client that do not change."""

from __future__ import annotations

from kubernetes_asyncio.client import Configuration


class StaticLogin:
    """A configuration that the test made, as a ``Login``."""

    def __init__(self, **options: object) -> None:
        self.configuration = Configuration(**options)

    async def load(self) -> None:
        """Do nothing: there are no files to read."""

    async def renew(self) -> None:
        """Do nothing."""
