"""Pods, nodes and labels that must not block other gangs, with the real scheduler."""

import asyncio
import json
import time

import pytest

from jobsetpy.api import keys
from jobsetpy.api.coordination import Lease
from jobsetpy.api.core import Node
from jobsetpy.coscheduler.engine.pods import QUEUED_CONDITION, GroupPod
from support import patience
from support.coscheduling.gangs import create_all, pod_body
from support.coscheduling.gangs_kit import FOREIGN, LIMIT_S

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(240)]

GATES = [{"name": keys.COSCHEDULING_GATE}, {"name": FOREIGN}]
TOGETHER = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "no/such", "labelSelector": {"matchLabels": {"no": "such"}}}
        ]
    }
}


def tiny(name, **spec):
    """A gang of one small pod."""
    return pod_body(f"{name}-0", group=name, minimum=1, cpu="1m", **spec)


@pytest.mark.parametrize(
    "spec", [{"schedulingGates": GATES}, {"schedulerName": "none"}], ids=["gate", "scheduler"]
)
async def test_gang_is_bound_when_no_scheduler_takes_other_pods(gangs, spec):
    """Before the fix, four gangs of one pod each used all places of gangs in flight for ever."""
    async with gangs() as rig:
        await rig.node("n", 8)
        await create_all(rig.client, [tiny(f"x{at}", **spec) for at in range(6)])
        await asyncio.sleep(2.0)  # creation times are whole seconds
        await rig.create(rig.bodies("a", 4))
        await rig.bound("a", limit_s=15)


async def test_younger_gangs_are_bound_when_an_older_one_can_never_be(gangs):
    """Capacity is reserved only for gangs that are waiting for capacity."""
    async with gangs() as rig:
        await rig.node("n", 8)
        await create_all(rig.client, [tiny(name, affinity=TOGETHER) for name in "xy"])
        await asyncio.sleep(65)  # after a minute capacity is reserved for gangs that need it
        worst = 0.0
        for at in range(6):
            began = time.monotonic()
            await rig.create(rig.bodies(f"g{at}", 4))
            await rig.bound(f"g{at}", limit_s=15)
            worst = max(worst, time.monotonic() - began)
            await rig.delete(f"g{at}")
        assert worst < patience.scaled(4)


async def test_queue_is_published_when_nodes_have_many_labels(gangs):
    """110 nodes with 62 labels each: the API server refuses annotations beyond 256 KiB."""
    async with gangs() as rig:
        for at in range(110):
            labels = {f"gpu.example.com/label-{n}": f"value-{n}-{at % 15}" for n in range(62)}
            await rig.node(f"gpu-{at}", 8 + at, **labels)
        await asyncio.sleep(patience.scaled(8))
        lease = await rig.client.get(Lease, "jobset-system", keys.COSCHEDULER_LEASE)
        text = lease.metadata.annotations[keys.COSCHEDULER_QUEUE_ANNOTATION]
        assert "the queue's Lease could not be written" not in rig.log.read_text()
        assert json.loads(text)["waiting"] is False
        assert len(text) < 1000


async def cordon(rig, name):
    """Make the node unschedulable."""
    await rig.client.merge_patch(Node, "", name, {"spec": {"unschedulable": True}})


async def taint(rig, name):
    """Taint the node as unreachable."""
    taints = [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]
    await rig.client.merge_patch(Node, "", name, {"spec": {"taints": taints}})


async def remove(rig, name):
    """Delete the node."""
    await rig.client.delete(Node, "", name)


@pytest.mark.parametrize("lose", [cordon, taint, remove])
async def test_held_binds_are_given_up_when_their_node_is_lost(gangs, lose):
    """The pods are bound to other nodes, and the gang is complete there."""
    async with gangs() as rig:
        await rig.node("old", 4)
        # New nodes have the taint "not ready", which a controller that does not run here would remove.
        ready = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]
        await rig.waiting_group("a", 4, tolerations=ready)
        await lose(rig, "old")
        await rig.node("new", 4)
        await asyncio.sleep(1.0)
        await rig.let_go("a")
        await rig.bound("a", limit_s=LIMIT_S)
        assert set(rig.binds.nodes.values()) == {"new"}


async def test_time_of_a_gang_is_kept_when_its_oldest_pod_is_replaced(gangs):
    """The next leader sees only the remaining pods; the status of one has the gang's age."""
    async with gangs() as rig:
        await rig.node("n", 1)
        bodies = [pod_body(f"a-{at}", group="a", minimum=1, cpu="4") for at in range(2)]
        await create_all(rig.client, bodies[:1])
        await asyncio.sleep(2.0)  # creation times are whole seconds
        await create_all(rig.client, bodies[1:])
        oldest = await rig.client.get(GroupPod, "default", "a-0")
        await rig.client.delete(GroupPod, "default", "a-0")

        async def kept():
            pod = await rig.client.get(GroupPod, "default", "a-1")
            return [
                each.last_transition_time
                for each in pod.status.conditions
                if each.type == QUEUED_CONDITION
            ]

        assert await patience.eventually(kept, 15) == [oldest.metadata.creation_timestamp]
