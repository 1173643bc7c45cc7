"""Measurement of how long a coroutine holds the event loop."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
_FULL: Final = 2
"""Generation of a full garbage collection, the only one that takes long."""


class _Spent:
    """Wall-clock and CPU time of the running thread, without that of full garbage collections.

    A full collection visits all objects of the process. The coroutine that it interrupts did not
    cause it: any allocation may start it.
    """

    def __init__(self) -> None:
        self._collected = self._began = (0.0, 0.0)
        gc.callbacks.append(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] == _FULL:
            now = (time.perf_counter(), time.thread_time())
            if phase == "start":
                self._began = now
            else:
                self._collected = (
                    self._collected[0] + now[0] - self._began[0],
                    self._collected[1] + now[1] - self._began[1],
                )

    def __call__(self) -> tuple[float, float]:
        """Return both times, in seconds."""
        wall_s, cpu_s = self._collected
        return time.perf_counter() - wall_s, time.thread_time() - cpu_s


_spent: Final = _Spent()


class Stepwise(Generic[T]):
    """Awaits something and records the longest time between two suspensions.

    During that time nothing else in the process runs, so it is wall-clock time: a sleep without
    ``await`` is as harmful as a computation. CPU time is recorded as well: it does not grow on a
    busy machine. Full garbage collections count in neither.

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
            began, began_cpu = _spent()
            try:
                waits_for = step()
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                ended, ended_cpu = _spent()
                self.longest_s = max(self.longest_s, ended - began)
                self.longest_cpu_s = max(self.longest_cpu_s, ended_cpu - began_cpu)
            try:
                sent = yield waits_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001 - passed on, such as a cancellation
                step = functools.partial(steps.throw, error)
            else:
                step = functools.partial(steps.send, sent)
