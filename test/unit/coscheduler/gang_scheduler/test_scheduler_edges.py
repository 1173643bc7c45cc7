"""The planner of coscheduling: room, turns, preemption by groups, what is told, and odd events."""

from __future__ import annotations

import pytest

from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import (
    Bind,
    Cause,
    Limits,
    Observer,
    PodState,
    Preemption,
    Refuse,
    SeenPod,
)
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey, _Descending

A, B, C = (PodGroupKey("ns", name) for name in "abc")


def seen(uid, *, minimum=2, gated=True, bound=False, ended=False, prio=0, group=None):
    """A pod of the group that its UID begins with; groups are made in the order of their names."""
    name = group or uid[0]
    member = Member(
        uid=uid, created=float(ord(name)), min_available=minimum, bound=bound, priority=prio
    )
    key = PodGroupKey("ns", name)
    return SeenPod(group=key, name=uid, member=member, gated=gated, ended=ended)


def short(actions):
    """Kind and UID of each."""
    return [(type(action).__name__, action.uid) for action in actions]


class Room:
    """Says of each group how many pods there is room for."""

    def __init__(self, **pods):
        self.pods = pods

    def fits(self, group, wanted):
        """Whether that is enough."""
        there = self.pods.get(group.name, 0)
        return None if there is None else wanted <= there

    def ever_fits(self, group, wanted):
        """Of each, if it were alone."""
        return True

    def fits_without(self, group, wanted, others):
        """Nobody's room helps anybody."""
        return False

    def compete(self, group, other):
        """All for the same nodes."""
        return True


class Told:
    """Writes down what it is told."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def note(*told):
            self.calls.append((name, *told))

        return note


def shown(planner, *uids, **marks):
    """The actions after these pods were shown."""
    return [action for uid in uids for action in planner.seen(seen(uid, **marks), 0.0)]


# -- room ---------------------------------------------------------------------------------------


def test_groups_are_lifted_when_there_may_be_room_for_them():
    """A younger one that fits passes an older one that does not."""
    room = Room(b=2)
    planner = GangScheduler(capacity=room)
    assert short(shown(planner, "a1", "a2", "b1", "b2")) == [("Ungate", "b1"), ("Ungate", "b2")]
    planner.bind_asked(1, "b1", 1.0)
    planner.bind_asked(2, "b2", 1.0)
    assert planner.capacity_grew(2.0) == []
    room.pods["a"] = 2
    assert short(planner.capacity_grew(3.0)) == [("Ungate", "a1"), ("Ungate", "a2")]
    room.pods.clear()
    assert short(shown(planner, "a3")) == [("Ungate", "a3")]  # with its group, whatever the room


def test_reserved_gang_is_ungated_at_once_when_all_places_are_taken():
    """It was outrun before; when its reservation begins there is capacity."""
    room = Room(b=1)
    planner = GangScheduler(Limits(in_flight=1, reserve_after_s=20.0), capacity=room)
    assert short(shown(planner, "a1", "b1", minimum=1)) == [("Ungate", "b1")]
    planner.unschedulable("b1", 1.0)
    room.pods["a"] = 1
    assert planner.capacity_grew(2.0) == []  # the other gang has the only place
    now, actions = 2.0, []
    while not actions and now < 60.0:
        now = planner.next_wake(now)
        actions = planner.tick(now)
    assert (now, short(actions)) == (20.0, [("Ungate", "a1")])


class NodesComeLate(Room):
    """A cluster without nodes, until there is capacity for a gang."""

    def ever_fits(self, group, wanted):
        """Return True if a gang fits the cluster's nodes."""
        return wanted <= self.pods.get(group.name, 0)


def test_gang_delays_no_other_when_its_pods_were_seen_before_the_nodes():
    """No gang was faster; its pods have no node for another reason than capacity."""
    room = NodesComeLate()
    planner = GangScheduler(Limits(reserve_after_s=20.0), capacity=room)
    assert shown(planner, "a1", minimum=1) == []
    room.pods |= {"a": 1, "b": 1}
    assert short(planner.capacity_grew(1.0)) == [("Ungate", "a1")]
    planner.unschedulable("a1", 2.0)
    now = 2.0
    while now < 20.0:
        now = planner.next_wake(now)
        planner.tick(now)

    younger = seen("b1", minimum=1, prio=-1)
    assert short(planner.seen(younger, now)) == [("Ungate", "b1")]


