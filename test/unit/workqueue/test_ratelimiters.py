"""Delays of failed items."""

import pytest

from jobsetpy.aio import ManualClock
from jobsetpy.workqueue import ItemExponential, MaxOf, TokenBucket, default_rate_limiter


class TestItemExponential:
    """Limit of each item."""

    def test_delays_double_up_to_the_cap(self):
        """The first delay is the base."""
        limiter = ItemExponential(base_s=0.005, cap_s=0.03)

        assert [limiter.when("a") for _ in range(5)] == [0.005, 0.01, 0.02, 0.03, 0.03]

    def test_default_cap_is_1000_s(self):
        """The default delay is at most 1,000 s after any number of failures."""
        limiter = ItemExponential()

        waits = [limiter.when("a") for _ in range(2000)]

        assert max(waits) == 1000.0
        assert limiter.num_requeues("a") == 2000

    def test_items_are_independent(self):
        """Failures of one item do not delay another."""
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
    def test_invalid_base_is_refused(self, base: float, cap: float):
        """The base must be positive and at most the cap."""
        with pytest.raises(ValueError, match="base_s"):
            ItemExponential(base_s=base, cap_s=cap)


class TestTokenBucket:
    """Common limit of all items."""

    def test_delays_follow_the_rate_after_the_burst(self):
        """Tokens of a full bucket cause no delay."""
        bucket = TokenBucket(qps=10, burst=2, clock=ManualClock())

        assert pytest.approx([bucket.when(i) for i in range(4)]) == [0.0, 0.0, 0.1, 0.2]

    def test_refills_to_the_burst(self):
        """Tokens are added with time, up to the burst."""
        clock = ManualClock()
        bucket = TokenBucket(qps=10, burst=2, clock=clock)
        for item in range(4):
            bucket.when(item)
        clock.advance(3600)

        assert pytest.approx([bucket.when(i) for i in range(3)]) == [0.0, 0.0, 0.1]

    def test_tokens_taken_in_advance_are_subtracted(self):
        """New tokens first cover those that were taken in advance."""
        clock = ManualClock()
        bucket = TokenBucket(qps=10, burst=1, clock=clock)
        for item in range(3):
            bucket.when(item)
        clock.advance(0.1)

        assert pytest.approx(bucket.when("next")) == 0.2

    def test_items_are_not_tracked(self):
        """Forgetting an item returns no token, and its failures are not counted."""
        bucket = TokenBucket(qps=1, burst=1, clock=ManualClock())
        bucket.when("a")
        bucket.forget("a")

        assert bucket.num_requeues("a") == 0
        assert bucket.when("a") == 1.0

    @pytest.mark.parametrize(("qps", "burst"), [(0, 1), (1, 0)])
    def test_invalid_limits_are_refused(self, qps: float, burst: int):
        """A bucket must be able to provide tokens."""
        with pytest.raises(ValueError, match="qps"):
            TokenBucket(qps=qps, burst=burst)


class TestMaxOf:
    """Several limits together."""

    def test_the_longest_delay_counts(self):
        """Every limiter counts each call."""
        slow, fast = ItemExponential(base_s=1, cap_s=9), ItemExponential(base_s=0.1, cap_s=50)
        both = MaxOf(fast, slow)

        waits = [both.when("a") for _ in range(8)]

        assert pytest.approx(waits) == [1, 2, 4, 8, 9, 9, 9, 12.8]
        assert 8 == both.num_requeues("a") == fast.num_requeues("a") == slow.num_requeues("a")

    def test_forget_resets_all_limiters(self):
        """An item that was forgotten has no failures in any limiter."""
        first, second = ItemExponential(), ItemExponential()
        both = MaxOf(first, second)
        both.when("a")
        both.forget("a")

        assert (first.num_requeues("a"), second.num_requeues("a")) == (0, 0)

    def test_an_empty_list_of_limiters_is_refused(self):
        """At least one limiter is needed."""
        with pytest.raises(ValueError, match="at least one"):
            MaxOf()

    def test_default_combines_both_limits(self):
        """The default limits each item by its failures, and all items by the bucket."""
        limiter = default_rate_limiter(burst=2, qps=1, clock=ManualClock())

        assert pytest.approx([limiter.when(i) for i in range(4)]) == [0.005, 0.005, 1.0, 2.0]
