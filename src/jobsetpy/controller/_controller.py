"""Controller loop: watches fill a queue, and workers empty it through a reconciler.

``_succeeded`` and ``_failed`` are the only places that turn the outcome of a reconcile into a queue
action, a metric and a log line.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import attrs

from jobsetpy.aio import Clock, LoopClock, supervise
from jobsetpy.api.reconcile import Request, Result
from jobsetpy.client import Writes, noted_writes
from jobsetpy.controller._event import Event
from jobsetpy.controller._hints import hint
from jobsetpy.controller._loops import TIMES, LoopDetector
from jobsetpy.controller._reconcile import Reconciler
from jobsetpy.controller._repeats import Repeats, leaves
from jobsetpy.controller._runnable import Runnable
from jobsetpy.controller._stepwise import Stepwise
from jobsetpy.controller._watch import Watch, WatchHandler
from jobsetpy.errors import (
    AlreadyStartedError,
    ApiTimeoutError,
    ConflictError,
    JobSetPyError,
    RetryableApiError,
    TerminalError,
)
from jobsetpy.informers import Registration, SharedInformer
from jobsetpy.observability import metrics
from jobsetpy.observability._lean_structlog import structlog
from jobsetpy.observability.logging import get_logger
from jobsetpy.workqueue import QueueShutDown, RateLimiter, WorkQueue

DEFAULT_WORKERS: Final = 4
"""Default number of workers of a controller; ``python -m bench.library --workers`` measures it."""

_BLOCKED_S = 0.5
"""Threshold for logging a reconcile that holds the event loop: watches and leases wait for it."""


_REST_FACTOR: Final = 20.0
"""Rest after holding the loop, as a multiple of the CPU time: a request gets 5 % of the loop."""
_LONGEST_REST_S: Final = 300.0
_LEAST_REST_S: Final = 0.001
"""A rest is over when less is left: timers and clocks are not more exact."""
_LONGEST_PAUSE_S: Final = 30.0
"""Maximum pause in seconds before requests are repeated that were not answered in time."""


@attrs.frozen
class _Failure:
    error: BaseException
    outcome: Literal["conflict", "error", "terminal", "timeout"]


class Controller(Runnable):
    """Runs a reconciler for every key that its watches name.

    Guarantees: an observed change leads to a reconcile that starts after it. A key is never
    reconciled twice at the same time. Failures are retried with growing delays and never block
    other keys. Workers start when all caches have synced and the requests of the first lists are
    queued; those have low priority. Not guaranteed: one reconcile for each event (events are
    merged), or any order between keys.

    The outcome of a reconcile decides what happens next:

    ====================  ==============================  ===========================
    outcome               queue                           log
    ====================  ==============================  ===========================
    ``Result.done``       forget failures                 debug; info if work was done
    ``requeue_after``     forget failures, add later      same
    ``ConflictError``     retry, rate limited             info
    other exception       retry, rate limited, at least   error; with a stack only for
                          a server's Retry-After, or the  unexpected exceptions, once for
                          time without its answer, or     each cause in ten minutes, then
                          10 s after the same rejection   with their number (``times``)
    timeout               retry, rate limited             error
    ``TerminalError``     forget: wait for a change       warning
    cancelled             give back                       nothing
    ====================  ==============================  ===========================

    An exception group has the outcome that all its members have in common.

    A request whose reconcile held the event loop for more than half a second of CPU time rests for
    20 times as long (300 s at most) before it is reconciled again, whatever triggers it. One object
    can therefore not delay the others, or the renewal of the Lease, repeatedly.

    Args:
        name: label of metrics and logs; one word such as ``jobset``.
        reconciler: does the work.
        watches: sources of requests.
        workers: maximum concurrent reconciles.
        rate_limiter: delays of retries; 5 ms doubling to 1,000 s and a common bucket when absent.
        reconcile_timeout_s: a reconcile that takes longer is cancelled and counts as failed.
        grace_s: time for workers to finish their current requests when the controller stops.
        clock: time source.
    """

    def __init__(
        self,
        *,
        name: str,
        reconciler: Reconciler,
        watches: Iterable[Watch[Any]],
        workers: int = DEFAULT_WORKERS,
        rate_limiter: RateLimiter[Request] | None = None,
        reconcile_timeout_s: float = 300.0,
        grace_s: float = 20.0,
        clock: Clock | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"controller {name!r} needs at least one worker, not {workers}")
        _check_reconciler(reconciler)
        self.name = name
        self.reconciler = reconciler
        self.watches: tuple[Watch[Any], ...] = _checked_watches(watches)
        self.workers = workers
        self._clock: Clock = clock or LoopClock()
        self.queue: WorkQueue[Request] = WorkQueue(
            rate_limiter=rate_limiter, clock=self._clock, metrics=metrics.QueueMetrics(name)
        )
        self._timeout_s = reconcile_timeout_s
        self._grace_s = grace_s
        self._metrics = metrics.ReconcileMetrics(name)
        self._metrics.workers(workers)
        self._log = get_logger("controller")
        self._registrations: dict[int, Registration] = {}
        self._early: list[tuple[WatchHandler[Any], Event[Any]]] | None = []
        self._started = False
        self._held = False
        self._rests: dict[Request, float] = {}
        self._awaited: SharedInformer[Any] | None = None
        self._loops = LoopDetector()
        self._repeats = Repeats()

    def __repr__(self) -> str:
        """Name and number of watches."""
        return f"<Controller {self.name!r} with {len(self.watches)} watches>"

    @property
    def waits_for(self) -> str:
        """Description of the informer that delays the start of the workers; "" if there is none."""
        return "" if self._awaited is None else self._awaited.waits_for

    def _add(self, request: Request, *, priority: int, delay_s: float = 0.0) -> None:
        if not self._held:
            if delay_s:
                self.queue.add_after(request, delay_s, priority=priority)
            else:
                self.queue.add(request, priority=priority)

    def _put_off(self, handler: WatchHandler[Any], event: Event[Any]) -> bool:
        """Keep an event until all informers have synced; return False if they have already."""
        if self._early is None:
            return False
        self._early.append((handler, event))
        return True

    def _catch_up(self) -> None:
        """Handle the events that arrived before all informers had synced, in order."""
        early, self._early = self._early or [], None
        for handler, event in early:
            handler.handle(event)

    def wire(self) -> None:
        """Register with the informers; called by ``running``, and idempotent.

        While the controller is held, only watches with ``standby`` are registered.
        """
        for number, watch in enumerate(self.watches):
            if number not in self._registrations and (watch.standby or not self._held):
                add = functools.partial(self._add, delay_s=watch.debounce_s)
                handler: WatchHandler[Any] = WatchHandler(
                    watch,
                    add if watch.debounce_s > 0 else self._add,
                    controller=self.name,
                    put_off=self._put_off,
                )
                self._registrations[number] = watch.informer.add_handler(handler)

    def prepare(self, *, held: bool) -> None:
        """Register with the informers before they run, to receive their first lists page by page.

        Args:
            held: queue nothing until ``running`` is entered, for example while another process
                leads. Nothing is missed: a watch that is registered late receives all objects.
        """
        self._held = held
        self.wire()

    def abandon(self) -> None:
        """Stop without grace when ``running`` is left, as after the loss of leadership."""
        self._grace_s = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the workers within the block.

        Entering waits for the informers, which must be running. Leaving closes the queue, lets
        workers finish their current requests for ``grace_s``, and then cancels them. Queued
        requests are dropped: the next leader starts with a full list.

        Raises:
            AlreadyStartedError: it is running, or has run.
        """
        if self._started:
            raise AlreadyStartedError(f"controller {self.name!r} was started already")
        self._started = True
        self._held = False
        self.wire()
        gauges = metrics.queue_gauges(self.name, self.queue.depths, self.queue.working_seconds)
        with gauges:
            async with supervise() as tasks:
                for number, registration in self._registrations.items():
                    self._awaited = self.watches[number].informer
                    await registration.wait_for_sync()
                self._catch_up()
                workers = [
                    tasks.start(self._work(), name=f"{self.name}-worker-{number}")
                    for number in range(self.workers)
                ]
                self._log.info("controller started", controller=self.name, workers=self.workers)
                try:
                    yield
                finally:
                    self.queue.shut_down(drain=False)
                    await self._finish(workers)

    async def _finish(self, workers: list[asyncio.Task[Any]]) -> None:
        _, busy = await asyncio.wait(workers, timeout=self._grace_s)
        if busy:
            self._log.warning(
                "workers did not finish in time and are cancelled",
                controller=self.name,
                workers=len(busy),
                grace_s=self._grace_s,
            )
        else:
            self._log.info("controller stopped", controller=self.name)

    async def _work(self) -> None:
        while True:
            try:
                request = await self.queue.get()
            except QueueShutDown:
                return
            try:
                await self._process(request)
            finally:
                self.queue.done(request)
            # Neither get() nor a reconcile without work suspends: otherwise a long queue of such
            # keys would block the event loop.
            await asyncio.sleep(0)

    def _rest_s(self, request: Request) -> float:
        """Return how long a request that held the loop must rest, in seconds; usually 0."""
        until = self._rests.get(request)
        if until is None:
            return 0.0
        rest_s = until - self._clock.monotonic()
        if rest_s > _LEAST_REST_S:
            return rest_s
        del self._rests[request]
        return 0.0

    async def _process(self, request: Request) -> None:
        rest_s = self._rest_s(request)
        if rest_s > 0:
            self.queue.add_after(request, rest_s)
            return
        started = self._clock.monotonic()
        self._metrics.started()
        # This runs for each reconcile: ids from the system's source of randomness, and the context
        # manager that does the same, would cost several times as much.
        bound = structlog.contextvars.bind_contextvars(
            controller=self.name,
            object=str(request),
            reconcile_id=f"{random.getrandbits(128):032x}",
        )
        try:
            try:
                with noted_writes() as writes:
                    outcome = await self._attempt(request)
            finally:
                seconds = self._clock.monotonic() - started
                self._metrics.ended(seconds)
            if isinstance(outcome, _Failure):
                self._failed(request, outcome, seconds)
            else:
                self._succeeded(request, outcome, seconds, writes)
            self._report_loop(request, outcome, writes)
        finally:
            structlog.contextvars.reset_contextvars(**bound)

    async def _attempt(self, request: Request) -> Result | _Failure:
        limit = asyncio.timeout(self._timeout_s)
        steps = Stepwise(self.reconciler.reconcile(request))
        try:
            async with limit:
                return _checked(await steps)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # This worker was not cancelled: something that the reconciler awaited was cancelled.
            # Passing that on would silently end the worker for good.
            return _Failure(error, "error")
        except TimeoutError as error:
            return _Failure(error, "timeout" if limit.expired() else "error")
        except Exception as error:  # noqa: BLE001 - every outcome is logged
            return _classify(error)
        finally:
            if steps.longest_s >= _BLOCKED_S:
                rest_s = 0.0
                if steps.longest_cpu_s >= _BLOCKED_S:
                    rest_s = min(_LONGEST_REST_S, steps.longest_cpu_s * _REST_FACTOR)
                    self._rests[request] = self._clock.monotonic() + rest_s
                self._metrics.problem("blocked")
                self._log.warning(
                    "a reconcile blocked the event loop: what takes long needs an await, such as "
                    "asyncio.to_thread",
                    reconciler=_name_of(self.reconciler),
                    blocked_s=round(steps.longest_s, 3),
                    rests_s=round(rest_s, 3),
                )

    def _succeeded(self, request: Request, result: Result, seconds: float, writes: Writes) -> None:
        """Apply the first rows of the table of the class docstring; log the single line."""
        self.queue.forget(request)
        self._repeats.forget(request)
        more: dict[str, Any] = {"outcome": "done"}
        if result.delay is None:
            self._metrics.result("success")
        else:
            delay_s = result.delay.total_seconds()
            self.queue.add_after(request, delay_s)
            self._metrics.result("requeue_after")
            more = {"outcome": "requeue_after", "again_in_s": delay_s}
        summary = result.summary or str(writes)
        log = self._log.info if summary else self._log.debug
        log("reconciled", summary=summary, **more, **self._times(request, seconds))

    def _failed(self, request: Request, failure: _Failure, seconds: float) -> None:
        """Apply the other rows; log the single line of a failed reconcile."""
        error, outcome = failure.error, failure.outcome
        fields: dict[str, Any] = {
            "outcome": outcome,
            "error": str(error) or type(error).__name__,
            **self._times(request, seconds),
        }
        if outcome != "error":
            self._metrics.problem(outcome)
        elif not _on_purpose(error):
            self._metrics.problem("panic")
            times = self._repeats.times(error, self._clock.monotonic())
            fields |= {"exc_info": error} if times == 1 else {"times": times}
        self._metrics.result("requeue" if outcome == "conflict" else "error")
        if outcome == "terminal":
            self.queue.forget(request)
            self._repeats.forget(request)
            self._log.warning("reconcile failed, waiting for the object to change", **fields)
            return
        rest_s = max(_rest_after(error, seconds), self._repeats.rest_s(request, error))
        delay_s = self.queue.add_rate_limited(request, at_least_s=rest_s)
        fields |= {"attempt": self.queue.num_requeues(request), "retry_in_s": round(delay_s, 4)}
        if outcome == "conflict":
            self._log.info("the object changed meanwhile, trying again", **fields)
            return
        if outcome == "timeout":
            fields["timeout_s"] = self._timeout_s
        if advice := hint(error):
            fields["advice"] = advice
        self._log.error("reconcile failed", **fields)

    def _report_loop(self, request: Request, outcome: Result | _Failure, writes: Writes) -> None:
        """Log a reconcile that causes itself."""
        delay = outcome.delay if isinstance(outcome, Result) else None
        again_now = delay is not None and delay.total_seconds() <= 0
        now = self._clock.monotonic()
        sentence = self._loops.note(request, now, wrote=writes.count > 0, again_now=again_now)
        if sentence:
            self._log.warning(sentence, times=TIMES, writes=str(writes))

    def _times(self, request: Request, seconds: float) -> dict[str, float]:
        """Return the duration of the reconcile and of its wait for a worker, in seconds."""
        taken = self.queue.processing(request)
        waited_s = 0.0 if taken is None else taken.waited_s
        return {"seconds": round(seconds, 4), "queued_s": round(waited_s, 4)}


