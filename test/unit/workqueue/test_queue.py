"""Rules of the work queue that test/property/test_workqueue_laws.py does not have, and waiting in virtual time."""

import asyncio
import inspect

import pytest
import uvloop

from jobsetpy.aio import ManualClock
from jobsetpy.workqueue import QueueShutDown, RetryDelays, WorkQueue


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test moves."""
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> WorkQueue[str]:
    """An empty queue with the manual clock."""
    return WorkQueue(clock=clock)


def take_all(queue: WorkQueue[str]) -> list[str]:
    """Take all queued items, and mark each as done."""
    taken = []
    while True:
        try:
            item = queue.get_nowait()
        except (asyncio.QueueEmpty, QueueShutDown):
            return taken
        taken.append(item)
        queue.done(item)


class Recorder:
    """Metrics of a queue that record their calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []

    def on_add(self) -> None:
        self.calls.append(("add", 0))

    def on_get(self, waited_s: float) -> None:
        self.calls.append(("get", waited_s))

    def on_done(self, worked_s: float) -> None:
        self.calls.append(("done", worked_s))

    def on_retry(self) -> None:
        self.calls.append(("retry", 0))


class TestRules:
    """Rules that need no waiting."""

    def test_a_hot_key_goes_to_the_end(self, queue):
        """A key that changes during each of its turns does not delay the others."""
        for item in ("hot", "a", "b"):
            queue.add(item)
        turns = []
        for _ in range(6):
            item = queue.get_nowait()
            turns.append(item)
            queue.add("hot")
            queue.done(item)

        assert turns == ["hot", "a", "b", "hot", "hot", "hot"]

    def test_low_priority_is_not_starved(self):
        """Despite a stream of live items, each low item is taken within a bounded number of turns."""
        queue = WorkQueue(fair_every=4)
        low = [f"low{i}" for i in range(5)]
        for item in low:
            queue.add(item, priority=-100)
        turn = {}
        for number in range(1, 41):
            queue.add(f"live{number}a")
            queue.add(f"live{number}b")
            item = queue.get_nowait()
            turn[item] = number
            queue.done(item)

        for older, item in enumerate(low):
            assert turn[item] <= 4 * (older + 1)

    def test_relist_hardly_delays_live_events(self, queue):
        """At least nine of ten items are live ones while a relist's items wait."""
        for number in range(1000):
            queue.add(f"relist{number}", priority=-100)
        for number in range(90):
            queue.add(f"live{number}")

        first = take_all(queue)[:100]

        assert sum(item.startswith("live") for item in first) == 90

    def test_done_without_get_is_refused(self):
        """Only an item in progress can be done."""
        with pytest.raises(ValueError, match="without get"):
            WorkQueue().done("a")

    def test_fair_every_below_one_is_refused(self):
        """A fair turn cannot come more often than always."""
        with pytest.raises(ValueError, match="fair_every"):
            WorkQueue(fair_every=0)

    def test_mutators_are_synchronous(self):
        """No mutator is a coroutine function: each is atomic on the loop."""
        for name in ("add", "add_after", "add_rate_limited", "forget", "done", "shut_down"):
            assert not inspect.iscoroutinefunction(getattr(WorkQueue, name))


class TestDelays:
    """Delays, with a manual clock."""

    def test_a_delayed_item_is_not_returned_before_its_time(self, clock, queue):
        """It counts as waiting until then."""
        queue.add_after("a", 5.0)
        clock.advance(4.9)
        assert take_all(queue) == []
        assert queue.waiting == 1
        clock.advance(0.1)

        assert take_all(queue) == ["a"]
        assert queue.waiting == 0

    @pytest.mark.parametrize("delay", [0.0, -3.0])
    def test_zero_and_negative_delays_queue_immediately(self, queue, delay: float):
        """An item whose time has passed can be taken."""
        queue.add_after("a", delay)

        assert take_all(queue) == ["a"]

    def test_retry_after_is_a_minimum(self):
        """Retry-After may lengthen the delay, but never shorten it."""
        queue = WorkQueue(clock=ManualClock(), rate_limiter=RetryDelays(base_s=1.0, cap_s=9.0))

        assert queue.add_rate_limited("a", at_least_s=7.0) == 7.0
        assert queue.add_rate_limited("a", at_least_s=0.5) == 2.0

    def test_retry_with_a_priority_of_its_own(self, clock, queue):
        """An explicit priority for the retry is used instead."""
        queue.add_rate_limited("a", priority=5)
        clock.advance(1.0)
        queue.poll()

        assert queue.depths() == {5: 1}


class TestMetrics:
    """Calls that metrics are based on."""

    def test_metrics_get_times_and_new_items(self):
        """Merged adds are not reported; queue time and work time are in seconds."""
        clock = ManualClock()
        recorder = Recorder()
        queue = WorkQueue(clock=clock, metrics=recorder)
        queue.add("a", priority=3)
        queue.add("a", priority=4)
        clock.advance(2.0)
        queue.get_nowait()
        clock.advance(5.0)
        assert queue.working_seconds() == [5.0]
        assert queue.processing("a")[:2] == (4, 2.0)
        queue.add_rate_limited("a")
        queue.done("a")

        assert recorder.calls == [("add", 0), ("get", 2.0), ("retry", 0), ("done", 5.0)]
        assert queue.processing("a") is None


