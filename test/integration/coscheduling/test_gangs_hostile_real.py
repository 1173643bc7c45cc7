"""Nodes that are lost while binds to them are held, with the real scheduler."""

import asyncio

import pytest

from jobsetpy.api.core import Node
from support.coscheduling.gangs_kit import LIMIT_S

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(240)]


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
