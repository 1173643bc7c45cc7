"""A key in, a result out: what a reconcile is about, and what came of it."""

from __future__ import annotations

import math
from datetime import timedelta

import attrs

from jobsetpy.api.meta import ObjectKey


@attrs.frozen(order=True, cache_hash=True)
class Request:
    """What to reconcile: a key and nothing else.

    There is no event in it, since many events may have been merged into one request, and the state
    of the world at the time of the reconcile is all that counts.
    """

    key: ObjectKey

    @property
    def namespace(self) -> str:
        """Namespace of the object; "" if cluster-scoped."""
        return self.key.namespace

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.key.name

    def __str__(self) -> str:
        """``namespace/name`` for logs."""
        return str(self.key)


def _delay(value: object) -> timedelta | None:
    """A delay as a timedelta; numbers are seconds.

    Raises:
        TypeError, ValueError: it is neither, or no span of time.
    """
    if value is None or isinstance(value, timedelta):
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        msg = f"a Result's delay is a timedelta or a number of seconds, not {value!r}"
        raise TypeError(msg)
    try:
        if math.isfinite(value):
            return timedelta(seconds=value)
    except OverflowError:
        pass
    msg = f"a Result's delay is a finite number of seconds, at most {timedelta.max}, not {value!r}"
    raise ValueError(msg)


@attrs.frozen
class Result:
    """A reconcile that succeeded; made by :meth:`done` or :meth:`requeue_after`.

    A failure is an exception, so that there is never a result *and* an error. There is no bare
    "again": either something will change and cause an event, or there is a time to look again.

    Attributes:
        delay: when to look again; ``None`` for at the next event.
        summary: what was done, for the log; "" when nothing was.
    """

    delay: timedelta | None = attrs.field(default=None, converter=_delay)
    summary: str = ""

    @classmethod
    def done(cls, *, summary: str = "") -> Result:
        """All is as it should be until something changes.

        Args:
            summary: what was done, in a few words; a reconcile that did nothing leaves it empty
                and is logged at debug level.
        """
        return cls(None, summary)

    @classmethod
    def requeue_after(cls, delay: timedelta | float, *, summary: str = "") -> Result:
        """All is as it should be, but look again in ``delay`` at the latest; 0 or less is now.

        A number means seconds.

        The queue keeps the earliest of several such times for a key, so being called early is
        normal: ask the clock, not the number of calls.

        Raises:
            TypeError: ``delay`` is neither a timedelta nor a number.
            ValueError: it is no finite span of time.
        """
        given: object = delay
        if given is None:
            msg = "requeue_after needs a timedelta or a number of seconds; use done() for none"
            raise TypeError(msg)
        return cls(delay, summary)
