"""Managers of a soak test: two replicas behind one address, killed on request, and measured."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import attrs

from hack.cluster import Cluster
from jobsetpy.app.process import EXIT_LEADERSHIP_LOST
from jobsetpy.client import Client
from support import patience
from support.cluster.manager_process import ManagerProcess, free_port
from support.cluster.webhooks import (
    apply_webhooks,
    bundle_of,
    delete_webhooks,
    webhook_flags,
    write_certificate,
)
from support.faults.tcp_proxy import TcpProxy

REPLICAS: Final = 2
CACHED: Final = ("JobSet", "Job", "Pod")
CONFIGURATION: Final = """
apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection: {{leaseDuration: {lease_s:g}s, renewDeadline: {renew_s:g}s,
                  retryPeriod: 1s, resourceNamespace: {namespace}}}
featureGates: {{AllAlpha: true}}
"""


@attrs.frozen
class Sample:
    """One measurement of a manager process."""

    at: float
    rss_mb: float
    files: int
    tasks: float
    queued: float
    cached: float
    leading: bool


class Managers:
    """Replicas with leader election, and an address that leads to the webhooks of a ready one.

    Attributes:
        samples: of each process, by name, in order of time.
        alive: processes that are not known to have ended.
        ended: processes that ended by themselves, unless they had lost the Lease.
        lost: number of processes that lost the Lease.
        led: name and last sample of the last leader.

    Args:
        cluster: of the managers.
        client: an administrator's.
        namespace: of the Lease.
        folder: for logs, certificate and configuration.
        lease_s: time until another one leads after its leader was killed.
    """

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        namespace: str,
        folder: Path,
        *,
        lease_s: float = 15.0,
    ) -> None:
        self.samples: dict[str, list[Sample]] = {}
        self.alive: dict[str, ManagerProcess] = {}
        self.ended: list[str] = []
        self.lost = 0
        self.led = ("none", Sample(0.0, 0.0, 0, 0.0, 0.0, 0.0, False))
        self._cluster = cluster
        self._client = client
        self._folder = folder
        self._configuration = folder / "configuration.yaml"
        self._configuration.write_text(
            CONFIGURATION.format(namespace=namespace, lease_s=lease_s, renew_s=lease_s * 2 / 3)
        )
        self._webhook_ports: dict[str, int] = {}
        self._serial = 0
        self._proxy = TcpProxy("127.0.0.1", 0)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Managers]:
        """Run the replicas, which are ready on entry, and register their webhooks."""
        bundle = bundle_of(write_certificate(self._folder)[0])
        async with self._proxy.serving():
            try:
                for _ in range(REPLICAS):
                    await self._start()
                await apply_webhooks(self._client, self._proxy.port, bundle)
                yield self
            finally:
                with contextlib.suppress(Exception):
                    await delete_webhooks(self._client)
                for one in self.alive.values():
                    await one.stop()

    async def _start(self) -> None:
        self._serial += 1
        name, port = f"manager-{self._serial}", free_port()
        one = ManagerProcess(
            self._cluster.kubeconfig,
            self._folder / f"{name}.log",
            "--config",
            str(self._configuration),
            *webhook_flags(port, self._folder),
            metrics=True,
        )
        self.alive[name], self.samples[name], self._webhook_ports[name] = one, [], port
        await one.start()
        self._point()

    def _point(self) -> None:
        """Send webhook calls to the oldest replica, as a Service would after some time."""
        name = next(iter(self.alive), None)
        if name is not None:
            self._proxy.retarget("127.0.0.1", self._webhook_ports[name])

    async def kill_leader(self) -> str:
        """End the leader with SIGKILL, and start another replica; return the leader's name."""
        name = await self.leader()
        await self.alive.pop(name).kill()
        self._point()
        await self._start()
        return name

    async def leader(self, timeout_s: float = 60.0) -> str:
        """Return the name of the leader.

        Raises:
            TimeoutError: there is none.
        """
        async with patience.timeout(timeout_s):
            while True:
                for name in list(self.alive):
                    with contextlib.suppress(OSError, KeyError):
                        if (await self.sample(name)).leading:
                            return name
                await asyncio.sleep(0.2)

    # ---- figures ----------------------------------------------------------------------------

    async def sample(self, name: str) -> Sample:
        """Measure a process.

        Raises:
            OSError: it has ended, or does not answer.
        """
        one = self.alive[name]
        series = await asyncio.to_thread(one.scrape)
        descriptors = Path(f"/proc/{one.pid}/fd")
        return Sample(
            at=time.monotonic(),
            rss_mb=one.rss_mb(),
            files=sum(1 for _ in descriptors.iterdir()),
            tasks=series["asyncio_tasks"],
            queued=_sum(series, "workqueue_depth{")
            + _sum(series, "controller_runtime_active_workers{"),
            cached=sum(series[f'informer_objects{{kind="{kind}"}}'] for kind in CACHED),
            leading=_sum(series, "leader_election_master_status{") > 0,
        )

    async def sampling(self, period_s: float) -> None:
        """Measure all processes repeatedly, until cancelled; record those that have ended."""
        while True:
            await self._look()
            await asyncio.sleep(period_s)

    async def _look(self) -> None:
        """Measure each process; replace those that have ended."""
        for name in list(self.alive):
            one = self.alive.get(name)
            if one is None or one.process is None:
                continue
            if one.process.returncode is not None and name in self.alive:
                del self.alive[name]
                code = one.process.returncode
                if code == EXIT_LEADERSHIP_LOST:  # expected without the API server
                    self.lost += 1
                else:
                    self.ended.append(f"{name} with code {code}")
                await self._start()
                continue
            with contextlib.suppress(OSError, KeyError):
                sample = await self.sample(name)
                self.samples[name].append(sample)
                if sample.leading:
                    self.led = (name, sample)

    async def at_rest(self, timeout_s: float) -> tuple[str, Sample]:
        """Wait until the leader, which may change, has nothing cached, queued or in process.

        Returns:
            Its name, and the sample.

        Raises:
            TimeoutError: it has not in time; the text has the last sample.
        """
        since = time.monotonic()
        try:
            async with patience.timeout(timeout_s):
                while True:
                    await self._look()
                    sample = self.led[1]
                    if sample.at >= since and sample.queued == 0 and sample.cached == 0:
                        return self.led
                    await asyncio.sleep(0.5)
        except TimeoutError:
            raise TimeoutError("{} does not come to rest: {}".format(*self.led)) from None

    def slope(self, name: str, since: float) -> float:
        """Return the growth of a process's memory since a time, in MB per hour, by least squares."""
        points = [(one.at, one.rss_mb) for one in self.samples[name] if one.at >= since]
        if len(points) < 2:
            return 0.0
        mean_x = sum(x for x, _ in points) / len(points)
        mean_y = sum(y for _, y in points) / len(points)
        spread = sum((x - mean_x) ** 2 for x, _ in points)
        return 3600 * sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def _sum(series: dict[str, Any], prefix: str) -> float:
    return sum(value for name, value in series.items() if name.startswith(prefix))
