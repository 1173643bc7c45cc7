"""Several managers, one of which leads: real API server, processes that are killed and stopped.

A group restarts in place while its leader is lost in several ways, one after the other. Each restart
has to be completed by the next leader, once.
"""

import asyncio
import math
import signal
import time

import pytest

from jobsetpy.api.coordination import Lease
from jobsetpy.api.jobset import JobSet
from jobsetpy.app.process import EXIT_LEADERSHIP_LOST
from support import patience
from support.agents.fleet import Fleet
from support.cluster.deployed import LEASE
from support.cluster.manager_process import ManagerProcess, configured

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

JOBS, PODS = 2, 6
LEASE_S = math.ceil(patience.scaled(4))
"""Long enough for a process on a busy machine to renew it."""
TIMES = {
    "leaseDuration": f"{LEASE_S}s",
    "renewDeadline": f"{LEASE_S * 750}ms",
    "retryPeriod": f"{LEASE_S * 125}ms",
}


class Replicas:
    """The managers of one test."""

    def __init__(self, client, namespace, kubeconfig, folder):
        self.client = client
        self.namespace = namespace
        self.kubeconfig = kubeconfig
        self.folder = folder
        self.all = []
        election = {"resourceNamespace": namespace, **TIMES}
        self.flags = configured(folder / "configuration.yaml", leaderElection=election)

    async def start(self):
        """Start one more manager and wait until it is ready."""
        log = self.folder / f"manager-{len(self.all)}.log"
        one = ManagerProcess(self.kubeconfig, log, *self.flags)
        self.all.append(one)
        await one.start()
        return one

    async def holder(self):
        """Return the holder of the Lease."""
        lease = await self.client.get(Lease, self.namespace, LEASE)
        return lease.spec.holder_identity or ""

    async def next_holder(self, before, timeout_s):
        """Wait for another holder of the Lease; return seconds and holder."""
        started = time.monotonic()
        async with patience.timeout(timeout_s):
            while (now := await self.holder()) in {"", before}:  # noqa: ASYNC110 - no event reports it
                await asyncio.sleep(0.02)
        return time.monotonic() - started, now


async def at_epoch(fleet, epoch):
    """Wait until all workers run at ``epoch``, after one restart and two writes of the status."""
    total = JOBS * PODS
    await fleet.wait(lambda: fleet.lifted(epoch) == total, 30, f"all workers at {epoch}")
    await asyncio.sleep(0.3)

    assert fleet.violations == []
    assert fleet.status == (epoch, epoch - 1)
    assert fleet.history.count((epoch, epoch - 1)) == 1


async def test_next_leader_ends_the_restart(client, namespace, proxied, tmp_path):
    """The leader is killed, stopped, terminated or cut off; it does not write afterwards."""
    async with proxied() as (proxy, kubeconfig), asyncio.TaskGroup() as tasks:
        replicas = Replicas(client, namespace, kubeconfig, tmp_path)
        try:
            first = await replicas.start()
            async with Fleet.serving(client, namespace, JOBS, PODS) as fleet:
                await at_epoch(fleet, 1)
                holder = await replicas.holder()
                second = await replicas.start()
                assert await replicas.holder() == holder

                # Killed during a restart.
                fleet.fail(pod_of(fleet, "gang-w-0-0"))
                await first.kill()
                seconds, holder = await replicas.next_holder(holder, 10)
                await at_epoch(fleet, 2)
                print(f"killed: the next leads after {seconds:.2f} s")
                assert seconds <= LEASE_S * 5.5 / 4

                # Stopped during a restart, and continued when another one leads.
                third = await replicas.start()
                fleet.fail(pod_of(fleet, "gang-w-1-2"))
                second.process.send_signal(signal.SIGSTOP)
                seconds, holder = await replicas.next_holder(holder, 10)
                await at_epoch(fleet, 3)
                version = (await client.get(JobSet, namespace, "gang")).metadata.resource_version
                second.process.send_signal(signal.SIGCONT)
                async with patience.timeout(5):
                    code = await second.process.wait()
                jobset = await client.get(JobSet, namespace, "gang")
                assert code == EXIT_LEADERSHIP_LOST
                assert jobset.metadata.resource_version == version
                assert await replicas.holder() == holder

                # Terminated.
                fourth = await replicas.start()
                ended = tasks.create_task(third.stop())
                seconds, holder = await replicas.next_holder(holder, 10)
                print(f"SIGTERM: the next leads after {seconds:.2f} s")
                assert await ended == 0
                assert seconds <= LEASE_S / 2

                # A short outage is survived, a long one ends the process.
                proxy.refusing = True
                proxy.cut()
                await asyncio.sleep(1.5)
                proxy.refusing = False
                fleet.fail(pod_of(fleet, "gang-w-0-1"))
                await at_epoch(fleet, 4)
                assert fourth.process.returncode is None
                assert await replicas.holder() == holder
                proxy.refusing = True
                proxy.cut()
                async with patience.timeout(6):
                    assert await fourth.process.wait() == EXIT_LEADERSHIP_LOST
                proxy.refusing = False
                fleet.fail(pod_of(fleet, "gang-w-0-2"))
                await replicas.start()
                await at_epoch(fleet, 5)
        finally:
            for one in replicas.all:
                if one.process is not None and one.process.returncode is None:
                    await one.kill()


def pod_of(fleet, prefix):
    """Return the full name of a pod, including its random suffix."""
    return next(pod for pod in fleet.agents if pod.startswith(f"{prefix}-"))
