"""Measurement of how long a coroutine holds the event loop."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Stepwise(Generic[T]):
    """Awaits something and records the longest time between two suspensions.

    During that time nothing else in the process runs, so it is wall-clock time: a sleep without
    ``await`` is as harmful as a computation. CPU time is recorded as well: it does not grow on a
    busy machine.

    Args:
        awaitable: the awaitable to measure.
    """

    __slots__ = ("_awaitable", "longest_cpu_s", "longest_s")

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._awaitable = awaitable
        self.longest_s = 0.0
        self.longest_cpu_s = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        """Run step by step, timing each step."""
        steps: Any = self._awaitable.__await__()
        step: Callable[[], Any] = functools.partial(next, steps)
        while True:
            began, began_cpu = time.perf_counter(), time.thread_time()
            try:
                waits_for = step()
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.longest_s = max(self.longest_s, time.perf_counter() - began)
                self.longest_cpu_s = max(self.longest_cpu_s, time.thread_time() - began_cpu)
            try:
                sent = yield waits_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001 - passed on, such as a cancellation
                step = functools.partial(steps.throw, error)
            else:
                step = functools.partial(steps.send, sent)
