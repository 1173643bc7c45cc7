"""The gang scheduler with a simulated kube-scheduler: no gang is bound in part, and all proceed."""

from __future__ import annotations

from collections import deque

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import (
    Bind,
    PodState,
    Refuse,
    SeenPod,
)
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey

RUNNING = {PodState.BINDING, PodState.BOUND}


class World:
    """Some capacity, a scheduler that takes pods one by one, and the execution of actions."""

    def __init__(self, capacity, groups):
        self.planner = GangScheduler()
        self.capacity = capacity
        self.now = 0.0
        self.pods = {}  # uid → SeenPod
        self.minimum = {}
        self.queue = deque()
        self.retry = {}  # uid → time
        self.reserved = set()
        self.tickets = {}
        self.next_ticket = 0
        self.bind_fails = set()
        for at, (size, minimum) in enumerate(groups):
            self.minimum[f"g{at}"] = minimum
            for index in range(size):
                self.add(f"g{at}", f"g{at}-{index}", created=float(at))

    def add(self, group, uid, *, created=0.0):
        """Create a pod."""
        member = Member(created=created, min_available=self.minimum[group])
        pod = SeenPod(group=PodGroupKey("ns", group), name=uid, uid=uid, member=member)
        self.pods[uid] = pod
        self.queue.append(uid)
        self.act(self.planner.seen(pod, self.now))

    def delete(self, uid):
        """Delete a pod; the scheduler forgets it immediately."""
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
        """Execute the actions of the gang scheduler."""
        for action in actions:
            match action:
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

    def schedule_one(self):
        """Run one cycle of the scheduler."""
        if not self.queue:
            return
        uid = self.queue.popleft()
        if uid not in self.pods:
            return
        if len(self.reserved) < self.capacity:
            self.reserved.add(uid)
            self.next_ticket += 1
            self.tickets[uid] = self.next_ticket
            self.act(self.planner.bind_asked(self.next_ticket, uid, self.now))
        else:
            self.retry[uid] = self.now + 2
            self.act(self.planner.unschedulable(uid, self.now))

    def restart(self):
        """End the process while it holds requests, and start another one that reads the pods."""
        states = self.planner.states()
        for uid in list(self.tickets):
            del self.tickets[uid]
            self.reserved.discard(uid)
            self.retry[uid] = self.now + 1
        self.planner = GangScheduler()
        for uid, pod in self.pods.items():
            member = attrs.evolve(pod.member, bound=states[uid] in RUNNING)
            self.act(self.planner.seen(attrs.evolve(pod, member=member), self.now))

    def pass_time(self, seconds):
        """Advance the time; pods return to the scheduler's queue."""
        self.now += seconds
        for uid, when in sorted(self.retry.items()):
            if when <= self.now:
                del self.retry[uid]
                self.queue.append(uid)
        self.act(self.planner.tick(self.now))

    def run(self, seconds):
        """Run the scheduler for some seconds."""
        for _ in range(int(seconds)):
            for _ in range(len(self.queue) + 20):
                self.schedule_one()
                self.check()
            self.pass_time(1)
            self.check()

    def running(self, group):
        """Return how many pods of a gang are bound or being bound."""
        states = self.planner.states()
        return sum(
            states.get(uid) in RUNNING for uid, pod in self.pods.items() if pod.group.name == group
        )

    def check(self):
        """Check that the held pods are those that the scheduler waits for."""
        states = self.planner.states()
        waiting = {uid for uid, state in states.items() if state is PodState.WAITING}
        assert waiting == set(self.tickets)
        assert {uid for uid, state in states.items() if state in RUNNING} <= self.reserved

    def check_whole(self):
        """Check that no gang is bound in part."""
        for group, minimum in self.minimum.items():
            assert self.running(group) == 0 or self.running(group) >= minimum

    def check_bound(self):
        """Check that no gang waits that fits the capacity that is left."""
        left = self.capacity - sum(self.running(name) for name in self.minimum)
        for name, minimum in self.minimum.items():
            assert self.running(name) >= minimum or minimum > left


groups = st.lists(
    st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60)
@given(st.integers(0, 12), groups, st.data())
def test_gang_is_bound_completely_or_not_at_all(capacity, sizes, data):
    """At any moment, with any schedule."""
    world = World(capacity, sizes)
    for _ in range(30):
        for _ in range(data.draw(st.integers(0, 6))):
            world.schedule_one()
            world.check()
            world.check_whole()
        world.pass_time(data.draw(st.sampled_from([0.0, 0.5, 3.0, 40.0])))
        world.check()


@settings(max_examples=60)
@given(st.integers(1, 12), groups)
def test_gangs_that_fit_are_bound(capacity, sizes):
    """There is no deadlock: no gang is left that fits the capacity that is left."""
    world = World(capacity, sizes)
    world.run(120)
    world.check_bound()


@settings(max_examples=40)
@given(st.integers(4, 10), st.data())
def test_deletions_and_failed_binds_leave_no_state(capacity, data):
    """They may come at any time."""
    world = World(capacity, [(4, 3), (4, 4), (3, 2)])
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
    assert all(world.planner.gang(PodGroupKey("ns", name)) is None for name in world.minimum)
    assert world.planner.next_wake(world.now) is None


@settings(max_examples=40)
@given(st.integers(1, 12), groups, st.data())
def test_restart_at_any_moment_binds_no_gang_in_part(capacity, sizes, data):
    """The state is read from pods; held requests are repeated, and in the end all are bound."""
    world = World(capacity, sizes)
    for _ in range(8):
        for _ in range(data.draw(st.integers(0, 8))):
            world.schedule_one()
            world.check()
        world.restart()
        world.check_whole()
        world.pass_time(data.draw(st.sampled_from([0.0, 1.0, 40.0])))
    world.run(120)
    world.check_bound()


def test_older_one_of_two_gangs_is_bound_when_only_one_fits():
    """There is capacity for 12 pods and two gangs of 10; no timeout is needed."""
    world = World(12, [(10, 10), (10, 10)])
    world.run(5)
    assert (world.running("g0"), world.running("g1")) == (10, 0)
    for index in range(10):
        world.delete(f"g0-{index}")
    world.run(11)
    assert world.running("g1") == 10


def test_gangs_that_never_fit_do_not_block_others():
    """They give up what they hold: at the latest, the other one is bound at its turn."""
    world = World(6, [(8, 8)] * 5 + [(2, 2)])
    world.run(160)  # of six gangs the first has every second turn of 15 s
    assert world.running("g5") == 2
    assert [world.running(f"g{at}") for at in range(5)] == [0] * 5
