"""The planner of coscheduling: several pools, groups bound in part, groups that are too large."""

from __future__ import annotations

import pytest

from jobsetpy.coscheduler.gang_scheduler.capacity import Capacity, Shape
from jobsetpy.coscheduler.gang_scheduler.node_rules import (
    NodeConstraints,
    NodeInfo,
    Requirement,
    Term,
)
from jobsetpy.coscheduler.gang_scheduler.requests import MILLI
from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import KeepTime, Limits, Observer, SeenPod, Ungate
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey


class Told(Observer):
    """Writes down what is wrong with groups."""

    def __init__(self):
        self.calls = []

    def bound_in_part(self, group, bound, *, deleted):
        """Only some of its pods have nodes."""
        self.calls.append((group.key.name, bound, deleted))

    def too_large(self, group, held):
        """It can never start."""
        self.calls.append((group.key.name, held))


class Rig:
    """Nodes of pools, the capacity and the planner, and whatever the scheduler is made to say."""

    def __init__(self, limits=None, **pools):
        self.capacity, self.told = Capacity(), Told()
        self.planner = GangScheduler(limits, observer=self.told, capacity=self.capacity)
        for pool, cpu in pools.items():
            self.capacity.node(pool, NodeInfo({"cpu": cpu * MILLI}, {"pool": pool}))
        self.shapes, self.tickets = {}, 0

    def group(self, name, size, *, pool="", gated=True, minimum=0, created=0.0, terms=None):
        """A group of pods of one CPU."""
        placement = NodeConstraints((("pool", pool),) if pool else (), (), terms)
        actions = []
        for at in range(size):
            uid = f"{name}{at}"
            self.shapes[uid] = Shape((("cpu", MILLI),), placement, preempts=False)
            actions += self.see(uid, minimum or size, gated=gated, created=created)
        return [action.uid for action in actions]

    def see(self, uid, minimum, *, gated=False, node="", created=0.0, now=0.0, member=None, **more):
        """A pod is new, or has changed."""
        group = PodGroupKey("ns", uid[0])
        self.capacity.pod(uid, self.shapes[uid], node=node, group=group)
        member = Member(
            uid=uid, created=created, min_available=minimum, bound=bool(node), **(member or {})
        )
        pod = SeenPod(group=group, name=uid, member=member, gated=gated, **more)
        return self.planner.seen(pod, now)

    def ask(self, uid, node, now):
        """The scheduler has found a node."""
        self.tickets += 1
        self.capacity.reserve(uid, node)
        return said(self.planner.bind_asked(self.tickets, uid, now))

    def finds_none(self, uid, now):
        """It has found none."""
        return said(self.planner.unschedulable(uid, now))


def said(actions):
    """Kind and UID of each."""
    return [(type(action).__name__, action.uid) for action in actions]


NOWHERE = (Term((Requirement("pool", "In", ("none",)),)),)


def test_a_group_that_nothing_satisfies_stays_behind_its_gate():
    """And those behind it in the queue get on."""
    rig = Rig(a=4)
    assert rig.group("a", 2, terms=NOWHERE) == []
    assert rig.group("b", 2, created=1.0) == ["b0", "b1"]


@pytest.mark.parametrize("pool", ["a", "b"])
def test_a_group_of_another_pool_takes_nothing_from_others(pool):
    """Only what is held where its pods may be helps it: there the younger one gives way."""
    rig = Rig(a=3, b=3)
    rig.group("a", 3, pool="a", gated=False)
    rig.group("b", 3, pool=pool, gated=False, created=1.0)
    rig.ask("b0", pool, 0.0)
    rig.ask("b1", pool, 0.0)
    rig.capacity.pod("x", Shape((("cpu", MILLI),)), node=pool, group=None)  # an ordinary one
    assert rig.finds_none("b2", 1.0) == []
    rig.ask("a0", "a", 1.0)
    rig.capacity.gone("x")
    refused = [("Refuse", "b0"), ("Refuse", "b1")] if pool == "a" else []
    assert rig.finds_none("a1", 2.0) == refused


def test_none_gives_way_to_a_group_that_does_not_fit_even_so():
    """It is larger than what all others hold."""
    rig = Rig(a=3)
    rig.group("a", 3, gated=False)
    rig.group("b", 2, gated=False, created=1.0)
    rig.capacity.pod("x", Shape((("cpu", MILLI),)), node="a", group=None)
    rig.ask("b0", "a", 0.0)
    rig.finds_none("b1", 0.5)
    rig.ask("a0", "a", 1.0)
    assert rig.finds_none("a1", 1.0) == []
    rig.capacity.gone("x")
    assert rig.finds_none("a2", 1.0) == []  # looked at again after some seconds
    assert said(rig.planner.tick(6.0)) == [("Refuse", "b0")]


