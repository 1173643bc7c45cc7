"""The gang scheduler: several pools, gangs that are too large."""

from __future__ import annotations

import pytest

from jobsetpy.coscheduler.gang_scheduler.capacity.capacity import Capacity, Shape
from jobsetpy.coscheduler.gang_scheduler.capacity.node_rules import (
    NodeConstraints,
    NodeInfo,
    Requirement,
    Term,
)
from jobsetpy.coscheduler.gang_scheduler.capacity.requests import MILLI
from jobsetpy.coscheduler.gang_scheduler.gang import Observer
from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import KeepTime, Limits, SeenPod, Ungate
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey
from support.coscheduling.scheduler_kit import short


class ProblemLog(Observer):
    """An observer that records gangs that are too large."""

    def __init__(self):
        self.calls = []

    def too_large(self, group, held):
        self.calls.append((group.key.name, held))


class Rig:
    """Nodes of pools, their capacity and the gang scheduler, with the calls of kube-scheduler."""

    def __init__(self, limits=None, **pools):
        self.capacity, self.log = Capacity(), ProblemLog()
        self.scheduler = GangScheduler(limits, observer=self.log, capacity=self.capacity)
        for pool, cpu in pools.items():
            self.capacity.node(pool, NodeInfo({"cpu": cpu * MILLI}, {"pool": pool}))
        self.shapes, self.tickets = {}, 0

    def group(self, name, size, *, pool="", gated=True, minimum=0, created=0.0, terms=None):
        """Add the pods of a gang, each with one CPU; return the UIDs of all actions."""
        placement = NodeConstraints((("pool", pool),) if pool else (), (), terms)
        actions = []
        for at in range(size):
            uid = f"{name}{at}"
            self.shapes[uid] = Shape((("cpu", MILLI),), placement, preempts=False)
            actions += self.see(uid, minimum or size, gated=gated, created=created)
        return [action.uid for action in actions]

    def see(self, uid, minimum, *, gated=False, node="", created=0.0, now=0.0, member=None, **more):
        """Add or change a pod."""
        group = PodGroupKey("ns", uid[0])
        self.capacity.pod(uid, self.shapes[uid], node=node, group=group)
        member = Member(created=created, min_available=minimum, bound=bool(node), **(member or {}))
        pod = SeenPod(group=group, name=uid, uid=uid, member=member, gated=gated, **more)
        return self.scheduler.seen(pod, now)

    def ask(self, uid, node, now):
        """Request a bind, as kube-scheduler does when it has found a node."""
        self.tickets += 1
        self.capacity.reserve(uid, node)
        return short(self.scheduler.bind_asked(self.tickets, uid, now))

    def finds_none(self, uid, now):
        """Report that kube-scheduler has found no node."""
        return short(self.scheduler.unschedulable(uid, now))


def test_a_gang_stays_gated_when_no_node_satisfies_it():
    """Gangs behind it in the queue are ungated."""
    rig = Rig(a=4)
    nowhere = (Term(labels=(Requirement("pool", "In", ("none",)),)),)
    assert rig.group("a", 2, terms=nowhere) == []
    assert rig.group("b", 2, created=1.0) == ["b0", "b1"]


@pytest.mark.parametrize("pool", ["a", "b"])
def test_a_younger_gang_is_refused_only_in_the_same_pool(pool):
    """Only binds that are held on nodes of its own pool can help an older gang."""
    rig = Rig(a=3, b=3)
    rig.group("a", 3, pool="a", gated=False)
    rig.group("b", 3, pool=pool, gated=False, created=1.0)
    rig.ask("b0", pool, 0.0)
    rig.ask("b1", pool, 0.0)
    rig.capacity.pod("x", Shape((("cpu", MILLI),)), node=pool, group=None)  # in no gang
    assert rig.finds_none("b2", 1.0) == []
    rig.ask("a0", "a", 1.0)
    rig.capacity.gone("x")
    refused = [("Refuse", "b0"), ("Refuse", "b1")] if pool == "a" else []
    assert rig.finds_none("a1", 2.0) == refused


def test_a_pass_over_the_queue_is_bounded():
    """Gangs beyond the first hundreds are checked in the next passes, which are due immediately."""
    rig = Rig(a=2)
    for at in range(700):
        group = PodGroupKey("ns", f"w{at}")
        shape = Shape((("cpu", 3 * MILLI),))
        rig.capacity.pod(f"w{at}", shape, node="", group=group)
        member = Member(created=float(at), min_available=1)
        rig.scheduler.seen(
            SeenPod(group=group, name=f"w{at}", uid=f"w{at}", member=member, gated=True), 0.0
        )
    ungated = rig.group("z", 1, created=1000.0)
    now = 0.0
    while not ungated:
        assert rig.scheduler.next_wake(now) <= now
        ungated = [action.uid for action in rig.scheduler.tick(now)]
    assert ungated == ["z0"]


