"""The planner beside a pretended scheduler: no group is ever bound in part, and all get on."""

from __future__ import annotations

from collections import deque

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import (
    Bind,
    Limits,
    LookUp,
    PodState,
    Refuse,
    SeenPod,
    Ungate,
)
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey

RUNNING = {PodState.BINDING, PodState.BOUND}


class World:
    """Some room, a scheduler that takes pods one by one, and whoever carries out the actions."""

    def __init__(self, room, groups, *, limits=None, gated=True):
        self.planner = GangScheduler(limits or Limits())
        self.room = room
        self.now = 0.0
        self.pods = {}  # uid → SeenPod
        self.minimum = {}
        self.queue = deque()
        self.retry = {}  # uid → when
        self.reserved = set()
        self.tickets = {}
        self.next_ticket = 0
        self.lifted_order = []
        self.bind_fails = set()
        self.gated = gated
        self.silent = False  # the scheduler's messages are lost
        for at, (size, minimum) in enumerate(groups):
            self.minimum[f"g{at}"] = minimum
            for index in range(size):
                self.add(f"g{at}", f"g{at}-{index}", created=float(at))

    def add(self, group, uid, *, created=0.0):
        """A pod is made, behind its gate if pods have gates."""
        member = Member(uid=uid, created=created, min_available=self.minimum[group])
        pod = SeenPod(group=PodGroupKey("ns", group), name=uid, member=member, gated=self.gated)
        self.pods[uid] = pod
        if not self.gated:
            self.queue.append(uid)
        self.act(self.planner.seen(pod, self.now))

    def delete(self, uid):
        """A pod goes; the scheduler forgets it at once."""
        del self.pods[uid]
        self.reserved.discard(uid)
        self.retry.pop(uid, None)
        if uid in self.queue:
            self.queue.remove(uid)
        ticket = self.tickets.pop(uid, None)
        if ticket is not None:
            self.act(self.planner.bind_cancelled(ticket, self.now))
        self.act(self.planner.gone(uid, self.now))

    def act(self, actions):
        """Carry out what the planner says."""
        for action in actions:
            match action:
                case Ungate():
                    self.lifted_order.append(action.group.name)
                    self.queue.append(action.uid)
                case Bind():
                    assert self.tickets.pop(action.uid) == action.ticket
                    ok = action.uid not in self.bind_fails
                    self.bind_fails.discard(action.uid)
                    if not ok:
                        self.reserved.discard(action.uid)
                        self.retry[action.uid] = self.now + 1
                    self.act(self.planner.bind_done(action.uid, ok=ok, now=self.now))
                case Refuse():
                    if self.tickets.get(action.uid) == action.ticket:
                        del self.tickets[action.uid]
                        self.reserved.discard(action.uid)
                        self.retry[action.uid] = self.now + 1
                case LookUp():
                    raise AssertionError(action)

    def schedule_one(self):
        """One cycle of the scheduler."""
        if not self.queue:
            return
        uid = self.queue.popleft()
        if uid not in self.pods:
            return
        if len(self.reserved) < self.room:
            self.reserved.add(uid)
            self.next_ticket += 1
            self.tickets[uid] = self.next_ticket
            self.act(self.planner.bind_asked(self.next_ticket, uid, self.now))
        else:
            self.retry[uid] = self.now + 2
            if not self.silent:
                self.act(self.planner.unschedulable(uid, self.now))

    def restart(self):
        """The process dies with requests held, and another one begins with what it can see."""
        states = self.planner.states()
        for uid in list(self.tickets):
            del self.tickets[uid]
            self.reserved.discard(uid)
            self.retry[uid] = self.now + 1
        self.planner = GangScheduler()
        for uid, pod in self.pods.items():
            member = attrs.evolve(pod.member, bound=states[uid] in RUNNING)
            gated = states[uid] is PodState.GATED
            self.act(self.planner.seen(attrs.evolve(pod, member=member, gated=gated), self.now))

    def pass_time(self, seconds):
        """Time goes by; pods come back to the scheduler's queue."""
        self.now += seconds
        for uid, when in sorted(self.retry.items()):
            if when <= self.now:
                del self.retry[uid]
                self.queue.append(uid)
        self.act(self.planner.tick(self.now))

    def run(self, seconds):
        """All that happens by itself."""
        for _ in range(int(seconds)):
            for _ in range(len(self.queue) + 20):
                self.schedule_one()
                self.check()
            self.pass_time(1)
            self.check()

    def running(self, group):
        """How many pods of a group are bound or being bound."""
        states = self.planner.states()
        return sum(
            states.get(uid) in RUNNING for uid, pod in self.pods.items() if pod.group.name == group
        )

    def check(self):
        """No group is bound in part, and what is held is what the scheduler holds."""
        states = self.planner.states()
        waiting = {uid for uid, state in states.items() if state is PodState.WAITING}
        assert waiting == set(self.tickets)
        assert {uid for uid, state in states.items() if state in RUNNING} <= self.reserved


