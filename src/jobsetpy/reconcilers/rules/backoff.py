"""Pace of restarts: pauses between those in quick succession, and budgets per window of time.

The first restart of a series is not delayed. One that follows a run shorter than ``reset_after_s``
belongs to the same series, and workers start again only after a pause, which is doubled each time.
A longer run ends the series. With a window, ``maxRestarts`` bounds the restarts within the window
instead of all restarts.

All inputs of the decision are in ``status.restartPacing``: a manager that takes over continues the
same wait. Wall clocks differ and are adjusted, so a wait is measured on the monotonic clock from a
manager's first observation, and never exceeds its pause (``reconcilers.rules.times``). Both
reconcilers that restart something maintain it: for restarts in place it is written with the epochs,
for recreations with the counted restart.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.annotations import read
from jobsetpy.api.durations import in_words
from jobsetpy.api.jobset import JobSet, JobSetStatus, RestartPacing
from jobsetpy.reconcilers.rules import restart_budget
from jobsetpy.reconcilers.rules.times import CLOCK_SKEW_S, Now, PinnedTime, pin

MAX_IN_WINDOW: Final = 100
"""Maximum of ``maxRestarts`` within a window: each restart that counts is remembered."""


@attrs.frozen(kw_only=True)
class RestartBackoff:
    """Back-off of restarts in quick succession.

    Args:
        first_s: pause in seconds before the second start of a series; 0 disables the back-off.
        recreation_first_s: the same for JobSets that do not restart in place; 0 as in the Go
            controller, which has no pauses.
        longest_s: maximum pause in seconds.
        reset_after_s: duration in seconds of a run that ends the series.
    """

    first_s: float = 1.0
    recreation_first_s: float = 0.0
    longest_s: float = 300.0
    reset_after_s: float = 300.0

    def pause_s(self, restarts: int) -> float:
        """Return the pause in seconds of a series' latest restart, given their number."""
        if restarts < 2:
            return 0.0
        return min(self.longest_s, self.first_s * 2.0 ** min(restarts - 2, 60))


OFF: Final = RestartBackoff(first_s=0.0)
NO_PACING: Final = RestartPacing()


