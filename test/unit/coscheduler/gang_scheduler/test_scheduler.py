"""The planner of coscheduling, case by case."""

from __future__ import annotations

import pytest

from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import Bind, Limits, LookUp, Refuse, SeenPod, Ungate
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey


def seen(
    uid, group="g", *, minimum=2, gated=True, created=0.0, bound=False, ended=False, prio=0, **more
):
    """A pod with a group."""
    member = Member(
        uid=uid, created=created, min_available=minimum, bound=bound, priority=prio, **more
    )
    key = PodGroupKey("ns", group)
    return SeenPod(group=key, name=uid, member=member, gated=gated, ended=ended)


def lifted(*pods, limits=None):
    """A planner to which pods without a gate were shown."""
    planner = GangScheduler(limits)
    for uid in pods:
        planner.seen(seen(uid, uid[0], gated=False, created=float(ord(uid[0]))), 0.0)
    return planner


def short(actions):
    """Kind and UID of each."""
    return [(type(action).__name__, action.uid) for action in actions]


def test_the_member_that_completes_a_group_has_it_lifted():
    """At once, without any timer (the proposal's second known limitation)."""
    planner = GangScheduler()
    assert planner.seen(seen("a"), 0.0) == []
    assert short(planner.seen(seen("b"), 9.0)) == [("Ungate", "a"), ("Ungate", "b")]


def test_the_next_group_waits_until_the_one_before_has_settled():
    """Settled: each pod found a node, found none, or is gone."""
    planner = GangScheduler()
    for uid in ("a1", "a2", "a3"):
        planner.seen(seen(uid, "a", minimum=3), 0.0)
    for uid in ("b1", "b2"):
        assert planner.seen(seen(uid, "b", created=1.0), 0.0) == []
    assert planner.bind_asked(1, "a1", 0.1) == []
    assert planner.gone("a3", 0.2) == [Refuse(1, "a1", "ns/a has 2 of 3 pods")]
    actions = planner.unschedulable("a2", 0.3)
    assert short(actions) == [("Ungate", "b1"), ("Ungate", "b2")]


def test_a_group_that_does_not_settle_is_passed_after_a_while():
    """The scheduler may never say anything of a pod."""
    planner = GangScheduler(Limits(settle_s=5, settle_per_pod_s=0))
    for group in "ab":
        for index in "12":
            planner.seen(seen(f"{group}{index}", group), 0.0)
    wake = planner.next_wake(0.0)
    assert wake == 5.0
    assert planner.tick(4.9) == []
    assert short(planner.tick(wake)) == [("Ungate", "b1"), ("Ungate", "b2")]


def test_binds_are_held_until_there_are_enough():
    """Then all are released; later ones pass at once."""
    planner = lifted("a1", "a2", "a3")
    assert planner.bind_asked(1, "a1", 0.0) == []
    assert planner.bind_asked(2, "a2", 0.1) == [Bind(1, "a1"), Bind(2, "a2")]
    assert planner.bind_asked(3, "a3", 0.2) == [Bind(3, "a3")]


def test_a_bind_that_failed_passes_the_next_time():
    """The others are on their way."""
    planner = lifted("a1", "a2")
    planner.bind_asked(1, "a1", 0.0)
    planner.bind_asked(2, "a2", 0.0)
    planner.bind_done("a1", ok=False, now=0.1)
    planner.bind_done("a2", ok=True, now=0.1)
    assert planner.bind_asked(3, "a1", 1.0) == [Bind(3, "a1")]


def test_a_timeout_refuses_all_that_is_held():
    """It counts from the first that was held; then binds are refused for a while, up to 10 s."""
    planner = lifted("a1", "a2")
    now, pauses = 0.0, []
    for ticket in range(1, 8):
        assert planner.bind_asked(ticket, "a1", now) == []
        now = planner.next_wake(now)
        assert short(planner.tick(now)) == [("Refuse", "a1")]
        pause = 0.0
        while short(planner.bind_asked(100, "a1", now + pause)) == [("Refuse", "a1")]:
            pause += 1.0
        pauses.append(pause)
        planner.bind_cancelled(100, now + pause)
        now += pause
    assert pauses == [1, 2, 4, 8, 10, 10, 10]


