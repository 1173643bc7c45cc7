"""Gangs that compete for capacity, with the real kube-scheduler and the coscheduler next to it."""

import asyncio

import pytest

from support.coscheduling.gangs import create_all, pod_body
from support.coscheduling.gangs_kit import LIMIT_S

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(150)]

SIZE, CAPACITY = 10, 12


async def test_gangs_are_bound_one_after_the_other_when_both_do_not_fit(gangs):
    """Each is bound as a whole; plain pods share the capacity and are stuck."""
    async with gangs() as rig:
        await rig.node("n", CAPACITY)
        await rig.create(rig.bodies("a", SIZE), rig.bodies("b", SIZE))
        await rig.binds.wait(lambda: rig.some_group("ab"), LIMIT_S)
        first = rig.some_group("ab")
        second = "b" if first == "a" else "a"
        await rig.holds(CAPACITY - SIZE)  # the second gang is tried
        assert rig.binds.counts(first, second) == [SIZE, 0]
        await rig.delete(first)
        await rig.bound(second)
        assert rig.in_part() == set()
        await rig.delete(second)
        await rig.binds.wait(lambda: not rig.binds.there)
        plain = [
            pod_body(f"{group}-{at}", group=group) for at in range(SIZE) for group in ("c", "d")
        ]
        await create_all(rig.client, plain)
        await rig.binds.wait(lambda: len(rig.binds.bound) == CAPACITY)
        await rig.nothing_changes(2.0)
        assert max(rig.binds.counts("c", "d")) < SIZE


async def test_ten_gangs_are_bound_next_to_regular_pods(gangs):
    """As capacity is released, one gang after the other is bound as a whole; regular pods pass."""
    groups = [f"g{at}" for at in range(10)]
    async with gangs() as rig:
        await rig.node("n", 14)

        async def regular(at):
            name = f"r-{at}"
            await create_all(rig.client, [pod_body(name, group="r", cpu="10m")])
            await rig.binds.wait(lambda: name in rig.binds.bound, LIMIT_S)

        await rig.create(*(rig.bodies(group, 6) for group in groups))
        left = list(groups)
        for at in range(len(groups)):
            await regular(at)
            await rig.binds.wait(lambda: rig.some_group(left), LIMIT_S)
            assert sum(rig.binds.counts(*groups)) <= 13
            done = rig.some_group(left)
            left.remove(done)
            await rig.delete(done)
        assert left == []
        assert rig.in_part() == set()


async def test_gang_is_bound_immediately_when_capacity_is_added(gangs):
    """Gangs that wait for nodes of a pool delay no other gang."""
    async with gangs() as rig:
        pool = {"pool": "big"}
        await rig.node("small", 3)
        await rig.create(rig.bodies("a", 5, nodeSelector=pool))
        await asyncio.sleep(1.1)  # creation times are whole seconds
        await rig.create(rig.bodies("b", 4, nodeSelector=pool), rig.bodies("c", 3))
        await rig.bound("c")
        await rig.nothing_changes(1.0)
        assert rig.binds.counts("a", "b", "c") == [0, 0, 3]
        await rig.node("big", 6, **pool)
        await rig.binds.wait(lambda: rig.some_group("ab"), LIMIT_S)
        await rig.node("big2", 4, **pool)
        await rig.bound("a", "b")
