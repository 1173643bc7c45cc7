"""The gang scheduler: capacity, turns, preemption, observers, reservations and unusual events."""

from __future__ import annotations

import pytest

from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import (
    Bind,
    Cause,
    Limits,
    PodState,
    Preemption,
    Refuse,
)
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey
from support.coscheduling.scheduler_kit import FixedCapacity, seen, short, shown

A, B = (PodGroupKey("ns", name) for name in "ab")


class CallLog:
    """An observer that records all calls."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


@pytest.fixture
def scheduler():
    """A gang scheduler without pods."""
    return GangScheduler()


# -- capacity -----------------------------------------------------------------------------------


def test_gangs_are_ungated_when_there_may_be_capacity():
    """A younger gang that fits overtakes an older one that does not."""
    capacity = FixedCapacity(b=2)
    scheduler = GangScheduler(capacity=capacity)
    assert short(shown(scheduler, "a1", "a2", "b1", "b2")) == [("Ungate", "b1"), ("Ungate", "b2")]
    scheduler.bind_asked(1, "b1", 1.0)
    scheduler.bind_asked(2, "b2", 1.0)
    assert scheduler.capacity_grew(2.0) == []
    capacity.pods["a"] = 2
    assert short(scheduler.capacity_grew(3.0)) == [("Ungate", "a1"), ("Ungate", "a2")]
    capacity.pods.clear()
    assert short(shown(scheduler, "a3")) == [("Ungate", "a3")]  # with its gang, without capacity


def test_reserved_gang_is_ungated_immediately_when_all_places_are_taken():
    """It was overtaken before; there is capacity when its reservation begins."""
    capacity = FixedCapacity(b=1)
    scheduler = GangScheduler(Limits(in_flight=1, reserve_after_s=20.0), capacity=capacity)
    assert short(shown(scheduler, "a1", "b1", minimum=1)) == [("Ungate", "b1")]
    scheduler.unschedulable("b1", 1.0)
    capacity.pods["a"] = 1
    assert scheduler.capacity_grew(2.0) == []  # the other gang has the only place
    now, actions = 2.0, []
    while not actions and now < 60.0:
        now = scheduler.next_wake(now)
        actions = scheduler.tick(now)
    assert (now, short(actions)) == (20.0, [("Ungate", "a1")])


def test_gang_delays_no_other_when_its_pods_were_seen_before_the_nodes():
    """No gang has overtaken it; its pods have no node for another reason than capacity."""
    capacity = FixedCapacity(empty=True)
    scheduler = GangScheduler(Limits(reserve_after_s=20.0), capacity=capacity)
    assert shown(scheduler, "a1", minimum=1) == []
    capacity.pods |= {"a": 1, "b": 1}
    assert short(scheduler.capacity_grew(1.0)) == [("Ungate", "a1")]
    scheduler.unschedulable("a1", 2.0)
    now = 2.0
    while now < 20.0:
        now = scheduler.next_wake(now)
        scheduler.tick(now)

    younger = seen("b1", minimum=1, prio=-1)
    assert short(scheduler.seen(younger, now)) == [("Ungate", "b1")]


def failed_group(capacity):
    """A gang that was ungated, held one bind, and backs off since the time 1."""
    scheduler = GangScheduler(Limits(permit_s=1, permit_per_pod_s=0), capacity=capacity)
    shown(scheduler, "a1", "a2")
    scheduler.bind_asked(1, "a1", 0.0)
    assert short(scheduler.tick(1.0)) == [("Refuse", "a1")]
    return scheduler


@pytest.mark.parametrize(
    ("freed", "pods", "held"),
    [(True, 2, True), (True, 1, False), (False, 2, False), (True, 0, False)],
    ids=["enough", "not enough", "its own", "none"],
)
def test_a_back_off_ends_when_capacity_grows(freed, pods, held):
    """The capacity has to be sufficient, and not just the gang's own former reservations."""
    capacity = FixedCapacity(a=2)
    scheduler = failed_group(capacity)
    capacity.pods["a"] = pods
    scheduler.capacity_grew(1.1, freed=freed)
    assert (scheduler.bind_asked(2, "a1", 1.1) == []) is held


def test_a_back_off_ends_when_others_release_reservations():
    """This counts some time after the gang has released its own."""
    scheduler = failed_group(FixedCapacity(a=2))
    scheduler.bind_asked(2, "a1", 2.1)
    scheduler.tick(3.1)  # backs off for two seconds this time
    assert short(scheduler.bind_asked(3, "a1", 4.5)) == [("Refuse", "a1")]
    scheduler.capacity_grew(4.5, freed=False)
    assert scheduler.bind_asked(4, "a1", 4.5) == []