def test_the_turn_of_a_group_keeps_others_of_its_pool_waiting_only():
    """A group that ran out of time in another pool goes on trying."""
    limits = Limits(permit_s=10, permit_per_pod_s=0)
    rig = Rig(limits, a=3, b=3)
    rig.group("a", 2, pool="a", gated=False)
    rig.group("b", 2, pool="b", gated=False, created=1.0)
    rig.group("c", 2, pool="a", gated=False, created=2.0)
    rig.ask("a0", "a", 0.0)
    rig.ask("b0", "b", 0.0)
    assert said(rig.planner.tick(10.0)) == [("Refuse", "a0"), ("Refuse", "b0")]  # turn of c
    assert rig.ask("b0", "b", 12.0) == []
    assert rig.ask("a0", "a", 12.0) == [("Refuse", "a0")]


def test_groups_beyond_the_first_hundreds_are_looked_at_later():
    """A look at the queue is bounded; what is left is looked at as soon as others had their turn."""
    rig = Rig(a=2)
    for at in range(700):
        group = PodGroupKey("ns", f"w{at}")
        shape = Shape((("cpu", 3 * MILLI),))
        rig.capacity.pod(f"w{at}", shape, node="", group=group)
        member = Member(uid=f"w{at}", created=float(at), min_available=1)
        rig.planner.seen(SeenPod(group=group, name=f"w{at}", member=member, gated=True), 0.0)
    lifted = rig.group("z", 1, created=1000.0)
    now = 0.0
    while not lifted:
        assert rig.planner.next_wake(now) <= now
        lifted = [action.uid for action in rig.planner.tick(now)]
    assert lifted == ["z0"]


# -- bound in part ------------------------------------------------------------------------------


def let_go(limits, **first):
    """A group of three that is let go, and only two of which get their node."""
    rig = Rig(limits, a=3)
    rig.group("a", 3, gated=False, **first)
    for at in range(3):
        rig.ask(f"a{at}", "a", 0.0)
    for at in range(2):
        rig.planner.bind_done(f"a{at}", ok=True, now=1.0)
    rig.planner.bind_done("a2", ok=False, now=1.0)
    return rig


@pytest.mark.parametrize("delete", [False, True])
def test_a_part_that_is_bound_does_not_wait_for_ever(delete):
    """It is told of, again and again, and deleted where that is asked for."""
    rig = let_go(Limits(partial_s=60, delete_partial=delete))
    assert rig.planner.next_wake(1.0) == 61.0
    evicted = [("Evict", "a0"), ("Evict", "a1")] if delete else []
    assert said(rig.planner.tick(61.0)) == evicted
    assert rig.told.calls == [("a", 2, delete)]
    if delete:
        rig.planner.gone("a0", 61.0)
        rig.planner.gone("a1", 61.0)
    rig.planner.tick(121.0)
    assert len(rig.told.calls) == (1 if delete else 2)


def test_a_part_that_grows_has_more_time():
    """Its last change counts; whole, it is never looked at again."""
    rig = let_go(Limits(partial_s=60))
    rig.ask("a2", "a", 30.0)
    rig.planner.bind_done("a2", ok=True, now=31.0)
    assert rig.planner.tick(61.0) == []
    rig.planner.gone("a1", 62.0)  # it had started: a lost pod is another matter
    rig.planner.tick(200.0)
    assert rig.told.calls == []


def test_binds_under_way_are_waited_for():
    """The API server may be slow."""
    rig = Rig(Limits(partial_s=60), a=3)
    rig.group("a", 3, gated=False)
    for at in range(3):
        rig.ask(f"a{at}", "a", 0.0)
    rig.planner.bind_done("a0", ok=True, now=1.0)
    rig.planner.tick(100.0)
    assert rig.told.calls == []


@pytest.mark.parametrize(
    ("created", "told"), [(100.0, True), (900.0, False)], ids=["left over", "replacement"]
)
def test_after_a_restart_of_the_coscheduler_pods_tell_what_a_part_is(created, told):
    """A pod that was there when others got their nodes is left over; a later one replaces some."""
    rig = Rig(Limits(partial_s=60), a=3)
    for at in range(3):
        rig.shapes[f"a{at}"] = Shape((("cpu", MILLI),))
    for at in range(2):
        rig.see(f"a{at}", 3, node="a", bound_at=500.0)
    rig.see("a2", 3, created=created)
    rig.planner.tick(61.0)
    rig.planner.tick(121.0)
    assert bool(rig.told.calls) is told


# -- size ---------------------------------------------------------------------------------------


