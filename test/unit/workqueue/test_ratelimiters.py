"""Waiting times of failed items."""

import pytest

from jobsetpy.aio import ManualClock
from jobsetpy.workqueue import ItemExponential, MaxOf, TokenBucket, default_rate_limiter


class TestItemExponential:
    """One item's own limit."""

    def test_doubles_to_the_cap(self):
        """Waits double from the base up to the cap."""
        limiter = ItemExponential(base_s=0.005, cap_s=0.03)

        assert [limiter.when("a") for _ in range(5)] == [0.005, 0.01, 0.02, 0.03, 0.03]

    def test_default_cap_is_1000_s(self):
        """The default never waits longer than 1,000 s, however often an item fails."""
        limiter = ItemExponential()

        waits = [limiter.when("a") for _ in range(2000)]

        assert max(waits) == 1000.0
        assert limiter.num_requeues("a") == 2000

    def test_items_are_independent(self):
        """One item's failures do not slow another."""
        limiter = ItemExponential()
        limiter.when("a")
        limiter.when("a")

        assert limiter.when("b") == 0.005
        assert (limiter.num_requeues("a"), limiter.num_requeues("b")) == (2, 1)

    def test_forget_starts_over(self):
        """After forget the next failure counts as the first."""
        limiter = ItemExponential()
        limiter.when("a")
        limiter.forget("a")
        limiter.forget("never seen")

        assert limiter.num_requeues("a") == 0
        assert limiter.when("a") == 0.005

    @pytest.mark.parametrize(("base", "cap"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0)])
    def test_refuses_nonsense(self, base: float, cap: float):
        """A base that is not positive or above the cap is refused."""
        with pytest.raises(ValueError, match="base_s"):
            ItemExponential(base_s=base, cap_s=cap)


class TestTokenBucket:
    """All items' common limit."""

    def test_burst_then_rate(self):
        """A full bucket costs nothing; after it waits line up at the rate."""
        bucket = TokenBucket(qps=10, burst=2, clock=ManualClock())

        assert pytest.approx([bucket.when(i) for i in range(4)]) == [0.0, 0.0, 0.1, 0.2]

    def test_refills_to_the_burst(self):
        """Tokens come back with time, but never more than the burst."""
        clock = ManualClock()
        bucket = TokenBucket(qps=10, burst=2, clock=clock)
        for item in range(4):
            bucket.when(item)
        clock.advance(3600)

        assert pytest.approx([bucket.when(i) for i in range(3)]) == [0.0, 0.0, 0.1]

    def test_debt_is_paid_first(self):
        """Tokens taken in advance are paid back before new ones are free."""
        clock = ManualClock()
        bucket = TokenBucket(qps=10, burst=1, clock=clock)
        for item in range(3):
            bucket.when(item)
        clock.advance(0.1)

        assert pytest.approx(bucket.when("next")) == 0.2

    def test_knows_no_items(self):
        """Forgetting gives no token back, and there is nothing to count by item."""
        bucket = TokenBucket(qps=1, burst=1, clock=ManualClock())
        bucket.when("a")
        bucket.forget("a")

        assert bucket.num_requeues("a") == 0
        assert bucket.when("a") == 1.0

    @pytest.mark.parametrize(("qps", "burst"), [(0, 1), (1, 0)])
    def test_refuses_nonsense(self, qps: float, burst: int):
        """A bucket that can never give a token is refused."""
        with pytest.raises(ValueError, match="qps"):
            TokenBucket(qps=qps, burst=burst)


class TestMaxOf:
    """Both limits together."""

    def test_longest_wait_wins_and_all_count(self):
        """The wait is the longest of all, and every limiter counts each call."""
        slow, fast = ItemExponential(base_s=1, cap_s=9), ItemExponential(base_s=0.1, cap_s=50)
        both = MaxOf(fast, slow)

        waits = [both.when("a") for _ in range(8)]

        assert pytest.approx(waits) == [1, 2, 4, 8, 9, 9, 9, 12.8]
        assert 8 == both.num_requeues("a") == fast.num_requeues("a") == slow.num_requeues("a")

    def test_forget_reaches_all(self):
        """Forgetting starts every limiter over."""
        first, second = ItemExponential(), ItemExponential()
        both = MaxOf(first, second)
        both.when("a")
        both.forget("a")

        assert (first.num_requeues("a"), second.num_requeues("a")) == (0, 0)

    def test_needs_one(self):
        """No limiter at all is refused."""
        with pytest.raises(ValueError, match="at least one"):
            MaxOf()

    def test_default_obeys_both(self):
        """The default limits an item by itself, and a crowd by the bucket."""
        limiter = default_rate_limiter(burst=2, qps=1, clock=ManualClock())

        assert pytest.approx([limiter.when(i) for i in range(4)]) == [0.005, 0.005, 1.0, 2.0]
