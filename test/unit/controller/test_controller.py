"""Controllers in virtual time: outcomes, workers, start and stop."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import pairwise

import pytest
import structlog

from jobsetpy.api.core import ConfigMap
from jobsetpy.api.meta import ObjectKey, ObjectMeta
from jobsetpy.client import Client
from jobsetpy.controller import Controller, Event, Request, Result, Watch, enqueue_self
from jobsetpy.controller._repeats import REJECTED_S
from jobsetpy.errors import (
    AlreadyStartedError,
    ApiTimeoutError,
    ConflictError,
    InvalidError,
    NotSyncedError,
    RetryableApiError,
    TerminalError,
)
from jobsetpy.observability.metrics import REGISTRY
from jobsetpy.testing import World
from support.informers_kit import ManualInformer

pytestmark = pytest.mark.looptime


def config_map(name: str) -> ConfigMap:
    """A ConfigMap in namespace ``ns``."""
    return ConfigMap(metadata=ObjectMeta(namespace="ns", name=name))


class Script:
    """A reconciler that calls a function of the test, and records the name and time of each call."""

    def __init__(self, act: Callable[[Request, int], Awaitable[Result]]) -> None:
        self.act = act
        self.calls: list[tuple[str, float]] = []

    async def reconcile(self, request: Request) -> Result:
        """Record the call, then act."""
        self.calls.append((request.name, asyncio.get_running_loop().time()))
        return await self.act(request, sum(name == request.name for name, _ in self.calls))


def scripted(*outcomes: Result | BaseException) -> Script:
    """A reconciler whose n-th call for a key has the n-th outcome; later calls return ``done``."""

    async def act(request: Request, number: int) -> Result:
        outcome = outcomes[number - 1] if number <= len(outcomes) else Result.done()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return Script(act)


def lasting(seconds: float) -> Script:
    """A reconciler whose calls take some seconds."""

    async def act(request: Request, number: int) -> Result:
        await asyncio.sleep(seconds)
        return Result.done()

    return Script(act)


def controller(
    name: str, reconciler, informer: ManualInformer | None = None, **options
) -> Controller:
    """A controller of ConfigMaps with one worker."""
    informer = informer or ManualInformer()
    informer.synced.set()
    options.setdefault("workers", 1)
    watch = Watch(informer, enqueue_self)
    return Controller(name=name, reconciler=reconciler, watches=[watch], **options)


def request(name: str) -> Request:
    """A request for an object in namespace ``ns``."""
    return Request(ObjectKey("ns", name))


def sample(metric: str, controller: str, **labels: str) -> float | None:
    """Current value of a metric."""
    return REGISTRY.get_sample_value(metric, {"controller": controller, **labels})


def throttled(retry_after: float | None) -> RetryableApiError:
    """A 429 answer."""
    error = RetryableApiError(429, "TooManyRequests")
    error.retry_after = retry_after
    return error


class TestOutcomes:
    """The table of outcomes in the docstring of Controller."""

    async def run(self, name: str, script: Script, seconds: float = 100.0, **options) -> Controller:
        """Run a controller with one request for some time."""
        subject = controller(name, script, **options)
        async with subject.running():
            subject.queue.add(request("a"))
            await asyncio.sleep(seconds)
        return subject

    async def test_key_is_forgotten_when_its_reconcile_is_done(self):
        """After done there is no further call, and earlier failures no longer count."""
        script = scripted(ValueError("x"))
        subject = await self.run("done", script)

        assert script.calls == [("a", 0.0), ("a", pytest.approx(0.005, abs=1e-4))]
        assert subject.queue.num_requeues(request("a")) == 0
        assert sample("controller_runtime_reconcile_total", "done", result="success") == 1

    async def test_key_is_reconciled_again_after_the_requested_delay(self):
        """requeue_after queues the key again at that time."""
        script = scripted(Result.requeue_after(timedelta(seconds=30)))
        await self.run("after", script)

        assert script.calls == [("a", 0.0), ("a", 30.0)]
        assert sample("controller_runtime_reconcile_total", "after", result="requeue_after") == 1

    async def test_failures_back_off(self):
        """Consecutive failures double the wait; each is logged once with attempt and delay."""
        script = scripted(*[ValueError("broken")] * 3)
        with structlog.testing.capture_logs() as logs:
            await self.run("fail", script)

        assert [at for _, at in script.calls] == pytest.approx([0, 0.005, 0.015, 0.035], abs=1e-3)
        failures = [line for line in logs if line["event"] == "reconcile failed"]
        assert [(line["attempt"], line["retry_in_s"]) for line in failures] == [
            (1, 0.005),
            (2, 0.01),
            (3, 0.02),
        ]
        assert {line["log_level"] for line in failures} == {"error"}
        # One traceback for what is raised at one place, then its number.
        assert [type(line.get("exc_info")) for line in failures] == [ValueError, *[type(None)] * 2]
        assert [line.get("times") for line in failures] == [None, 2, 3]
        assert sample("controller_runtime_reconcile_errors_total", "fail") == 3
        assert sample("controller_runtime_reconcile_panics_total", "fail") == 3

    async def test_traceback_is_logged_for_each_cause_and_again_after_ten_minutes(self):
        """Another class is another cause, whatever the object; the number starts again."""
        script = scripted(ValueError("a"), KeyError("b"), ValueError("c"))
        subject = controller("causes", script)
        with structlog.testing.capture_logs() as logs:
            async with subject.running():
                for pause_s in (0.5, 700):
                    subject.queue.add(request("a"))
                    await asyncio.sleep(pause_s)
                subject.queue.add(request("b"))
                await asyncio.sleep(1)

        failures = [line for line in logs if line["event"] == "reconcile failed"]
        logged = [type(line.get("exc_info")) for line in failures]
        assert logged == [ValueError, KeyError, type(None)] * 2

    async def test_rejected_write_is_not_repeated_hot(self):
        """The same rejection waits for 10 s; another one, or a stale cache, is tried again soon."""
        first, second = InvalidError(422, message="spec.a: bad"), InvalidError(422, message="b")
        script = scripted(first, first, second, second, RetryableApiError(500), second)
        subject = controller("rejected", script)
        async with subject.running():
            subject.queue.add(request("a"))
            await asyncio.sleep(100)

        pauses = [later - at for (_, at), (_, later) in pairwise(script.calls)]
        assert [pause > REJECTED_S - 1 for pause in pauses] == [
            False,
            True,
            False,
            True,
            False,
            False,
        ]

    async def test_expected_errors_are_logged_without_a_stack(self):
        """An error class of this project is logged without a stack and does not count as a panic."""
        with structlog.testing.capture_logs() as logs:
            await self.run("world", scripted(NotSyncedError("too early")))

        failures = [line for line in logs if line["event"] == "reconcile failed"]
        assert [(line["error"], "exc_info" in line) for line in failures] == [("too early", False)]
        assert sample("controller_runtime_reconcile_panics_total", "world") == 0

    async def test_conflict_is_not_a_failure(self):
        """A conflict is retried like a failure, but is neither logged nor counted as one."""
        script = scripted(ConflictError(409, "Conflict"))
        with structlog.testing.capture_logs() as logs:
            await self.run("conflict", script)

        assert len(script.calls) == 2
        assert {line["log_level"] for line in logs} <= {"info", "debug"}
        assert sample("controller_runtime_reconcile_errors_total", "conflict") == 0
        assert sample("controller_reconcile_conflicts_total", "conflict") == 1

    @pytest.mark.parametrize(
        ("name", "error"),
        [
            ("busy", throttled(7.0)),
            ("busies", ExceptionGroup("", [throttled(7.0), throttled(None), ValueError()])),
        ],
    )
    async def test_retry_after_is_obeyed(self, name: str, error: Exception):
        """Retry-After is the minimum of the delay, also from inside an exception group."""
        script = scripted(error)
        await self.run(name, script)

        assert [at for _, at in script.calls] == [0.0, 7.0]

    async def test_unanswered_requests_are_repeated_after_the_time_they_took(self):
        """A worker spends at most half of its time on an object that the API server cannot serve."""

        async def act(request: Request, number: int) -> Result:
            del request, number
            await asyncio.sleep(9)
            raise ExceptionGroup("", [ApiTimeoutError("no answer in 9 s")])

        script = Script(act)
        await self.run("unanswered", script, 60)

        assert [at for _, at in script.calls] == [0.0, 18.0, 36.0, 54.0]

    async def test_terminal_error_is_not_retried(self):
        """The next event of the object is reconciled as usual."""
        script = scripted(ValueError("x"), TerminalError("no such policy"))
        subject = controller("terminal", script)
        with structlog.testing.capture_logs() as logs:
            async with subject.running():
                subject.queue.add(request("a"))
                await asyncio.sleep(5000)
                assert len(script.calls) == 2
                subject.queue.add(request("a"))
                await asyncio.sleep(1)

        assert len(script.calls) == 3
        assert subject.queue.num_requeues(request("a")) == 0
        assert [line["log_level"] for line in logs if line.get("outcome") == "terminal"] == [
            "warning"
        ]
        assert sample("controller_runtime_terminal_reconcile_errors_total", "terminal") == 1

    @pytest.mark.parametrize(
        ("name", "errors", "calls"),
        [
            ("all-terminal", [TerminalError("a"), TerminalError("b")], 1),
            ("mixed", [TerminalError("a"), ValueError("b")], 2),
            ("all-conflict", [ConflictError(409), ConflictError(409)], 2),
        ],
    )
    async def test_groups(self, name: str, errors: list[Exception], calls: int):
        """A group is terminal, or a conflict, only if all its members are."""
        script = scripted(ExceptionGroup("", [ExceptionGroup("", errors)]))
        await self.run(name, script)

        assert len(script.calls) == calls
        conflicts = sample("controller_reconcile_conflicts_total", name)
        assert conflicts == (1 if name == "all-conflict" else 0)

    async def test_reconcile_is_cancelled_when_it_takes_too_long(self):
        """It is retried, and counted in its own metric."""

        async def act(request: Request, number: int) -> Result:
            if number == 1:
                await asyncio.sleep(1000)
            return Result.done()

        script = Script(act)
        await self.run("slow", script, reconcile_timeout_s=10.0)

        assert [at for _, at in script.calls] == pytest.approx([0.0, 10.005])
        assert sample("controller_runtime_reconcile_timeouts_total", "slow") == 1
        assert sample("controller_runtime_reconcile_errors_total", "slow") == 1

    async def test_timeout_error_of_the_reconciler_is_a_failure(self):
        """A TimeoutError of the reconciler itself is not counted as the controller's timeout."""
        script = scripted(TimeoutError("mine"))
        await self.run("own-timeout", script)

        assert len(script.calls) == 2
        assert sample("controller_runtime_reconcile_timeouts_total", "own-timeout") == 0

    async def test_stray_cancellation_does_not_end_the_worker(self):
        """A cancellation inside a reconcile fails that reconcile; the worker continues."""

        async def act(request: Request, number: int) -> Result:
            if number == 1:
                future = asyncio.get_running_loop().create_future()
                future.cancel()
                await future
            return Result.done()

        script = Script(act)
        await self.run("stray", script)

        assert len(script.calls) == 2
        assert sample("controller_runtime_reconcile_errors_total", "stray") == 1

    async def test_reconcile_fails_when_it_returns_no_result(self):
        """A forgotten ``return`` is reported instead of passing unnoticed."""

        async def act(request: Request, number: int) -> Result:
            return None if number == 1 else Result.done()  # type: ignore[return-value]

        script = Script(act)
        with structlog.testing.capture_logs() as logs:
            await self.run("none", script)

        assert len(script.calls) == 2
        assert any("has to return a Result" in line.get("error", "") for line in logs)


