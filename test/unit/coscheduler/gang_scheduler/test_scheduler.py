"""The gang scheduler."""

from __future__ import annotations

import pytest

from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import Bind, Limits, Refuse
from support.coscheduling.scheduler_kit import seen, short, shown


def pending(*pods, limits=None):
    """A gang scheduler that has seen pods."""
    scheduler = GangScheduler(limits)
    shown(scheduler, *pods)
    return scheduler


@pytest.fixture
def scheduler():
    """A gang scheduler without pods."""
    return GangScheduler()


def test_binds_are_held_until_there_are_enough():
    """Then all are released; later ones pass immediately."""
    scheduler = pending("a1", "a2", "a3")
    assert scheduler.bind_asked(1, "a1", 0.0) == []
    assert scheduler.bind_asked(2, "a2", 0.1) == [Bind(1, "a1"), Bind(2, "a2")]
    assert scheduler.bind_asked(3, "a3", 0.2) == [Bind(3, "a3")]


def test_a_failed_bind_passes_when_it_is_repeated():
    """The other pods of its gang are being bound."""
    scheduler = pending("a1", "a2")
    scheduler.bind_asked(1, "a1", 0.0)
    scheduler.bind_asked(2, "a2", 0.0)
    scheduler.bind_done("a1", ok=False, now=0.1)
    scheduler.bind_done("a2", ok=True, now=0.1)
    assert scheduler.bind_asked(3, "a1", 1.0) == [Bind(3, "a1")]


def test_a_timeout_refuses_all_held_binds():
    """It begins with the first held bind; later binds are refused during a back-off of up to 10 s."""
    scheduler = pending("a1", "a2")
    now, pauses = 0.0, []
    for ticket in range(1, 8):
        assert scheduler.bind_asked(ticket, "a1", now) == []
        now = scheduler.next_wake(now)
        assert short(scheduler.tick(now)) == [("Refuse", "a1")]
        pause = 0.0
        while short(scheduler.bind_asked(100, "a1", now + pause)) == [("Refuse", "a1")]:
            pause += 1.0
        pauses.append(pause)
        scheduler.bind_cancelled(100, now + pause)
        now += pause
    assert pauses == [1, 2, 4, 8, 10, 10, 10]


def test_gangs_that_lack_nodes_take_turns():
    """Every second turn is that of the oldest; at its turn a gang does not back off."""
    scheduler = pending("a1", "a2", "b1", "b2", "c1", "c2")
    for ticket, uid in enumerate(("a1", "b1", "c1"), 1):
        assert scheduler.bind_asked(ticket, uid, 0.0) == []
    assert scheduler.unschedulable("c2", 0.0) == []  # it has the turn
    assert short(scheduler.unschedulable("b2", 1.0)) == [("Refuse", "b1")]
    assert short(scheduler.unschedulable("a2", 1.0)) == [("Refuse", "a1")]
    turns, now = [], 1.0
    for ticket in range(10, 60, 10):
        now = scheduler.next_wake(now)
        scheduler.tick(now)
        for at, uid in enumerate(("a1", "b1", "c1")):
            if scheduler.bind_asked(ticket + at, uid, now) == []:
                turns.append(uid)
    assert turns == ["b1", "a1", "c1", "a1", "b1"]


def test_the_turn_passes_on_when_its_gang_is_bound():
    """The next gang does not wait for the end of the turn."""
    scheduler = pending("a1", "a2", "b1", "b2")
    scheduler.bind_asked(1, "a1", 0.0)
    scheduler.bind_asked(2, "b1", 0.0)
    scheduler.unschedulable("a2", 0.0)
    assert short(scheduler.unschedulable("b2", 0.0)) == [("Refuse", "b1")]
    assert short(scheduler.bind_asked(3, "b1", 1.0)) == [("Refuse", "b1")]
    assert short(scheduler.bind_asked(4, "a2", 1.0)) == [("Bind", "a1"), ("Bind", "a2")]
    assert scheduler.bind_asked(5, "b1", 1.0) == []


def test_an_unschedulable_pod_does_not_affect_other_gangs():
    """Its gang keeps its binds until its timeout, and so does another gang that makes progress."""
    scheduler = pending("a1", "a2", "b1", "b2")
    scheduler.bind_asked(1, "a1", 0.0)
    scheduler.bind_asked(2, "b1", 0.0)
    assert scheduler.unschedulable("a2", 1.0) == []
    assert scheduler.tick(6.0) == []
    assert short(scheduler.bind_asked(3, "b2", 7.0)) == [("Bind", "b1"), ("Bind", "b2")]
    assert short(scheduler.bind_asked(4, "a2", 8.0)) == [("Bind", "a1"), ("Bind", "a2")]


def test_a_gang_is_bound_when_enough_of_its_pods_have_nodes():
    """One of three pods is unschedulable, and two are enough."""
    scheduler = pending("a1", "a2", "a3")
    scheduler.bind_asked(1, "a1", 0.0)
    assert scheduler.unschedulable("a2", 0.1) == []
    assert short(scheduler.bind_asked(2, "a3", 0.2)) == [("Bind", "a1"), ("Bind", "a3")]