def test_a_group_that_needs_more_held_binds_than_there_can_be_is_reported_once():
    """It stays gated, its pods without gates are refused, and others get on."""
    rig = Rig(Limits(held=3), a=9)
    assert rig.group("a", 4) == []
    assert rig.group("b", 3, created=1.0) == ["b0", "b1", "b2"]
    assert rig.told.calls == [("a", 3)]
    rig.see("a0", 4)
    assert rig.ask("a0", "a", 1.0) == [("Refuse", "a0")]


def test_groups_are_lifted_only_as_far_as_their_binds_can_be_held():
    """Else they would refuse each other."""
    rig = Rig(Limits(held=5), a=9)
    assert rig.group("a", 3) == ["a0", "a1", "a2"]
    rig.group("b", 3, created=1.0)
    rig.group("c", 2, created=2.0)
    rig.ask("a0", "a", 0.0)
    rig.ask("a1", "a", 0.0)
    assert rig.finds_none("a2", 0.0) == [("Ungate", "c0"), ("Ungate", "c1")]


# -- portions -----------------------------------------------------------------------------------


def large(size, **limits):
    """A group whose pods all have found nodes but for the last one."""
    rig = Rig(Limits(permit_s=1, permit_per_pod_s=0, **limits), a=size)
    lifted, now = len(rig.group("a", size)), 0.0
    while rig.planner.next_wake(now) <= now:
        lifted += len(rig.planner.tick(now))
    assert lifted == size
    for at in range(size - 1):
        rig.ask(f"a{at}", "a", 0.0)
    return rig


def rest(rig, first, now):
    """How many actions of which kinds follow, and the longest list of them."""
    kinds, longest = {kind for kind, _ in first}, len(first)
    count = len(first)
    while (wake := rig.planner.next_wake(now)) is not None and wake <= now:
        actions = said(rig.planner.tick(now))
        kinds |= {kind for kind, _ in actions}
        count, longest = count + len(actions), max(longest, len(actions))
    return kinds, count, longest


def test_a_large_group_is_lifted_and_let_go_in_portions():
    """Nothing of it is refused any more once that has begun, nor deleted for others."""
    rig = large(2200)
    first = rig.ask("a2199", "a", 0.5)
    held = [uid for uid, state in rig.planner.states().items() if state.value == "waiting"]
    assert held
    assert rig.planner.preempt({"a": held[:1]}, 0.5).nodes == {"a": held[:1]}
    kinds, count, longest = rest(rig, first, 0.5)
    assert (kinds, count) == ({"Bind"}, 2200)
    assert longest == 500


def test_several_groups_that_are_refused_at_once_share_one_portion():
    """However many run out of time at the same moment, none blocks the others for long."""
    rig = Rig(Limits(permit_s=1, permit_per_pod_s=0), a=400)
    for name in "abcd":
        rig.group(name, 91, gated=False)
        for at in range(90):
            assert rig.ask(f"{name}{at}", "a", 0.0) == []
    first = said(rig.planner.tick(1.0))
    assert rest(rig, first, 1.0) == ({"Refuse"}, 360, 100)


def test_what_lets_a_large_group_go_asks_nothing_about_room(monkeypatch):
    """That is found out in a step of its own, which is due at once."""
    rig = large(2200)
    rig.group("b", 2, created=1.0)
    asked, fits = [], rig.capacity.fits
    monkeypatch.setattr(
        rig.capacity, "fits", lambda group, wanted: asked.append(group.name) or fits(group, wanted)
    )
    assert len(rig.ask("a2199", "a", 0.5)) == 500
    assert not asked
    rest(rig, [], 0.5)
    assert "b" in asked


def test_a_large_group_is_refused_in_portions():
    """What is refused comes back while others are yet to be; all are in the end."""
    rig = large(500)
    first = said(rig.planner.tick(1.0))
    assert rest(rig, first, 1.0) == ({"Refuse"}, 499, 100)
    assert rig.planner.gang_status(PodGroupKey("ns", "a")).waiting == 0


@pytest.mark.parametrize("complete", [True, False])
def test_what_was_decided_is_finished_at_the_end(complete):
    """Else a group would be left bound in part."""
    rig = large(2200)
    first = rig.ask("a2199", "a", 0.5) if complete else said(rig.planner.tick(1.0))
    actions = said(rig.planner.finish(1.0))
    assert len(first) + len(actions) == (2200 if complete else 2199)
    assert {kind for kind, _ in actions} == {"Bind" if complete else "Refuse"}


# -- pods that no scheduler takes -----------------------------------------------------------------


def tiny(rig, name, **member):
    """A gang of one pod of another kind."""
    rig.shapes[f"{name}0"] = Shape((("cpu", 1),), preempts=False)
    return said(rig.see(f"{name}0", 1, gated=True, member=member))


