"""Limit of requests and retries."""

import pytest

from jobsetpy.aio import TokenBucket


def test_waits_follow_the_rate_after_the_burst():
    """Tokens that were taken in advance are paid first; a pause saves up to the burst."""
    bucket = TokenBucket(10, 2)

    assert pytest.approx([bucket.take(5.0) for _ in range(4)]) == [0.0, 0.0, 0.1, 0.2]
    assert pytest.approx(bucket.take(5.1)) == 0.2
    assert pytest.approx([bucket.take(3600.0) for _ in range(3)]) == [0.0, 0.0, 0.1]


def test_token_that_is_given_back_is_taken_by_the_next():
    """A request that was cancelled while it waited costs nothing."""
    bucket = TokenBucket(10, 1)
    bucket.take(0.0)
    bucket.take(0.0)
    bucket.give_back()

    assert pytest.approx(bucket.take(0.0)) == 0.1


def test_rounding_does_not_add_up():
    """n tokens, taken one by one when they are available, take n/rate seconds."""
    bucket, now = TokenBucket(100, 1), 0.0
    for _ in range(1001):
        now += bucket.take(now)

    assert now == pytest.approx(10.0, abs=0.02)


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 0), (1, -1)])
def test_impossible_limits_are_refused(rate, burst):
    """They are mistakes in a configuration."""
    with pytest.raises(ValueError, match="rate"):
        TokenBucket(rate, burst)