def failed_group(room):
    """A group that was lifted, held one bind, and backs off since the time 1."""
    planner = GangScheduler(Limits(permit_s=1, permit_per_pod_s=0), capacity=room)
    shown(planner, "a1", "a2")
    planner.bind_asked(1, "a1", 0.0)
    assert short(planner.tick(1.0)) == [("Refuse", "a1")]
    return planner


@pytest.mark.parametrize(
    ("at", "freed", "pods", "held"),
    [
        (1.1, True, 2, True),
        (1.1, True, 1, False),
        (1.1, False, 2, False),
        (1.1, True, 0, False),
    ],
    ids=["room", "not enough", "its own", "none"],
)
def test_more_room_ends_a_back_off(at, freed, pods, held):
    """If it may be enough, and is not just what the group gave up itself."""
    room = Room(a=2)
    planner = failed_group(room)
    room.pods["a"] = pods
    planner.capacity_grew(at, freed=freed)
    assert (planner.bind_asked(2, "a1", at) == []) is held


def test_reservations_that_others_gave_up_end_a_back_off():
    """Some time after the group gave up its own."""
    planner = failed_group(Room(a=2))
    planner.bind_asked(2, "a1", 2.1)
    planner.tick(3.1)  # backs off for two seconds this time
    assert short(planner.bind_asked(3, "a1", 4.5)) == [("Refuse", "a1")]
    planner.capacity_grew(4.5, freed=False)
    assert planner.bind_asked(4, "a1", 4.5) == []


# -- preemption ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "room", "outcome"),
    [
        (("a1",), 2, "refused"),
        (("a1", "a2"), 1, "refused"),
        (("a1", "a2"), 2, "allowed"),
        (("a1", "a2"), None, None),
        ((), 0, "allowed"),
    ],
    ids=["too small", "no room", "fits", "room not counted yet", "of no group"],
)
def test_nothing_is_deleted_for_a_group_in_vain(pods, room, outcome):
    """A regular pod may preempt; a member only if its group can be complete."""
    planner = GangScheduler(capacity=Room(a=room))
    shown(planner, *pods, gated=False)
    victims = {"n": ["x"]}
    expected = outcome and Preemption(outcome, victims if outcome == "allowed" else {}, [])
    assert planner.preempt(victims, 1.0, preemptor="a1") == expected


def test_a_replacement_in_a_complete_group_may_preempt():
    """What it lacks is one pod, not a group."""
    planner = GangScheduler(capacity=Room())
    shown(planner, "a1", "a2", gated=False, bound=True)
    shown(planner, "a3", gated=False)
    answer = planner.preempt({"n": ["x"]}, 1.0, preemptor="a3")
    assert answer == Preemption("allowed", {"n": ["x"]}, [])


def test_pods_whose_binds_were_just_refused_are_spared():
    """The scheduler takes notice of that one by one; there is nothing left to refuse."""
    planner = GangScheduler()
    shown(planner, "a1", "a2", "a3", minimum=3, gated=False)
    planner.bind_asked(1, "a1", 0.0)
    planner.bind_asked(2, "a2", 0.0)
    answer = planner.preempt({"n": ["a1"]}, 1.0)
    assert (answer.outcome, answer.nodes) == ("spared", {})
    assert short(answer.actions) == [("Refuse", "a1"), ("Refuse", "a2")]
    assert planner.preempt({"n": ["a2"]}, 1.1) == Preemption("spared", {}, [])


@pytest.mark.parametrize("promised_first", [True, False])
def test_a_promise_shortens_the_timeout(promised_first):
    """The scheduler may have forgotten the pod; the group's refusal has it look again."""
    planner = GangScheduler(Limits(promise_s=5))
    shown(planner, "a1", "a2", gated=False)
    if promised_first:
        planner.promised("a2", 1.0)
    planner.bind_asked(1, "a1", 1.0)
    assert planner.promised("a2", 1.0) == []
    assert planner.next_wake(1.0) == 6.0
    assert short(planner.tick(6.0)) == [("Refuse", "a1")]
    assert planner.bind_asked(2, "a2", 8.0) == []
    assert planner.next_wake(8.0) == pytest.approx(8.0 + 30.0 + 0.05 * 2)
    planner.promised("a2", 9.0)  # it has a node meanwhile
    planner.promised("x", 9.0)
    planner.gone("a2", 10.0)
    assert planner.next_wake(10.0) is None


# -- turns --------------------------------------------------------------------------------------