def test_gang_is_ungated_when_others_name_a_scheduler_that_does_not_run():
    """Each scheduler has places of its own; nothing waits until the other gangs settle."""
    rig = Rig(a=4)
    first = [tiny(rig, name, scheduler="none") for name in "uvwxyz"]
    assert first[:2] == [[("Ungate", "u0")], []]  # they wait for each other
    assert rig.group("a", 4, created=1.0) == [f"a{at}" for at in range(4)]


def test_gang_stays_gated_when_another_controller_holds_back_its_pods():
    """It takes no place; it is ungated as soon as enough of its pods can be placed."""
    rig = Rig(a=4)
    assert [tiny(rig, name, blocked=True) for name in "uvwxyz"] == [[]] * 6
    assert rig.planner.gang_status(PodGroupKey("ns", "u")).placeable == 0
    assert rig.group("a", 2, created=1.0) == ["a0", "a1"]
    for at in range(2):
        rig.ask(f"a{at}", "a", 0.0)
    assert said(rig.see("u0", 1, gated=True)) == [("Ungate", "u0")]


def test_gang_is_ungated_when_more_gangs_than_the_bound_are_refused_for_ever():
    """The last place is never theirs, so that others get on, though more slowly."""
    limits = Limits(in_flight=2, stuck=1, stuck_after=1, reserve_after_s=0)
    rig, now = Rig(limits, a=9), 0.0
    names = "stuvwxyz"
    for at, name in enumerate(names):
        rig.group(name, 1, created=float(at))
    rig.group("a", 2, created=99.0)
    for _ in range(300):
        now += 1
        rig.planner.tick(now)
        for uid, state in rig.planner.states().items():
            if state.value == "lifted" and uid[0] in names:
                rig.finds_none(uid, now)
    assert rig.planner.gang_status(PodGroupKey("ns", "a")).in_flight


def test_gang_keeps_its_place_when_its_oldest_pod_is_replaced():
    """It was there before the other gang; which of its pods are left does not matter."""
    rig = Rig(a=1)
    rig.group("a", 1, created=0.0)
    rig.ask("a0", "a", 0.0)
    rig.planner.bind_done("a0", ok=True, now=0.0)
    rig.see("a0", 1, node="a")
    for uid, created in (("b0", 1.0), ("b1", 9.0), ("c0", 5.0)):
        rig.shapes[uid] = Shape((("cpu", MILLI),), preempts=False)
        assert rig.see(uid, 1, gated=True, created=created) == []
    rig.capacity.gone("b0")
    assert rig.planner.gone("b0", 2.0) == [KeepTime(PodGroupKey("ns", "b"), "b1", 1.0)]
    rig.capacity.gone("a0")
    rig.planner.gone("a0", 3.0)
    rig.planner.capacity_grew(3.0)
    assert [uid for uid, state in rig.planner.states().items() if state.value == "lifted"] == ["b1"]


def test_gang_keeps_its_place_in_another_process_when_its_oldest_pod_was_replaced():
    """The oldest remaining pod shows the time; it is written once, and again if that pod goes too."""

    def gang_of_three(planner):
        return [
            action
            for uid, created in (("b0", 1.0), ("b1", 9.0), ("b2", 10.0))
            for action in planner.seen(pod_of("b", uid, created), 0.0)
        ]

    def pod_of(gang, uid, created, queued=None):
        member = Member(uid=uid, created=created, queued=queued)
        return SeenPod(group=PodGroupKey("ns", gang), name=uid, member=member, gated=True)

    full = Capacity()
    full.node("n", NodeInfo({"cpu": 0}))
    for gang, uid in (("b", "b0"), ("b", "b1"), ("b", "b2"), ("c", "c0")):
        full.pod(uid, Shape((("cpu", MILLI),)), node="", group=PodGroupKey("ns", gang))
    planner = GangScheduler(capacity=full)
    assert gang_of_three(planner) == []
    key = PodGroupKey("ns", "b")
    assert planner.gone("b0", 11.0) == [KeepTime(key, "b1", 1.0)]
    assert planner.seen(pod_of("b", "b3", 12.0), 12.0) == []
    assert planner.gone("b1", 13.0) == [KeepTime(key, "b2", 1.0)]
    assert planner.seen(pod_of("b", "b2", 10.0, queued=1.0), 14.0) == []

    successor = GangScheduler(capacity=full)
    for seen in (pod_of("c", "c0", 5.0), pod_of("b", "b2", 10.0, queued=1.0)):
        assert successor.seen(seen, 20.0) == []
    full.node("n", NodeInfo({"cpu": MILLI}))
    assert successor.capacity_grew(21.0) == [Ungate(key, "b2", "b2")]
