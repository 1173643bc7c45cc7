"""Observations of an attempt: events that its pods' current state does not show."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import attrs

from jobsetpy.api.child_pod import ChildPod, ContainerRestarts
from jobsetpy.api.jobset import JobSetStatus
from jobsetpy.reconcilers.restart_in_place.barrier import NO_RECORD
from jobsetpy.reconcilers.restart_in_place.failures import Failure, SyncedMark
from jobsetpy.reconcilers.restart_in_place.observed import Crash, InvalidEpoch, Observations
from jobsetpy.reconcilers.restart_in_place.pod_counts import Counts
from jobsetpy.reconcilers.restart_in_place.reports import (
    FirstProgress,
    ReportedEnd,
    epoch_of,
    parse_cause,
    parse_first,
    parse_progress,
)
from jobsetpy.reconcilers.rules.backoff import MAX_IN_WINDOW, within

MAX_FAILURES: Final = 16
"""Maximum number of undecided failures kept per attempt; one that counts is enough."""


@attrs.define(eq=False)
class AttemptNotes(Counts):
    """Counts of an attempt, with observations for the next plan.

    Attributes:
        crashed: number of crashes by pod and container.
        crashed_at: their times, if there is a window.
    """

    noted: bool = False
    mark: SyncedMark = attrs.field(factory=SyncedMark)
    deprecated: int = 0
    excused: int = 0
    crashed: dict[tuple[str, str], int] = attrs.field(factory=dict)
    crashed_at: dict[tuple[str, str], tuple[datetime, ...]] = attrs.field(factory=dict)
    window_s: float = 0.0
    crashes: dict[tuple[str, str], Crash] = attrs.field(factory=dict)
    failures: list[Failure] = attrs.field(factory=list)
    remade: str = ""
    invalid_seen: int = 0
    opened: tuple[int, float] = (0, 0.0)
    single: tuple[int, float] = (0, 0.0)
    opener: tuple[int, str, str] = (0, "", "")
    latest: tuple[int, str, str] = (0, "", "")
    reported: ReportedEnd | None = None
    from_start: tuple[int, FirstProgress] | None = None

    def notes(self) -> Observations:
        """Return the current observations."""
        return Observations(
            tuple(self.failures),
            self.remade,
            self.invalid_seen,
            self.opened,
            self.single,
            self.opener,
            self.latest,
            self.reported,
            self.from_start,
        )

    def forget(self, notes: Observations) -> None:
        """Drop processed observations, except those newer than the synced epoch."""
        if notes.failures:
            newest = self.mark.epoch
            self.failures = [
                one for one in self.failures if one.epoch > newest or one not in notes.failures
            ]
        if self.remade == notes.remade:
            self.remade = ""

    def note(self, invalid: Mapping[str, InvalidEpoch], sign: int) -> None:
        """Count those that appear."""
        super().note(invalid, sign)
        if sign > 0:
            self.invalid_seen += len(invalid)

    def note_failure(self, failure: Failure) -> None:
        """Keep a failure, unless there are enough, or failures of a newer epoch."""
        known = self.failures
        if known and known[0].epoch != failure.epoch:
            if failure.epoch < known[0].epoch:
                return
            known.clear()
        if len(known) < MAX_FAILURES:
            known.append(failure)

    def note_status(self, status: JobSetStatus, version: int, now: float, window_s: float) -> None:
        """Process the JobSet's epochs; the count of crashes is reset when they change."""
        self.window_s = window_s
        synced, deprecated = status.synced_epoch, status.deprecated_epoch
        if self.noted and (synced, deprecated) == (self.mark.epoch, self.deprecated):
            return
        record = status.in_place_restart or NO_RECORD
        if self.noted or synced:
            self.crashed.clear()
            self.crashed_at.clear()
            self.crashes.clear()
        if record.crashes:
            key = record.crashing_pod, record.crashing_container
            self.crashed[key] = record.crashes
            self.crashed_at[key] = record.crash_times
        self.excused = record.container_restarts + 1 if deprecated >= synced > 0 else 0
        if not self.noted or synced != self.mark.epoch:
            self.mark = SyncedMark(synced, version, now)
        self.deprecated, self.noted = deprecated, True

    def note_crash(
        self, replicated_job: str, pod: str, one: ContainerRestarts, wall: datetime | None
    ) -> None:
        """Record that a container has failed and was restarted; ignored while workers run.

        The first time after a restart has begun may belong to that restart. It does unless the
        container exceeds the highest restart count of that moment.
        """
        if self.epochs and self.deprecated < self.mark.epoch:
            return
        key = (pod, one.name)
        if key not in self.crashed and one.times <= self.excused:
            self.crashed[key] = 0
            return
        times = self.crashed[key] = self.crashed.get(key, 0) + 1
        worst = self.crashes.get((replicated_job, one.name))
        known = 0 if worst is None else worst.times
        at: tuple[datetime, ...] = ()
        if self.window_s and wall is not None:
            recent = within(self.crashed_at.get(key, ()), wall, self.window_s)
            at = self.crashed_at[key] = (
                *recent[-MAX_IN_WINDOW:],
                wall.replace(microsecond=0),  # as it is stored
            )
            times = len(at)
            if worst is not None:
                same = (worst.pod, worst.container) == key
                known = 0 if same else len(within(worst.at, wall, self.window_s))
        if times > known:
            self.crashes[replicated_job, one.name] = Crash(times, pod, one.name, at)

    def note_epochs(self, now: float, pod: ChildPod | None = None) -> None:
        """Record new epochs, and the pod that has arrived last, after a change of a pod."""
        epochs = self.epochs
        if not epochs:
            return
        newest = max(epochs)
        if pod is not None and epoch_of(pod) == newest:
            self.latest = (newest, pod.metadata.name, pod.spec.node_name)
            self._note_end(newest, pod)
        if newest > self.opened[0]:
            self.opened = (newest, now)
            self.opener = self.latest if self.latest[0] == newest else (newest, "", "")
        if len(epochs) == 1 and newest != self.single[0]:
            self.single = (newest, now)

    def _note_end(self, newest: int, pod: ChildPod) -> None:
        """Record the first worker that fails: others fail because of it."""
        known, annotations = self.reported, pod.metadata.annotations
        first = parse_first(annotations.first_progress)
        if first is not None:
            if self.from_start is not None and self.from_start[0] == newest:
                other = self.from_start[1]
                step, seconds = min(first.step, other.step), max(first.seconds, other.seconds)
                first = FirstProgress(step, seconds)
            self.from_start = (newest, first)
        if known is not None and known.epoch >= newest:
            return
        end = parse_cause(annotations.restart_cause)
        if end is not None:
            last = parse_progress(annotations.progress)
            where = (pod.metadata.name, pod.spec.node_name)
            self.reported = ReportedEnd(newest, *where, end, -1 if last is None else last)
