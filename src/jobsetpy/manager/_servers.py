"""Servers with their certificates, as runnables of a manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from jobsetpy.controller import Runnable
from jobsetpy.serving.http import Address, HttpServer, listening, parse_address, serving
from jobsetpy.serving.review_routes import Handler, routes
from jobsetpy.serving.webhook_settings import WebhookServerSettings

if TYPE_CHECKING:
    from jobsetpy.serving.certificates import CertificateManager


class ServerRunnable(Runnable):
    """Serves on every replica, within ``running()``; a subclass defines ``listening``.

    It accepts connections as soon as there is a certificate. Until then, until clients trust the
    certificate, and once it has expired, ``problems()`` reports why the process is not ready.

    Args:
        bind_address: ``host:port`` or ``:port``.
        certificates: certificate of the server; ``None`` serves plain HTTP.

    Raises:
        ValueError: the address is not usable.
    """

    on_every_replica = True
    title: str
    """Name in messages."""

    def __init__(self, bind_address: str, certificates: CertificateManager | None) -> None:
        address = parse_address(bind_address)
        if address is None:
            raise ValueError(f"the {self.title} needs an address: host:port or :port")
        self._address = address
        self._certificates = certificates
        self._server: HttpServer | None = None

    def listening(self, address: Address) -> AbstractAsyncContextManager[HttpServer]:
        """Return a context manager that runs the server within the block.

        Raises:
            OSError: the address cannot be bound.
        """
        raise NotImplementedError

    @property
    def port(self) -> int | None:
        """Port of the server; ``None`` before there is a certificate."""
        server = self._server
        return server.port if server is not None and server.serves else None

    def problems(self) -> Iterable[str]:
        """Yield lines for ``/readyz``."""
        if self._certificates is not None:
            yield from self._certificates.problems()
        if self.port is None:
            yield f"the {self.title} does not listen"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve within the block."""
        async with self.listening(self._address) as self._server:
            try:
                async with serving(self._server, self._certificates):
                    yield
            finally:
                self._server = None


class WebhookServer(ServerRunnable):
    """Serves webhooks with their certificate.

    Args:
        handlers: admission handlers by path.
        certificates: certificate of the server.
        settings: address, time limits and drain time.

    Raises:
        ValueError: the address is not usable.
    """

    name = "webhooks"
    title = "webhook server"

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        certificates: CertificateManager,
        settings: WebhookServerSettings,
    ) -> None:
        super().__init__(settings.bind_address, certificates)
        self.settings = settings
        self._handlers = handlers
        self._draining = False

    def drain(self) -> float:
        """Start draining: responses close their connections; return seconds to continue serving.

        A pod that is deleted is still called until all API servers, or all nodes' proxies, have
        seen its removal from the Service; and API servers keep connections for their next calls.
        """
        self._draining = True
        return self.settings.drain_s

    def listening(self, address: Address) -> AbstractAsyncContextManager[HttpServer]:
        """Return the server with the routes of all handlers."""
        body_limit, deadline_s = self.settings.body_limit, self.settings.deadline_s
        made = routes(self._handlers, body_limit=body_limit, deadline_s=deadline_s)
        return listening(made, address, draining=lambda: self._draining)
