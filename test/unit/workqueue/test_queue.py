"""The laws of the work queue, one by one, and waiting for work in virtual time."""

import asyncio
import inspect

import pytest
import uvloop

from jobsetpy.aio import ManualClock
from jobsetpy.workqueue import ItemExponential, QueueShutDown, WorkQueue


def take_all(queue: WorkQueue[str]) -> list[str]:
    """Everything that is queued now, taken and given back."""
    taken = []
    while True:
        try:
            item = queue.get_nowait()
        except (asyncio.QueueEmpty, QueueShutDown):
            return taken
        taken.append(item)
        queue.done(item)


class Recorder:
    """A queue observer that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, float]] = []

    def on_add(self, priority: int) -> None:
        """Write it down."""
        self.heard.append(("add", priority))

    def on_get(self, waited_s: float) -> None:
        """Write it down."""
        self.heard.append(("get", waited_s))

    def on_done(self, worked_s: float) -> None:
        """Write it down."""
        self.heard.append(("done", worked_s))

    def on_retry(self) -> None:
        """Write it down."""
        self.heard.append(("retry", 0))


class TestLaws:
    """Without waiting."""

    def test_merges(self):
        """An item added many times is taken once, in its first place."""
        queue = WorkQueue()
        for item in ("a", "b", "a", "a", "c", "b"):
            queue.add(item)

        assert len(queue) == 3
        assert take_all(queue) == ["a", "b", "c"]

    def test_one_worker_a_key(self):
        """An item in hand is not given out again until done, then exactly once."""
        queue = WorkQueue()
        queue.add("a")
        assert queue.get_nowait() == "a"
        queue.add("a")
        queue.add("a")

        with pytest.raises(asyncio.QueueEmpty):
            queue.get_nowait()
        queue.done("a")
        assert take_all(queue) == ["a"]

    def test_readded_with_the_highest_priority(self):
        """What was added while processed returns with the highest of the priorities."""
        queue = WorkQueue(fair_every=100)
        queue.add("a")
        queue.get_nowait()
        for priority in (-100, 5, 0):
            queue.add("a", priority=priority)
        queue.add("b", priority=3)
        queue.done("a")

        assert queue.depths() == {3: 1, 5: 1}
        assert take_all(queue) == ["a", "b"]

    def test_a_hot_key_goes_to_the_end(self):
        """A key that changes during each of its turns still lets all others have theirs."""
        queue = WorkQueue()
        for item in ("hot", "a", "b"):
            queue.add(item)
        turns = []
        for _ in range(6):
            item = queue.get_nowait()
            turns.append(item)
            queue.add("hot")
            queue.done(item)

        assert turns == ["hot", "a", "b", "hot", "hot", "hot"]

    def test_higher_priority_first(self):
        """Higher priorities come first; equal ones in order."""
        queue = WorkQueue(fair_every=100)
        queue.add("low1", priority=-100)
        queue.add("low2", priority=-100)
        queue.add("live1")
        queue.add("urgent", priority=10)
        queue.add("live2")

        assert take_all(queue) == ["urgent", "live1", "live2", "low1", "low2"]

    def test_lifted(self):
        """A higher priority lifts a queued item; a lower one leaves it where it is."""
        queue = WorkQueue(fair_every=100)
        queue.add("a", priority=-100)
        queue.add("b", priority=-100)
        queue.add("c")
        queue.add("b")
        queue.add("c", priority=-100)

        assert queue.depths() == {-100: 1, 0: 2}
        assert take_all(queue) == ["c", "b", "a"]

    def test_low_priority_is_not_starved(self):
        """However many live items keep coming, an item with p older ones gets its turn in time."""
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

    def test_relist_hardly_delays_live_events(self):
        """Of ten takings at least nine are live ones while a relist's items wait."""
        queue = WorkQueue()
        for number in range(1000):
            queue.add(f"relist{number}", priority=-100)
        for number in range(90):
            queue.add(f"live{number}")

        first = take_all(queue)[:100]

        assert sum(item.startswith("live") for item in first) == 90

    def test_done_needs_get(self):
        """Giving back what was not taken is refused."""
        queue = WorkQueue()

        with pytest.raises(ValueError, match="without get"):
            queue.done("a")

    def test_fair_every_at_least_one(self):
        """A fair turn more often than always is refused."""
        with pytest.raises(ValueError, match="fair_every"):
            WorkQueue(fair_every=0)

    def test_mutators_are_synchronous(self):
        """No mutator is a coroutine function: each is atomic on the loop."""
        for name in ("add", "add_after", "add_rate_limited", "forget", "done", "shut_down"):
            assert not inspect.iscoroutinefunction(getattr(WorkQueue, name))


