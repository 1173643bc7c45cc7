"""When the garbage collector walks all objects: while the process has little to do.

What a manager drops is freed at once, by its reference counts; the collector is there for cycles.
It looks at young objects often, for less than a millisecond. Its full passes walk every object,
and nothing else runs meanwhile: 0.1 s and more where a cache holds the pods of thousands of nodes.
By the interpreter's rule they come when much is new, which is just when there is much to do. So:

* What is there when the caches are filled is frozen: modules and first lists are never walked.
* Full passes are run here and nowhere else: when memory has grown by a tenth and the process
  idles, or when it has doubled, whatever there is to do. So old cycles never take more memory than
  all that is in use.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Never, Protocol

import attrs

LOOK_S: Final = 5.0
"""How often it is looked whether a full pass is due."""
IDLE: Final = 0.05
"""A process that used less of one core than this, since the last look, idles."""
GROWN: Final = 1.1
"""After such growth a full pass is due while the process idles."""
DOUBLED: Final = 2.0
"""After such growth it is due at once."""

_NEVER: Final = 2**31 - 1


@contextmanager
def young_only() -> Iterator[None]:
    """Freeze what is there, and have the interpreter run no full pass within the block."""
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
        blocks: how many blocks of memory Python uses now.
        cpu: CPU seconds of the process so far.
    """

    blocks: Callable[[], int] = sys.getallocatedblocks
    cpu: Callable[[], float] = time.process_time
    _before: int = attrs.field(init=False)
    _used: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Growth counts from here."""
        self.done()

    def due(self, passed_s: float) -> bool:
        """Return True if a collection is due.

        Args:
            passed_s: since the last call.
        """
        now = self.cpu()
        idles = now - self._used < IDLE * passed_s
        self._used = now
        growth = self.blocks() / self._before
        return growth > DOUBLED or (idles and growth > GROWN)

    def done(self) -> None:
        """One was run."""
        self._before, self._used = max(1, self.blocks()), self.cpu()


class Filling(Protocol):
    """Caches that are filled while the process works."""

    @property
    def filling(self) -> bool:
        """True while collections continue."""

    @property
    def filled(self) -> asyncio.Event:
        """Set when it is over."""


async def collect_garbage(
    ready: asyncio.Event,
    full_passes: Callable[[], FullPasses] = FullPasses,
    more: Filling | None = None,
) -> Never:
    """Run full passes when they are due, until cancelled.

    Args:
        ready: set when what lives as long as the process is there.
        full_passes: made then.
        more: what comes later, and lives as long; it is frozen when it is there.
    """
    with young_only():
        await ready.wait()
        gc.freeze()  # without a pass: it would walk all caches, and hold up whoever waits
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
