"""Common mistakes in controllers, and the error messages of those that no program's test has."""

import asyncio
import gc
import time
from datetime import timedelta

import pytest
import structlog

from jobsetpy.api.core import ConfigMap
from jobsetpy.api.meta import ObjectKey, ObjectMeta
from jobsetpy.controller import (
    Controller,
    Request,
    Result,
    Watch,
    enqueue_mapped,
    enqueue_self,
)
from jobsetpy.controller._stepwise import Stepwise
from support.informers_kit import ManualInformer

pytestmark = pytest.mark.looptime


class Done:
    """A reconciler that returns the results it was created with, then ``done``."""

    def __init__(self, *results):
        self.results = list(results)
        self.keys = []

    async def reconcile(self, request):
        self.keys.append(request)
        return self.results.pop(0)() if self.results else Result.done()


async def run(controller, *, seconds=30.0):
    """Run a controller that has one request."""
    async with controller.running():
        controller.queue.add(Request(ObjectKey("ns", "a")))
        await asyncio.sleep(seconds)


@pytest.mark.parametrize(
    ("delay", "seconds"), [(5, 5), (0.25, 0.25), (-1, -1), (timedelta(minutes=1), 60)]
)
def test_a_delay_may_be_a_number_of_seconds(delay, seconds):
    """``requeue_after(5)`` means five seconds, and so does ``Result(5)``."""
    for result in (Result.requeue_after(delay), Result(delay)):
        assert result.delay == timedelta(seconds=seconds)


@pytest.mark.parametrize("delay", ["5", True, [5], object()])
def test_other_delays_are_refused(delay):
    """A value that is not a duration is refused where it is passed, not in the manager's loop."""
    with pytest.raises(TypeError, match="timedelta or a number of seconds, not"):
        Result.requeue_after(delay)
    with pytest.raises(TypeError):
        Result(delay)


@pytest.mark.parametrize("delay", [float("inf"), float("nan"), 1e300])
def test_endless_delays_are_refused(delay):
    """A delay must be finite."""
    with pytest.raises(ValueError, match="finite number of seconds"):
        Result.requeue_after(delay)


@pytest.mark.parametrize(("seconds", "calls"), [(4, 1), (6, 2)])
async def test_a_reconcile_is_repeated_after_some_seconds(seconds, calls):
    """A number reaches the queue as seconds."""
    reconciler = Done(lambda: Result.requeue_after(5))
    controller = Controller(name=f"seconds-{seconds}", reconciler=reconciler, watches=[])
    await run(controller, seconds=seconds)

    assert len(reconciler.keys) == calls


def test_a_watch_needs_an_informer():
    """The error says so."""
    with pytest.raises(TypeError, match="needs an informer, not None"):
        Watch(None, enqueue_self)


async def asynchronous(event):
    """A handler that is refused."""
    return []


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (enqueue_mapped, r"what enqueue_mapped\(function\) returns"),
        (Request(ObjectKey("a", "b")), "is a function of an Event"),
    ],
)
def test_a_watch_needs_a_handler(handler, text):
    """The error names a factory that was not called, and a value."""
    with pytest.raises(TypeError, match=text):
        Watch(ManualInformer(), handler)


def test_a_watch_needs_a_synchronous_predicate():
    """A coroutine is always true: every event would pass."""
    with pytest.raises(TypeError, match="predicate is a synchronous function"):
        Watch(ManualInformer(), enqueue_self, when=asynchronous)


class Synchronous:
    """A reconciler that blocks."""

    def reconcile(self, request):
        return Result.done()


class Elsewhere:
    """A reconciler that returns a future."""

    def reconcile(self, request) -> "asyncio.Future[Result]":
        return asyncio.ensure_future(Done().reconcile(request))


def test_a_controller_needs_a_reconciler():
    """A synchronous reconcile is refused before the start."""
    text = r"Synchronous.reconcile has to be `async def`.*asyncio.to_thread"
    with pytest.raises(TypeError, match=text):
        Controller(name="x", reconciler=Synchronous(), watches=[])


async def test_a_reconcile_may_be_a_function_annotated_to_return_a_future():
    """A function whose annotation is awaitable is accepted."""
    await run(Controller(name="elsewhere", reconciler=Elsewhere(), watches=[]))


def test_a_controller_needs_watches():
    """An informer instead of a watch is refused."""
    with pytest.raises(TypeError, match=r"Watch\("):
        Controller(name="x", reconciler=Done(), watches=[ManualInformer()])