# -- size ---------------------------------------------------------------------------------------


def test_a_gang_that_needs_more_held_binds_than_the_limit_is_reported_once():
    """It stays gated, its pods without gates are refused, and other gangs are ungated."""
    rig = Rig(Limits(held=3), a=9)
    assert rig.group("a", 4) == []
    assert rig.group("b", 3, created=1.0) == ["b0", "b1", "b2"]
    assert rig.log.calls == [("a", 3)]
    rig.see("a0", 4)
    assert rig.ask("a0", "a", 1.0) == [("Refuse", "a0")]


def test_gangs_are_ungated_only_as_far_as_their_binds_can_be_held():
    """Otherwise they would cause each other's refusal."""
    rig = Rig(Limits(held=5), a=9)
    assert rig.group("a", 3) == ["a0", "a1", "a2"]
    rig.group("b", 3, created=1.0)
    rig.group("c", 2, created=2.0)
    rig.ask("a0", "a", 0.0)
    rig.ask("a1", "a", 0.0)
    assert rig.finds_none("a2", 0.0) == [("Ungate", "c0"), ("Ungate", "c1")]


# -- portions -----------------------------------------------------------------------------------


def large(size, **limits):
    """A gang of which all pods but the last have a node."""
    rig = Rig(Limits(permit_s=1, permit_per_pod_s=0, **limits), a=size)
    ungated, now = len(rig.group("a", size)), 0.0
    while rig.scheduler.next_wake(now) <= now:
        ungated += len(rig.scheduler.tick(now))
    assert ungated == size
    for at in range(size - 1):
        rig.ask(f"a{at}", "a", 0.0)
    return rig


def rest(rig, first, now):
    """Kinds and number of all actions from now on, and the length of the longest list."""
    kinds, longest = {kind for kind, _ in first}, len(first)
    count = len(first)
    while (wake := rig.scheduler.next_wake(now)) is not None and wake <= now:
        actions = short(rig.scheduler.tick(now))
        kinds |= {kind for kind, _ in actions}
        count, longest = count + len(actions), max(longest, len(actions))
    return kinds, count, longest


def test_a_large_gang_is_ungated_and_released_in_portions():
    """Once its release has begun, its pods are neither refused nor deleted for others."""
    rig = large(2200)
    first = rig.ask("a2199", "a", 0.5)
    held = [uid for uid, state in rig.scheduler.states().items() if state.value == "waiting"]
    assert held
    assert rig.scheduler.preempt({"a": held[:1]}, 0.5).nodes == {"a": held[:1]}
    kinds, count, longest = rest(rig, first, 0.5)
    assert (kinds, count) == ({"Bind"}, 2200)
    assert longest == 500


def test_gangs_refused_at_the_same_time_share_one_portion():
    """Gangs with the same timeout do not block the loop together."""
    rig = Rig(Limits(permit_s=1, permit_per_pod_s=0), a=400)
    for name in "abcd":
        rig.group(name, 91, gated=False)
        for at in range(90):
            assert rig.ask(f"{name}{at}", "a", 0.0) == []
    first = short(rig.scheduler.tick(1.0))
    assert rest(rig, first, 1.0) == ({"Refuse"}, 360, 100)


def test_capacity_is_not_checked_while_a_large_gang_is_released(monkeypatch):
    """Capacity is checked in a separate step, which is due immediately."""
    rig = large(2200)
    rig.group("b", 2, created=1.0)
    checked, fits = [], rig.capacity.fits
    monkeypatch.setattr(
        rig.capacity,
        "fits",
        lambda group, wanted: checked.append(group.name) or fits(group, wanted),
    )
    assert len(rig.ask("a2199", "a", 0.5)) == 500
    assert not checked
    rest(rig, [], 0.5)
    assert "b" in checked


def test_a_large_gang_is_refused_in_portions():
    """Refused pods may be tried again before the last portion; finally all are refused."""
    rig = large(500)
    first = short(rig.scheduler.tick(1.0))
    assert rest(rig, first, 1.0) == ({"Refuse"}, 499, 100)
    assert rig.scheduler.gang(PodGroupKey("ns", "a")).waiting == 0


@pytest.mark.parametrize("complete", [True, False])
def test_remaining_portions_are_finished_at_the_end(complete):
    """Otherwise a gang would be left bound in part."""
    rig = large(2200)
    first = rig.ask("a2199", "a", 0.5) if complete else short(rig.scheduler.tick(1.0))
    actions = short(rig.scheduler.finish(1.0))
    assert len(first) + len(actions) == (2200 if complete else 2199)
    assert {kind for kind, _ in actions} == {"Bind" if complete else "Refuse"}


# -- pods that cannot be scheduled ----------------------------------------------------------------


def tiny(rig, name, **member):
    """A gang of one pod of another kind."""
    rig.shapes[f"{name}0"] = Shape((("cpu", 1),), preempts=False)
    return short(rig.see(f"{name}0", 1, gated=True, member=member))