def test_the_youngest_group_gives_way():
    """Of those that hold something, lack nodes, and are younger than one that lacks nodes, too."""
    planner = lifted("a1", "a2", "b1", "b2", "c1", "c2")
    for ticket, uid in enumerate(("a1", "b1", "c1"), 1):
        planner.bind_asked(ticket, uid, 0.0)
    assert planner.unschedulable("c2", 0.5) == []
    assert short(planner.unschedulable("b2", 1.0)) == [("Refuse", "c1")]
    assert planner.unschedulable("b2", 1.0) == []
    assert planner.gang_status(PodGroupKey("ns", "a")).waiting == 1
    assert short(planner.tick(6.0)) == [("Refuse", "b1")]  # the third has waited for its room


def test_a_pod_that_finds_no_node_costs_others_nothing():
    """Its group keeps it until its time is over, and so does another that gets on."""
    planner = lifted("a1", "a2", "b1", "b2")
    planner.bind_asked(1, "a1", 0.0)
    planner.bind_asked(2, "b1", 0.0)
    assert planner.unschedulable("a2", 1.0) == []
    assert planner.tick(6.0) == []
    assert short(planner.bind_asked(3, "b2", 7.0)) == [("Bind", "b1"), ("Bind", "b2")]
    assert short(planner.bind_asked(4, "a2", 8.0)) == [("Bind", "a1"), ("Bind", "a2")]


def test_what_is_held_without_getting_on_is_given_up_for_those_that_wait():
    """After some seconds, and at once when that was so before."""
    planner = lifted("a1", "a2")
    planner.bind_asked(1, "a1", 0.0)
    planner.unschedulable("a2", 1.0)
    planner.seen(seen("b", "b", minimum=1, created=200.0), 2.0)  # lifted at once
    planner.seen(seen("c", "c", minimum=2, created=300.0, gated=False), 2.0)
    planner.unschedulable("b", 3.0)
    assert planner.next_wake(3.0) == 6.0
    assert short(planner.tick(6.0)) == [("Refuse", "a1")]
    assert planner.bind_asked(2, "a1", 8.0) == []
    assert short(planner.unschedulable("a2", 8.0)) == [("Refuse", "a1")]


def test_a_group_that_can_do_without_a_member_continues():
    """One unschedulable pod of three, where two are enough."""
    planner = lifted("a1", "a2", "a3")
    planner.bind_asked(1, "a1", 0.0)
    assert planner.unschedulable("a2", 0.1) == []
    assert short(planner.bind_asked(2, "a3", 0.2)) == [("Bind", "a1"), ("Bind", "a3")]


@pytest.mark.parametrize(
    "pod", [seen("a2", "a", ended=True), seen("a2", "other", gated=False)], ids=["ended", "moved"]
)
def test_a_group_that_becomes_too_small_gives_up_at_once(pod):
    """It need not wait for a timeout."""
    planner = lifted("a1", "a2")
    planner.bind_asked(1, "a1", 0.0)
    assert planner.seen(pod, 0.1) == [Refuse(1, "a1", "ns/a has 1 of 2 pods")]


def test_a_lower_minimum_releases_what_is_held():
    """After a resize, whose labels arrive pod by pod."""
    planner = lifted("a1", "a2")
    planner.bind_asked(1, "a1", 0.0)
    assert planner.seen(seen("a2", "a", minimum=1, gated=False), 0.1) == []
    assert planner.seen(seen("a1", "a", minimum=1, gated=False), 0.1) == [Bind(1, "a1")]


def test_replacements_pass_a_complete_group():
    """Those that run count."""
    planner = GangScheduler()
    for uid in ("a1", "a2"):
        planner.seen(seen(uid, "a", gated=False, bound=True, minimum=3), 0.0)
    actions = planner.seen(seen("a3", "a", minimum=3), 1.0)
    assert short(actions) == [("Ungate", "a3")]
    assert planner.bind_asked(1, "a3", 2.0) == [Bind(1, "a3")]


def test_what_is_unknown_is_looked_up():
    """A cache may lag behind; a pod without a group is not ours to hold."""
    assert GangScheduler().bind_asked(7, "x", 0.0) == [LookUp(7, "x")]