def two_late_groups():
    """Two groups that hold a bind each; the older one runs out of time, and the other has a turn."""
    planner = GangScheduler(Limits(permit_s=10, permit_per_pod_s=0))
    shown(planner, "a1", "a2", "b1", "b2", gated=False)
    planner.bind_asked(1, "a1", 0.0)
    planner.bind_asked(2, "b1", 5.0)
    assert short(planner.tick(10.0)) == [("Refuse", "a1")]
    return planner


def test_a_group_that_ran_out_of_time_lets_another_try_alone():
    """Its binds are refused until the other is complete."""
    planner = two_late_groups()
    assert planner.bind_asked(3, "a1", 12.0) == [Refuse(3, "a1", "ns/a waits for its turn")]
    assert planner.bind_asked(4, "b2", 13.0) == [Bind(2, "b1"), Bind(4, "b2")]
    assert planner.bind_asked(5, "a1", 14.0) == []


def test_a_turn_ends_with_time():
    """Then it is the other's, and the first one waits."""
    planner = two_late_groups()
    assert short(planner.tick(15.0)) == [("Refuse", "b1")]  # its own time is over: a's turn
    assert planner.bind_asked(3, "a1", 16.0) == []
    assert planner.bind_asked(4, "b1", 20.0) == [Refuse(4, "b1", "ns/b waits for its turn")]
    assert planner.next_wake(20.0) == 26.0
    assert short(planner.tick(26.0)) == [("Refuse", "a1")]


def test_a_turn_without_any_bind_ends_too():
    """It counts as a failure of the group that did not use it."""
    planner = two_late_groups()
    planner.bind_cancelled(2, 11.0)
    end = planner.next_wake(11.0)
    assert end == pytest.approx(10.0 + 10.0 + 5.0 + 0.02 * 2)
    assert planner.bind_asked(3, "a1", end - 1) == [Refuse(3, "a1", "ns/a waits for its turn")]
    planner.tick(end)
    assert planner.bind_asked(4, "a1", end) == []


@pytest.mark.parametrize("how", ["gone", "unschedulable"])
def test_a_turn_ends_when_its_group_gives_up(how):
    """It is gone, or the scheduler says that it does not fit."""
    planner = two_late_groups()
    if how == "gone":
        planner.gone("b1", 12.0)
        planner.gone("b2", 12.0)
    else:
        assert planner.unschedulable("b2", 12.0) == []
        assert short(planner.tick(17.0)) == [("Refuse", "b1")]
    assert planner.bind_asked(3, "a1", 17.0) == []


def test_those_that_failed_before_give_up_what_they_hold():
    """When it is the turn of one that has not."""
    planner = GangScheduler(Limits(permit_s=10, permit_per_pod_s=0, first_backoff_s=1))
    shown(planner, "a1", "a2", "b1", "b2", gated=False)
    planner.bind_asked(1, "a1", 0.0)
    planner.tick(10.0)  # b's turn, which it does not use
    planner.tick(26.0)  # a's turn
    planner.unschedulable("a2", 27.0)
    assert planner.bind_asked(2, "a1", 32.0) == []
    assert planner.bind_asked(3, "b1", 35.0) == []
    shown(planner, "c1", "c2", gated=False)
    assert short(planner.tick(42.0)) == [("Refuse", "a1"), ("Refuse", "b1")]
    assert planner.bind_asked(4, "c1", 43.0) == []


def test_a_group_alone_has_no_turn():
    """There is nobody in its way."""
    planner = GangScheduler(Limits(permit_s=10, permit_per_pod_s=0))
    shown(planner, "a1", "a2", gated=False)
    planner.bind_asked(1, "a1", 0.0)
    planner.tick(10.0)
    assert planner.next_wake(10.0) is None
    assert planner.bind_asked(2, "a1", 11.0) == []


# -- what there was before ----------------------------------------------------------------------


def test_nothing_is_decided_before_all_is_seen():
    """The order of groups is known then."""
    planner = GangScheduler(Limits(in_flight=1))
    planner.pause()
    assert shown(planner, "b1", "b2", "a1", "a2") == []
    assert short(planner.resume(1.0)) == [("Ungate", "a1"), ("Ungate", "a2")]


# -- odd events ---------------------------------------------------------------------------------


