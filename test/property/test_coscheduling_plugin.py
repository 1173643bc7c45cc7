"""Functions of the coscheduling plugin: its QueueSort is a total order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.reconcilers.coscheduling.plugin import (
    LONGEST_TIMEOUT_S,
    Member,
    PodGroupInfo,
    PodGroupKey,
    permit,
    permit_timeout,
    pod_group_info,
    pre_filter,
    queue_key,
    unreserve,
)

NAMES = ("a", "b", "c")
times = st.sampled_from([0.0, 1.0, 2.0])
priorities = st.integers(-1, 1)


def info(name="a", *, namespace="ns", timestamp=0.0, priority=0, minimum=2, timeout=None):
    """Return a gang."""
    return PodGroupInfo(
        key=PodGroupKey(namespace, name),
        initial_timestamp=timestamp,
        min_available=minimum,
        priority=priority,
        timeout_s=timeout,
    )


def less(a, b):
    """True if the first group comes before the second one."""
    return queue_key(a) < queue_key(b)


groups = st.builds(
    info,
    st.sampled_from(NAMES),
    namespace=st.sampled_from(("ns", "other")),
    timestamp=times,
    priority=priorities,
)
queues = st.lists(groups, max_size=14, unique_by=lambda group: group.key)


@given(queues)
def test_order_of_gangs_is_total(queue):
    """Exactly one of two different gangs is first, and the order is transitive."""
    for a in queue:
        for b in queue:
            assert less(a, b) + less(b, a) == (a is not b)
            for c in queue:
                assert not (less(a, b) and less(b, c)) or less(a, c)


@given(queues)
def test_higher_priority_is_always_first(queue):
    """Times do not matter."""
    shown = [group.priority for group in sorted(queue, key=queue_key)]
    assert shown == sorted(shown, reverse=True)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(info("a", timestamp=2), info("b", timestamp=3), id="the group's time"),
        pytest.param(info("z", timestamp=2), info("a", timestamp=2), id="the greater key"),
        pytest.param(info("a", timestamp=3, priority=1), info("b", timestamp=2), id="priority"),
    ],
)
def test_order_follows_the_rules_of_the_proposal(first, second):
    """Each rule has a case."""
    assert less(first, second)
    assert not less(second, first)


members = st.builds(
    Member,
    created=times,
    min_available=st.integers(1, 4),
    priority=priorities,
    bound=st.booleans(),
)


@given(st.lists(members, min_size=1, max_size=6).flatmap(lambda m: st.tuples(st.just(m), st.permutations(m))))  # fmt: skip
def test_gang_does_not_depend_on_the_order_of_its_pods(pods):
    """It is the same on every replica and after a restart."""
    key = PodGroupKey("ns", "a")
    assert pod_group_info(key, pods[0]) == pod_group_info(key, pods[1])


def test_gang_has_the_largest_minimum_of_its_unbound_pods():
    """Its age is that of the oldest pod."""
    key = PodGroupKey("ns", "a")
    old = Member(created=5, min_available=8, bound=True)
    new = [Member(created=9, min_available=n) for n in (3, 4)]
    group = pod_group_info(key, [old, *new])
    assert (group.min_available, group.initial_timestamp) == (4, 5)
    assert pod_group_info(key, [old]).min_available == 8
    with pytest.raises(ValueError, match="ns/a has no pods"):
        pod_group_info(key, [])


@pytest.mark.parametrize(("there", "passes"), [(0, False), (1, False), (2, True), (3, True)])
def test_gang_that_is_too_small_does_not_pass_the_filter(there, passes):
    """It costs the scheduler nothing."""
    assert pre_filter(info(minimum=2), there) is passes


@pytest.mark.parametrize(
    ("running", "waiting", "passes"),
    [(0, 0, False), (0, 1, False), (0, 2, True), (2, 0, True), (1, 1, True), (5, 0, True)],
)
def test_permit_counts_the_pod_itself(running, waiting, passes):
    """Running and waiting pods and the pod itself are compared to the minimum."""
    assert permit(info(minimum=3), running=running, waiting=waiting) is passes


@given(st.integers(1, 100_000), st.one_of(st.none(), st.floats(0, 1e6)))
def test_timeouts_are_bounded(minimum, own):
    """They are longer for larger gangs, up to the time that the scheduler waits."""
    timeout = permit_timeout(info(minimum=minimum, timeout=own))
    assert 1 <= timeout <= LONGEST_TIMEOUT_S
    if own is None:
        assert timeout <= permit_timeout(info(minimum=minimum + 1))


def test_unreserve_rejects_all_waiting_pods_or_none():
    """It rejects none if the gang is complete without them."""
    assert unreserve(info(minimum=2), running=1, waiting=["x", "y"]) == ("x", "y")
    assert unreserve(info(minimum=2), running=2, waiting=["x", "y"]) == ()