def test_a_second_request_takes_the_place_of_the_first():
    """Of a scheduler that took over."""
    planner = lifted("a1", "a2")
    planner.bind_asked(1, "a1", 0.0)
    assert short(planner.bind_asked(2, "a1", 1.0)) == [("Refuse", "a1")]
    assert planner.bind_cancelled(1, 1.1) == []
    assert planner.bind_asked(3, "a2", 1.2) == [Bind(2, "a1"), Bind(3, "a2")]


def test_a_cancelled_request_counts_no_longer():
    """The scheduler died, and its reservation with it."""
    planner = lifted("a1", "a2")
    planner.bind_asked(1, "a1", 0.0)
    planner.bind_cancelled(1, 0.1)
    assert planner.next_wake(0.1) is None
    assert planner.bind_asked(2, "a2", 0.2) == []


def test_a_gate_that_stays_is_tried_again():
    """The patch failed."""
    planner = GangScheduler()
    planner.seen(seen("a", minimum=1), 0.0)
    assert short(planner.ungate_failed("a", 1.0)) == [("Ungate", "a")]


def test_only_some_incomplete_groups_are_lifted():
    """Lifting cannot be undone."""
    planner = GangScheduler(Limits(in_flight=1))
    for group in "ab":
        for index in "12":
            planner.seen(seen(f"{group}{index}", group), 0.0)
    planner.bind_asked(1, "a1", 0.0)
    planner.unschedulable("a2", 0.0)
    assert planner.tick(5.0) == [Refuse(1, "a1", "ns/a found no node for one of its pods")]
    assert planner.tick(30.0) == []
    planner.gone("a1", 31.0)
    assert [type(each) for each in planner.gone("a2", 31.0)] == [Ungate, Ungate]


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
def test_preemption_refuses_groups_in_place_of_deleting_their_pods(victims, kept, refused):
    """Room that is only reserved is given back without deleting anything."""
    planner = lifted("a1", "a2")
    planner.bind_asked(1, "a1", 0.0)
    answer = planner.preempt(victims, 1.0)
    assert answer.nodes == kept
    assert [action.uid for action in answer.actions] == refused


def test_members_that_come_without_a_gate_wait_for_the_others():
    """Their binds are held while the group grows, not refused: the last one releases all."""
    planner = GangScheduler()
    for at, uid in enumerate(("a1", "a2")):
        planner.seen(seen(uid, "a", minimum=3, gated=False), float(at))
        assert planner.bind_asked(at, uid, float(at)) == []
    planner.seen(seen("a3", "a", minimum=3, gated=False), 2.0)
    actions = planner.bind_asked(3, "a3", 2.1)
    assert short(actions) == [("Bind", "a1"), ("Bind", "a2"), ("Bind", "a3")]


def test_a_group_that_stops_growing_gives_its_room_back():
    """After a short while without a new member; then binds are refused until one comes."""
    planner = GangScheduler(Limits(gather_s=3))
    planner.seen(seen("a1", "a", minimum=3, gated=False), 0.0)
    planner.bind_asked(1, "a1", 1.0)
    planner.seen(seen("a2", "a", minimum=3, gated=False), 2.0)
    assert planner.next_wake(2.0) == 5.0
    assert planner.tick(4.9) == []
    refused = [Refuse(1, "a1", "ns/a has 2 of 3 pods")]
    assert planner.tick(5.0) == refused
    assert planner.bind_asked(2, "a2", 6.0) == [Refuse(2, "a2", "ns/a has 2 of 3 pods")]
    planner.seen(seen("a3", "a", minimum=3, gated=False), 7.0)
    assert planner.bind_asked(3, "a1", 7.0) == []


def test_a_group_does_not_gather_for_ever():
    """However new pods trickle in, the group's timeout ends it, and then it has to be complete."""
    planner = GangScheduler(Limits(gather_s=3, permit_s=10, permit_per_pod_s=0))
    planner.seen(seen("a0", "a", minimum=100, gated=False), 0.0)
    assert planner.bind_asked(1, "a0", 0.0) == []
    for at in range(1, 10):
        planner.seen(seen(f"a{at}", "a", minimum=100, gated=False), float(at))
    assert short(planner.tick(10.0)) == [("Refuse", "a0")]
    planner.seen(seen("a10", "a", minimum=100, gated=False), 12.0)
    assert short(planner.bind_asked(2, "a10", 12.0)) == [("Refuse", "a10")]