groups = st.lists(
    st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60)
@given(st.integers(0, 12), groups, st.booleans(), st.data())
def test_a_group_is_bound_as_a_whole_or_not_at_all(room, sizes, gated, data):
    """At every moment, whatever the scheduler does when, with gates and without."""
    world = World(room, sizes, gated=gated)
    for _ in range(30):
        for _ in range(data.draw(st.integers(0, 6))):
            world.schedule_one()
            world.check()
            for group, minimum in world.minimum.items():
                assert world.running(group) == 0 or world.running(group) >= minimum
        world.pass_time(data.draw(st.sampled_from([0.0, 0.5, 3.0, 40.0])))
        world.check()


@settings(max_examples=60)
@given(st.integers(1, 12), groups, st.booleans())
def test_all_that_fits_gets_bound(room, sizes, gated):
    """No deadlock: in the end no group is left that would fit into the room that is left."""
    world = World(room, sizes, gated=gated)
    world.run(120)
    left = room - sum(world.running(name) for name in world.minimum)
    for name, minimum in world.minimum.items():
        assert world.running(name) >= minimum or minimum > left


@settings(max_examples=40)
@given(groups)
def test_groups_are_lifted_back_to_back(sizes):
    """Each group's pods are lifted in one piece, the oldest group first."""
    world = World(100, sizes)
    world.run(30)
    assert world.lifted_order == [f"g{at}" for at, (size, _) in enumerate(sizes) for _ in range(size)]  # fmt: skip


@settings(max_examples=40)
@given(st.integers(4, 10), st.data())
def test_deletions_and_failed_binds_leave_nothing_behind(room, data):
    """Whatever is deleted when; when all is gone, nothing is kept."""
    world = World(room, [(4, 3), (4, 4), (3, 2)])
    for _ in range(25):
        for _ in range(data.draw(st.integers(0, 5))):
            world.schedule_one()
            world.check()
        if world.pods and data.draw(st.booleans()):
            uid = data.draw(st.sampled_from(sorted(world.pods)))
            if data.draw(st.booleans()):
                world.bind_fails.add(uid)
            else:
                world.delete(uid)
        world.pass_time(data.draw(st.sampled_from([0.0, 1.0, 45.0])))
        world.check()
    for uid in sorted(world.pods):
        world.delete(uid)
    assert world.tickets == {}
    assert world.planner.states() == {}
    assert all(world.planner.gang_status(PodGroupKey("ns", name)) is None for name in world.minimum)
    assert world.planner.next_wake(world.now) is None


@settings(max_examples=40)
@given(st.integers(1, 12), groups, st.data())
def test_restarts_at_any_moment_bind_nothing_in_part(room, sizes, data):
    """State is what pods show; what was held is asked for again, and in the end all get on."""
    world = World(room, sizes)
    for _ in range(8):
        for _ in range(data.draw(st.integers(0, 8))):
            world.schedule_one()
            world.check()
        world.restart()
        for group, minimum in world.minimum.items():
            assert world.running(group) == 0 or world.running(group) >= minimum
        world.pass_time(data.draw(st.sampled_from([0.0, 1.0, 40.0])))
    world.run(120)
    left = room - sum(world.running(name) for name in world.minimum)
    for name, minimum in world.minimum.items():
        assert world.running(name) >= minimum or minimum > left


@settings(max_examples=40)
@given(st.integers(1, 12), groups)
def test_turns_get_all_on_without_any_message_of_the_scheduler(room, sizes):
    """If nothing is ever said of unschedulable pods, timeouts and turns do it, though slowly."""
    world = World(room, sizes)
    world.silent = True
    world.run(900)
    left = room - sum(world.running(name) for name in world.minimum)
    for name, minimum in world.minimum.items():
        assert world.running(name) >= minimum or minimum > left


def test_two_groups_that_wait_for_each_other():
    """Room for 12, two groups of 10: the older one is bound, without any timeout."""
    world = World(12, [(10, 10), (10, 10)])
    world.run(5)
    assert (world.running("g0"), world.running("g1")) == (10, 0)
    for index in range(10):
        world.delete(f"g0-{index}")
    world.run(11)
    assert world.running("g1") == 10


def test_hopeless_groups_do_not_keep_others_waiting():
    """Groups that can never fit fill all places; they give them up after a few failures."""
    world = World(6, [(8, 8)] * 5 + [(2, 2)], limits=Limits(in_flight=2))
    world.run(60)
    assert world.running("g5") == 2
    assert [world.running(f"g{at}") for at in range(5)] == [0] * 5