async def test_a_handler_is_reported_when_it_returns_something_other_than_requests():
    """Names instead of requests reach no reconciler; the error is logged."""
    informer, reconciler = ManualInformer(), Done()
    informer.synced.set()
    watch = Watch(informer, enqueue_mapped(lambda obj: obj.metadata.name))
    controller = Controller(name="names", reconciler=reconciler, watches=[watch])
    with structlog.testing.capture_logs() as lines:
        async with controller.running():
            informer.add(ConfigMap(metadata=ObjectMeta(namespace="ns", name="abc")))
            await asyncio.sleep(1)

    assert reconciler.keys == []
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert line["object"] == "ns/abc"


async def test_a_reconcile_that_blocks_the_loop_is_logged():
    """``time.sleep`` in a reconcile is logged with the reconciler and the time; waits are not."""

    class Sleeper:
        async def reconcile(self, request):
            await asyncio.sleep(20)
            time.sleep(0.6)  # noqa: ASYNC251 - the mistake
            await asyncio.sleep(0)
            return Result.done()

    with structlog.testing.capture_logs() as lines:
        await run(Controller(name="sleeper", reconciler=Sleeper(), watches=[]))

    (line,) = [line for line in lines if "blocked the event loop" in line["event"]]
    assert line["reconciler"] == "Sleeper"
    assert 0.6 <= line["blocked_s"] < 20


async def test_a_request_is_delayed_when_its_reconcile_blocked_the_loop():
    """New events of its object do not shorten the delay; other requests are reconciled."""
    reconciled = []

    class Computer:
        async def reconcile(self, request):
            reconciled.append((request.key.name, asyncio.get_running_loop().time()))
            ends = time.thread_time() + 0.6
            while request.key.name == "large" and time.thread_time() < ends:
                pass
            return Result.done()

    controller = Controller(name="computer", reconciler=Computer(), watches=[])
    large, small = (Request(ObjectKey("ns", name)) for name in ("large", "small"))
    async with controller.running():
        controller.queue.add(large)
        await asyncio.sleep(1)
        controller.queue.add(large)
        controller.queue.add(small)
        await asyncio.sleep(1)
        assert [name for name, _ in reconciled] == ["large", "small"]
        await asyncio.sleep(300)

    assert [name for name, _ in reconciled] == ["large", "small", "large"]
    assert reconciled[2][1] - reconciled[0][1] >= 12


async def test_a_request_is_not_delayed_when_a_garbage_collection_held_the_loop():
    """Any allocation may start a full collection, so the request whose reconcile did is not slow."""
    reconciled = []

    class Collects:
        async def reconcile(self, request):
            reconciled.append(request.key.name)
            gc.collect()
            return Result.done()

    def long_collection(phase, info):
        ends = time.thread_time() + 0.6
        while (phase, info["generation"]) == ("start", 2) and time.thread_time() < ends:
            pass

    controller = Controller(name="collects", reconciler=Collects(), watches=[])
    gc.callbacks.append(long_collection)
    try:
        with structlog.testing.capture_logs() as lines:
            async with controller.running():
                for _ in range(2):
                    controller.queue.add(Request(ObjectKey("ns", "small")))
                    await asyncio.sleep(1)
    finally:
        gc.callbacks.remove(long_collection)

    assert reconciled == ["small", "small"]
    assert [line for line in lines if "blocked the event loop" in line["event"]] == []


async def test_a_delay_is_over_when_less_of_it_is_left_than_a_clock_may_show():
    """Otherwise the request would be queued again and again without any time passing."""
    controller = Controller(name="computer", reconciler=Done(), watches=[])
    request = Request(ObjectKey("ns", "large"))
    controller._rests[request] = asyncio.get_running_loop().time() + 1e-9

    assert controller._rest_s(request) == 0


@pytest.mark.parametrize("ends", ["result", "error", "cancelled"])
async def test_steps_do_not_change_the_outcome(ends):
    """Results, errors and cancellations of the awaited coroutine are passed on unchanged."""

    async def work():
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            if ends != "cancelled":
                raise
            return "stopped"
        if ends == "error":
            raise KeyError("x")
        return "done"

    async def through():
        return await Stepwise(work())

    task = asyncio.get_running_loop().create_task(through())
    await asyncio.sleep(1)
    if ends == "cancelled":
        task.cancel()
    if ends == "error":
        with pytest.raises(KeyError):
            await task
    else:
        assert await task == {"result": "done", "cancelled": "stopped"}[ends]
