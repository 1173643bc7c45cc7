"""How long a coroutine holds the event loop at a time."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Stepwise(Generic[T]):
    """Awaits something and notes the longest time between two of its waits.

    In that time nothing else of the process runs, so it is measured by the wall clock: what sleeps
    without ``await`` is as bad as what computes. CPU time is measured as well: it is not longer on
    a busy machine.

    Args:
        awaitable: what is awaited.
    """

    __slots__ = ("_awaitable", "longest_cpu_s", "longest_s")

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._awaitable = awaitable
        self.longest_s = 0.0
        self.longest_cpu_s = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        """Step by step, each of them timed."""
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