def test_events_about_pods_that_are_not_known():
    """They are late, and change nothing."""
    planner = GangScheduler()
    assert planner.gone("x", 0.0) == []
    assert planner.ungate_failed("x", 0.0) == []
    assert planner.unschedulable("x", 0.0) == []
    assert planner.bind_cancelled(7, 0.0) == []
    assert planner.bind_done("x", ok=True, now=0.0) == []
    assert planner.seen(seen("x", ended=True), 0.0) == []
    assert planner.gang_status(A) is None
    assert planner.first_member(A) == ""
    assert planner.disagreements(A) == []


@pytest.mark.parametrize(
    ("marks", "state"), [({"gated": True}, "gated"), ({"bound": True, "gated": False}, "bound")]
)
def test_binds_that_make_no_sense_are_refused(marks, state):
    """Behind a gate, or with a node already."""
    planner = GangScheduler()
    shown(planner, "a1", **marks)
    assert planner.bind_asked(1, "a1", 0.0) == [Refuse(1, "a1", f"the pod is {state}")]


def test_a_pod_that_has_got_a_node_elsewhere_is_bound():
    """Its held bind is refused, and it counts for its group."""
    planner = GangScheduler()
    shown(planner, "a1", "a2", gated=False)
    planner.bind_asked(1, "a1", 0.0)
    actions = planner.seen(seen("a1", gated=False, bound=True), 1.0)
    assert actions == [Refuse(1, "a1", "the pod has a node")]
    assert planner.bind_asked(2, "a2", 2.0) == [Bind(2, "a2")]
    assert planner.seen(seen("a1", gated=False, bound=True), 3.0) == []


def test_a_pod_that_somebody_else_lifts():
    """It is no longer behind the gate; a group that is and stays too small is refused."""
    planner = GangScheduler()
    shown(planner, "a1")
    shown(planner, "a1", gated=False)
    assert planner.states() == {"a1": PodState.UNGATED}
    assert planner.bind_asked(1, "a1", 9.0) == [Refuse(1, "a1", "ns/a has 1 of 2 pods")]


def test_a_gate_that_failed_after_the_pod_was_tried_is_off():
    """The error came after the deed."""
    planner = GangScheduler()
    shown(planner, "a1", "a2")
    planner.bind_asked(1, "a1", 0.0)
    assert planner.ungate_failed("a1", 1.0) == []
    assert planner.states()["a1"] is PodState.WAITING


def test_a_group_whose_lifting_failed_waits_while_it_backs_off():
    """Its pods are lifted again when that is over."""
    planner = GangScheduler(Limits(permit_s=1, permit_per_pod_s=0))
    shown(planner, "a1", "a2", "a3", "a4", minimum=4)
    planner.bind_asked(1, "a1", 0.0)
    planner.tick(1.0)
    assert planner.ungate_failed("a3", 1.1) == []  # and nothing is known of the fourth
    assert planner.next_wake(1.2) is not None
    assert short(planner.tick(2.5)) == [("Ungate", "a3")]


def test_a_complete_group_needs_no_timeouts():
    """What is more than the minimum and finds no node harms nobody."""
    planner = GangScheduler()
    shown(planner, "a1", "a2", "a3", gated=False)
    planner.bind_asked(1, "a1", 0.0)
    planner.bind_asked(2, "a2", 0.0)
    assert planner.unschedulable("a3", 1.0) == []
    assert planner.bind_done("a1", ok=True, now=1.0) == []
    assert planner.bind_done("a1", ok=True, now=1.0) == []
    assert planner.gang_status(A).bound == 2


# -- what is told -------------------------------------------------------------------------------


def test_the_observer_sees_each_decision():
    """Lifted, refused with its cause, released, forgotten."""
    told = Told()
    planner = GangScheduler(observer=told)
    shown(planner, "a1", "a2")
    planner.unschedulable("a2", 0.0)
    planner.tick(5.0)
    planner.bind_asked(2, "a1", 7.0)
    planner.bind_asked(3, "a2", 7.0)
    planner.gone("a1", 8.0)
    planner.gone("a2", 8.0)
    calls = [call[0] for call in told.calls if call[0] != "staged"]
    assert calls == ["ungated", "rejected", "released", "forgotten"]
    assert any(Cause.UNSCHEDULABLE in call for call in told.calls)


