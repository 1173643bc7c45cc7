"""Detection of reconciles that trigger themselves, a mistake that mostly loads the API server."""

from __future__ import annotations

from typing import Final

import attrs

from jobsetpy.api.reconcile import Request

TIMES: Final = 100
"""Number of consecutive reconciles of a key that trigger themselves before it is reported."""

WITHIN_S: Final = 0.5
"""Maximum time between two of them, in seconds."""

_KEYS: Final = 10_000

_WRITES: Final = (
    "each reconcile of this object writes, and its write causes the next one: write only what "
    "differs, and nothing that differs each time, such as the time"
)
_NOW: Final = (
    "each reconcile of this object asks for another one without delay: return Result.done(), or "
    "Result.requeue_after(...) with a delay"
)


@attrs.define
class LoopDetector:
    """Counts, for each key, consecutive reconciles that wrote or asked for no delay."""

    _rows: dict[Request, tuple[int, float]] = attrs.field(factory=dict)

    def note(self, request: Request, now: float, *, wrote: bool, again_now: bool) -> str:
        """Count a reconcile.

        Args:
            request: its key.
            now: time at which it ended, monotonic seconds.
            wrote: it changed something in the cluster.
            again_now: it asked for another one without delay.

        Returns:
            A sentence for the log, once per series of reconciles; otherwise "".
        """
        if not wrote and not again_now:
            self._rows.pop(request, None)
            return ""
        count, last = self._rows.get(request, (0, now))
        count = count + 1 if now - last <= WITHIN_S else 1
        if len(self._rows) >= _KEYS:
            self._rows.clear()
        self._rows[request] = (count, now)
        if count != TIMES:
            return ""
        return _NOW if again_now else _WRITES