def test_a_group_that_loses_a_member_while_it_gathers_gives_up():
    """It will not be complete: those who made its pods have changed their mind."""
    planner = GangScheduler()
    for uid in ("a1", "a2"):
        planner.seen(seen(uid, "a", minimum=3, gated=False), 0.0)
    planner.bind_asked(1, "a1", 0.1)
    assert short(planner.gone("a2", 0.2)) == [("Refuse", "a1")]


def test_queue_is_empty_while_gangs_are_placed():
    """Those that come and find nodes wait for nobody; gated and refused ones do."""
    planner = GangScheduler()
    assert planner.queue_is_empty()
    for uid in ("a1", "a2"):
        planner.seen(seen(uid, "a", minimum=2, gated=False), 0.0)
    planner.bind_asked(1, "a1", 0.1)
    assert planner.queue_is_empty()
    planner.unschedulable("a2", 0.2)
    assert not planner.queue_is_empty()
    for uid in ("a1", "a2"):
        planner.gone(uid, 0.3)
    assert planner.queue_is_empty()
    for uid in ("b1", "b2", "c1", "c2"):  # c has to wait until b has settled
        planner.seen(seen(uid, uid[0], minimum=2), 1.0)
    assert not planner.queue_is_empty()


def test_a_part_without_gates_does_not_have_the_rest_lifted_first():
    """Whoever leaves out one gate would else be ahead of all that wait."""
    planner = GangScheduler(Limits(in_flight=1))
    for uid in ("a1", "a2"):
        planner.seen(seen(uid, "a", created=1.0), 0.0)
    for uid in ("b1", "b2"):
        planner.seen(seen(uid, "b", created=2.0), 0.0)
    planner.seen(seen("c1", "c", created=3.0, gated=False), 0.0)
    planner.seen(seen("c2", "c", created=3.0), 0.0)
    actions = [*planner.bind_asked(1, "a1", 1.0), *planner.bind_asked(2, "a2", 1.0)]
    actions += [*planner.bind_done("a1", ok=True, now=2.0), *planner.bind_done("a2", ok=True, now=2.0)]  # fmt: skip
    assert ("Ungate", "c2") not in short(actions)


class NoRoom:
    """There is none for anybody, and never will be."""

    def fits(self, group, wanted):
        return False

    def ever_fits(self, group, wanted):
        return False

    def fits_without(self, group, wanted, others):
        return False

    def compete(self, group, other):
        return True


def test_a_group_that_is_to_have_room_made_is_tried_without():
    """Where it was asked for; others stay behind their gates, which can be told."""
    planner = GangScheduler(Limits(), capacity=NoRoom())
    for uid in ("a1", "a2"):
        assert planner.seen(seen(uid, "a"), 0.0) == []
    assert planner.lacks_capacity(PodGroupKey("ns", "a"))
    assert planner.counts().groups == {"queued": 1}
    b = [seen(uid, "b", created=1.0, needs_capacity=False) for uid in ("b1", "b2")]
    planner.seen(b[0], 1.0)
    assert short(planner.seen(b[1], 1.0)) == [("Ungate", "b1"), ("Ungate", "b2")]
    assert not planner.lacks_capacity(PodGroupKey("ns", "b"))


def test_groups_tried_for_an_autoscaler_take_no_places_of_others():
    """They have a bound of their own."""
    planner = GangScheduler(Limits(in_flight=1, stuck=2, settle_s=1, settle_per_pod_s=0))
    lifted_ = []
    for at, group in enumerate("abc"):
        for nth in "12":
            pod = seen(f"{group}{nth}", group, created=float(at), needs_capacity=False)
            lifted_ += short(planner.seen(pod, 0.0))
    for nth in "12":
        planner.seen(seen(f"d{nth}", "d", created=9.0), 0.0)
    for now in range(2, 12, 2):
        lifted_ += short(planner.tick(float(now)))
    assert [uid for _, uid in lifted_] == ["a1", "a2", "b1", "b2", "d1", "d2"]
