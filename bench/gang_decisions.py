"""Longest block of the loop by a decision about gangs; no cluster, CPU time of this thread.

* 20 shapes of pods on nodes of four pools that are in use: counted for the first time; and
  after a pod was deleted.
* A gang of 15,000 pods next to 10,000 gangs that wait for capacity, on 5,000 nodes: the slowest of
  all calls of the gang scheduler from its first pod to its last bind.

Without the garbage collector by default; on request with the interpreter's settings, or those of
the programs (``jobsetpy.app.garbage``).
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

from jobsetpy.app.garbage import young_only
from jobsetpy.coscheduler.gang_scheduler.capacity.capacity import Capacity, Shape
from jobsetpy.coscheduler.gang_scheduler.capacity.node_rules import NodeConstraints, NodeInfo
from jobsetpy.coscheduler.gang_scheduler.capacity.requests import MILLI
from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import Action, Bind, SeenPod, Ungate
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey

Rows = list[tuple[str, str, str]]
R = TypeVar("R")
SHAPES, POOLS, AIM = 20, 4, "<= 10 ms"
COLLECTORS = ("off", "interpreter", "programs")


class Timed:
    """The longest call of each kind, in milliseconds."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}

    def call(self, what: str, function: Callable[[], R]) -> R:
        """Call it."""
        began = time.thread_time()
        result = function()
        took = (time.thread_time() - began) * 1000
        self.longest[what] = max(self.longest.get(what, 0.0), took)
        return result


def nodes_of(capacity: Capacity, number: int) -> None:
    """Nodes of 64 CPUs in four pools."""
    for at in range(number):
        name, labels = f"n{at}", {"kubernetes.io/hostname": f"n{at}", "pool": f"p{at % POOLS}"}
        offers = {"cpu": 64 * MILLI, "memory": 256 * 2**30 * MILLI, "pods": 110 * MILLI}
        capacity.node(name, NodeInfo(offers, labels, (), name))


def shape(cpu: int, pool: int | None = None) -> Shape:
    """A pod's."""
    placement = NodeConstraints(() if pool is None else (("pool", f"p{pool}"),))
    return Shape((("cpu", cpu * MILLI), ("pods", MILLI)), placement, preempts=False)


def room(number: int, rng: random.Random) -> Rows:
    """The check of capacity."""
    capacity, timed = Capacity(), Timed()
    nodes_of(capacity, number)
    for at in range(3 * number):
        node = f"n{rng.randrange(number)}"
        capacity.pod(f"r{at}", shape(rng.randint(1, 8)), node=node, group=None)
    groups = [PodGroupKey("bench", f"g{at}") for at in range(SHAPES)]
    for at, group in enumerate(groups):
        for pod in range(10):
            wanted = shape(at + 1, at % POOLS)
            capacity.pod(f"{group.name}-{pod}", wanted, node="", group=group)

    for group in groups:
        timed.call("first", partial(capacity.fits, group, 10))
    for _ in range(1000):
        timed.call("growth", partial(capacity.gone, f"r{rng.randrange(3 * number)}"))
    what = f"{SHAPES} shapes, {number} nodes"
    return [
        (f"{what}: first count of a shape", f"{timed.longest['first']:.1f} ms", AIM),
        (f"{what}: after a pod has gone", f"{timed.longest['growth']:.1f} ms", AIM),
    ]


class Decisions:
    """A gang scheduler with gangs that wait, and its decisions."""

    def __init__(self, waiting: int) -> None:
        self.timed, self.actions = Timed(), [0, 0]
        self.capacity = Capacity()
        self.planner = GangScheduler(capacity=self.capacity)
        nodes_of(self.capacity, 5000)
        self.planner.pause()
        for at in range(waiting):
            group = PodGroupKey("bench", f"w{at}")
            for pod in range(2):
                self.show(group, f"{at}-{pod}", shape(100 + at % SHAPES), 2, float(at))
        self.did("resume", lambda: self.planner.resume(0.0))
        self.settle()

    def show(
        self, group: PodGroupKey, uid: str, wanted: Shape, minimum: int, created: float
    ) -> None:
        """A pod is new."""
        self.capacity.pod(uid, wanted, node="", group=group)
        member = Member(created=created, min_available=minimum)
        pod = SeenPod(group=group, name=uid, uid=uid, member=member, gated=True)
        self.did("pod seen", lambda: self.planner.seen(pod, 0.0))

    def did(self, what: str, function: Callable[[], list[Action]]) -> None:
        """Call the gang scheduler, and count ungated and bound pods."""
        for action in self.timed.call(what, function):
            self.actions[0] += isinstance(action, Ungate)
            self.actions[1] += isinstance(action, Bind)

    def settle(self) -> None:
        """Work of the process between events."""
        while True:
            wake = self.timed.call("next wake-up", lambda: self.planner.next_wake(0.0))
            if wake is None or wake > 0.0:
                return
            self.did("time passed", lambda: self.planner.tick(0.0))

    def start(self, size: int) -> None:
        """Schedule a large gang, from its first pod to its last bind."""
        group, uids = PodGroupKey("bench", "large"), [f"l{at}" for at in range(size)]
        for uid in uids:
            self.show(group, uid, shape(1), size, 1e6)
        self.settle()
        for at, uid in enumerate(uids):
            self.capacity.reserve(uid, f"n{at % 5000}")
            ticket = at + 1
            self.did("bind asked", lambda t=ticket, u=uid: self.planner.bind_asked(t, u, 0.0))  # type: ignore[misc]
        self.settle()
        for uid in uids:
            self.did("bind done", lambda u=uid: self.planner.bind_done(u, ok=True, now=0.0))  # type: ignore[misc]
        self.timed.call("census", self.planner.counts)


def measure(seed: int, collector: str = "off", size: int = 15_000) -> Rows:
    """All of it, as rows of a table.

    Args:
        seed: seed of random choices.
        collector: one of ``COLLECTORS``.
        size: number of pods of the large gang.
    """
    with ExitStack() as stack:
        if collector == "off":
            gc.disable()
            stack.callback(gc.enable)
        elif collector == "programs":
            stack.enter_context(young_only())
        return _measured(seed, size)


def _measured(seed: int, size: int) -> Rows:
    rows = [row for number in (1000, 5000) for row in room(number, random.Random(seed))]
    for waiting in (0, 10_000):
        decisions = Decisions(waiting)
        decisions.start(size)
        if decisions.actions != [size, size]:
            raise SystemExit(f"{decisions.actions} of {size} pods ungated and bound")
        rows += [
            (f"gang of {size}, {waiting} gangs wait: {what}", f"{took:.1f} ms", AIM)
            for what, took in decisions.timed.longest.items()
        ]
    return rows