class TestLog:
    """One log line for each reconcile."""

    async def test_canonical_line(self):
        """The line has key, id, outcome, summary and times; reconciles without effect are debug."""

        async def act(request: Request, number: int) -> Result:
            await asyncio.sleep(2)
            return Result.done(summary="created 3 jobs" if number == 1 else "")

        subject = controller("log", Script(act))
        merge = structlog.contextvars.merge_contextvars
        with structlog.testing.capture_logs(processors=[merge]) as logs:
            async with subject.running():
                subject.queue.add(request("a"))
                subject.queue.add(request("b"))
                await asyncio.sleep(10)
                subject.queue.add(request("a"))
                await asyncio.sleep(10)

        lines = [line for line in logs if line["event"] == "reconciled"]
        assert [(line["log_level"], line["object"], line["queued_s"]) for line in lines] == [
            ("info", "ns/a", 0.0),
            ("info", "ns/b", 2.0),
            ("debug", "ns/a", 0.0),
        ]
        assert lines[0]["summary"] == "created 3 jobs"
        assert (lines[0]["controller"], lines[0]["seconds"]) == ("log", 2.0)
        assert len({line["reconcile_id"] for line in lines}) == 3

    async def test_writes_are_the_summary_when_the_result_has_none(self):
        """The line names the first writes and counts the others."""
        world = World()
        client = Client(world.transport())

        async def act(request: Request, number: int) -> Result:
            for name in "abcde"[: 5 if number == 1 else 0]:
                await client.create(ConfigMap, "default", {"metadata": {"name": name}})
            await client.get(ConfigMap, "default", "a")
            return Result.done()

        subject = controller("writes", Script(act))
        with structlog.testing.capture_logs() as logs:
            async with subject.running():
                for _ in range(2):
                    subject.queue.add(request("a"))
                    await asyncio.sleep(10)

        lines = [line for line in logs if line["event"] == "reconciled"]
        assert [(line["log_level"], line["summary"]) for line in lines] == [
            ("info", ", ".join(["create configmaps in default"] * 3) + " and 2 more"),
            ("debug", ""),
        ]

    async def test_each_outcome_has_one_line(self):
        """Each line has the key, its own id, the outcome, and both times; only defects have a stack."""
        outcomes = (
            Result.done(),
            Result.done(summary="made 1 job"),
            Result.requeue_after(timedelta(seconds=9), summary="waits"),
            ConflictError(409, "Conflict", "changed"),
            throttled(None),
            TerminalError("hopeless"),
            KeyError("defect"),
            Result.done(),
        )
        script = scripted(*outcomes)
        subject = controller("lines", script)
        merge = structlog.contextvars.merge_contextvars
        with structlog.testing.capture_logs(processors=[merge]) as logs:
            async with subject.running():
                for _ in outcomes:
                    subject.queue.add(request("a"))
                    await asyncio.sleep(30)

        lines = [line for line in logs if line.get("reconcile_id")]
        assert len(lines) == len(script.calls) == len({line["reconcile_id"] for line in lines})
        for line in lines:
            assert line["object"] == "ns/a"
            assert {"controller", "outcome", "seconds", "queued_s"} <= line.keys()
        assert [(line["log_level"], line["outcome"]) for line in lines[:3]] == [
            ("debug", "done"),
            ("info", "done"),
            ("info", "requeue_after"),
        ]
        levels = {line["outcome"]: line["log_level"] for line in lines}
        assert levels["conflict"] == "info"
        assert levels["terminal"] == "warning"
        errors = [line for line in lines if line["log_level"] == "error"]
        assert [type(line.get("exc_info")) for line in errors] == [type(None), KeyError]
        assert all("retry_in_s" in line and "attempt" in line for line in errors)

    async def test_context_does_not_leak(self):
        """Log context that is bound for a reconcile is removed after it."""
        subject = controller("leak", scripted())
        async with subject.running():
            subject.queue.add(request("a"))
            await asyncio.sleep(1)

            assert structlog.contextvars.get_contextvars() == {}


