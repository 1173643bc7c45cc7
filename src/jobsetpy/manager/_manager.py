"""The manager: one process's clients, caches and controllers, started and stopped in order.

The nesting in :meth:`Manager.run` *is* the start order, and leaving it is the stop order:

    endpoints → caches, synced → runnables of every replica → election → event senders
    → (until elected) → controllers → (until stopped)

If several processes share the work, a process knows its share only when it holds a shard. The
caches of that share are filled then, before the controllers start; caches of kinds that are not
shared, and of the runnables of every replica, are filled earlier.

Endpoints come first, so that a process that waits for its caches can report it; controllers come
last, so that they only see complete caches; and on the way out controllers finish their current
requests while caches, event senders and endpoints still work. The Lease is given back immediately
after the last write: the runnables of every replica may have to serve for some seconds more, until
all callers know that the process ends, and the next leader does not have to wait for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
from prometheus_client import CollectorRegistry

from jobsetpy import aio
from jobsetpy.api.coordination import Lease
from jobsetpy.api.meta import KubeObject
from jobsetpy.client import Client
from jobsetpy.controller import Controller, EventRecorder, Runnable
from jobsetpy.errors import AlreadyStartedError, StartTimedOutError, StopTimedOutError
from jobsetpy.informers import (
    Index,
    InformerCache,
    KeyedShard,
    SharedInformer,
    WatchOptions,
)
from jobsetpy.informers._cache import namespaced
from jobsetpy.manager._access import AccessReviewer
from jobsetpy.manager._endpoints import Check, health_routes, metrics_route, problems
from jobsetpy.manager._leader import LeaderElectionSettings, LeaderElector
from jobsetpy.manager._shards import ShardElector, Shards
from jobsetpy.manager._signals import stop_on_signals
from jobsetpy.observability import metrics
from jobsetpy.observability.hooks import InformerMetrics
from jobsetpy.observability.logging import get_logger
from jobsetpy.serving.http import Limits, Route, listening, parse_address, serving

if TYPE_CHECKING:
    from jobsetpy.serving.certificates import CertificateManager
    from jobsetpy.serving.webhook_settings import WebhookServerSettings

T = TypeVar("T", bound=KubeObject)

_REVIEWS_QPS = 10

WATCH_BACKOFF_CAP_S = 10.0
"""Maximum delay before a watch is retried, in seconds. There are few managers with a dozen watches
each, so they need not wait as long after an outage as thousands of agents."""

ENDPOINT_SHUTDOWN_S = 1.0
"""Timeout for requests of probes and scrapes when the manager stops, in seconds."""

WAITING_PERIOD_S = 15.0
"""Interval between reports of caches that have not synced, in seconds."""

LOOP_LAG_PERIOD_S = 1.0
"""Interval between measurements of the event loop's lag, in seconds."""


@attrs.frozen(kw_only=True)
class ManagerSettings:
    """Addresses, time limits and scope of a manager.

    Args:
        metrics_bind_address: ``host:port``, ``:port``, or "0" for no metrics server.
        health_probe_bind_address: the same for health and readiness.
        liveness_path, readiness_path: paths of the two.
        sync_timeout_s: timeout for the first lists of the caches, after which the manager ends,
            and for the start of each runnable.
        stop_timeout_s: timeout for a graceful stop as a whole.
        metrics_tls: certificate with which metrics are served over TLS, to users that the API
            server authorizes; ``None``: plain HTTP, to everyone.
        leader_election: Lease that this process must hold to run controllers; ``None``: always.
        namespaces: namespaces of informers that name none; empty for all. Cluster-scoped kinds are
            followed as a whole.
        shards: shards by object names; ``None`` for one process that does all the work. Each
            process then holds its own Lease: ``leader_election`` is required.
        webhooks: settings of the server of the program's own webhooks; ``None``: the defaults.

    Raises:
        ValueError: ``shards`` without an election.
    """

    metrics_bind_address: str = "0"
    health_probe_bind_address: str = "0"
    liveness_path: str = "/healthz"
    readiness_path: str = "/readyz"
    sync_timeout_s: float = 120.0
    stop_timeout_s: float = 30.0
    metrics_tls: CertificateManager | None = None
    leader_election: LeaderElectionSettings | None = None
    namespaces: tuple[str, ...] = ()
    shards: Shards | None = None
    webhooks: WebhookServerSettings | None = None

    def __attrs_post_init__(self) -> None:
        """Reject combinations in which processes would not share the work consistently."""
        if self.shards is not None and self.leader_election is None:
            raise ValueError("shards need leader_election, by which each gets one")


