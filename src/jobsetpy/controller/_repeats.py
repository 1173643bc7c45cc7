"""Failures that repeat: one traceback for each cause, and no hot retry of a rejected write."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

import attrs

from jobsetpy.api.reconcile import Request
from jobsetpy.errors import InvalidError

TRACEBACK_S: Final = 600.0
"""Minimum time between two tracebacks of one cause, in seconds."""
REJECTED_S: Final = 10.0
"""Minimum delay, in seconds, of a retry after the server has rejected the same write twice."""
_CAUSES: Final = 100
_REQUESTS: Final = 10_000


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in nested groups; a plain exception yields itself."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from leaves(member)
    else:
        yield error


def _cause(error: BaseException) -> Hashable:
    """Return the classes of the exceptions, and the places that raised them."""
    found = []
    for leaf in leaves(error):
        trace = leaf.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = None if trace is None else (trace.tb_frame.f_code, trace.tb_lineno)
        found.append((type(leaf), place))
    return tuple(found)


@attrs.define
class Repeats:
    """Memory of the failures of one controller; bounded, O(1) for each failure."""

    _causes: dict[Hashable, tuple[int, float]] = attrs.field(factory=dict)
    _rejections: dict[Request, str] = attrs.field(factory=dict)

    def times(self, error: BaseException, now: float) -> int:
        """Return how often this cause has failed since its traceback was due; 1 if it is due now.

        Args:
            error: an unexpected exception of a reconcile, of any request.
            now: monotonic time in seconds.
        """
        cause = _cause(error)
        count, since = self._causes.get(cause, (0, now))
        if now - since >= TRACEBACK_S:
            count, since = 0, now
        if len(self._causes) >= _CAUSES and cause not in self._causes:
            self._causes.clear()
        self._causes[cause] = (count + 1, since)
        return count + 1

    def rest_s(self, request: Request, error: BaseException) -> float:
        """Return the minimum delay of a retry, in seconds: 0 unless it would be rejected again.

        The first rejection may come from a stale cache. The same one again depends on what is
        written, and hardly changes until the object does, which causes a reconcile anyway.
        """
        rejected = [str(leaf) for leaf in leaves(error) if isinstance(leaf, InvalidError)]
        last = self._rejections.pop(request, None)
        if not rejected:
            return 0.0
        text = "\n".join(sorted(rejected))
        if len(self._rejections) >= _REQUESTS:
            self._rejections.clear()
        self._rejections[request] = text
        return REJECTED_S if text == last else 0.0

    def forget(self, request: Request) -> None:
        """Forget the rejections of a request that has succeeded, or is not retried."""
        if self._rejections:
            self._rejections.pop(request, None)
