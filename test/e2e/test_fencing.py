"""Nodes that vanish and come back under a training with a spare: never two holders of one seat.

Two real nodes in network namespaces of this machine, with real agents, API server and manager, and
a program that adds up numbers over TCP. Its ranks wait for silent peers, as frameworks do.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from hack.images.training import PLAIN
from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import JobSetPyError
from support import patience
from support.agents.spares_kit import LOST, managed_training_nodes, running, training_nodes
from support.agents.training_kit import NAMESPACE, RANKS_HAVE
from support.cluster.processes import pod_host_name, process_in
from support.restarts.scenario import manager_ready

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(600)]

AWAY_S = 20.0
"""Duration of the API server's outage; ``bench/training.py --failure api`` takes any."""


@pytest.fixture(scope="module")
def two_nodes():
    """A cluster with two nodes, one of which takes a single pod."""
    with training_nodes() as cluster:
        yield cluster


@pytest.fixture
async def client(two_nodes):
    """A client of the cluster, with a manager on the node that stays."""
    async with managed_training_nodes(two_nodes) as made:
        yield made


class Lost:
    """A training with a spare and a rank on the node that will be lost.

    Attributes:
        rank: that rank.
        run: its run before the loss.
        worker: its worker's process id on this machine.
    """

    def __init__(self, group, pod, rank):
        self.group = group
        self.pod = pod
        self.rank = rank
        self.run = group.training.runs()[rank]
        self.worker = process_in(self.run["host"], self.run["pid"], RANKS_HAVE)

    async def worker_ends(self):
        """Wait for the end of the worker; return the time."""
        async with patience.timeout(60):
            while Path(f"/proc/{self.worker}").exists():  # noqa: ASYNC110 - another's process
                await asyncio.sleep(0.01)
        return time.time()

    async def continues_elsewhere(self, moment):
        """Wait until all ranks step again; return the run that has taken over."""
        runs = await self.group.training.stepping(moment, 60)
        print({rank: round(run["at"] - moment, 2) for rank, run in runs.items()})
        assert runs[self.rank]["host"] != self.run["host"]
        return runs[self.rank]

    async def becomes_a_spare(self):
        """Wait until a spare is ready; meanwhile no rank may restart and no seat move."""
        runs, seats = self.group.training.runs(), await self.group.seats()
        await self.group.reaches_spares(1)
        await self.group.training.advances(20, 30)
        assert (self.group.training.runs(), await self.group.seats()) == (runs, seats)


@asynccontextmanager
async def training(client, name, folder, **notes):
    """A training of two ranks and a spare on two nodes, as :class:`Lost`."""
    async with running(client, name, PLAIN, folder, 1, spread=True, notes=notes) as group:
        pods = (await client.list_page(Pod, NAMESPACE)).items
        (pod,) = [each for each in pods if each.spec.node_name == LOST]
        if await rank_on(group, pod) is None:  # the pod is the spare: have it take a seat
            moment, victim = time.time(), await group.pod_of(group.training.runs()[1]["host"])
            await client.delete(Pod, NAMESPACE, victim, grace_period_seconds=0)
            await group.training.stepping(moment, 60)
            await group.reaches_spares(1)
        rank = await rank_on(group, pod)
        assert rank is not None
        # Time for heartbeats: an agent that has never received one is not cut off.
        await group.training.advances(100, 60)
        yield Lost(group, pod, rank)


async def rank_on(group, pod):
    """Return the rank of a pod's worker; ``None`` for a spare."""
    runs = group.training.runs()
    return next((rank for rank, run in runs.items() if run["host"] == pod_host_name(pod)), None)


RING = {keys.IN_PLACE_HEARTBEAT_ANNOTATION: "auto"}


async def test_seat_has_one_holder_when_a_partition_heals(two_nodes, client, tmp_path):
    """The old worker ends by itself before the new one runs; the healed pod is the next spare."""
    async with training(client, "partition", tmp_path, **RING) as lost:
        moment = time.time()
        await asyncio.to_thread(two_nodes.unplug_node, LOST)
        try:
            ended = await lost.worker_ends()
            after = await lost.continues_elsewhere(moment)
            print(f"old worker ended after {ended - moment:.2f} s")
            assert ended < after["joined"]
            assert "cut off" in agent_log(two_nodes, lost.pod)
        finally:
            await asyncio.to_thread(two_nodes.plug_in_node, LOST)
        await lost.becomes_a_spare()
        healed = await client.get(Pod, NAMESPACE, lost.pod.metadata.name)

    assert healed.metadata.uid == lost.pod.metadata.uid


