"""Schedule of full garbage collections: while the process is idle.

Python frees most objects immediately, by their reference counts; the collector frees cycles. Its
frequent passes over young objects take less than a millisecond. A full pass visits every object and
blocks the process meanwhile, for 0.1 s and more if a cache holds the pods of thousands of nodes. By
the interpreter's rule, full passes follow many new objects, that is, run under load. Therefore:

* All objects that exist when the caches are filled are frozen: modules and first lists are never
  visited.
* Full passes run only here: when memory has grown by a tenth and the process is idle, or when it
  has doubled, under any load. Garbage in old cycles therefore never exceeds the memory in use.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Never

import attrs

if TYPE_CHECKING:
    from jobsetpy.manager import Manager

LOOK_S: Final = 5.0
"""Interval between checks whether a full pass is due, in seconds."""
IDLE: Final = 0.05
"""Share of one core below which a process counts as idle between two checks."""
GROWN: Final = 1.1
"""Growth of memory after which a full pass is due in an idle process."""
DOUBLED: Final = 2.0
"""Growth of memory after which a full pass is due immediately."""

_NEVER: Final = 2**31 - 1


@contextmanager
def young_only() -> Iterator[None]:
    """Freeze all present objects, and keep the interpreter from full passes within the block."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(before[0], before[1], _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@attrs.define
class FullPasses:
    """Decides when a full pass is due.

    Args:
        blocks: returns the number of memory blocks that Python uses now.
        cpu: returns the CPU time of the process in seconds.
    """

    blocks: Callable[[], int] = sys.getallocatedblocks
    cpu: Callable[[], float] = time.process_time
    _before: int = attrs.field(init=False)
    _used: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Start to measure growth."""
        self.done()

    def due(self, passed_s: float) -> bool:
        """Return True if a collection is due.

        Args:
            passed_s: seconds since the last call.
        """
        now = self.cpu()
        idles = now - self._used < IDLE * passed_s
        self._used = now
        growth = self.blocks() / self._before
        return growth > DOUBLED or (idles and growth > GROWN)

    def done(self) -> None:
        """Record that a full pass was run."""
        self._before, self._used = max(1, self.blocks()), self.cpu()


async def collect_garbage(
    ready: asyncio.Event,
    full_passes: Callable[[], FullPasses] = FullPasses,
    more: Manager | None = None,
) -> Never:
    """Run full passes when they are due, until cancelled.

    Args:
        ready: set when the objects that live as long as the process exist.
        full_passes: creates the schedule at that moment.
        more: manager with caches that are filled later; their objects are frozen then.
    """
    with young_only():
        await ready.wait()
        gc.freeze()  # without a pass, which would visit all caches and delay the start
        passes = full_passes()
        while True:
            await asyncio.sleep(LOOK_S)
            if more is not None and more.filled.is_set():
                more = None
                gc.freeze()
                passes.done()
            elif (more is None or not more.filling) and passes.due(LOOK_S):
                gc.collect()
                passes.done()