class TestDelays:
    """With a clock moved by hand."""

    def test_not_before_its_time(self):
        """A delayed item can be taken when its time has come, not before."""
        clock = ManualClock()
        queue = WorkQueue(clock=clock)
        queue.add_after("a", 5.0)
        clock.advance(4.9)
        assert take_all(queue) == []
        assert queue.waiting == 1
        clock.advance(0.1)

        assert take_all(queue) == ["a"]
        assert queue.waiting == 0

    def test_earliest_of_two(self):
        """Of two deadlines the earlier counts, and the item comes once."""
        clock = ManualClock()
        queue = WorkQueue(clock=clock)
        queue.add_after("a", 5.0)
        queue.add_after("a", 2.0)
        queue.add_after("a", 9.0)
        clock.advance(2.0)
        assert take_all(queue) == ["a"]
        clock.advance(100.0)

        assert take_all(queue) == []

    @pytest.mark.parametrize("delay", [0.0, -3.0])
    def test_no_delay_is_now(self, delay: float):
        """A delay that is over already queues at once."""
        queue = WorkQueue(clock=ManualClock())
        queue.add_after("a", delay)

        assert take_all(queue) == ["a"]

    def test_rate_limited_counts_and_grows(self):
        """Each failure waits longer, until forgotten; the returned delay is the real one."""
        clock = ManualClock()
        queue = WorkQueue(clock=clock, rate_limiter=ItemExponential(base_s=1.0, cap_s=60.0))
        delays = []
        for _ in range(3):
            delays.append(queue.add_rate_limited("a"))
            clock.advance(delays[-1])
            assert take_all(queue) == ["a"]

        assert delays == [1.0, 2.0, 4.0]
        assert queue.num_requeues("a") == 3
        queue.forget("a")
        assert queue.num_requeues("a") == 0

    def test_retry_after_is_a_minimum(self):
        """A server's waiting time lengthens the delay and never shortens it."""
        queue = WorkQueue(clock=ManualClock(), rate_limiter=ItemExponential(base_s=1.0, cap_s=9.0))

        assert queue.add_rate_limited("a", at_least_s=7.0) == 7.0
        assert queue.add_rate_limited("a", at_least_s=0.5) == 2.0

    def test_retry_keeps_the_priority(self):
        """An item that fails returns with the priority it was taken with."""
        clock = ManualClock()
        queue = WorkQueue(clock=clock)
        queue.add("a", priority=-100)
        queue.get_nowait()
        queue.add_rate_limited("a")
        queue.done("a")
        clock.advance(1.0)
        queue.poll()

        assert queue.depths() == {-100: 1}

    def test_retry_with_a_priority_of_its_own(self):
        """A priority that is given for the retry counts instead."""
        clock = ManualClock()
        queue = WorkQueue(clock=clock)
        queue.add_rate_limited("a", priority=5)
        clock.advance(1.0)
        queue.poll()

        assert queue.depths() == {5: 1}

    def test_due_while_processed(self):
        """An item whose time comes while it is in hand returns at done."""
        clock = ManualClock()
        queue = WorkQueue(clock=clock)
        queue.add_after("a", 1.0)
        queue.add("a")
        assert queue.get_nowait() == "a"
        clock.advance(1.0)
        queue.poll()
        assert len(queue) == 0
        queue.done("a")

        assert take_all(queue) == ["a"]


class TestObserver:
    """What metrics are made of."""

    def test_hears_times_and_new_adds_only(self):
        """Merged adds are not counted; queue time and work time are told in seconds."""
        clock = ManualClock()
        recorder = Recorder()
        queue = WorkQueue(clock=clock, observer=recorder)
        queue.add("a", priority=3)
        queue.add("a", priority=4)
        clock.advance(2.0)
        queue.get_nowait()
        clock.advance(5.0)
        assert queue.working_seconds() == [5.0]
        assert queue.processing("a")[:2] == (4, 2.0)
        queue.add_rate_limited("a")
        queue.done("a")

        assert recorder.heard == [("add", 3), ("get", 2.0), ("retry", 0), ("done", 5.0)]
        assert queue.processing("a") is None


