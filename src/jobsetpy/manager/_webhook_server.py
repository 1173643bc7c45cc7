"""Webhook server as a runnable of a manager."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from jobsetpy.manager._server_runnable import ServerRunnable
from jobsetpy.serving.http import Address, HttpServer, listening
from jobsetpy.serving.review_routes import Converter, Handler, conversion_route, routes
from jobsetpy.serving.webhook_settings import WebhookServerSettings

if TYPE_CHECKING:
    from jobsetpy.serving.certificates import CertificateManager


class WebhookServer(ServerRunnable):
    """Serves webhooks with their certificate.

    Args:
        handlers: admission handlers by path.
        certificates: certificate of the server.
        settings: address, time limits and drain time.
        converters: converters between versions of a kind, by path.

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
        *,
        converters: Mapping[str, Converter] | None = None,
    ) -> None:
        super().__init__(settings.bind_address, certificates)
        self.settings = settings
        self._handlers = handlers
        self._converters = converters or {}
        self._draining = False

    def drain(self) -> float:
        """Start draining: responses close their connections; return seconds to continue serving.

        A pod that is deleted is still called until all API servers, or all nodes' proxies, have
        seen its removal from the Service; and API servers keep connections for their next calls.
        """
        self._draining = True
        return self.settings.drain_s

    def listening(self, address: Address) -> AbstractAsyncContextManager[HttpServer]:
        """Return the server with the routes of all handlers and converters."""
        body_limit, deadline_s = self.settings.body_limit, self.settings.deadline_s
        made = routes(self._handlers, body_limit=body_limit, deadline_s=deadline_s)
        made += [
            conversion_route(path, convert, body_limit=body_limit, deadline_s=deadline_s)
            for path, convert in self._converters.items()
        ]
        return listening(made, address, draining=lambda: self._draining)
