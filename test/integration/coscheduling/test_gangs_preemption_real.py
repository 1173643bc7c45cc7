"""Timeouts, and preemption by and of gangs, with the real kube-scheduler."""

import asyncio

import pytest

from jobsetpy.api import keys
from support.coscheduling.gangs import create_all, pod_body
from support.coscheduling.gangs_kit import LIMIT_S
from support.patience import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(150)]

TIMEOUTS = 'jobset_coscheduler_group_rejections_total{cause="timeout"}'
HIGH, LOW = "gangs-high", "gangs-low"


async def test_incomplete_gang_releases_its_capacity_at_its_timeout(gangs):
    """Repeatedly, and it is bound once it is complete."""
    async with gangs() as rig:
        await rig.node("n", 8)
        second = {keys.COSCHEDULING_TIMEOUT_ANNOTATION: "1"}
        await rig.waiting_group("a", 6, annotations=second)
        await eventually(lambda: rig.metric(TIMEOUTS) >= 2, LIMIT_S, poll_s=0.1)
        assert rig.binds.counts("a") == [0]
        await rig.create(rig.bodies("b", 5))
        await rig.bound("b")  # with the capacity that the other gang has released
        assert rig.binds.counts("a") == [0]
        await rig.let_go("a")
        await rig.delete("b")
        await rig.bound("a")


async def test_reserved_capacity_is_taken_by_a_pod_of_higher_priority(gangs):
    """The gang is rejected as a whole, and keeps its pods."""
    async with gangs() as rig:
        await rig.priority(HIGH, 1000)
        await rig.node("n", 8)
        await rig.waiting_group("a", 7)
        pods = dict(rig.binds.there)
        urgent = pod_body("urgent-0", cpu="6", priorityClassName=HIGH)
        await create_all(rig.client, [urgent])
        await rig.binds.wait(lambda: "urgent-0" in rig.binds.bound, LIMIT_S)
        assert pods.items() <= rig.binds.there.items()
        assert rig.binds.counts("a") == [0]
        rejected = 'jobset_coscheduler_group_rejections_total{cause="preempted"}'
        assert rig.metric(rejected) >= 1


async def test_gang_evicts_no_pod_when_it_is_too_small(gangs):
    """Not even pods of lower priority; a gang with enough pods takes their capacity."""
    async with gangs() as rig:
        await rig.priority(HIGH, 1000)
        await rig.priority(LOW, 1)
        await rig.node("n", 8)
        low = [pod_body(f"low-{at}", group="low", priorityClassName=LOW) for at in range(8)]
        await create_all(rig.client, low)
        await rig.binds.wait(lambda: rig.binds.counts("low") == [8], LIMIT_S)
        pods = dict(rig.binds.there)
        urgent = {"priorityClassName": HIGH, "cpu": "2"}
        await rig.create(rig.bodies("large", 5, **urgent)[:4])
        series = 'jobset_coscheduler_requests_total{code="200",verb="preempt"}'
        await eventually(lambda: rig.metric(series) >= 1, LIMIT_S, poll_s=0.1)
        await asyncio.sleep(2.0)
        assert pods.items() <= rig.binds.there.items()
        assert rig.binds.counts("large", "low") == [0, 8]

        await rig.delete("large")
        await rig.create(rig.bodies("small", 3, **urgent))
        await rig.bound("small")
        assert rig.binds.counts("low")[0] <= 2