@attrs.frozen
class Pace:
    """Back-off and window of one JobSet's restarts.

    Args:
        now: time on the wall clock; other managers read times derived from it.
        backoff: back-off of this JobSet.
        window_s: window of ``maxRestarts`` in seconds; 0 for none.
        pause: end of the stored pause on the monotonic clock, if there is one.
        pause_left_s: seconds until then.
        ran_s: seconds since the last start of workers, on the monotonic clock; ``None`` if this
            manager has not observed it.
    """

    now: datetime
    backoff: RestartBackoff = OFF
    window_s: float = 0.0
    pause: PinnedTime | None = None
    pause_left_s: float = 0.0
    ran_s: float | None = None

    @classmethod
    def of(cls, jobset: JobSet, now: datetime, defaults: RestartBackoff) -> Pace:
        """Return the pace by a JobSet's annotations; invalid ones count as unset."""
        notes = jobset.metadata.annotations
        if not jobset.spec.restarts_in_place:
            defaults = attrs.evolve(defaults, first_s=defaults.recreation_first_s)
        if not any(name in notes for name in keys.RESTART_PACE_ANNOTATIONS):
            return cls(now, defaults)
        given = {
            field: seconds
            for name, field in _BACKOFF_FIELDS.items()
            if (seconds := _read(name, notes.get(name, ""))) is not None
        }
        name = keys.MAX_RESTARTS_WINDOW_ANNOTATION
        window_s = _read(name, notes.get(name, "")) or 0.0
        return cls(now, attrs.evolve(defaults, **given), window_s)

    def paused(self, status: JobSetStatus, known: PinnedTime | None, now: Now) -> Pace:
        """Return the pace with the stored pause on the monotonic clock.

        Args:
            status: the stored status.
            known: ``pause`` at the plan before.
            now: time on both clocks.
        """
        pacing = status.restart_pacing
        if pacing is None or pacing.not_before is None:
            return self
        longest_s = self.backoff.pause_s(pacing.series)
        pause = pin(known, pacing.not_before, now, longest_s=longest_s)
        return attrs.evolve(self, pause=pause, pause_left_s=pause.left_s(now))

    # ---- back-off --------------------------------------------------------------------------------

    def begin(self, status: JobSetStatus) -> RestartPacing | None:
        """Return the pacing to store when a restart begins, ``None`` for no change.

        Args:
            status: status before the restart.
        """
        old = status.restart_pacing or NO_PACING
        if not self.backoff.first_s:
            pacing = RestartPacing(counted_times=old.counted_times)
            return None if status.restart_pacing is None else pacing
        goes_on = old.series > 0 and self._ran_s(old) < self.backoff.reset_after_s
        series = old.series + 1 if goes_on else 1
        pause_s = self.backoff.pause_s(series)
        return evolve(
            old,
            series=series,
            series_start_time=old.series_start_time if goes_on else self.now,
            not_before=self.now + timedelta(seconds=pause_s) if pause_s else None,
        )

    def _ran_s(self, old: RestartPacing) -> float:
        """Return the seconds that the workers have run; a run of unknown length ends the series."""
        if self.ran_s is not None:
            return self.ran_s
        if old.last_start_time is None:
            return self.backoff.reset_after_s
        ran_s = (self.now - old.last_start_time).total_seconds()
        return ran_s if ran_s >= -CLOCK_SKEW_S else self.backoff.reset_after_s

    def started(self, status: JobSetStatus, at: datetime | None = None) -> RestartPacing | None:
        """Return the pacing to store when workers start, now or ``at`` a time; or ``None``."""
        if not self.backoff.first_s:
            return status.restart_pacing
        old = status.restart_pacing or NO_PACING
        return evolve(old, last_start_time=at or self.now, not_before=None if at is None else at)

    def wait_s(self, pacing: RestartPacing | None) -> float:
        """Return the seconds for which workers must still wait; 0 if they may start."""
        if pacing is None or pacing.not_before is None or not self.backoff.first_s:
            return 0.0
        if self.pause is not None and self.pause.at == pacing.not_before:
            left_s = self.pause_left_s
        else:
            left_s = (pacing.not_before - self.now).total_seconds()
        # Shorter pauses may have been configured since.
        return max(0.0, min(left_s, self.backoff.pause_s(pacing.series)))

    def explain(self, pacing: RestartPacing | None) -> str:
        """Return a clause about a wait that begins now; "" if there is none."""
        wait_s = self.wait_s(pacing)
        if pacing is None or not wait_s:
            return ""
        before = pacing.series - 1
        restarts = f"{before} {'restart' if before == 1 else 'restarts'}"
        since = pacing.series_start_time or self.now
        passed_s = max(1.0, (self.now - since).total_seconds())
        return f"waits {in_words(wait_s)} before the next start: {restarts} in {in_words(passed_s)}"

    # ---- budgets per time ------------------------------------------------------------------------

    def used(self, status: JobSetStatus, spent: int) -> int:
        """Return how much of ``maxRestarts`` is used.

        Args:
            status: the stored status.
            spent: number of all restarts that have counted, including those that are not stored
                yet.
        """
        if not self.window_s:
            return spent
        times = (status.restart_pacing or NO_PACING).counted_times
        return max(0, len(self.recent(times)) + spent - recorded(status))

    def left(self, status: JobSetStatus, spent: int, allowed: int) -> int:
        """Return the number of restarts left in the budget; 0 or less if there are none.

        Args:
            status: the stored status.
            spent: number of all restarts that have counted, including those that are not stored
                yet.
            allowed: ``maxRestarts``.
        """
        return allowed - self.used(status, spent) if allowed > 0 else 0

    def remember(
        self, old: JobSetStatus, pacing: RestartPacing | None, counted: int, allowed: int
    ) -> RestartPacing | None:
        """Return ``pacing`` with the times of restarts that count since ``old``.

        Args:
            old: the stored status.
            pacing: the pacing about to be stored.
            counted: number of restarts that will then be recorded.
            allowed: ``maxRestarts``.
        """
        if not self.window_s:
            if pacing is not None and pacing.counted_times:
                return evolve(pacing, counted_times=())
            return pacing
        times = [*self.recent((pacing or NO_PACING).counted_times)]
        new = counted - recorded(old)
        if new < 0:  # it did not count after all, or merged with the recreation that followed
            times = times[:new]
        times += [self.now.replace(microsecond=0)] * min(new, MAX_IN_WINDOW + 1)
        kept = tuple(times[-min(allowed + 1, MAX_IN_WINDOW + 1) :])
        if pacing is None and not kept:
            return None
        return evolve(pacing or NO_PACING, counted_times=kept)

    def recent(self, times: tuple[datetime, ...]) -> tuple[datetime, ...]:
        """Return the times that are within the window; all if there is none."""
        return within(times, self.now, self.window_s) if self.window_s else times


UNPACED: Final = Pace(datetime.max.replace(tzinfo=UTC))
"""Pace without delays and without a window."""


def within(times: tuple[datetime, ...], now: datetime, window_s: float) -> tuple[datetime, ...]:
    """Return the times that are less than a number of seconds ago.

    A time in the future was written before the clock was set back. Its age is unknown, and it is
    omitted: counted until the clock reaches it, it could fail a JobSet long after its window.
    """
    return tuple(at for at in times if -CLOCK_SKEW_S <= (now - at).total_seconds() < window_s)


def recorded(status: JobSetStatus) -> int:
    """Return the number of stored restarts that count, including one in place that has begun."""
    record = status.in_place_restart
    return restart_budget.recreations(status) + (0 if record is None else record.restarts)


def restarts_in_place(status: JobSetStatus) -> bool:
    """Return True if a restart in place has begun and is not over."""
    return status.deprecated_epoch >= status.synced_epoch > 0


_BACKOFF_FIELDS: Final = {
    keys.RESTART_BACKOFF_ANNOTATION: "first_s",
    keys.RESTART_BACKOFF_MAX_ANNOTATION: "longest_s",
    keys.RESTART_BACKOFF_RESET_ANNOTATION: "reset_after_s",
}


@lru_cache(maxsize=256)
def _read(name: str, value: str) -> float | None:
    seconds: float | None = read(name, {name: value})
    return seconds