def test_an_observer_that_wants_to_know_nothing():
    """It can be told everything."""
    nobody = Observer()
    planner = GangScheduler(observer=nobody)
    shown(planner, "a1", "a2")
    planner.bind_asked(1, "a1", 0.0)
    planner.unschedulable("a2", 0.0)
    shown(planner, "a1", "a2", minimum=1)
    planner.bind_asked(2, "a1", 2.0)
    planner.gone("a1", 3.0)
    planner.gone("a2", 3.0)
    assert planner.states() == {}


def test_a_group_that_goes_while_it_settles():
    """The next one need not wait for it."""
    planner = GangScheduler()
    assert short(shown(planner, "a1", "b1", minimum=1)) == [("Ungate", "a1")]
    assert short(planner.gone("a1", 1.0)) == [("Ungate", "b1")]


def test_a_census_names_every_stage():
    """However many groups there are, it takes as long."""
    planner = GangScheduler(Limits(in_flight=2))
    shown(planner, "a1", "a2", gated=False, bound=True)  # bound
    shown(planner, "b1", "b2", gated=False)
    planner.bind_asked(1, "b1", 0.0)  # holding
    shown(planner, "c1", "c2", gated=False)  # lifted
    shown(planner, "d1", "d2")  # queued: two are in flight
    shown(planner, "e1")  # incomplete
    census = planner.counts()
    assert census.groups == {"bound": 1, "holding": 1, "lifted": 1, "queued": 1, "incomplete": 1}
    assert planner.first_member(A) == "a1"
    assert planner.first_member(PodGroupKey("ns", "other")) == ""


def test_pods_that_disagree():
    """In minimum or priority; what counts is said."""
    planner = GangScheduler()
    shown(planner, "a1", minimum=2, prio=1)
    shown(planner, "a2", minimum=3, prio=2)
    assert planner.disagreements(A) == [
        "different minima (2, 3), of which the greatest counts",
        "different priorities (1, 2), of which the greatest counts",
    ]
    shown(planner, "b1", bound=True, gated=False)
    assert planner.disagreements(B) == []


def test_equal_texts_have_equal_hashes():
    """Of what sorts downwards."""
    assert {_Descending("a"), _Descending("a")} == {_Descending("a")}


def old_and_young():
    """Two groups of which only the younger one has room, when the older has waited for a minute."""
    room = Room()
    planner = GangScheduler(Limits(in_flight=1), capacity=room)
    for uid in ("a0", "a1", "b0", "b1"):
        planner.seen(seen(uid), 0.0)
    assert planner.next_wake(0.0) == 60.0
    planner.tick(60.0)
    room.pods["b"] = 2
    return planner, room


def test_a_reservation_lasts_as_long_as_it_was_waited_for():
    """Then others get on for as long; the next one is twice as long."""
    planner, _ = old_and_young()
    assert planner.capacity_grew(61.0) == []
    assert planner.next_wake(61.0) == 120.0
    assert short(planner.tick(120.0)) == [("Ungate", "b0"), ("Ungate", "b1")]
    planner.gone("b0", 121.0)
    planner.gone("b1", 121.0)
    assert planner.next_wake(121.0) == 180.0
    planner.tick(180.0)
    assert planner.next_wake(180.0) == 300.0


def test_a_reservation_ends_with_its_group():
    """Those behind it get on as soon as it is too small."""
    planner, _ = old_and_young()
    assert short(planner.gone("a0", 61.0)) == [("Ungate", "b0"), ("Ungate", "b1")]


def test_a_group_whose_room_is_there_takes_what_is_reserved():
    """First of all that are ready, and then nothing is reserved any more."""
    planner, room = old_and_young()
    room.pods["a"] = 2
    assert short(planner.capacity_grew(61.0)) == [("Ungate", "a0"), ("Ungate", "a1")]
    planner.bind_asked(1, "a0", 61.0)
    assert [uid for kind, uid in short(planner.bind_asked(2, "a1", 61.0)) if kind == "Ungate"] == [
        "b0",
        "b1",
    ]


def test_a_group_that_was_refused_leaves_reserved_room():
    """Its gates are off, so its binds are refused instead."""
    room = Room(b=2)
    planner = GangScheduler(Limits(), capacity=room)
    for uid in ("b0", "b1"):
        planner.seen(seen(uid), 0.0)
    planner.bind_asked(1, "b0", 0.0)
    planner.unschedulable("b1", 0.0)
    for uid in ("a0", "a1"):
        planner.seen(seen(uid), 0.0)
    planner.tick(60.0)
    (refused,) = planner.bind_asked(2, "b0", 61.0)
    assert refused.reason == "ns/b leaves capacity to another group"