class TestShutDown:
    """The end of a queue."""

    def test_queued_items_are_drained_before_get_raises(self, clock, queue):
        """New and delayed items are dropped."""
        queue.add("a")
        queue.add_after("later", 1.0)
        queue.shut_down()
        queue.add("b")
        queue.add_after("c", 1.0)
        queue.add_rate_limited("d")
        clock.advance(10.0)

        assert queue.shutting_down
        assert take_all(queue) == ["a"]
        with pytest.raises(QueueShutDown):
            queue.get_nowait()

    def test_an_item_added_in_progress_is_drained(self, queue):
        """An item that was added again before the end is returned after done."""
        queue.add("a")
        queue.get_nowait()
        queue.add("a")
        queue.shut_down()
        queue.done("a")

        assert take_all(queue) == ["a"]

    def test_queued_items_are_dropped_without_drain(self, queue):
        """Items that were added again in progress are dropped as well."""
        for item in ("a", "b"):
            queue.add(item)
        queue.get_nowait()
        queue.add("a")
        queue.shut_down(drain=False)
        queue.done("a")

        assert len(queue) == 0
        with pytest.raises(QueueShutDown):
            queue.get_nowait()


def test_a_delay_set_before_the_loop_runs_wakes_get():
    """An item delayed outside a running loop wakes a get that waits inside one."""
    queue = WorkQueue()
    queue.add_after("a", 0.01)
    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(queue.get()) == "a"
    finally:
        loop.close()


def test_timers_do_not_spin_on_a_coarse_clock():
    """On uvloop, whose clock ticks in milliseconds, a delay needs few timers."""
    fired = []

    class Counting(WorkQueue[int]):
        __slots__ = ()

        def _on_timer(self) -> None:
            fired.append(1)
            super()._on_timer()

    async def wait_for_some() -> None:
        queue = Counting()
        for number in range(10):
            queue.add_after(number, 0.0023)
            queue.done(await queue.get())

    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(wait_for_some())
    finally:
        loop.close()

    assert 10 <= len(fired) <= 40


@pytest.mark.looptime
class TestWaiting:
    """Waiting for items, in virtual time."""

    @pytest.fixture
    def queue(self) -> WorkQueue:
        """An empty queue with the loop's clock."""
        return WorkQueue()

    async def test_get_waits_for_add(self, queue):
        """A waiting get returns when an item is added."""
        asyncio.get_running_loop().call_later(3.0, queue.add, "a")

        assert await queue.get() == "a"
        assert asyncio.get_running_loop().time() == 3.0

    async def test_timer_wakes_at_the_deadline(self, queue):
        """A delayed item wakes a waiting get exactly at its time, and the earliest first."""
        loop = asyncio.get_running_loop()
        queue.add_after("b", 50.0)
        queue.add_after("a", 20.0)

        assert (await queue.get(), loop.time()) == ("a", 20.0)
        assert (await queue.get(), loop.time()) == ("b", 50.0)

    @pytest.mark.parametrize("woken", [True, False])
    async def test_cancelled_get_loses_nothing(self, queue, woken: bool):
        """A get that is cancelled before or just after it is woken leaves the item to another."""
        first = asyncio.create_task(queue.get())
        second = asyncio.create_task(queue.get())
        await asyncio.sleep(1)
        if not woken:
            first.cancel()
        queue.add("a")
        if woken:
            first.cancel()

        assert await second == "a"
        with pytest.raises(asyncio.CancelledError):
            await first

    async def test_cancelled_get_leaves_no_waiter(self, queue):
        """A get whose cancellation is complete is removed from the queue's waiters."""
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        queue.add("a")

        assert len(queue._waiters) == 0
        assert await queue.get() == "a"

    @pytest.mark.parametrize("then", ["add", "shut_down"])
    async def test_get_being_cancelled_is_not_woken(self, queue, then: str):
        """A get that is being cancelled is skipped, even if no other get waits."""
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(1)
        waiting.cancel()
        queue.add("a") if then == "add" else queue.shut_down()

        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(queue) == (then == "add")

    async def test_shut_down_wakes_all(self, queue):
        """Every waiting get ends when the queue is shut down."""
        waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
        await asyncio.sleep(1)
        queue.shut_down()

        for task in waiting:
            with pytest.raises(QueueShutDown):
                await task

    async def test_many_workers_share(self, queue):
        """Several workers take all items, and no item is processed twice at a time."""
        at_work: set[int] = set()
        worked: list[int] = []

        async def work() -> None:
            while True:
                try:
                    item = await queue.get()
                except QueueShutDown:
                    return
                assert item not in at_work
                at_work.add(item)
                await asyncio.sleep(1)
                at_work.remove(item)
                worked.append(item)
                queue.done(item)

        workers = [asyncio.create_task(work()) for _ in range(4)]
        for number in range(40):
            queue.add(number % 8)
            await asyncio.sleep(0.1)
        queue.shut_down()
        for worker in workers:
            await worker

        assert set(worked) == set(range(8))
