"""Timeouts of tests grow with the load of the machine."""

import asyncio
import time

import pytest

from support import patience


@pytest.mark.parametrize(
    ("work", "load", "cores", "factor"),
    [
        pytest.param(1.0, 0.0, 2, 1.0, id="the idle reference machine"),
        pytest.param(0.5, 0.3, 8, 1.0, id="a faster one waits as long"),
        pytest.param(3.0, 1.0, 2, 3.0, id="a third of a core"),
        pytest.param(1.0, 12.0, 2, 6.0, id="many other threads, none of them at this moment"),
        pytest.param(8.0, 12.0, 2, 8.0, id="the larger of both"),
        pytest.param(99.0, 99.0, 1, 20.0, id="the maximum"),
    ],
)
def test_factor_is_derived_from_work_and_load(work, load, cores, factor):
    """The larger of the time for a piece of work and the load average counts, between 1 and 20."""
    assert patience.factor_of(work * patience.REFERENCE_S, load, cores) == pytest.approx(factor)


def test_factor_is_measured_once(request):
    """It is in pytest's header."""
    assert 1.0 <= patience.FACTOR <= patience.MOST
    header = request.config.pluginmanager.hook.pytest_report_header(
        config=request.config, start_path=request.config.rootpath
    )
    assert f"times {patience.FACTOR:.1f}" in str(header)


def test_default_timeout_is_scaled(request):
    """It is that of the configuration."""
    seconds = float(request.config.getini("timeout"))
    assert request.node.get_closest_marker("timeout").args == (patience.scaled(seconds),)


@pytest.mark.timeout(50)
def test_timeout_of_a_mark_is_scaled(request):
    """It replaces the default."""
    assert request.node.get_closest_marker("timeout").args == (patience.scaled(50),)


@pytest.mark.looptime
async def test_waits_end_after_the_scaled_time(monkeypatch):
    """Neither of them ends earlier."""
    monkeypatch.setattr(patience, "FACTOR", 3.0)
    loop = asyncio.get_running_loop()
    with pytest.raises(AssertionError, match=r"not true within 30\.0 s"):
        await patience.eventually(lambda: False, 10.0)
    assert loop.time() == pytest.approx(30.0, abs=0.1)
    with pytest.raises(TimeoutError):
        async with patience.timeout(10.0):
            await asyncio.sleep(1e6)
    assert loop.time() == pytest.approx(60.0, abs=0.1)
    assert await patience.eventually(lambda: "yes") == "yes"


@pytest.mark.looptime
async def test_conditions_of_servers_are_polled_less_and_less_often():
    """The interval grows to a quarter of a second; other conditions are polled as before."""
    loop, polls = asyncio.get_running_loop(), []

    async def condition():
        polls.append(loop.time())
        return loop.time() >= 10

    await patience.eventually(condition, 20)
    assert len([at for at in polls if at < 1]) > 6
    assert len(polls) == pytest.approx(44, abs=4)
    before = loop.time()
    await patience.eventually(lambda: loop.time() >= before + 1.005)
    assert loop.time() - before < 1.03


def test_wait_for_returns_the_first_true_result(monkeypatch):
    """A failed assertion means not yet; the time is scaled."""
    monkeypatch.setattr(patience, "FACTOR", 2.0)
    answers = iter([0, None, "yes"])
    assert patience.wait_for(lambda: next(answers), poll_s=0.0) == "yes"

    def never():
        assert answers is None, "not yet"

    began = time.monotonic()
    with pytest.raises(AssertionError, match="not true within") as caught:
        patience.wait_for(never, 0.02, poll_s=0.001)
    assert time.monotonic() - began > 0.04
    assert "not yet" in str(caught.value.__cause__)