class TestWorkers:
    """Several workers and keys."""

    async def test_keys_are_reconciled_in_parallel_but_never_one_key_twice(self):
        """As many keys as workers are in progress at a time, and each key at most once."""
        busy: list[str] = []
        most = 0

        async def act(request: Request, number: int) -> Result:
            nonlocal most
            assert request.name not in busy
            busy.append(request.name)
            most = max(most, len(busy))
            await asyncio.sleep(1)
            busy.remove(request.name)
            return Result.done()

        script = Script(act)
        subject = controller("parallel", script, workers=3)
        async with subject.running():
            for _ in range(10):
                for name in "abcde":
                    subject.queue.add(request(name))
                await asyncio.sleep(0.5)
            await asyncio.sleep(10)

        assert most == 3
        assert {name for name, _ in script.calls} == set("abcde")
        assert sample("controller_runtime_max_concurrent_reconciles", "parallel") == 3
        assert sample("controller_runtime_active_workers", "parallel") == 0

    async def test_one_slow_key_does_not_delay_others(self):
        """With two workers a slow key leaves the other worker to all other keys."""

        async def act(request: Request, number: int) -> Result:
            await asyncio.sleep(100 if request.name == "slow" else 1)
            return Result.done()

        script = Script(act)
        subject = controller("fair", script, workers=2)
        async with subject.running():
            for name in ("slow", "a", "b", "c"):
                subject.queue.add(request(name))
            await asyncio.sleep(3)

            assert [at for _, at in script.calls] == [0.0, 0.0, 1.0, 2.0]
            await asyncio.sleep(200)

    async def test_a_long_queue_does_not_block_the_loop(self):
        """Other tasks run between reconciles that never wait."""
        subject = controller("long", scripted())
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while len(subject.queue):
                ticks += 1
                await asyncio.sleep(0)

        async with subject.running():
            for number in range(500):
                subject.queue.add(request(str(number)))
            await tick()

        assert ticks > 100

    async def test_live_objects_come_before_initial_ones(self):
        """Objects of the first list are reconciled after those that change now."""
        informer = ManualInformer()
        script = scripted()
        subject = controller("prio", script, informer)
        subject.wire()
        for name in ("old1", "old2"):
            informer.add(config_map(name), initial=True)
        informer.add(config_map("live"))
        async with subject.running():
            await asyncio.sleep(1)

        assert [name for name, _ in script.calls] == ["live", "old1", "old2"]


