"""The webhooks as a part of a manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from jobsetpy import runtime
from jobsetpy.admission._certificates import certificate_manager
from jobsetpy.admission._handlers import LEADERS, Handler, JobSetHandlers, PodHandlers, routes
from jobsetpy.admission._server import routes as http_routes
from jobsetpy.admission._settings import WebhookSettings
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import LabelledNode
from jobsetpy.api.jobset import ChildPod
from jobsetpy.domain.startup_groups.barrier import Barrier
from jobsetpy.manager import Runnable
from jobsetpy.serving.certificates import CertificateManager
from jobsetpy.serving.http import HttpServer, listening, parse_address, serving


class Webhooks(Runnable):
    """The webhook server and its certificates, while ``running()``.

    It accepts connections as soon as there is a certificate; until then, and until the API server
    was told to trust it, ``problems()`` says why the process is not ready; so it does when the
    certificate has ended. Every replica serves.

    Args:
        handlers: by path.
        certificates: of the server.
        settings: see there.

    Raises:
        ValueError: the address cannot be used.
    """

    name = "webhooks"
    on_every_replica = True

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        certificates: CertificateManager,
        settings: WebhookSettings,
    ) -> None:
        address = parse_address(settings.bind_address)
        if address is None:
            msg = "the webhook server needs an address: host:port or :port"
            raise ValueError(msg)
        self._address = address
        self._settings = settings
        self._handlers = handlers
        self._certificates = certificates
        self._draining = False
        self._server: HttpServer | None = None

    @property
    def port(self) -> int | None:
        """What is listened on; ``None`` before there is a certificate."""
        server = self._server
        return server.port if server is not None and server.serves else None

    def problems(self) -> Iterable[str]:
        """Lines for ``/readyz``."""
        yield from self._certificates.problems()
        if self.port is None:
            yield "the webhook server does not listen"

    def drain(self) -> float:
        """The process ends soon: callers are sent elsewhere. How long to go on meanwhile, seconds.

        A pod that is deleted is still called until all API servers, or all nodes' proxies, know
        that its Service has lost it; and API servers keep connections for their next calls.
        """
        self._draining = True
        return self._settings.drain_s

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve within the block.

        Raises:
            OSError: the address cannot be bound.
        """
        made = http_routes(
            self._handlers,
            body_limit=self._settings.body_limit,
            deadline_s=self._settings.deadline_s,
        )
        async with listening(made, self._address, draining=lambda: self._draining) as self._server:
            try:
                async with serving(self._server, self._certificates):
                    yield
            finally:
                self._server = None


def setup(manager: runtime.Manager, settings: WebhookSettings | None = None) -> Webhooks:
    """Have ``manager`` serve the webhooks, and its readiness wait for them.

    Args:
        manager: not started yet.
        settings: see there.
    """
    settings = settings or WebhookSettings()
    pods = manager.informer(ChildPod, label_selector=keys.JOBSET_NAME, indexes=[LEADERS])
    nodes = manager.informer(LabelledNode)
    jobs = manager.informer(Job, label_selector=keys.JOBSET_NAME)
    handlers = routes(
        JobSetHandlers(
            manager.replica_client, features=settings.features, agent_image=settings.agent_image
        ),
        PodHandlers(
            pods=pods.store,
            nodes=nodes.store,
            jobs=jobs.store if settings.gate_followers else None,
            barrier=Barrier(
                shell_image=settings.group_image, agent_image=settings.group_agent_image
            ),
            marks=settings.marks if settings.features.coscheduling else None,
        ),
    )
    certificates = certificate_manager(manager.replica_client, settings, manager.clock)
    webhooks = Webhooks(handlers, certificates, settings)
    manager.add(webhooks)
    manager.add_ready_check("webhooks", webhooks.problems)
    return webhooks