async def test_worker_ends_when_its_paused_machine_continues(two_nodes, client, tmp_path):
    """A spare takes over while all processes of the node are stopped."""
    async with training(client, "paused", tmp_path, **RING) as lost:
        processes = processes_of(two_nodes, LOST)
        moment = time.time()
        send(processes, signal.SIGSTOP)
        try:
            await lost.continues_elsewhere(moment)
            assert Path(f"/proc/{lost.worker}").exists()
        finally:
            moment = time.time()
            send(processes, signal.SIGCONT)
        print(f"old worker ended {await lost.worker_ends() - moment:.2f} s after the pause")
        await lost.becomes_a_spare()
        healed = await client.get(Pod, NAMESPACE, lost.pod.metadata.name)

    assert healed.metadata.uid == lost.pod.metadata.uid


async def test_seat_is_taken_when_a_kubelet_and_its_containers_die(two_nodes, client, tmp_path):
    """The pod's status in the API server does not change; the restart begins all the same."""
    async with training(client, "kubelet", tmp_path) as lost:
        agent = process_in(lost.run["host"], 1, RANKS_HAVE)
        await asyncio.to_thread(two_nodes.kill_component, f"{LOST}/kubelet")
        moment = time.time()
        os.kill(agent, signal.SIGKILL)  # and with it all processes of its container
        await lost.continues_elsewhere(moment)
        pod = await client.get(Pod, NAMESPACE, lost.pod.metadata.name)
        assert (pod.status.phase, pod.metadata.deletion_timestamp) == ("Running", None)
        two_nodes.start_component(f"{LOST}/kubelet")
        await lost.becomes_a_spare()


async def test_training_continues_during_an_outage_of_the_api_server(two_nodes, client, tmp_path):
    """Ranks keep stepping, with heartbeats too; a failure afterwards costs one restart as usual."""
    # A busy machine may stall all ranks for seconds. With the API server away, the default interval
    # takes 2 s without beats and steps for a pod that is cut off; this one takes 12.5 s.
    patient = {keys.IN_PLACE_HEARTBEAT_ANNOTATION: "4", keys.IN_PLACE_HANG_ANNOTATION: "120"}
    async with training(client, "away", tmp_path, **patient) as lost:
        ranks, synced = lost.group.training, await epoch_of(client, "away")
        await ranks.advances(400, 60)  # two beats
        runs = ranks.runs()
        await asyncio.to_thread(two_nodes.stop_apiserver, kill=True)
        try:
            began = time.monotonic()
            while time.monotonic() - began < AWAY_S:
                await ranks.advances(0, 10)
                await asyncio.sleep(1)
        finally:
            await asyncio.to_thread(two_nodes.start_apiserver)
        await ranks.advances(0, 10)
        assert ranks.runs() == runs

        await patience.eventually(lambda: epoch_of(client, "away"), 60)
        await manager_ready(client)  # without its Lease it ends, and is restarted
        moment = time.time()
        os.kill(lost.worker, signal.SIGKILL)
        await ranks.stepping(moment, 90)
        jobset = await client.get(JobSet, NAMESPACE, "away")
        print(*jobset.status.restart_history, sep="\n")
        assert jobset.status.synced_epoch == synced + 1


async def epoch_of(client, name):
    """Return the synced epoch of a JobSet; 0 while the API server does not answer."""
    with suppress(JobSetPyError):
        return (await client.get(JobSet, NAMESPACE, name)).status.synced_epoch
    return 0


def agent_log(cluster, pod):
    """Return the log of a pod's agent and worker."""
    return "".join(
        path.read_text()
        for path in cluster.folder.glob(
            f"node-*/log/pods/{NAMESPACE}_{pod.metadata.name}_*/worker/*.log"
        )
    )


def processes_of(cluster, node):
    """Return the ids of all processes of a node, its first one and containers included."""
    children = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue  # it has just ended
        parent = int(stat.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(folder.name))
    found = children[cluster.component_pid(node)]
    for each in found:
        found.extend(children.get(each, ()))
    return found


def send(processes, number):
    """Send a signal to processes, some of which may have ended."""
    for each in processes:
        try:
            os.kill(each, number)
        except ProcessLookupError:
            continue
