"""The client-side rate limit, in virtual time."""

import asyncio

import pytest

from jobsetpy.client import RateLimiter

pytestmark = pytest.mark.looptime


async def test_burst_passes_and_then_the_rate_applies(looptime):
    """The burst passes immediately; after it, one request each 1/qps seconds."""
    limiter = RateLimiter(10, 3)
    loop = asyncio.get_running_loop()
    start = loop.time()
    times = []
    for _ in range(6):
        await limiter.acquire()
        times.append(round(loop.time() - start, 3))

    assert times == [0, 0, 0, 0.1, 0.2, 0.3]


async def test_waiters_pass_in_order(looptime):
    """None overtakes another."""
    limiter = RateLimiter(10, 1)
    order = []

    async def one(name):
        await limiter.acquire()
        order.append(name)

    async with asyncio.TaskGroup() as group:
        for name in range(5):
            group.create_task(one(name))
        await asyncio.sleep(0.05)
        assert not limiter.try_acquire()

    assert order == [0, 1, 2, 3, 4]


async def test_cancelled_waiter_costs_no_token(looptime):
    """The next waiter passes when the cancelled one would have."""
    limiter = RateLimiter(10, 1)
    loop = asyncio.get_running_loop()
    await limiter.acquire()
    start = loop.time()
    first = asyncio.create_task(limiter.acquire())
    second = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0.05)
    first.cancel()
    await second

    assert round(loop.time() - start, 3) == 0.1
    assert first.cancelled()


async def test_token_of_a_cancelled_waiter_is_passed_on(looptime):
    """Cancellation and token may arrive at the same time."""
    limiter = RateLimiter(10, 1)
    loop = asyncio.get_running_loop()
    await limiter.acquire()
    start = loop.time()
    first = asyncio.create_task(limiter.acquire())
    second = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    limiter._tokens = 1.0  # a token, which lets the first one pass ...
    limiter._release()
    first.cancel()  # ... and it is cancelled before it runs again
    await second

    assert loop.time() == start
    assert first.cancelled()


async def test_tokens_are_saved_up_to_the_burst_only(looptime):
    """A long pause does not allow more."""
    limiter = RateLimiter(10, 2)
    await limiter.acquire()
    await asyncio.sleep(1000)

    assert [limiter.try_acquire() for _ in range(3)] == [True, True, False]


async def test_rate_of_zero_has_no_limit(looptime):
    """All requests pass immediately."""
    limiter = RateLimiter(0)

    assert all(limiter.try_acquire() for _ in range(1000))
    await limiter.acquire()


async def test_rounding_of_timers_does_not_add_up(looptime):
    """n tokens take n/qps seconds."""
    limiter = RateLimiter(100, 1)
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with asyncio.TaskGroup() as group:
        for _ in range(1001):
            group.create_task(limiter.acquire())

    assert 10.0 <= loop.time() - start + 1e-3 < 10.02


@pytest.mark.parametrize(("qps", "burst"), [(-1, 0), (1, -1)])
def test_negative_limit_is_refused(qps, burst):
    """It is a mistake in the configuration."""
    with pytest.raises(ValueError):
        RateLimiter(qps, burst)
