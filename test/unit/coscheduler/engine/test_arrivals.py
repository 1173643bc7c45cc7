"""Waits for objects that are not yet in the cache."""

from __future__ import annotations

import asyncio
import gc

from jobsetpy.coscheduler.engine.arrivals import Arrivals


def events() -> int:
    gc.collect()
    return sum(isinstance(each, asyncio.Event) for each in gc.get_objects())


async def test_wait_ends_when_the_object_is_seen_also_after_another_wait_has_given_up() -> None:
    arrivals = Arrivals()
    first = asyncio.create_task(arrivals.expect("node-0", 0.01))
    second = asyncio.create_task(arrivals.expect("node-0", 60))
    await first
    arrivals.seen("node-0")
    async with asyncio.timeout(10):
        await second


async def test_objects_that_never_come_are_forgotten() -> None:
    arrivals, before = Arrivals(), events()
    for number in range(20):
        await arrivals.expect(f"node-{number}", 0)
    assert events() <= before + 1  # the last one may still be referenced
