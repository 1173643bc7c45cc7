"""The loop: a queue that watches fill, and workers that empty it through a reconciler.

``_settle`` is the one place where what came of a reconcile becomes a queue action, a metric and a
line in the log.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final, assert_never

import attrs

from jobsetpy.aio import Clock, LoopClock, supervise
from jobsetpy.api.reconcile import Request, Result
from jobsetpy.client import Writes, noted_writes
from jobsetpy.controller._event import Event
from jobsetpy.controller._hints import hint
from jobsetpy.controller._loops import TIMES, LoopDetector
from jobsetpy.controller._reconcile import Reconciler
from jobsetpy.controller._runnable import Runnable
from jobsetpy.controller._stepwise import Stepwise
from jobsetpy.controller._watch import Watch, WatchHandler
from jobsetpy.errors import (
    AlreadyStartedError,
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
"""Of a controller that does not say how many; ``python -m bench.library --workers`` measures it."""

_BLOCKED_S = 0.5
"""A reconcile that holds the event loop for longer is told of: watches and leases wait for it."""


_REST_FACTOR: Final = 20.0
"""A request rests for so many times the CPU time for which it held the loop: 5 % are left to it."""
_LONGEST_REST_S: Final = 300.0


@attrs.frozen
class _Succeeded:
    result: Result


@attrs.frozen
class _Failed:
    error: BaseException


@attrs.frozen
class _TimedOut:
    error: TimeoutError


@attrs.frozen
class _Conflicted:
    error: Exception


@attrs.frozen
class _Terminated:
    error: Exception


_Outcome = _Succeeded | _Failed | _TimedOut | _Conflicted | _Terminated


class Controller(Runnable):
    """Runs a reconciler for every key that its watches name.

    Guarantees: a change that was seen leads to a reconcile that starts after it. One key is never
    reconciled twice at the same time. Failures are retried, the later the more often they fail,
    and never keep other keys waiting. Workers start when all caches are complete and the requests
    of the first lists are queued, those with low priority. Not guaranteed: one reconcile for each
    event (they merge), nor any order between keys.

    What came of a reconcile decides what happens next:

    ====================  ==============================  ===========================
    outcome               queue                           log
    ====================  ==============================  ===========================
    ``Result.done``       forget failures                 debug; info if work was done
    ``requeue_after``     forget failures, add later      same
    ``ConflictError``     retry, rate limited             info
    other exception       retry, rate limited, at least   error; stack only if nobody
                          a server's Retry-After          raises it on purpose
    timeout               retry, rate limited             error
    ``TerminalError``     forget: wait for a change       warning
    cancelled             give back                       nothing
    ====================  ==============================  ===========================

    An exception group counts as what all its members are.

    A request whose reconcile held the event loop for more than half a second of CPU time rests for
    20 times as long (300 s at most) before it is reconciled again, whatever asks for it. So one
    object cannot keep the others, or the renewal of the Lease, waiting again and again.

    Args:
        name: label of metrics and logs; one word such as ``jobset``.
        reconciler: does the work.
        watches: where requests come from.
        workers: maximum concurrent reconciles.
        rate_limiter: delays of retries; 5 ms doubling to 1,000 s and a common bucket when absent.
        reconcile_timeout_s: a reconcile that takes longer is cancelled and counts as failed.
        grace_s: how long workers may finish what they are processing when the controller stops.
        clock: where time comes from.
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
            msg = f"controller {name!r} needs at least one worker, not {workers}"
            raise ValueError(msg)
        _check_reconciler(reconciler)
        self.name = name
        self.reconciler = reconciler
        self.watches: tuple[Watch[Any], ...] = _checked_watches(watches)
        self.workers = workers
        self._clock: Clock = clock or LoopClock()
        self.queue: WorkQueue[Request] = WorkQueue(
            rate_limiter=rate_limiter, clock=self._clock, observer=metrics.QueueMetrics(name)
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

    def __repr__(self) -> str:
        """Name and number of watches."""
        return f"<Controller {self.name!r} with {len(self.watches)} watches>"

    @property
    def waits_for(self) -> str:
        """What it waits for before its workers start."""
        return "" if self._awaited is None else self._awaited.waits_for

    def _add(self, request: Request, *, priority: int, delay_s: float = 0.0) -> None:
        if not self._held:
            if delay_s:
                self.queue.add_after(request, delay_s, priority=priority)
            else:
                self.queue.add(request, priority=priority)

    def _put_off(self, handler: WatchHandler[Any], event: Event[Any]) -> bool:
        """Keep an event until all informers have synced; whether there is something to wait for."""
        if self._early is None:
            return False
        self._early.append((handler, event))
        return True

    def _catch_up(self) -> None:
        """All informers have synced: handle the events that came too early for it, in order."""
        early, self._early = self._early or [], None
        for handler, event in early:
            handler.handle(event)

    def wire(self) -> None:
        """Register with the informers; ``running`` does it, and a second time does nothing.

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
        """Register with the informers before they run, to hear of their first lists page by page.

        Args:
            held: queue nothing until ``running`` is entered, as while another process leads.
                Nothing is missed: watches that begin late are told of all objects that are there.
        """
        self._held = held
        self.wire()

    def abandon(self) -> None:
        """Stop without grace when ``running`` is left, as after the loss of leadership."""
        self._grace_s = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Inside the block the workers work.

        Entering waits for the informers, which must be running. Leaving closes the queue, lets
        workers finish what they are processing for ``grace_s``, and then cancels them. What is
        queued is dropped: whoever leads next begins with a list of everything.

        Raises:
            AlreadyStartedError: it runs already, or did.
        """
        if self._started:
            msg = f"controller {self.name!r} was started already"
            raise AlreadyStartedError(msg)
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
            # Neither get() nor a reconcile that finds nothing to do waits for anything: without
            # this, a long queue of such keys would stop the event loop.
            await asyncio.sleep(0)

    def _rest_s(self, request: Request) -> float:
        """Return how long a request that held the loop has to rest, in seconds; 0 for most."""
        until = self._rests.get(request)
        if until is None:
            return 0.0
        rest_s = until - self._clock.monotonic()
        if rest_s <= 0:
            del self._rests[request]
        return max(0.0, rest_s)

    async def _process(self, request: Request) -> None:
        rest_s = self._rest_s(request)
        if rest_s > 0:
            self.queue.add_after(request, rest_s)
            return
        started = self._clock.monotonic()
        self._metrics.started()
        # Once for each reconcile: ids from the system's source of randomness, and the context
        # manager that does the same, cost several times as much.
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
            self._settle(request, outcome, seconds, writes)
            self._report_loop(request, outcome, writes)
        finally:
            structlog.contextvars.reset_contextvars(**bound)

    async def _attempt(self, request: Request) -> _Outcome:
        limit = asyncio.timeout(self._timeout_s)
        steps = Stepwise(self.reconciler.reconcile(request))
        try:
            async with limit:
                return _checked(await steps)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled this worker: something that the reconciler waited for was cancelled.
            # Passing that on would end the worker for good, without anybody noticing.
            return _Failed(error)
        except TimeoutError as error:
            return _TimedOut(error) if limit.expired() else _Failed(error)
        except Exception as error:  # noqa: BLE001 - one of the places that may: see _settle
            return _classify(error)
        finally:
            if steps.longest_s >= _BLOCKED_S:
                rest_s = 0.0
                if steps.longest_cpu_s >= _BLOCKED_S:
                    rest_s = min(_LONGEST_REST_S, steps.longest_cpu_s * _REST_FACTOR)
                    self._rests[request] = self._clock.monotonic() + rest_s
                self._metrics.blocked()
                self._log.warning(
                    "a reconcile blocked the event loop: what takes long needs an await, such as "
                    "asyncio.to_thread",
                    reconciler=_name_of(self.reconciler),
                    blocked_s=round(steps.longest_s, 3),
                    rests_s=round(rest_s, 3),
                )

    def _settle(self, request: Request, outcome: _Outcome, seconds: float, writes: Writes) -> None:
        """The table of the class docstring."""
        match outcome:
            case _Succeeded(Result(None, summary)):
                self.queue.forget(request)
                self._metrics.result("success")
                self._report(request, "done", summary or str(writes), seconds)
            case _Succeeded(Result(delay, summary)):
                assert delay is not None
                self.queue.forget(request)
                self.queue.add_after(request, delay.total_seconds())
                self._metrics.result("requeue_after")
                self._report(
                    request,
                    "requeue_after",
                    summary or str(writes),
                    seconds,
                    again_in_s=delay.total_seconds(),
                )
            case _Conflicted(error):
                self._metrics.conflict()
                self._metrics.result("requeue")
                self._retry(request, error, seconds, "conflict")
            case _TimedOut(error):
                self._metrics.timeout()
                self._metrics.result("error")
                self._retry(request, error, seconds, "timeout", timeout_s=self._timeout_s)
            case _Failed(error):
                if not _on_purpose(error):
                    self._metrics.panic()
                self._metrics.result("error")
                self._retry(request, error, seconds, "error")
            case _Terminated(error):
                self.queue.forget(request)
                self._metrics.terminal()
                self._metrics.result("error")
                self._log.warning(
                    "reconcile failed, waiting for the object to change",
                    outcome="terminal",
                    error=str(error),
                    **self._times(request, seconds),
                )
            case _:
                assert_never(outcome)

    def _report_loop(self, request: Request, outcome: _Outcome, writes: Writes) -> None:
        """Log a reconcile that causes itself."""
        delay = outcome.result.delay if isinstance(outcome, _Succeeded) else None
        again_now = delay is not None and delay.total_seconds() <= 0
        now = self._clock.monotonic()
        sentence = self._loops.note(request, now, wrote=writes.count > 0, again_now=again_now)
        if sentence:
            self._log.warning(sentence, times=TIMES, writes=str(writes))

    def _report(
        self, request: Request, outcome: str, summary: str, seconds: float, **more: Any
    ) -> None:
        """The one line of a reconcile that succeeded."""
        log = self._log.info if summary else self._log.debug
        log(
            "reconciled",
            outcome=outcome,
            summary=summary,
            **self._times(request, seconds),
            **more,
        )

    def _times(self, request: Request, seconds: float) -> dict[str, float]:
        """How long it took, and had waited for a worker."""
        taken = self.queue.processing(request)
        waited_s = 0.0 if taken is None else taken.waited_s
        return {"seconds": round(seconds, 4), "queued_s": round(waited_s, 4)}

    def _retry(
        self, request: Request, error: BaseException, seconds: float, outcome: str, **more: Any
    ) -> None:
        """Have it tried again, and say so: the one line of a reconcile that failed."""
        delay_s = self.queue.add_rate_limited(request, at_least_s=_retry_after(error))
        conflict = outcome == "conflict"
        log = self._log.info if conflict else self._log.error
        unexpected = outcome == "error" and not _on_purpose(error)
        log(
            "the object changed meanwhile, trying again" if conflict else "reconcile failed",
            outcome=outcome,
            error=str(error) or type(error).__name__,
            attempt=self.queue.num_requeues(request),
            retry_in_s=round(delay_s, 4),
            **self._times(request, seconds),
            **({"exc_info": error} if unexpected else {}),
            **({"advice": advice} if (advice := hint(error)) else {}),
            **more,
        )


def _check_reconciler(reconciler: object) -> None:
    """Say of what is often given instead of a reconciler what it is.

    Raises:
        TypeError: it has no ``async def reconcile``.
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
    """Refuse a function that would block the event loop.

    Raises:
        TypeError: it is no ``async def``; it is called ``where``.
    """
    function = inspect.unwrap(function)
    plain = inspect.ismethod(function) or inspect.isfunction(function)
    if plain and not inspect.iscoroutinefunction(function) and not _gives_awaitable(function):
        msg = (
            f"{where} has to be `async def`: it runs on the event loop, which nothing may block; "
            "what blocks goes into `await asyncio.to_thread(...)`"
        )
        raise TypeError(msg)


def _gives_awaitable(function: Callable[..., Any]) -> bool:
    """Whether a plain function says that it returns something to wait for."""
    returned = str(getattr(function, "__annotations__", {}).get("return", ""))
    return any(word in returned for word in ("Awaitable", "Coroutine", "Future", "Task"))


def _checked_watches(watches: Any) -> tuple[Watch[Any], ...]:
    if isinstance(watches, Watch):
        msg = "a controller needs a list of watches, not one Watch: watches=[Watch(...)]"
        raise TypeError(msg)
    made = tuple(watches)
    watch: object
    for watch in made:
        if not isinstance(watch, Watch):
            msg = f"a controller's watches are Watch(informer, handler), not {watch!r}"
            raise TypeError(msg)
    return made


def _checked(result: object) -> _Succeeded:
    """Types are not checked at run time, and a forgotten ``return`` is easily made."""
    if isinstance(result, Result):
        return _Succeeded(result)
    if inspect.iscoroutine(result):
        result.close()
        msg = f"a reconciler has to return a Result: `await` is missing in front of {result!r}"
    elif result is None:
        msg = "a reconciler has to return a Result, not None: end with `return Result.done()`"
    else:
        msg = f"a reconciler has to return a Result, not {result!r}"
    raise TypeError(msg)


def _classify(error: Exception) -> _Outcome:
    leaves = list(_leaves(error))
    if all(isinstance(leaf, TerminalError) for leaf in leaves):
        return _Terminated(error)
    if all(isinstance(leaf, ConflictError) for leaf in leaves):
        return _Conflicted(error)
    return _Failed(error)


def _on_purpose(error: BaseException) -> bool:
    """Whether this is a failure of the world outside, and not one of the program."""
    expected = (JobSetPyError, TimeoutError, asyncio.CancelledError)
    return all(isinstance(leaf, expected) for leaf in _leaves(error))


def _retry_after(error: BaseException) -> float:
    """The longest wait that a server asked for, in seconds; 0 when none did."""
    return max(
        leaf.retry_after or 0.0 if isinstance(leaf, RetryableApiError) else 0.0
        for leaf in _leaves(error)
    )


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group of groups; an exception that is no group stands for itself."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error
