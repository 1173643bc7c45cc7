"""Delays of failed items."""

import pytest

from jobsetpy.aio import ManualClock
from jobsetpy.workqueue import RetryDelays


def test_delays_double_up_to_the_cap():
    """The first delay is the base; the default cap is 1,000 s after any number of failures."""
    limiter = RetryDelays(base_s=0.005, cap_s=0.03, clock=ManualClock())
    assert [limiter.when("a") for _ in range(5)] == [0.005, 0.01, 0.02, 0.03, 0.03]

    limiter = RetryDelays(burst=5000, clock=ManualClock())
    assert max(limiter.when("a") for _ in range(2000)) == 1000.0
    assert limiter.num_requeues("a") == 2000


def test_items_are_independent_and_forgotten_ones_start_over():
    """Failures of one item do not delay another; after forget the next failure is the first."""
    limiter = RetryDelays(clock=ManualClock())
    limiter.when("a")
    limiter.when("a")

    assert limiter.when("b") == 0.005
    assert (limiter.num_requeues("a"), limiter.num_requeues("b")) == (2, 1)
    limiter.forget("a")
    limiter.forget("never seen")
    assert limiter.num_requeues("a") == 0
    assert limiter.when("a") == 0.005


def test_all_items_together_follow_the_rate_after_the_burst():
    """Forgetting an item returns no token; the longer of both delays counts."""
    clock = ManualClock()
    limiter = RetryDelays(burst=2, qps=1, clock=clock)

    assert pytest.approx([limiter.when(i) for i in range(4)]) == [0.005, 0.005, 1.0, 2.0]
    limiter.forget(3)
    clock.advance(1.0)
    assert pytest.approx(limiter.when("next")) == 2.0


@pytest.mark.parametrize("wrong", [{"base_s": 0.0}, {"base_s": 2.0, "cap_s": 1.0}, {"qps": 0.0}])
def test_invalid_limits_are_refused(wrong):
    """The base must be positive and at most the cap, and the bucket must get tokens."""
    with pytest.raises(ValueError, match=r"base_s|rate"):
        RetryDelays(**wrong)
