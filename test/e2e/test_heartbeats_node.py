"""A node's link that drops everything in silence costs a training with a spare some seconds.

Heartbeats that a NetworkPolicy drops are reported and cost nothing. Two real nodes in network
namespaces of this machine, with real agents, API server and manager, and a program that adds up
numbers over TCP. Its ranks wait for silent peers, as frameworks do.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from hack.images.training import PLAIN
from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from support import patience
from support.agents.spares_kit import (
    LOST,
    Group,
    managed_training_nodes,
    training_nodes,
)
from support.agents.training_kit import NAMESPACE, Training, manifest
from support.cluster.network_policies import nft
from support.cluster.processes import pod_host_name
from support.commands import why
from support.restarts.scenario import EventText, install_agents

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(600)]

NAME, BLOCKED = "ring", "blocked"
SEATS = 4


@pytest.fixture(scope="module")
def two_nodes():
    """A cluster with two nodes, one of which takes a single pod."""
    with training_nodes() as cluster:
        yield cluster


@pytest.fixture
async def client(two_nodes):
    """A client of the cluster, with a manager on the node that stays."""
    async with managed_training_nodes(two_nodes) as made:
        await install_agents(made)
        yield made


@asynccontextmanager
async def training(client, folder, name=NAME):
    """A training of four ranks and a spare, one pod of which is on the node to lose."""
    body = manifest(name, PLAIN, "spare-1", SEATS, folder, spread=True)
    body["metadata"]["annotations"][keys.IN_PLACE_HEARTBEAT_ANNOTATION] = "auto"
    group = Group(client, name, Training(folder, SEATS))
    async with group.living(body):
        await group.training.stepping(0, 180)
        await group.reaches_spares(1)
        yield group


async def put(client, group, rank):
    """Move the seat of a rank to the pod on the node to lose."""
    for _ in range(4):
        pods = (await client.list_page(Pod, NAMESPACE)).items
        (there,) = [
            each
            for each in pods
            if each.spec.node_name == LOST and each.metadata.deletion_timestamp is None
        ]
        runs = group.training.runs()
        held = next((r for r, run in runs.items() if run["host"] == pod_host_name(there)), None)
        if held == rank:
            return there
        # A spare there takes the seat of the rank; a holder there is replaced by a spare.
        victim = there.metadata.name if held is not None else await group.pod_of(runs[rank]["host"])
        moment = time.time()
        await client.delete(Pod, NAMESPACE, victim, grace_period_seconds=0)
        await group.training.stepping(moment, 90)
        await group.reaches_spares(1)
        await patience.eventually(lambda: on_lost_node(client), seconds=60)
    raise AssertionError(f"rank {rank} does not come to {LOST}")


async def on_lost_node(client):
    """Return True if a pod runs on the node to lose."""
    return any(
        each.spec.node_name == LOST and each.metadata.deletion_timestamp is None
        for each in (await client.list_page(Pod, NAMESPACE)).items
    )


async def test_group_restarts_when_any_ranks_node_is_silent(two_nodes, client, tmp_path):
    """The last rank, and then the first one, whose address all other ranks use."""
    async with training(client, tmp_path) as group:
        for rank in (SEATS - 1, 0):
            pod = await put(client, group, rank)
            await group.training.advances(30, 30)
            moment = time.time()
            await asyncio.to_thread(two_nodes.unplug_node, LOST)
            try:
                runs = await group.training.stepping(moment, 60)
            finally:
                await asyncio.to_thread(two_nodes.plug_in_node, LOST)
            jobset = await client.get(JobSet, NAMESPACE, NAME)
            # Under load a worker may fail once more, which restarts all ranks again.
            silent = [
                each
                for each in jobset.status.restart_history
                if each.began_at.timestamp() > moment and each.cause.reason == "PodSilent"
            ]
            stepping_s = max(run["at"] for run in runs.values()) - moment
            print(
                f"rank {rank}: noticed {silent[0].began_at.timestamp() - moment:.2f} s, "
                f"began {max(run['began'] for run in runs.values()) - moment:.2f}, "
                f"joined {max(run['joined'] for run in runs.values()) - moment:.2f}, "
                f"all step {stepping_s:.2f}"
            )

            assert [each.cause.pod for each in silent] == [pod.metadata.name]
            assert runs[rank]["host"] != pod_host_name(pod)
            await group.reaches_spares(1)  # it heals, and is the next one


@asynccontextmanager
async def dropped(cluster, *matches):
    """Drop forwarded datagrams of the ring on both nodes, as a NetworkPolicy has it.

    ``matches`` are conditions on their addresses; without any, all datagrams between nodes.
    """
    rules = "\n".join(f"{each} udp dport {keys.HEARTBEAT_PORT} drop" for each in matches or ("",))
    table = (
        "table inet heartbeats { chain forward {\n"
        f"type filter hook forward priority 0; policy accept;\n{rules}\n}}\n}}\n"
    )
    nodes = ("node-1", LOST)
    try:
        for node in nodes:
            await nft(cluster, node, table)
        yield
    finally:
        for node in nodes:
            await nft(cluster, node, "add table inet heartbeats\ndelete table inet heartbeats\n")


async def told(client, reason):
    """Notes of the events with a reason about the training."""
    events = (await client.list_page(EventText, NAMESPACE)).items
    return [each.note for each in events if each.reason == reason]


async def nothing_is_unheard(client):
    """True if no agent misses heartbeats."""
    return not any(
        keys.UNHEARD_ANNOTATION in each.metadata.annotations
        for each in (await client.list_page(Pod, NAMESPACE)).items
    )


async def test_blocked_heartbeats_are_reported_and_restart_nothing(two_nodes, client, tmp_path):
    """Between the nodes from the start, then between two pods: events and ``status`` name the pods."""
    async with AsyncExitStack() as stack:
        async with dropped(two_nodes):
            group = await stack.enter_async_context(training(client, tmp_path, BLOCKED))
            runs = group.training.runs()
            blocked = keys.HEARTBEATS_BLOCKED_REASON
            await patience.eventually(lambda: told(client, blocked), seconds=90)
            text = await why(two_nodes, BLOCKED)
            await group.training.advances(30, 30)

            assert f"{BLOCKED}-w-0-" in (await told(client, blocked))[0]
            assert f"No heartbeats arrive at {BLOCKED}-w-0-" in text
            assert f"UDP, port {keys.HEARTBEAT_PORT}, is blocked" in text

        await patience.eventually(lambda: nothing_is_unheard(client), seconds=60)
        pods = (await client.list_page(Pod, NAMESPACE)).items
        by_index = {int(each.metadata.labels[keys.COMPLETION_INDEX_LABEL]): each for each in pods}
        (there,) = [index for index, each in by_index.items() if each.spec.node_name == LOST]
        pair = {index: by_index[index] for index in (there, (there + 1) % len(pods))}
        one, other = (each.status.pod_ip for each in pair.values())
        both_ways = (f"ip saddr {a} ip daddr {b}" for a, b in ((one, other), (other, one)))
        async with dropped(two_nodes, *both_ways):

            async def both_are_named():
                notes = await told(client, keys.HEARTBEATS_MISSING_REASON)
                return all(
                    any(repr(each.metadata.name) in note for note in notes)
                    for each in pair.values()
                )

            await patience.eventually(both_are_named, seconds=60)
            text = await why(two_nodes, BLOCKED)
            await group.training.advances(30, 30)
            status = (await client.get(JobSet, NAMESPACE, BLOCKED)).status

            for index, observer in zip(pair, reversed(pair.values()), strict=True):
                silent = f"Heartbeats of {BLOCKED}-w-0-{index} no longer arrive at"
                assert f"{silent} {observer.metadata.name}." in text
            assert (status.synced_epoch, status.deprecated_epoch) == (1, 0)
            assert group.training.runs() == runs