class TestShutDown:
    """The end."""

    def test_drains_then_raises(self):
        """Queued items are still given out, new and delayed ones are not, then get raises."""
        clock = ManualClock()
        queue = WorkQueue(clock=clock)
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

    def test_what_was_added_while_processed_is_drained_too(self):
        """An item added while processed before the end is still given out after done."""
        queue = WorkQueue()
        queue.add("a")
        queue.get_nowait()
        queue.add("a")
        queue.shut_down()
        queue.done("a")

        assert take_all(queue) == ["a"]

    def test_without_drain_nothing_more(self):
        """Without draining, even queued items are dropped."""
        queue = WorkQueue()
        for item in ("a", "b"):
            queue.add(item)
        queue.get_nowait()
        queue.add("a")
        queue.shut_down(drain=False)
        queue.done("a")

        assert len(queue) == 0
        with pytest.raises(QueueShutDown):
            queue.get_nowait()


def test_delayed_before_the_loop_ran():
    """A delay given outside a running loop still wakes a get that waits inside one."""
    queue = WorkQueue()
    queue.add_after("a", 0.01)
    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(queue.get()) == "a"
    finally:
        loop.close()


def test_timers_do_not_spin_on_a_coarse_clock():
    """On uvloop, whose clock ticks in milliseconds, a delay ends with a timer or two."""
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
    """With an event loop in virtual time."""

    async def test_get_waits_for_add(self):
        """A waiting get returns when an item is added."""
        queue = WorkQueue()
        asyncio.get_running_loop().call_later(3.0, queue.add, "a")

        assert await queue.get() == "a"
        assert asyncio.get_running_loop().time() == 3.0

    async def test_timer_wakes_at_the_deadline(self):
        """A delayed item wakes a waiting get exactly at its time, and the earliest first."""
        queue = WorkQueue()
        loop = asyncio.get_running_loop()
        queue.add_after("b", 50.0)
        queue.add_after("a", 20.0)

        assert (await queue.get(), loop.time()) == ("a", 20.0)
        assert (await queue.get(), loop.time()) == ("b", 50.0)

    async def test_cancelled_get_loses_nothing(self):
        """A get that is cancelled in the instant it is woken leaves the item to another."""
        queue = WorkQueue()
        first = asyncio.create_task(queue.get())
        second = asyncio.create_task(queue.get())
        await asyncio.sleep(1)
        queue.add("a")  # wakes the first
        first.cancel()

        assert await second == "a"
        with pytest.raises(asyncio.CancelledError):
            await first

    async def test_cancelled_before_woken(self):
        """A get cancelled while it waits does not take a wake-up from others."""
        queue = WorkQueue()
        first = asyncio.create_task(queue.get())
        second = asyncio.create_task(queue.get())
        await asyncio.sleep(1)
        first.cancel()
        queue.add("a")

        assert await second == "a"
        with pytest.raises(asyncio.CancelledError):
            await first

    async def test_cancelled_and_gone(self):
        """A get whose cancellation is complete leaves no trace."""
        queue = WorkQueue()
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        queue.add("a")

        assert len(queue._waiters) == 0
        assert await queue.get() == "a"

    @pytest.mark.parametrize("then", ["add", "shut_down"])
    async def test_cancelled_in_the_same_instant(self, then: str):
        """A get that is being cancelled is passed over, also if there is no other."""
        queue = WorkQueue()
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(1)
        waiting.cancel()
        queue.add("a") if then == "add" else queue.shut_down()

        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(queue) == (then == "add")

    async def test_shut_down_wakes_all(self):
        """Every waiting get ends when the queue is shut down."""
        queue = WorkQueue()
        waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
        await asyncio.sleep(1)
        queue.shut_down()

        for task in waiting:
            with pytest.raises(QueueShutDown):
                await task

    async def test_many_workers_share(self):
        """Several workers take all items, none twice at a time."""
        queue = WorkQueue()
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

        assert set(range(8)) == set(worked)