@pytest.mark.parametrize(
    "pod", [seen("a2", ended=True), seen("a2", "other")], ids=["ended", "moved"]
)
def test_a_gang_is_refused_immediately_when_it_becomes_too_small(pod):
    """Its held binds do not wait for the timeout."""
    scheduler = pending("a1", "a2")
    scheduler.bind_asked(1, "a1", 0.0)
    assert scheduler.seen(pod, 0.1) == [Refuse(1, "a1", "ns/a has 1 of 2 pods")]


def test_held_binds_are_released_when_the_minimum_decreases():
    """After a resize, the labels of the pods change one by one."""
    scheduler = pending("a1", "a2")
    scheduler.bind_asked(1, "a1", 0.0)
    assert scheduler.seen(seen("a2", minimum=1), 0.1) == []
    assert scheduler.seen(seen("a1", minimum=1), 0.1) == [Bind(1, "a1")]


def test_a_replacement_in_a_complete_gang_is_bound_immediately(scheduler):
    """Running pods count for the minimum."""
    shown(scheduler, "a1", "a2", bound=True, minimum=3)
    assert scheduler.seen(seen("a3", minimum=3), 1.0) == []
    assert scheduler.bind_asked(1, "a3", 2.0) == [Bind(1, "a3")]


def test_an_unknown_pod_is_looked_up():
    """The cache may lag behind; a pod that belongs to no gang must not be held."""
    assert not GangScheduler().knows("x")


def test_a_second_bind_request_replaces_the_first():
    """It comes from a kube-scheduler that took over."""
    scheduler = pending("a1", "a2")
    scheduler.bind_asked(1, "a1", 0.0)
    assert short(scheduler.bind_asked(2, "a1", 1.0)) == [("Refuse", "a1")]
    assert scheduler.bind_cancelled(1, 1.1) == []
    assert scheduler.bind_asked(3, "a2", 1.2) == [Bind(2, "a1"), Bind(3, "a2")]


def test_a_cancelled_bind_request_no_longer_counts():
    """kube-scheduler has died, and its reservation with it."""
    scheduler = pending("a1", "a2")
    scheduler.bind_asked(1, "a1", 0.0)
    scheduler.bind_cancelled(1, 0.1)
    assert scheduler.next_wake(0.1) is None
    assert scheduler.bind_asked(2, "a2", 0.2) == []


WAITING, OTHER = ["a1"], ["x"]


@pytest.mark.parametrize(
    ("victims", "kept", "refused"),
    [
        ({"n1": OTHER}, {"n1": OTHER}, []),
        ({"n1": WAITING}, {}, ["a1"]),
        ({"n1": OTHER, "n2": WAITING}, {}, ["a1"]),
        ({"n1": OTHER, "n2": [*WAITING, *OTHER]}, {"n1": OTHER}, []),
        ({"n2": [*WAITING, *OTHER]}, {}, ["a1"]),
        ({}, {}, []),
    ],
)
def test_preemption_refuses_gangs_instead_of_deleting_their_pods(victims, kept, refused):
    """Capacity that is only reserved is released without deleting a pod."""
    scheduler = pending("a1", "a2")
    scheduler.bind_asked(1, "a1", 0.0)
    answer = scheduler.preempt(victims, 1.0)
    assert answer.nodes == kept
    assert [action.uid for action in answer.actions] == refused


def test_binds_are_held_while_the_gang_grows(scheduler):
    """They are not refused; the last pod releases all."""
    for at, uid in enumerate(("a1", "a2")):
        scheduler.seen(seen(uid, minimum=3), float(at))
        assert scheduler.bind_asked(at, uid, float(at)) == []
    scheduler.seen(seen("a3", minimum=3), 2.0)
    actions = scheduler.bind_asked(3, "a3", 2.1)
    assert short(actions) == [("Bind", "a1"), ("Bind", "a2"), ("Bind", "a3")]


def test_a_growing_gang_is_refused_at_its_timeout():
    """New pods do not extend the timeout; afterwards the gang has to be complete."""
    scheduler = GangScheduler(Limits(permit_s=10, permit_per_pod_s=0))
    scheduler.seen(seen("a0", minimum=100), 0.0)
    assert scheduler.bind_asked(1, "a0", 0.0) == []
    for at in range(1, 10):
        scheduler.seen(seen(f"a{at}", minimum=100), float(at))
    assert short(scheduler.tick(10.0)) == [("Refuse", "a0")]
    scheduler.seen(seen("a10", minimum=100), 12.0)
    assert short(scheduler.bind_asked(2, "a10", 12.0)) == [("Refuse", "a10")]


def test_a_growing_gang_is_refused_when_it_loses_a_pod(scheduler):
    """The controller of its pods no longer wants the gang to be complete."""
    shown(scheduler, "a1", "a2", minimum=3)
    scheduler.bind_asked(1, "a1", 0.1)
    assert short(scheduler.gone("a2", 0.2)) == [("Refuse", "a1")]