# -- preemption ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "capacity", "outcome"),
    [
        (("a1",), 2, "refused"),
        (("a1", "a2"), 1, "refused"),
        (("a1", "a2"), 2, "allowed"),
        ((), 0, "allowed"),
    ],
    ids=["too small", "no capacity", "fits", "in no gang"],
)
def test_a_member_may_preempt_only_when_its_gang_can_be_complete(pods, capacity, outcome):
    """A pod that is in no gang may always preempt."""
    scheduler = GangScheduler(capacity=FixedCapacity(a=capacity))
    shown(scheduler, *pods, gated=False)
    victims = {"n": ["x"]}
    expected = Preemption(outcome, victims if outcome == "allowed" else {}, [])
    assert scheduler.preempt(victims, 1.0, preemptor="a1") == expected


def test_a_replacement_in_a_complete_gang_may_preempt():
    """Its gang needs only this pod."""
    scheduler = GangScheduler(capacity=FixedCapacity())
    shown(scheduler, "a1", "a2", gated=False, bound=True)
    shown(scheduler, "a3", gated=False)
    answer = scheduler.preempt({"n": ["x"]}, 1.0, preemptor="a3")
    assert answer == Preemption("allowed", {"n": ["x"]}, [])


def test_pods_are_spared_when_their_binds_were_just_refused(scheduler):
    """kube-scheduler processes the refusals one by one; there is no other bind to refuse."""
    shown(scheduler, "a1", "a2", "a3", minimum=3, gated=False)
    scheduler.bind_asked(1, "a1", 0.0)
    scheduler.bind_asked(2, "a2", 0.0)
    answer = scheduler.preempt({"n": ["a1"]}, 1.0)
    assert (answer.outcome, answer.nodes) == ("spared", {})
    assert short(answer.actions) == [("Refuse", "a1"), ("Refuse", "a2")]
    assert scheduler.preempt({"n": ["a2"]}, 1.1) == Preemption("spared", {}, [])


# -- turns --------------------------------------------------------------------------------------


def test_no_gang_is_ungated_before_all_pods_were_seen():
    """The order of gangs is known only then."""
    scheduler = GangScheduler(Limits(in_flight=1))
    scheduler.pause()
    assert shown(scheduler, "b1", "b2", "a1", "a2") == []
    assert short(scheduler.resume(1.0)) == [("Ungate", "a1"), ("Ungate", "a2")]


# -- unusual events -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marks", "state"), [({"gated": True}, "gated"), ({"bound": True, "gated": False}, "bound")]
)
def test_a_bind_is_refused_when_the_pod_is_gated_or_bound(scheduler, marks, state):
    """The refusal names the state of the pod."""
    shown(scheduler, "a1", **marks)
    assert scheduler.bind_asked(1, "a1", 0.0) == [Refuse(1, "a1", f"the pod is {state}")]


def test_a_held_bind_is_refused_when_another_scheduler_bound_the_pod(scheduler):
    """The pod counts for its gang."""
    shown(scheduler, "a1", "a2", gated=False)
    scheduler.bind_asked(1, "a1", 0.0)
    actions = scheduler.seen(seen("a1", gated=False, bound=True), 1.0)
    assert actions == [Refuse(1, "a1", "the pod has a node")]
    assert scheduler.bind_asked(2, "a2", 2.0) == [Bind(2, "a2")]
    assert scheduler.seen(seen("a1", gated=False, bound=True), 3.0) == []


def test_a_pod_may_be_ungated_by_another_controller(scheduler):
    """It counts as ungated; a gang that stays too small is refused."""
    shown(scheduler, "a1")
    shown(scheduler, "a1", gated=False)
    assert scheduler.states() == {"a1": PodState.UNGATED}
    assert scheduler.bind_asked(1, "a1", 9.0) == [Refuse(1, "a1", "ns/a has 1 of 2 pods")]


def test_a_failed_ungating_is_ignored_when_the_pod_was_scheduled(scheduler):
    """The patch succeeded although its request failed."""
    shown(scheduler, "a1", "a2")
    scheduler.bind_asked(1, "a1", 0.0)
    assert scheduler.ungate_failed("a1", 1.0) == []
    assert scheduler.states()["a1"] is PodState.WAITING


def test_a_failed_ungating_is_repeated_after_the_back_off():
    """The pods of a gang that backs off are ungated when the back-off is over."""
    scheduler = GangScheduler(Limits(permit_s=1, permit_per_pod_s=0))
    shown(scheduler, "a1", "a2", "a3", "a4", minimum=4)
    scheduler.bind_asked(1, "a1", 0.0)
    scheduler.tick(1.0)
    assert scheduler.ungate_failed("a3", 1.1) == []  # the answer for a4 is still missing
    assert scheduler.next_wake(1.2) is not None
    assert short(scheduler.tick(2.5)) == [("Ungate", "a3")]