def test_gang_is_ungated_when_others_name_a_scheduler_that_does_not_run():
    """Each scheduler has its own places; gangs of other schedulers are not waited for."""
    rig = Rig(a=4)
    first = [tiny(rig, name, scheduler="none") for name in "uvwxyz"]
    assert first[:2] == [[("Ungate", "u0")], []]  # they wait for each other
    assert rig.group("a", 4, created=1.0) == [f"a{at}" for at in range(4)]


def test_gang_stays_gated_when_another_controller_holds_back_its_pods():
    """It takes no place; it is ungated as soon as enough of its pods can be placed."""
    rig = Rig(a=4)
    assert [tiny(rig, name, blocked=True) for name in "uvwxyz"] == [[]] * 6
    assert rig.scheduler.gang(PodGroupKey("ns", "u")).placeable == 0
    assert rig.group("a", 2, created=1.0) == ["a0", "a1"]
    for at in range(2):
        rig.ask(f"a{at}", "a", 0.0)
    assert short(rig.see("u0", 1, gated=True)) == [("Ungate", "u0")]


def test_gang_is_ungated_when_more_gangs_than_the_limit_are_always_refused():
    """They never take the last place, so that others are ungated, though more slowly."""
    limits = Limits(in_flight=2, stuck=1, stuck_after=1, reserve_after_s=0)
    rig, now = Rig(limits, a=9), 0.0
    names = "stuvwxyz"
    for at, name in enumerate(names):
        rig.group(name, 1, created=float(at))
    rig.group("a", 2, created=99.0)
    for _ in range(300):
        now += 1
        rig.scheduler.tick(now)
        for uid, state in rig.scheduler.states().items():
            if state.value == "lifted" and uid[0] in names:
                rig.finds_none(uid, now)
    assert rig.scheduler.gang(PodGroupKey("ns", "a")).in_flight


def test_gang_keeps_its_place_when_its_oldest_pod_is_replaced():
    """It is older than the other gang, independent of which of its pods are left."""
    rig = Rig(a=1)
    rig.group("a", 1, created=0.0)
    rig.ask("a0", "a", 0.0)
    rig.scheduler.bind_done("a0", ok=True, now=0.0)
    rig.see("a0", 1, node="a")
    for uid, created in (("b0", 1.0), ("b1", 9.0), ("c0", 5.0)):
        rig.shapes[uid] = Shape((("cpu", MILLI),), preempts=False)
        assert rig.see(uid, 1, gated=True, created=created) == []
    rig.capacity.gone("b0")
    assert rig.scheduler.gone("b0", 2.0) == [KeepTime(PodGroupKey("ns", "b"), "b1", 1.0)]
    rig.capacity.gone("a0")
    rig.scheduler.gone("a0", 3.0)
    rig.scheduler.capacity_grew(3.0)
    assert [uid for uid, state in rig.scheduler.states().items() if state.value == "lifted"] == [
        "b1"
    ]


def test_gang_keeps_its_place_in_another_process_when_its_oldest_pod_was_replaced():
    """The time is written to the oldest remaining pod, and again when that pod is gone as well."""

    def gang_of_three(scheduler):
        return [
            action
            for uid, created in (("b0", 1.0), ("b1", 9.0), ("b2", 10.0))
            for action in scheduler.seen(pod_of("b", uid, created), 0.0)
        ]

    def pod_of(gang, uid, created, queued=None):
        member = Member(created=created, queued=queued)
        return SeenPod(group=PodGroupKey("ns", gang), name=uid, uid=uid, member=member, gated=True)

    full = Capacity()
    full.node("n", NodeInfo({"cpu": 0}))
    for gang, uid in (("b", "b0"), ("b", "b1"), ("b", "b2"), ("c", "c0")):
        full.pod(uid, Shape((("cpu", MILLI),)), node="", group=PodGroupKey("ns", gang))
    scheduler = GangScheduler(capacity=full)
    assert gang_of_three(scheduler) == []
    key = PodGroupKey("ns", "b")
    assert scheduler.gone("b0", 11.0) == [KeepTime(key, "b1", 1.0)]
    assert scheduler.seen(pod_of("b", "b3", 12.0), 12.0) == []
    assert scheduler.gone("b1", 13.0) == [KeepTime(key, "b2", 1.0)]
    assert scheduler.seen(pod_of("b", "b2", 10.0, queued=1.0), 14.0) == []

    successor = GangScheduler(capacity=full)
    for seen in (pod_of("c", "c0", 5.0), pod_of("b", "b2", 10.0, queued=1.0)):
        assert successor.seen(seen, 20.0) == []
    full.node("n", NodeInfo({"cpu": MILLI}))
    assert successor.capacity_grew(21.0) == [Ungate(key, "b2", "b2")]