class Manager:
    """Runs controllers that share one client and one cache.

    Create it, get informers from it, add controllers, and call :meth:`run`. Informers are shared:
    the same class and scope give the same informer, and indexes may be added until
    the start. There is no global state; several managers can run in one process.

    ``client`` is for everything that only a leader does: with leader election, writes through it
    are refused unless this process leads. ``replica_client`` is for the rest. ``ready`` is set
    while everything runs that does not need leadership, and ``leading`` while controllers run.
    If managers share the work, ``filled`` is set when the caches of its share have synced.

    Args:
        client: the manager's client; the manager does not close it.
        settings: addresses, time limits and scope.
        clock: time source of everything in the manager.
    """

    def __init__(
        self,
        client: Client,
        *,
        settings: ManagerSettings | None = None,
        clock: aio.Clock | None = None,
    ) -> None:
        self.settings = settings or ManagerSettings()
        self.clock = clock or aio.LoopClock()
        self.client = self.replica_client = client
        self.ready = asyncio.Event()
        self.leading = asyncio.Event()
        self.metrics_port: int | None = None
        self.health_port: int | None = None
        options = WatchOptions(observer=InformerMetrics(), backoff_cap_s=WATCH_BACKOFF_CAP_S)
        namespaces = self.settings.namespaces
        self._cache = InformerCache(client, options, namespaces=namespaces)
        self._shared = InformerCache(client, options, namespaces=namespaces)
        self._shares: dict[type[Any], KeyedShard] = {}
        self.filled = asyncio.Event()
        self._runnables: list[Runnable] = []
        self._recorders: dict[str, EventRecorder] = {}
        self._registries: list[CollectorRegistry] = [metrics.REGISTRY]
        self._ready_checks: dict[str, Check] = {"caches": self._cache_problems}
        self._started = False
        self._limit = asyncio.timeout(None)
        self._starting: asyncio.Timeout | None = None
        self._log = get_logger("manager")
        self._elector: LeaderElector | ShardElector | None = None
        if self.settings.leader_election is not None:
            self._stand_for(self.settings.leader_election)

    def informer(  # noqa: PLR0913 - what is cached, and how
        self,
        cls: type[T],
        *,
        namespace: str = "",
        namespaces: Iterable[str] = (),
        label_selector: str = "",
        field_selector: str = "",
        whole: bool = False,
        indexes: Iterable[Index[T]] = (),
        transform: Callable[[T], T] | None = None,
        optional: bool = False,
    ) -> SharedInformer[T]:
        """Return the shared informer of a class and scope; it is created on the first call.

        Args:
            cls: class of the objects.
            namespace: namespace to follow; when absent, those of ``settings``, or all.
            namespaces: further namespaces, each with its own list and watch.
            label_selector: in the API's syntax; "" for everything.
            field_selector: the same.
            whole: follow everything, not this process's share by ``settings.shards``: for the
                runnables of every replica, and for objects whose name does not decide the share.
            indexes: indexes of its store.
            transform: function applied to each object before it is stored.
            optional: the server may not know the kind: there are no objects until its CRD is
                installed, which is checked every ten seconds.

        Raises:
            ValueError: a namespace is given for a cluster-scoped class.
            AlreadyStartedError: a new informer or index after the start.
            IndexConflictError: the name of an index is taken by a different function.
        """
        cache, share = self._cache, None
        if not (whole or namespace or namespaces):
            share = self._share_of(cls)
        if share is not None:
            cache = self._shared
        return cache.informer(
            cls,
            namespace=namespace,
            namespaces=namespaces,
            label_selector=label_selector,
            field_selector=field_selector,
            shard=share,
            indexes=indexes,
            transform=transform,
            optional=optional,
        )

    def _share_of(self, cls: type[Any]) -> KeyedShard | None:
        """Return this process's share of a class; ``None`` if its objects are not shared."""
        shards, elector = self.settings.shards, self._elector
        if shards is None or not isinstance(elector, ShardElector) or not namespaced(cls):
            return None
        if cls not in self._shares:
            self._shares[cls] = KeyedShard(elector.assignment, shards.key(cls), shards.peek(cls))
        return self._shares[cls]

    @property
    def filling(self) -> bool:
        """True while this process holds a shard and fills its caches."""
        assigned = isinstance(self._elector, ShardElector) and self._elector.assigned.is_set()
        return assigned and not self.filled.is_set()

    def recorder(self, component: str) -> EventRecorder:
        """Return the event recorder that reports as ``component``; one for each name."""
        recorder = self._recorders.get(component)
        if recorder is None:
            self._before_start("an event recorder")
            recorder = EventRecorder(self.client, component=component)
            self._recorders[component] = recorder
        return recorder

    def add(self, runnable: Runnable) -> None:
        """Add ``runnable``: it is started with the manager, after those added before it.

        Raises:
            AlreadyStartedError: the manager is already running.
            TypeError: it is not a runnable.
            ValueError: a controller of that name was already added.
        """
        self._before_start("a runnable")
        if isinstance(runnable, type) or not callable(getattr(runnable, "running", None)):
            raise TypeError(f"a manager runs Controllers and other Runnables, not {runnable!r}")
        if isinstance(runnable, Controller):
            self._check_name(runnable)
        runnable.prepare(held=self._elector is not None)
        self._runnables.append(runnable)

    def _check_name(self, controller: Controller) -> None:
        if any(controller is each for each in self._runnables):
            raise ValueError(f"controller {controller.name!r} was added already")
        names = {each.name for each in self._runnables if isinstance(each, Controller)}
        if controller.name in names:
            raise ValueError(
                f"a controller named {controller.name!r} exists already: give each its own name, "
                "by which logs and metrics distinguish them"
            )

    @property
    def kinds(self) -> tuple[type[Any], ...]:
        """Classes of which there is an informer."""
        return tuple(dict.fromkeys((*self._cache.classes, *self._shared.classes)))

    @property
    def runnables(self) -> tuple[Runnable, ...]:
        """Runnables in the order in which they were added."""
        return tuple(self._runnables)

    def add_ready_check(self, name: str, check: Check) -> None:
        """Add a check: ``/readyz`` fails with the problems that it yields."""
        self._ready_checks[name] = check

    def add_metrics(self, registry: CollectorRegistry) -> None:
        """Add a registry to ``/metrics``; adding it twice has no effect."""
        if registry not in self._registries:
            self._registries.append(registry)

    def problems(self) -> list[str]:
        """Return the reasons why this process is not ready, one line each, as in ``/readyz``."""
        return problems(self._ready_checks)

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Run until ``stop`` is set, or until SIGTERM or SIGINT when there is none.

        Returns after an orderly stop. A runnable that fails ends the manager with its exception.

        Raises:
            AlreadyStartedError: on a second call.
            LeadershipLostError: another process may lead; nothing more was written.
            StopTimedOutError: the stop took longer than ``settings.stop_timeout_s``.
            StartTimedOutError: the caches did not sync, or a runnable did not start, within
                ``settings.sync_timeout_s``; the message gives the reason.
        """
        self._before_start("itself")
        self._started = True
        if not self._runnables:
            self._log.warning(
                "the manager has no controller, so it reconciles nothing: call manager.add(...) "
                "with each controller before the manager runs"
            )
        if stop is not None:
            await self._run(stop)
            return
        stop = asyncio.Event()
        with stop_on_signals(stop):
            await self._run(stop)

    async def _run(self, stop: asyncio.Event) -> None:
        limit = self._limit = asyncio.timeout(None)
        try:
            async with limit, AsyncExitStack() as stack:
                if await self._start(stack, stop):
                    ends = await self._work(stop)
                    # Calls may arrive until all callers know that this process ends.
                    await asyncio.sleep(ends - asyncio.get_running_loop().time())
                else:
                    self._stopping()
        except TimeoutError:
            if not limit.expired():
                raise
            msg = f"the manager did not stop within {self.settings.stop_timeout_s} s"
            raise StopTimedOutError(msg) from None
        self._log.info("manager stopped")

    async def _start(self, stack: AsyncExitStack, stop: asyncio.Event) -> bool:
        """Start what needs no leadership; return False if the stop came before the sync."""
        settings = self.settings
        paths = (settings.liveness_path, settings.readiness_path)
        routes = health_routes({}, self._ready_checks, paths)
        self.health_port = await _serve(stack, settings.health_probe_bind_address, routes)
        self.metrics_port = await self._serve_metrics(stack)
        await stack.enter_async_context(_in_background("loop-lag", self._measure_loop_lag))
        for cache in (self._cache, self._shared):
            stack.enter_context(metrics.cache_sizes(cache.sizes))
        if not await self._fill(self._cache, stack, stop):
            return False
        await stack.enter_async_context(
            _in_background("stop-of-start", lambda: self._stop_starting(stop))
        )
        return await self._enter_all(stack, stop, on_every_replica=True)

    async def _fill(self, cache: InformerCache, stack: AsyncExitStack, stop: asyncio.Event) -> bool:
        """Run a cache until the stack is closed; return False if the stop came before it synced.

        Raises:
            StartTimedOutError: it took longer than ``settings.sync_timeout_s``.
        """
        await stack.enter_async_context(cache.running())
        limit = asyncio.timeout(self.settings.sync_timeout_s)
        try:
            async with limit, _in_background("waiting", lambda: self._report_waiting(cache)):
                await _first_of(stop.wait(), cache.wait_for_sync())
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._late("the caches did not sync", cache.waits_for()) from None
        return not stop.is_set()

    async def _enter_all(
        self, stack: AsyncExitStack, stop: asyncio.Event, *, on_every_replica: bool
    ) -> bool:
        """Start runnables in order; return False if the stop came first.

        Raises:
            StartTimedOutError: one took longer than ``settings.sync_timeout_s``.
        """
        for runnable in self._runnables:
            if runnable.on_every_replica is not on_every_replica:
                continue
            if stop.is_set():
                return False
            limit = self._starting = asyncio.timeout(self.settings.sync_timeout_s)
            try:
                async with limit:
                    await stack.enter_async_context(runnable.running())
            except TimeoutError:
                if not limit.expired():
                    raise
                if stop.is_set():
                    return False
                name = getattr(runnable, "name", type(runnable).__name__)
                raise self._late(f"{name!r} did not start", runnable.waits_for) from None
            finally:
                self._starting = None
        return not stop.is_set()

    async def _stop_starting(self, stop: asyncio.Event) -> None:
        """End a start in progress when the stop comes."""
        await stop.wait()
        if self._starting is not None and not self._starting.expired():
            self._starting.reschedule(asyncio.get_running_loop().time())

    def _late(self, what: str, waits_for: str) -> StartTimedOutError:
        text = f"{what} within {self.settings.sync_timeout_s:g} s"
        return StartTimedOutError(f"{text}: {waits_for}" if waits_for else text)

    async def _report_waiting(self, cache: InformerCache) -> None:
        """Log periodically what the start waits for."""
        left_s = self.settings.sync_timeout_s
        while True:
            await asyncio.sleep(WAITING_PERIOD_S)
            left_s -= WAITING_PERIOD_S
            waits_for = cache.waits_for()
            if waits_for and left_s > 0:
                self._log.warning(
                    "the caches are not complete; the manager ends unless they are in time",
                    waits_for=waits_for,
                    ends_in_s=round(left_s),
                )

    async def _work(self, stop: asyncio.Event) -> float:
        """Do what needs leadership, once this process leads, until the stop.

        Returns:
            Loop time at which the runnables of every replica may end.
        """
        async with AsyncExitStack() as stack:
            if self._elector is not None:
                await stack.enter_async_context(self._elector.running())
            for component, recorder in self._recorders.items():
                await stack.enter_async_context(_in_background(f"events-{component}", recorder.run))
            if self._elector is not None:
                self.ready.set()
            if await self._elected(stack, stop) and await self._start_controllers(stack, stop):
                await stop.wait()
            return self._stopping()

    def _stopping(self) -> float:
        """Begin the stop; return the loop time until which callers must still be served."""
        self.ready.clear()
        self.leading.clear()
        self._log.info("manager stopping")
        self._hurry()
        now = asyncio.get_running_loop().time()
        return max((now + runnable.drain() for runnable in self._runnables), default=now)

    async def _serve_metrics(self, stack: AsyncExitStack) -> int | None:
        certificates, reviewer = self.settings.metrics_tls, None
        if certificates is not None:
            client = self.replica_client.unpooled(qps=_REVIEWS_QPS, burst=2 * _REVIEWS_QPS)
            reviewer = AccessReviewer(client, clock=self.clock.monotonic)
        routes = [metrics_route(self._registries, reviewer)]
        return await _serve(stack, self.settings.metrics_bind_address, routes, certificates)

    async def _elected(self, stack: AsyncExitStack, stop: asyncio.Event) -> bool:
        """Wait for leadership; return False if the stop comes first."""
        if self._elector is None:
            return True
        self._elector.contend()
        if isinstance(self._elector, ShardElector):
            await _first_of(stop.wait(), self._elector.assigned.wait())
            if stop.is_set():
                return False
            if not await self._fill(self._shared, stack, stop):
                return False
            self.filled.set()
        await _first_of(stop.wait(), self._elector.leading.wait())
        return not stop.is_set()

    async def _start_controllers(self, stack: AsyncExitStack, stop: asyncio.Event) -> bool:
        if not await self._enter_all(stack, stop, on_every_replica=False):
            return False
        self.ready.set()
        self.leading.set()
        self._log.info("manager running", controllers=len(self._runnables))
        return True

    def _stand_for(self, settings: LeaderElectionSettings) -> None:
        client, shards = self.replica_client.unpooled(), self.settings.shards
        elector: LeaderElector | ShardElector
        if shards is None:
            elector = LeaderElector(client, settings, on_lost=self._abandon)
            contenders: tuple[LeaderElector, ...] = (elector,)
        else:
            elector = ShardElector(client, settings, shards.count, on_lost=self._abandon)
            contenders = elector.electors
        self._elector = elector
        self.client = self.replica_client.fenced_by(elector.fence)
        for one in contenders:
            name = f"metadata.name={one.settings.name}"
            self._cache.informer(
                Lease, namespace=settings.namespace, field_selector=name
            ).add_handler(one)

    def _abandon(self) -> None:
        """Stop without grace: leadership is lost."""
        self.ready.clear()
        self.leading.clear()
        for runnable in self._runnables:
            runnable.abandon()
        self._hurry()

    def _hurry(self) -> None:
        """Begin the stop and its time limit, unless it has expired."""
        if self._limit.expired():
            return
        now = asyncio.get_running_loop().time()
        self._limit.reschedule(now + self.settings.stop_timeout_s)

    def _cache_problems(self) -> Iterable[str]:
        if not self.ready.is_set():
            yield "not started yet, or stopping"
        # Caches of a shard count once they are filled: the runnables of every replica do without.
        shared = self._shared.healthy() if self._shared.has_synced else []
        for kind in sorted({*self._cache.healthy(), *shared}):
            yield f"the watch of {kind} has not begun, or the API server has been silent for long"

    def _before_start(self, what: str) -> None:
        if self._started:
            raise AlreadyStartedError(f"the manager runs already: {what} has to come before run()")

    async def _measure_loop_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOP_LAG_PERIOD_S
            await asyncio.sleep(LOOP_LAG_PERIOD_S)
            metrics.loop_lag(max(0.0, loop.time() - due))


async def _serve(
    stack: AsyncExitStack,
    address: str,
    routes: list[Route],
    certificates: CertificateManager | None = None,
) -> int | None:
    """Serve until the stack is closed; return the port, or ``None`` if there is no address."""
    parsed = parse_address(address)
    if parsed is None:
        return None
    limits = Limits(shutdown_s=ENDPOINT_SHUTDOWN_S)
    server = await stack.enter_async_context(listening(routes, parsed, limits=limits))
    await stack.enter_async_context(serving(server, certificates))
    return server.port


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of the coroutines has returned; the others are cancelled."""
    async with aio.supervise() as tasks:
        ends = [tasks.start(wait, name="first-of") for wait in waits]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)


@asynccontextmanager
async def _in_background(name: str, run: Callable[[], Any]) -> AsyncIterator[None]:
    """Run a coroutine function until the block is left."""
    async with aio.supervise() as tasks:
        tasks.start(run(), name=name)
        yield