def test_a_complete_gang_has_no_timeout(scheduler):
    """An unschedulable pod beyond the minimum has no effect."""
    shown(scheduler, "a1", "a2", "a3", gated=False)
    scheduler.bind_asked(1, "a1", 0.0)
    scheduler.bind_asked(2, "a2", 0.0)
    assert scheduler.unschedulable("a3", 1.0) == []
    assert scheduler.bind_done("a1", ok=True, now=1.0) == []
    assert scheduler.bind_done("a1", ok=True, now=1.0) == []
    assert scheduler.gang(A).running == 2


# -- observers ----------------------------------------------------------------------------------


def test_the_observer_is_called_for_each_decision():
    """A gang is ungated, rejected with its cause, released and forgotten."""
    log = CallLog()
    scheduler = GangScheduler(observer=log)
    shown(scheduler, "a1", "a2")
    scheduler.unschedulable("a2", 0.0)
    scheduler.tick(5.0)
    scheduler.bind_asked(2, "a1", 7.0)
    scheduler.bind_asked(3, "a2", 7.0)
    scheduler.gone("a1", 8.0)
    scheduler.gone("a2", 8.0)
    calls = [call[0] for call in log.calls if call[0] != "staged"]
    assert calls == ["ungated", "rejected", "released"]
    assert log.calls[-1][::2] == ("staged", "")
    assert any(Cause.UNSCHEDULABLE in call for call in log.calls)


def test_the_next_gang_is_ungated_when_an_unsettled_one_is_deleted(scheduler):
    """It does not wait for the settle time."""
    assert short(shown(scheduler, "a1", "b1", minimum=1)) == [("Ungate", "a1")]
    assert short(scheduler.gone("a1", 1.0)) == [("Ungate", "b1")]


def test_disagreements_of_pods_are_described(scheduler):
    """The text has the different minima and priorities, and which of them counts."""
    shown(scheduler, "a1", minimum=2, prio=1)
    shown(scheduler, "a2", minimum=3, prio=2)
    assert scheduler.gang(A).disagreements() == [
        "different minima (2, 3), of which the greatest counts",
        "different priorities (1, 2), of which the greatest counts",
    ]
    shown(scheduler, "b1", bound=True, gated=False)
    assert scheduler.gang(B).disagreements() == []


# -- reservations -------------------------------------------------------------------------------


def old_and_young():
    """Two gangs of which only the younger one has capacity, after the older has waited a minute."""
    capacity = FixedCapacity()
    scheduler = GangScheduler(Limits(in_flight=1), capacity=capacity)
    shown(scheduler, "a0", "a1", "b0", "b1")
    assert scheduler.next_wake(0.0) == 60.0
    scheduler.tick(60.0)
    capacity.pods["b"] = 2
    return scheduler, capacity


def test_a_reservation_lasts_as_long_as_the_wait_for_it():
    """Then other gangs are ungated for the same time; the next reservation is twice as long."""
    scheduler, _ = old_and_young()
    assert scheduler.capacity_grew(61.0) == []
    assert scheduler.next_wake(61.0) == 120.0
    assert short(scheduler.tick(120.0)) == [("Ungate", "b0"), ("Ungate", "b1")]
    scheduler.gone("b0", 121.0)
    scheduler.gone("b1", 121.0)
    assert scheduler.next_wake(121.0) == 180.0
    scheduler.tick(180.0)
    assert scheduler.next_wake(180.0) == 300.0


def test_a_reservation_ends_when_its_gang_becomes_too_small():
    """Gangs behind it are ungated immediately."""
    scheduler, _ = old_and_young()
    assert short(scheduler.gone("a0", 61.0)) == [("Ungate", "b0"), ("Ungate", "b1")]


def test_a_gang_uses_its_reservation_when_there_is_capacity():
    """It is ungated first; then the reservation ends."""
    scheduler, capacity = old_and_young()
    capacity.pods["a"] = 2
    assert short(scheduler.capacity_grew(61.0)) == [("Ungate", "a0"), ("Ungate", "a1")]
    scheduler.bind_asked(1, "a0", 61.0)
    assert [
        uid for kind, uid in short(scheduler.bind_asked(2, "a1", 61.0)) if kind == "Ungate"
    ] == ["b0", "b1"]


def test_binds_of_an_ungated_gang_are_refused_for_a_reservation():
    """Its pods cannot be gated again."""
    capacity = FixedCapacity(b=2)
    scheduler = GangScheduler(Limits(), capacity=capacity)
    shown(scheduler, "b0", "b1")
    scheduler.bind_asked(1, "b0", 0.0)
    scheduler.unschedulable("b1", 0.0)
    shown(scheduler, "a0", "a1")
    scheduler.tick(60.0)
    (refused,) = scheduler.bind_asked(2, "b0", 61.0)
    assert refused.reason == "ns/b leaves capacity to another group"
