"""Full passes of the garbage collector: rarely, while the process is idle, and often enough."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from jobsetpy import aio
from jobsetpy.app.garbage import (
    DOUBLED,
    GROWN,
    IDLE,
    LOOK_S,
    FullPasses,
    collect_garbage,
    young_only,
)


class Process:
    """A process of 1,000 blocks that has used no CPU."""

    def __init__(self):
        self.blocks, self.cpu = 1000, 0.0
        self.passes = FullPasses(lambda: self.blocks, lambda: self.cpu)

    def due(self, growth, busy):
        """Return whether a pass is due after this growth, and this share of a core used."""
        self.blocks = int(1000 * growth)
        self.cpu += busy * LOOK_S
        return self.passes.due(LOOK_S)


@pytest.mark.parametrize(
    ("growth", "busy", "due"),
    [
        (1.0, 0.0, False),
        (GROWN, 0.0, False),
        (GROWN + 0.01, 0.0, True),
        (GROWN + 0.01, IDLE, False),
        (DOUBLED, 1.0, False),
        (DOUBLED + 0.01, 1.0, True),
    ],
)
def test_full_passes_wait_for_idle_moments_unless_memory_has_doubled(growth, busy, due):
    """No pass is run while memory does not grow."""
    assert Process().due(growth, busy) is due


def test_growth_counts_from_the_last_full_pass():
    """Blocks that a full pass leaves are in use."""
    process = Process()
    assert process.due(DOUBLED, 0.0)
    process.passes.done()
    assert not process.due(DOUBLED, 0.0)
    assert process.due(DOUBLED * DOUBLED, 0.0)


def test_the_interpreter_runs_no_full_pass_itself():
    """Any number of new objects causes only young passes; afterwards full passes run again."""
    before = gc.get_threshold()
    with young_only():
        full = gc.get_stats()[2]["collections"]
        kept = [[] for _ in range(300_000)]
        assert gc.get_stats()[2]["collections"] == full
        assert gc.get_stats()[1]["collections"] > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
    assert len(kept) == 300_000


class Node:
    """Half of a cycle."""

    other = None


def old_cycle():
    """A garbage cycle that has survived all young passes."""
    one, two = Node(), Node()
    one.other, two.other = two, one
    gc.collect(0)
    gc.collect(1)
    return weakref.ref(one)


@pytest.mark.looptime
async def test_old_cycles_are_collected():
    """The pass is due when memory has grown and the process is idle."""
    process, ready = Process(), asyncio.Event()
    ready.set()
    async with aio.supervise() as tasks:
        task = tasks.start(collect_garbage(ready, lambda: process.passes), name="garbage")
        await asyncio.sleep(0)
        cycle = old_cycle()
        await asyncio.sleep(10 * LOOK_S)
        assert cycle() is not None
        process.blocks += process.blocks // 5
        await asyncio.sleep(LOOK_S)
        assert cycle() is None
        task.cancel()
