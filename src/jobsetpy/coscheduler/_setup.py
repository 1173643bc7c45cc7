"""Coscheduler as a part of a manager: the extender on every replica, the engine on the leader.

A replica that does not lead keeps its cache of pods and its certificate up to date, but is not
ready, so that no Service routes the scheduler to it; if a request arrives anyway, it is answered
with 503, which makes the scheduler retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from jobsetpy import aio, runtime
from jobsetpy.api import keys
from jobsetpy.coscheduler import metrics
from jobsetpy.coscheduler._publication import Publisher
from jobsetpy.coscheduler._settings import (
    CONCURRENT_WRITES,
    GRACE_S,
    MAX_HELD,
    PATH_PREFIX,
    CoschedulerSettings,
)
from jobsetpy.coscheduler.engine.engine import Engine
from jobsetpy.coscheduler.engine.nodes import NodeSlice
from jobsetpy.coscheduler.engine.pods import GroupPod
from jobsetpy.coscheduler.extender.certificates import certificate_manager
from jobsetpy.coscheduler.extender.open_files import check
from jobsetpy.coscheduler.extender.server import listening
from jobsetpy.errors import NotLeadingError
from jobsetpy.manager import Runnable, ServerRunnable
from jobsetpy.observability.logging import get_logger
from jobsetpy.reconcilers.coscheduling.published import CoschedulerState
from jobsetpy.serving.certificates import CertificateManager
from jobsetpy.serving.http import Address, HttpServer

COUNT_S = 2.0
"""Interval in seconds between counts of gangs for the metrics."""
LOST = "this coscheduler no longer leads: ask again"


class Coscheduler(Runnable):
    """Runs the engine while this replica leads, within ``running()``.

    Args:
        manager: manager that provides client and cache.
        settings: settings of the coscheduler.
    """

    name = "coscheduler"

    def __init__(self, manager: runtime.Manager, settings: CoschedulerSettings) -> None:
        self._manager = manager
        self._settings = settings
        self._pods = manager.informer(GroupPod, label_selector=keys.POD_GROUP_NAME)
        self._nodes = manager.informer(NodeSlice)
        self._events = manager.recorder("jobset-coscheduler")
        self._max_held = check(MAX_HELD, CONCURRENT_WRITES)
        metrics.held_limit(self._max_held)
        self.engine: Engine | None = None

    def problems(self) -> Iterable[str]:
        """Return lines for ``/readyz``."""
        if self.engine is None:
            yield "stands by: this replica does not lead"

    def leading(self) -> Engine:
        """Return the engine.

        Raises:
            NotLeadingError: another replica leads.
        """
        if self.engine is None:
            msg = "this replica of the coscheduler does not lead"
            raise NotLeadingError(msg)
        return self.engine

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the engine within the block; held requests are answered at its end."""
        settings = self._settings
        engine = Engine(
            self._manager.client,
            limits=settings.limits,
            clock=self._manager.clock,
            max_held=self._max_held,
            ordinary_pods=not settings.member_resource,
            events=self._events,
        )
        publisher = Publisher(
            self._manager.client,
            engine.knows,
            settings.namespace,
            clock=self._manager.clock,
            state=CoschedulerState(
                scheduler_name=settings.scheduler_name,
                member_resource=settings.member_resource,
            ),
        )
        # Decisions of an earlier leader are visible in the pods.
        registrations = engine.listen(self._pods, self._nodes)
        try:
            async with aio.supervise() as tasks:
                tasks.start(engine.run(), name="coscheduler")
                tasks.start(_count(engine), name="coscheduler-count")
                tasks.start(publisher.run(), name="coscheduler-publication")
                self.engine = engine
                yield
                await engine.finish(GRACE_S)
        finally:
            self.engine = None
            for registration in registrations:
                registration.remove()
            engine.abandon(LOST)
            metrics.counts({}, {})


async def _count(engine: Engine) -> None:
    while True:
        engine.count()
        await asyncio.sleep(COUNT_S)


class ExtenderEndpoint(ServerRunnable):
    """Server of the extender, with its certificate.

    Args:
        coscheduler: executes requests.
        certificates: certificates of the server; ``None`` serves plain HTTP.
        settings: settings of the coscheduler.

    Raises:
        ValueError: the address is not valid.
    """

    name = "extender"
    title = "extender"

    def __init__(
        self,
        coscheduler: Coscheduler,
        certificates: CertificateManager | None,
        settings: CoschedulerSettings,
    ) -> None:
        super().__init__(settings.bind_address, certificates)
        self._coscheduler = coscheduler
        self._settings = settings

    def listening(self, address: Address) -> AbstractAsyncContextManager[HttpServer]:
        """Return the server; see ``ServerRunnable``."""
        settings = self._settings
        if settings.plain_http:
            get_logger("coscheduler").warning("plain HTTP: any client that connects can bind pods")
        return listening(
            self._coscheduler.leading,
            address,
            prefix=PATH_PREFIX,
            names=None if settings.plain_http else settings.client_names,
        )


def setup(manager: runtime.Manager, settings: CoschedulerSettings | None = None) -> Coscheduler:
    """Add the coscheduler to ``manager``, which is then ready only while it leads.

    Args:
        manager: not started yet; with leader election, unless there is only one.
        settings: settings of the coscheduler; defaults if ``None``.

    Raises:
        ValueError: the address is not valid.
    """
    settings = settings or CoschedulerSettings()
    coscheduler = Coscheduler(manager, settings)
    certificates = certificate_manager(manager.replica_client, settings, manager.clock)
    endpoint = ExtenderEndpoint(coscheduler, certificates, settings)
    manager.add_metrics(metrics.REGISTRY)
    manager.add(endpoint)
    manager.add(coscheduler)
    manager.add_ready_check("extender", endpoint.problems)
    manager.add_ready_check("coscheduler", coscheduler.problems)
    return coscheduler