def _check_reconciler(reconciler: object) -> None:
    """Reject common mistakes with a message that names them.

    Raises:
        TypeError: the value has no ``async def reconcile``.
    """
    if isinstance(reconciler, type):
        name = reconciler.__name__
        msg = f"a controller needs an instance as its reconciler: {name}(...), not the class {name}"
        raise TypeError(msg)
    method = getattr(reconciler, "reconcile", None)
    if not callable(method):
        msg = f"a reconciler needs `async def reconcile(self, request)`; {reconciler!r} has none"
        raise TypeError(msg)
    check_async(method, f"{type(reconciler).__name__}.reconcile")


def _name_of(reconciler: Any) -> str:
    found = inspect.unwrap(reconciler)
    name: str = getattr(found, "__qualname__", type(found).__name__)
    return name


def check_async(function: Callable[..., Any], where: str) -> None:
    """Reject a function that would block the event loop.

    Raises:
        TypeError: it is not an ``async def``; the message calls it ``where``.
    """
    function = inspect.unwrap(function)
    plain = inspect.ismethod(function) or inspect.isfunction(function)
    if plain and not inspect.iscoroutinefunction(function) and not _gives_awaitable(function):
        raise TypeError(
            f"{where} has to be `async def`: it runs on the event loop, which nothing may block; "
            "what blocks goes into `await asyncio.to_thread(...)`"
        )


