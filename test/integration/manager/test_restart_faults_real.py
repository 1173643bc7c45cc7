"""A restart in place completes exactly once, with any fault during it.

Real API server, etcd and Job controller; the manager is a process of its own behind a proxy that
can be cut or stalled; the agents are the agent's own core, many in one process, and each lift is
checked for the protocol's safety.
"""

import asyncio
import contextlib
import functools
import random

import pytest

from support.agents.fleet import Fleet
from support.cluster.json_api import StoredJobSet
from support.cluster.manager_process import own_manager

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(240)]

JOBS, PODS = 3, 8
TOTAL = JOBS * PODS


class Gang:
    """A JobSet with simulated agents and a manager behind a proxy."""

    def __init__(self, fleet, proxy, manager) -> None:
        self.fleet = fleet
        self.proxy = proxy
        self.manager = manager

    @property
    def pods(self) -> list[str]:
        return sorted(self.fleet.agents)

    async def running(self, epoch: int, timeout_s: float = 60) -> None:
        """Wait until every worker runs at ``epoch``."""
        await self.fleet.wait(
            lambda: self.fleet.lifted(epoch) == TOTAL, timeout_s, f"all workers at epoch {epoch}"
        )

    async def check_one_restart(self, epoch: int) -> None:
        """Assert that the restart into ``epoch`` happened once, in two writes, safely."""
        await asyncio.sleep(1.0)

        assert self.fleet.violations == []
        assert self.fleet.status == (epoch, epoch - 1)
        epochs = [pair for pair in self.fleet.history if pair[0] >= epoch - 1]
        assert (epoch - 1, epoch - 1) in epochs
        assert epochs[-1] == (epoch, epoch - 1)


@contextlib.asynccontextmanager
async def run_gang(client, namespace, proxied, tmp_path):
    """A gang with simulated agents whose workers all run at epoch 1."""
    async with (
        proxied() as (proxy, kubeconfig),
        StoredJobSet(client, namespace, "gang").deleted(),
        own_manager(client, kubeconfig, tmp_path) as manager,
        Fleet.serving(client, namespace, JOBS, PODS) as fleet,
    ):
        one = Gang(fleet, proxy, manager)
        await one.running(1)
        yield one


@pytest.fixture
def gang(client, namespace, proxied, tmp_path):
    """Function that runs a gang within a block; see ``run_gang``."""
    return functools.partial(run_gang, client, namespace, proxied, tmp_path)


async def test_group_restarts_once_when_a_worker_fails(gang):
    """The restart takes exactly two status writes."""
    async with gang() as one:
        one.fleet.fail(one.pods[0])
        await one.running(2)
        await one.check_one_restart(2)

        assert one.fleet.history == [(0, 0), (1, 0), (1, 1), (2, 1)]


async def test_restart_completes_when_the_api_server_crashes(gang, cluster):
    """The restart continues when the API server is back."""
    async with gang() as one:
        for epoch, moment_s in ((2, 0.0), (3, 0.3)):
            one.fleet.fail(one.pods[0])
            await asyncio.sleep(moment_s)
            await asyncio.to_thread(cluster.restart_apiserver, kill=True)
            await one.running(epoch, 120)
            await one.check_one_restart(epoch)


async def test_restart_completes_when_the_managers_connections_are_cut(gang):
    """Cutting all connections repeatedly delays the restart only briefly."""
    async with gang() as one:
        for epoch in range(2, 4):
            one.fleet.fail(random.Random(epoch).choice(one.pods))
            for _ in range(5):
                one.proxy.cut()
                await asyncio.sleep(0.05)
            await one.running(epoch, 60)
        await one.check_one_restart(3)

        assert one.proxy.accepted > 10


async def test_restart_completes_when_watches_stall(gang):
    """Silently dead connections are noticed within 45 s."""
    async with gang() as one:
        one.proxy.stall_open()
        one.fleet.fail(one.pods[0])
        await one.running(2, 45 + 15)
        await one.check_one_restart(2)


async def test_restart_completes_when_watches_are_too_old(gang, cluster):
    """After an outage that loses history (410) the manager lists again and continues."""
    async with gang() as one:
        one.proxy.refusing = True
        one.proxy.cut()
        one.fleet.fail(one.pods[0])
        await asyncio.sleep(0.5)
        await asyncio.to_thread(cluster.restart_apiserver)
        await one.fleet.wait(
            lambda: one.fleet.agents[one.pods[0]].stored == 2, 120, "the first agent to report"
        )
        one.proxy.refusing = False
        await one.running(2, 90)
        await one.check_one_restart(2)


async def test_restart_completes_when_the_manager_is_killed(gang):
    """At random moments; a new manager completes the restart without a second one."""
    async with gang() as one:
        rand = random.Random(467)
        for epoch in range(2, 6):
            one.fleet.fail(rand.choice(one.pods))
            await asyncio.sleep(rand.random() * 0.3)
            await one.manager.kill()
            await asyncio.sleep(rand.random() * 0.3)
            await one.manager.start()
            await one.running(epoch, 60)
            await one.check_one_restart(epoch)
