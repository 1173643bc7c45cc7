"""Input and output of a reconcile: a request with a key, and a result."""

from __future__ import annotations

import math
from datetime import timedelta

import attrs

from jobsetpy.api.meta import ObjectKey


@attrs.frozen(order=True, cache_hash=True)
class Request:
    """Request to reconcile the object of a key.

    It contains no event, since many events may have been merged into one request, and only the
    state at the time of the reconcile matters.
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
    """Convert a delay to a timedelta; numbers are seconds.

    Raises:
        TypeError, ValueError: not a timedelta or number, or not finite.
    """
    if value is None or isinstance(value, timedelta):
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"a Result's delay is a timedelta or a number of seconds, not {value!r}")
    try:
        if math.isfinite(value):
            return timedelta(seconds=value)
    except OverflowError:
        pass
    msg = f"a Result's delay is a finite number of seconds, at most {timedelta.max}, not {value!r}"
    raise ValueError(msg)


@attrs.frozen
class Result:
    """Result of a successful reconcile; created by :meth:`done` or :meth:`requeue_after`.

    A failure is an exception, so that there is never a result *and* an error. There is no requeue
    without a delay: the next reconcile follows an event or a known time.

    Attributes:
        delay: delay of the next reconcile; ``None`` to wait for the next event.
        summary: actions of the reconcile, for the log; "" if there were none.
    """

    delay: timedelta | None = attrs.field(default=None, converter=_delay)
    summary: str = ""

    @classmethod
    def done(cls, *, summary: str = "") -> Result:
        """Return a result without a next reconcile until the next event.

        Args:
            summary: actions of the reconcile, in a few words; without actions it is empty and
                logged at debug level.
        """
        return cls(None, summary)

    @classmethod
    def requeue_after(cls, delay: timedelta | float, *, summary: str = "") -> Result:
        """Return a result with another reconcile after ``delay`` at the latest; 0 or less is now.

        A number means seconds.

        The queue keeps the earliest of several such times for a key, so an early call is normal:
        check the clock, do not count calls.

        Raises:
            TypeError: ``delay`` is neither a timedelta nor a number.
            ValueError: ``delay`` is not finite.
        """
        given: object = delay
        if given is None:
            msg = "requeue_after needs a timedelta or a number of seconds; use done() for none"
            raise TypeError(msg)
        return cls(delay, summary)