class TestLife:
    """Start and stop."""

    async def test_workers_start_when_all_informers_are_synced(self):
        """No reconcile begins before every watch has its first list."""
        first, second = ManualInformer(), ManualInformer()
        script = scripted()
        watches = [Watch(first, enqueue_self), Watch(second, enqueue_self)]
        subject = Controller(name="sync", reconciler=script, watches=watches)
        subject.wire()
        first.add(config_map("a"), initial=True)
        loop = asyncio.get_running_loop()
        loop.call_later(5, first.synced.set)
        loop.call_later(9, second.synced.set)
        async with subject.running():
            assert loop.time() == 9.0
            assert script.calls == []
            await asyncio.sleep(1)

        assert script.calls == [("a", 9.0)]

    async def test_stop_waits_for_reconciles_in_progress(self):
        """Leaving the block starts no reconcile that is only queued."""
        script = lasting(5)
        subject = controller("stop", script)
        async with subject.running():
            subject.queue.add(request("a"))
            subject.queue.add(request("b"))
            await asyncio.sleep(1)

        assert [name for name, _ in script.calls] == ["a"]
        assert sample("controller_runtime_reconcile_total", "stop", result="success") == 1
        assert asyncio.get_running_loop().time() == 5.0

    async def test_reconcile_is_cancelled_after_the_grace_period(self):
        """A reconcile that does not end in time is cancelled, and its key returned to the queue."""
        cancelled = []

        async def act(request: Request, number: int) -> Result:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                cancelled.append(request.name)
                raise
            return Result.done()

        subject = controller("grace", Script(act), grace_s=7.0)
        async with subject.running():
            subject.queue.add(request("a"))
            await asyncio.sleep(1)

        assert cancelled == ["a"]
        assert asyncio.get_running_loop().time() == 8.0
        assert subject.queue.processing(request("a")) is None

    async def test_abandon_cancels_reconciles_immediately(self):
        """After abandon, leaving the block does not wait."""
        subject = controller("abandon", lasting(1000))
        async with subject.running():
            subject.queue.add(request("a"))
            await asyncio.sleep(1)
            subject.abandon()

        assert asyncio.get_running_loop().time() == 1.0

    async def test_a_failure_outside_the_reconciler_ends_the_controller(self):
        """A defect of the framework must not end just one worker."""

        class Broken:
            def when(self, item: Request) -> float:
                raise ZeroDivisionError

            def forget(self, item: Request) -> None:
                pass

            def num_requeues(self, item: Request) -> int:
                return 0

        subject = controller("defect", scripted(ValueError()), rate_limiter=Broken(), workers=3)
        with pytest.raises(ZeroDivisionError):
            async with subject.running():
                subject.queue.add(request("a"))
                await asyncio.sleep(1000)

        assert asyncio.get_running_loop().time() == 0.0

    async def test_running_twice_is_refused(self):
        """A controller runs once."""
        subject = controller("once", scripted())
        async with subject.running():
            pass
        with pytest.raises(AlreadyStartedError):
            async with subject.running():
                pass

    async def test_only_standby_watches_are_connected_while_held(self):
        """While the controller is held, requests of its ``standby`` watches are dropped."""
        informer = ManualInformer()
        informer.synced.set()
        seen: list[str] = []

        def note(event: Event[ConfigMap]) -> list[Request]:
            seen.append(event.obj.metadata.name)
            return [request(event.obj.metadata.name)]

        script = scripted()
        watches = [Watch(informer, enqueue_self), Watch(informer, note, standby=True)]
        subject = Controller(name="standby", reconciler=script, watches=watches)
        subject.prepare(held=True)
        informer.add(config_map("a"))
        assert (seen, len(subject.queue), len(informer.handlers)) == (["a"], 0, 1)
        async with subject.running():
            informer.add(config_map("b"))
            await asyncio.sleep(1)

        assert (seen, len(informer.handlers)) == (["a", "b"], 2)
        assert [name for name, _ in script.calls] == ["b"]

    async def test_watches_of_one_informer_keep_their_order(self):
        """An earlier watch has processed an event before a later one requests a reconcile."""
        informer, ledger, found = ManualInformer(), set(), []

        def note(event: Event[ConfigMap]) -> list[Request]:
            ledger.add(event.obj.metadata.name)
            return []

        def check(event: Event[ConfigMap]) -> list[Request]:
            found.append(event.obj.metadata.name in ledger)
            return []

        watches = [Watch(informer, note), Watch(informer, check)]
        Controller(name="order", reconciler=scripted(), watches=watches).wire()
        informer.add(config_map("a"))

        assert found == [True]

    async def test_wiring_twice_registers_once(self):
        """A second ``wire()`` adds no handler."""
        informer = ManualInformer()
        subject = controller("wire", scripted(), informer)
        subject.wire()
        subject.wire()

        assert len(informer.handlers) == 1

    async def test_queue_gauges(self):
        """While it runs, scrapes show the queue's depth and its longest reconcile."""
        subject = controller("gauges", lasting(100), grace_s=0)
        labels = {"name": "gauges"}
        async with subject.running():
            for name in ("a", "b", "c"):
                subject.queue.add(request(name))
            await asyncio.sleep(10)

            assert sample("workqueue_depth", "gauges", priority="0", **labels) == 2
            longest = "workqueue_longest_running_processor_seconds"
            assert sample(longest, "gauges", **labels) == 10.0
        assert sample("workqueue_depth", "gauges", priority="0", **labels) is None
