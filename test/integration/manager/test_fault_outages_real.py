"""API server down, etcd slow, two managers by mistake, a stopped manager: real servers.

Kubelets and agents are simulated. ``JOBSETPY_OUTAGE_S=60 JOBSETPY_ETCD_S=30`` makes the outages last
as long as on a bad day (``make faults``); here they are short.
"""

import asyncio
import contextlib
import os
import signal
import time

import pytest

from support import patience
from support.cluster.manager_process import ManagerProcess, configured
from support.faults.fault_kit import attempt_of, quiet, requests_of

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(400)]

OUTAGE_S = float(os.environ.get("JOBSETPY_OUTAGE_S", "3"))
ETCD_S = float(os.environ.get("JOBSETPY_ETCD_S", "3"))
LEADERSHIP_LOST = 3
KINDS = 14
"""At least the number of kinds that the manager watches."""


async def ready(process) -> tuple[int, str]:
    return await asyncio.to_thread(process.readiness)


async def ready_or_ended(process) -> bool:
    """Wait until a process is ready, or has ended; return whether it is ready."""
    while process.process.returncode is None:
        if (await ready(process))[0] == 200:
            return True
        await asyncio.sleep(0.05)
    return False


async def scraped(process) -> dict[str, float]:
    return await asyncio.to_thread(process.scrape)


def answered(series) -> float:
    """Return the number of requests that reached the API server."""
    return requests_of(series) - requests_of(series, code="<error>")


async def test_managers_survive_an_api_server_outage(cluster, client, namespace, tmp_path):
    """The leader continues or, without its Lease, ends. A manager that starts during the outage waits; no burst of requests follows it."""
    election = {"resourceNamespace": namespace}
    flags = configured(tmp_path / "configuration.yaml", leaderElection=election)
    leader = ManagerProcess(cluster.kubeconfig, tmp_path / "leader.log", *flags, metrics=True)
    late = ManagerProcess(cluster.kubeconfig, tmp_path / "late.log", *flags, metrics=True)
    try:
        await leader.start()
        async with attempt_of(client, namespace) as group:
            await group.create("recreate", "in-place")
            before = during = await scraped(leader)
            status, text = await ready(leader)
            group.fail_soon("recreate", "in-place")
            await asyncio.to_thread(cluster.stop_apiserver, kill=True)
            began = time.monotonic()
            await late.start(wait=False)
            # The new process may start slowly on a busy machine.
            while time.monotonic() < began + OUTAGE_S or (await ready(late))[0] == 0:
                assert time.monotonic() < began + OUTAGE_S + patience.scaled(60)
                await asyncio.sleep(0.5)
                with contextlib.suppress(OSError):  # it may end at any moment
                    during = await scraped(leader)
                    status, text = await ready(leader)
            outage_s = time.monotonic() - began
            if outage_s > 20:  # the Lease could not be renewed for 10 s
                assert leader.process.returncode == LEADERSHIP_LOST
            elif outage_s < 8:
                # A short outage causes no restart of the manager, nor makes its webhooks unready.
                assert (leader.process.returncode, status, text) == (None, 200, "ok")
            lost = requests_of(during, code="<error>") - requests_of(before, code="<error>")
            assert lost <= KINDS * (10 + outage_s)
            status, text = await ready(late)
            assert late.process.returncode is None
            assert (status, "not started yet" in text) == (500, True)

            await asyncio.to_thread(cluster.start_apiserver)
            back = time.monotonic()
            lost_it = not await ready_or_ended(leader)
            if lost_it:
                await leader.start()  # as the kubelet does
            await late.wait_ready()
            print(f"managers ready {time.monotonic() - back:.1f} s after")
            await group.running("in-place", epoch=2)
            print(f"in place {time.monotonic() - back:.1f} s after")
            await group.running("recreate", restarts=1)
            print(f"caught up {time.monotonic() - back:.1f} s after the API server was back")
            await group.create("single")
            await asyncio.sleep(1.0)
            sent = answered(await scraped(leader)) - (0 if lost_it else answered(during))
            sent += answered(await scraped(late))
            print(f"{lost:.0f} requests during {outage_s:.0f} s, {sent:.0f} of both after them")

            assert (group.restarts("recreate"), group.epochs("in-place")) == (1, (2, 1))
            assert group.world.violations == []
            await group.check_no_duplicates()
            # Lists (some of them twice), watches, and the requests for the three JobSets.
            assert sent <= KINDS * 10 + 100
    finally:
        await leader.stop()
        await late.stop()
        await asyncio.to_thread(cluster.start_apiserver)


async def test_nothing_is_created_twice_when_etcd_is_slow(cluster, client, namespace, tmp_path):
    """Requests that take seconds or time out: no duplicate Job, pod, Service, event or restart."""
    manager = ManagerProcess(cluster.kubeconfig, tmp_path / "log")
    etcd = cluster.component_pid("etcd")

    async def stutter():
        """Let etcd run for a fifth of the time, 50 ms each."""
        while True:
            os.kill(etcd, signal.SIGSTOP)
            await asyncio.sleep(0.2)
            os.kill(etcd, signal.SIGCONT)
            await asyncio.sleep(0.05)

    try:
        await manager.start()
        async with attempt_of(client, namespace) as group:
            stuttering = asyncio.create_task(stutter())
            await group.create("recreate", "single", "in-place")
            group.fail_soon("recreate", "in-place")
            await asyncio.sleep(0.3)
            stuttering.cancel()
            os.kill(etcd, signal.SIGSTOP)  # etcd hangs
            await asyncio.sleep(ETCD_S)
            assert manager.process.returncode is None
            os.kill(etcd, signal.SIGCONT)
            await group.running("recreate", restarts=1)
            await group.running("in-place", epoch=2)
            await asyncio.sleep(0.5)

            assert (group.restarts("recreate"), group.epochs("in-place")) == (1, (2, 1))
            assert group.world.violations == []
            await group.check_no_duplicates()
    finally:
        os.kill(etcd, signal.SIGCONT)
        await manager.stop()


async def test_two_managers_have_the_effect_of_one(cluster, client, namespace, tmp_path):
    """Both lead without knowing of each other, and one is stopped for a while."""
    both = [
        ManagerProcess(cluster.kubeconfig, tmp_path / f"log-{n}", metrics=True) for n in range(2)
    ]
    writes = ("POST", "PATCH", "PUT", "DELETE")

    async def written() -> float:
        return sum([requests_of(await scraped(one), *writes) for one in both])

    try:
        async with asyncio.TaskGroup() as starts:
            for one in both:
                starts.create_task(one.start())
        async with attempt_of(client, namespace) as group:
            begun = await written()
            await group.create("recreate", "single", "in-place")
            for name in ("recreate", "in-place"):
                await group.fail(name)
            await group.running("recreate", restarts=1)
            await group.running("in-place", epoch=2)

            # One does not see the next restarts until they are over.
            os.kill(both[0].pid, signal.SIGSTOP)
            for name in ("recreate", "in-place"):
                await group.fail(name)
            await group.running("recreate", restarts=2)
            await group.running("in-place", epoch=3)
            os.kill(both[0].pid, signal.SIGCONT)
            settled = await quiet(written)  # they do not undo each other's writes
            print(f"{settled - begun:.0f} writes by both")

            assert (group.restarts("recreate"), group.epochs("in-place")) == (2, (3, 2))
            assert group.world.violations == []
            await group.check_no_duplicates(restarts=2)
            assert settled - begun <= 250
    finally:
        for one in both:
            if one.process is not None:
                os.kill(one.pid, signal.SIGCONT)
                await one.stop()