def _gives_awaitable(function: Callable[..., Any]) -> bool:
    """Return whether a plain function is annotated to return an awaitable."""
    returned = str(getattr(function, "__annotations__", {}).get("return", ""))
    return any(word in returned for word in ("Awaitable", "Coroutine", "Future", "Task"))


def _checked_watches(watches: Any) -> tuple[Watch[Any], ...]:
    if isinstance(watches, Watch):
        raise TypeError("a controller needs a list of watches, not one Watch: watches=[Watch(...)]")
    made = tuple(watches)
    watch: object
    for watch in made:
        if not isinstance(watch, Watch):
            raise TypeError(f"a controller's watches are Watch(informer, handler), not {watch!r}")
    return made


def _checked(result: object) -> Result:
    """Check the result at run time: a missing ``return`` or ``await`` is an easy mistake."""
    if isinstance(result, Result):
        return result
    if inspect.iscoroutine(result):
        result.close()
        msg = f"a reconciler has to return a Result: `await` is missing in front of {result!r}"
    elif result is None:
        msg = "a reconciler has to return a Result, not None: end with `return Result.done()`"
    else:
        msg = f"a reconciler has to return a Result, not {result!r}"
    raise TypeError(msg)


def _classify(error: Exception) -> _Failure:
    found = list(leaves(error))
    if all(isinstance(leaf, TerminalError) for leaf in found):
        return _Failure(error, "terminal")
    if all(isinstance(leaf, ConflictError) for leaf in found):
        return _Failure(error, "conflict")
    return _Failure(error, "error")


def _on_purpose(error: BaseException) -> bool:
    """Return whether this is an external failure and not a programming error."""
    expected = (JobSetPyError, TimeoutError, asyncio.CancelledError)
    return all(isinstance(leaf, expected) for leaf in leaves(error))


def _rest_after(error: BaseException, seconds: float) -> float:
    """Return the minimum delay of a retry, in seconds; usually 0.

    It is the longest delay that a server asked for, or the duration of the reconcile if a request
    was not answered in time: the server may still process it, and a repetition doubles its work.

    Args:
        error: error of the reconcile.
        seconds: duration of the reconcile.
    """
    delays_s = [0.0]
    for leaf in leaves(error):
        if isinstance(leaf, RetryableApiError):
            delays_s.append(leaf.retry_after or 0.0)
        elif isinstance(leaf, ApiTimeoutError):
            delays_s.append(min(seconds, _LONGEST_PAUSE_S))
    return max(delays_s)
