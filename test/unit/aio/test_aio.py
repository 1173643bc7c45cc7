"""Supervised tasks, waiting, back-off, clocks."""

import asyncio
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy import aio


async def test_leaving_the_block_ends_its_tasks():
    """A task does not outlive the supervise block."""
    async with aio.supervise() as tasks:
        task = tasks.start(asyncio.sleep(3600), name="sleeper")

    assert task.cancelled()


@pytest.mark.looptime
async def test_task_is_cancelled_when_it_is_started_while_the_block_ends():
    """A server may start one for a client that arrives in that moment."""
    started = []

    async def start_another() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            started.append(tasks.start(asyncio.sleep(3600), name="late"))

    async with aio.supervise() as tasks:
        tasks.start(start_another(), name="first")
        await asyncio.sleep(0)

    assert [task.cancelled() for task in started] == [True]


async def test_a_failing_task_ends_the_block_with_its_own_exception():
    """A single failure is raised unchanged, not wrapped in a group."""

    async def fail() -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        async with aio.supervise() as tasks:
            tasks.start(fail(), name="failing")
            await asyncio.sleep(3600)


async def test_failures_of_the_block_and_of_tasks_are_kept_together():
    """Two failures are reported as a group; none is lost."""

    async def fail() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            raise LookupError("on the way out")

    with pytest.raises(ExceptionGroup) as caught:
        async with aio.supervise() as tasks:
            tasks.start(fail(), name="failing")
            await asyncio.sleep(0)
            raise ValueError("body")

    assert {LookupError, ValueError} == {type(e) for e in caught.value.exceptions}


@pytest.mark.looptime
async def test_sleep_or_wakes_early_only_for_the_event():
    """The event ends the wait early; without it the wait has its full length."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    start = loop.time()
    timed_out = await aio.sleep_or(event, 5)
    loop.call_later(2, event.set)
    woken = await aio.sleep_or(event, 5)

    assert (timed_out, woken) == (False, True)
    assert loop.time() - start == pytest.approx(7)


@given(
    attempt=st.integers(0, 10_000),
    base=st.floats(0.001, 10),
    cap=st.floats(0.001, 1000),
    rand=st.floats(0, 0.999999),
)
def test_full_jitter_stays_under_both_bounds(attempt, base, cap, rand):
    """No wait is negative or above the cap or the exponential bound."""
    wait = aio.full_jitter(attempt, base=base, cap=cap, rand=lambda: rand)

    assert 0 <= wait <= min(cap, base * 2.0 ** min(attempt, 62))


def test_backoff_grows_resets_and_obeys_the_server():
    """Waits double up to the cap, start over after reset, and are never below Retry-After."""
    backoff = aio.Backoff(base=1, cap=5, rand=lambda: 1.0)
    grown = [backoff.next() for _ in range(4)]
    demanded = backoff.next(retry_after=7)
    backoff.reset()

    assert grown == [1, 2, 4, 5]
    assert demanded == 12
    assert backoff.next() == 1


def test_a_manual_clock_moves_both_of_its_clocks():
    """advance() moves monotonic and wall time by the same amount, and never back."""
    clock = aio.ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    before = clock.monotonic()
    clock.advance(90)

    assert clock.monotonic() - before == 90
    assert clock.now() == datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)
