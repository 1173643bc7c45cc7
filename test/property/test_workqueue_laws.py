"""The work queue equals a model with plain lists."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jobsetpy.aio import ManualClock
from jobsetpy.workqueue import QueueShutDown, RetryDelays, WorkQueue

FAIR_EVERY = 3
ITEMS = st.sampled_from("abcdef")
PRIORITIES = st.sampled_from([-100, 0, 7])
SECONDS = st.sampled_from([1.0, 2.0, 5.0])


@dataclass
class Model:
    """A work queue of lists and loops."""

    now: float = 0.0
    # [item, priority, when first queued, when last placed at its priority]
    queued: list[list] = field(default_factory=list)
    processing: dict[str, int] = field(default_factory=dict)
    dirty: dict[str, int] = field(default_factory=dict)
    delayed: list[list] = field(default_factory=list)  # [due, order, item, priority]
    failures: dict[str, int] = field(default_factory=dict)
    ticks: int = 0
    takings: int = 0
    shut: bool = False

    def tick(self) -> int:
        """Return a number higher than all before."""
        self.ticks += 1
        return self.ticks

    def add(self, item: str, priority: int) -> None:
        """Apply laws 1 to 3."""
        if self.shut:
            return
        if item in self.processing:
            self.dirty[item] = max(priority, self.dirty.get(item, priority))
            return
        self.queue(item, priority)

    def queue(self, item: str, priority: int) -> None:
        """Apply law 1."""
        for entry in self.queued:
            if entry[0] == item:
                if priority > entry[1]:
                    entry[1], entry[3] = priority, self.tick()
                return
        tick = self.tick()
        self.queued.append([item, priority, tick, tick])

    def add_after(self, item: str, delay: float, priority: int) -> None:
        """Apply law 6."""
        if self.shut:
            return
        due = self.now + delay
        for entry in self.delayed:
            if entry[2] == item:
                entry[3] = max(entry[3], priority)
                if due < entry[0]:
                    entry[0], entry[1] = due, self.tick()
                return
        self.delayed.append([due, self.tick(), item, priority])

    def advance(self, seconds: float) -> None:
        """Advance the time; items that are due are queued."""
        self.now += seconds
        for entry in sorted(self.delayed):
            if entry[0] <= self.now:
                self.delayed.remove(entry)
                self.add(entry[2], entry[3])

    def take(self) -> str:
        """Apply laws 4 and 5."""
        self.takings += 1
        if self.takings % FAIR_EVERY == 0:
            entry = min(self.queued, key=lambda e: e[2])
        else:
            entry = min(self.queued, key=lambda e: (-e[1], e[3]))
        self.queued.remove(entry)
        self.processing[entry[0]] = entry[1]
        return entry[0]


class WorkQueueLaws(RuleBasedStateMachine):
    """Any sequence of calls gives the same result on the queue and on the model."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.queue = WorkQueue(
            clock=self.clock,
            fair_every=FAIR_EVERY,
            rate_limiter=RetryDelays(base_s=1.0, cap_s=4.0),
        )
        self.model = Model()

    @rule(item=ITEMS, priority=PRIORITIES)
    def add(self, item: str, priority: int) -> None:
        """Add an item now."""
        self.queue.add(item, priority=priority)
        self.model.add(item, priority)

    @rule(item=ITEMS, delay=SECONDS, priority=PRIORITIES)
    def add_after(self, item: str, delay: float, priority: int) -> None:
        """Add an item later."""
        self.queue.add_after(item, delay, priority=priority)
        self.model.add_after(item, delay, priority)

    @rule(item=ITEMS)
    def add_rate_limited(self, item: str) -> None:
        """Add an item after a failure."""
        priority = self.model.processing.get(item, 0)
        failures = self.model.failures.get(item, 0)
        self.model.failures[item] = failures + 1
        delay = min(4.0, 2.0**failures)

        assert delay == self.queue.add_rate_limited(item)
        self.model.add_after(item, delay, priority)

    @rule(item=ITEMS)
    def forget(self, item: str) -> None:
        """Forget failures of an item."""
        self.queue.forget(item)
        self.model.failures.pop(item, None)

    @rule(seconds=SECONDS)
    def advance(self, seconds: float) -> None:
        """Advance the time."""
        self.clock.advance(seconds)
        self.queue.poll()
        self.model.advance(seconds)

    @precondition(lambda self: self.model.queued)
    @rule()
    def get(self) -> None:
        """Take the item that the model takes."""
        assert self.model.take() == self.queue.get_nowait()

    @precondition(lambda self: not self.model.queued)
    @rule()
    def get_from_empty(self) -> None:
        """An empty queue has no item; after shutdown it never has."""
        with pytest.raises(QueueShutDown if self.model.shut else asyncio.QueueEmpty):
            self.queue.get_nowait()

    @precondition(lambda self: self.model.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        """Finish an item."""
        item = data.draw(st.sampled_from(sorted(self.model.processing)))
        self.queue.done(item)
        del self.model.processing[item]
        priority = self.model.dirty.pop(item, None)
        if priority is not None:
            self.model.queue(item, priority)

    @precondition(lambda self: self.model.ticks > 20)
    @rule(drain=st.booleans())
    def shut_down(self, drain: bool) -> None:
        """Shut the queue down."""
        self.queue.shut_down(drain=drain)
        self.model.shut = True
        self.model.delayed.clear()
        if not drain:
            self.model.queued.clear()
            self.model.dirty.clear()

    @invariant()
    def same_counts(self) -> None:
        """Depths, delays, retries and items in process agree, and no level is empty."""
        depths: dict[int, int] = {}
        for _, priority, _, _ in self.model.queued:
            depths[priority] = depths.get(priority, 0) + 1

        assert depths == self.queue.depths()
        assert len(self.model.queued) == len(self.queue)
        assert len(self.model.delayed) == self.queue.waiting
        assert len(self.model.processing) == len(self.queue.working_seconds())
        for item in "abcdef":
            assert self.model.failures.get(item, 0) == self.queue.num_requeues(item)


WorkQueueLaws.TestCase.settings = settings(max_examples=150, stateful_step_count=60)
test_workqueue_laws = WorkQueueLaws.TestCase
