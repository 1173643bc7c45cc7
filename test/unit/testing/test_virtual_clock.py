"""The clock of loops in virtual time."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from jobsetpy.testing import VirtualClock

START = datetime(2030, 5, 1, tzinfo=UTC)


@pytest.mark.looptime
async def test_both_clocks_follow_the_loop():
    """An hour's sleep advances both by an hour."""
    clock = VirtualClock(START)
    before, then = clock.monotonic(), clock.now()
    await asyncio.sleep(3600.0)

    assert clock.monotonic() - before == 3600.0
    assert clock.now() - then == timedelta(hours=1)
    assert clock.now() == START + timedelta(seconds=asyncio.get_running_loop().time())
