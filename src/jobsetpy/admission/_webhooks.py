"""The webhooks as a part of a manager."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

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
from jobsetpy.manager import ServerRunnable
from jobsetpy.serving.certificates import CertificateManager
from jobsetpy.serving.http import Address, HttpServer, listening


class Webhooks(ServerRunnable):
    """The webhook server and its certificate.

    Args:
        handlers: by path.
        certificates: of the server.
        settings: see there.

    Raises:
        ValueError: the address cannot be used.
    """

    name = "webhooks"
    title = "webhook server"

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        certificates: CertificateManager,
        settings: WebhookSettings,
    ) -> None:
        super().__init__(settings.bind_address, certificates)
        self._settings = settings
        self._handlers = handlers
        self._draining = False

    def drain(self) -> float:
        """The process ends soon: callers are sent elsewhere. How long to go on meanwhile, seconds.

        A pod that is deleted is still called until all API servers, or all nodes' proxies, know
        that its Service has lost it; and API servers keep connections for their next calls.
        """
        self._draining = True
        return self._settings.drain_s

    def listening(self, address: Address) -> AbstractAsyncContextManager[HttpServer]:
        """See ``ServerRunnable``."""
        made = http_routes(
            self._handlers,
            body_limit=self._settings.body_limit,
            deadline_s=self._settings.deadline_s,
        )
        return listening(made, address, draining=lambda: self._draining)


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
            coscheduler=settings.coscheduler,
        ),
    )
    certificates = certificate_manager(manager.replica_client, settings, manager.clock)
    webhooks = Webhooks(handlers, certificates, settings)
    manager.add(webhooks)
    manager.add_ready_check("webhooks", webhooks.problems)
    return webhooks
