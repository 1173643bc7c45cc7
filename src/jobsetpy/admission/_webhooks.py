"""The webhooks as a part of a manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from jobsetpy import aio, runtime
from jobsetpy.admission._handlers import LEADERS, Handler, JobSetHandlers, PodHandlers, routes
from jobsetpy.admission._keeper import CertificateKeeper
from jobsetpy.admission._server import application, serving
from jobsetpy.admission._settings import WebhookSettings
from jobsetpy.admission._sources import FileSource, SecretSource, Source
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import LabelledNode
from jobsetpy.api.jobset import ChildPod
from jobsetpy.domain.startup_groups.barrier import Barrier
from jobsetpy.manager import parse_address
from jobsetpy.serving import tls

FILES_PERIOD_S = 2.0
"""How often files are looked at, which costs nobody anything: whoever exchanges them may have taken
back the old certificate's authority already."""


class Webhooks:
    """The webhook server and its certificates, while ``running()``.

    It listens as soon as there is a certificate; until then, and until the API server was told to
    trust it, ``problems()`` says why the process is not ready; so it does when the certificate has
    ended. Every replica serves.

    Args:
        handlers: by path.
        source: of the certificate.
        settings: see there.
        clock: for the certificate's dates.
    """

    name = "webhooks"
    on_every_replica = True

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        source: Source,
        settings: WebhookSettings,
        *,
        clock: aio.Clock | None = None,
    ) -> None:
        address = parse_address(settings.bind_address)
        if address is None:
            msg = "the webhook server needs an address: host:port or :port"
            raise ValueError(msg)
        self._address = address
        self._settings = settings
        self._handlers = handlers
        self._keeper = CertificateKeeper(
            source,
            period_s=settings.check_period_s
            if settings.certificate_dir is None
            else min(settings.check_period_s, FILES_PERIOD_S),
            context=tls.new_context(tls13_only=settings.tls13_only, ciphers=settings.ciphers),
            clock=clock,
        )
        self._leaving = False
        self.port: int | None = None

    def problems(self) -> Iterable[str]:
        """Lines for ``/readyz``."""
        yield from self._keeper.problems()
        if self.port is None:
            yield "the webhook server does not listen"

    def drain(self) -> float:
        """The process ends soon: callers are sent elsewhere. How long to go on meanwhile, seconds.

        A pod that is deleted is still called until all API servers, or all nodes' proxies, know
        that its Service has lost it; and API servers keep connections for their next calls.
        """
        self._leaving = True
        return self._settings.drain_s

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve within the block; an address that cannot be bound ends it with ``OSError``."""
        async with aio.supervise() as tasks:
            tasks.start(self._keeper.run(), name="webhook-certificates")
            tasks.start(self._serve(), name="webhook-server")
            yield

    async def _serve(self) -> None:
        await self._keeper.loaded.wait()
        settings = self._settings
        app = application(
            self._handlers,
            body_limit=settings.body_limit,
            deadline_s=settings.deadline_s,
            leaving=lambda: self._leaving,
        )
        async with serving(app, self._address, self._keeper.context) as self.port:
            try:
                await asyncio.Event().wait()  # until cancelled
            finally:
                self.port = None


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
    source: Source
    if settings.certificate_dir is not None:
        source = FileSource(settings.certificate_dir)
    else:
        source = SecretSource(manager.replica_client, settings, clock=manager.clock)
    webhooks = Webhooks(handlers, source, settings, clock=manager.clock)
    manager.add(webhooks)
    manager.add_ready_check("webhooks", webhooks.problems)
    return webhooks
