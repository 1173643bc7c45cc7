"""Drafts of the JobSet's status, and its JSON patches.

A draft collects the changes of one reconcile. The patch has only the differences from the stored
status, so that fields of other writers are never changed and an unchanged status costs no write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from types import NoneType
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api._wire import camel_case, evolve, wire_name
from jobsetpy.api.jobset import (
    InPlaceRestartStatus,
    JobSet,
    JobSetStatus,
    ReplicatedJobStatus,
    RestartPacing,
    RestartRecord,
)
from jobsetpy.api.meta import Condition
from jobsetpy.api.timestamps import millis_text, seconds_text
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import history
from jobsetpy.reconcilers.rules.plan import EmitEvent, StatusChange
from jobsetpy.reconcilers.rules.times import Now


class StatusDraft:
    """Draft of a status: set conditions and fields, then get the ``change``."""

    __slots__ = ("_decisions", "_events", "_restarted", "now", "old", "status")

    def __init__(self, old: JobSetStatus, now: datetime) -> None:
        self.old = old
        self.now = now
        self._events: list[EmitEvent] = []
        self._decisions: list[str] = []
        self._restarted: Counter[str] = Counter()
        self.status = old

    def set(self, wanted: cond.DesiredCondition, *, announce: bool = True) -> bool:
        """Apply the update rule of conditions; return True if that changed anything.

        Args:
            wanted: the desired condition.
            announce: True to record an event for a change.
        """
        conditions = cond.updated(self.status.conditions, wanted, self.now)
        if conditions is None:
            return False
        self.status = evolve(self.status, conditions=conditions)
        if announce:
            self._events.append(EmitEvent(wanted.event_type, wanted.reason, wanted.message))
        return True

    def event(self, type_: str, reason: str, message: str, job: str = "") -> None:
        """Add an event besides those of conditions, recorded once the draft is stored."""
        self._events.append(EmitEvent(type_, reason, message, job))

    def add_events(self, *events: EmitEvent) -> None:
        """Add events, recorded once the draft is stored."""
        self._events += events

    def decided(self, decision: str, times: int = 1) -> None:
        """Add a decision of the failure policy, counted once the draft is stored."""
        self._decisions += [decision] * times

    def evolve(self, **changes: Any) -> None:
        """Replace top-level status fields; the status stays the same object if none differs."""
        if any(getattr(self.status, name) != value for name, value in changes.items()):
            self.status = evolve(self.status, **changes)

    def count_replicated_jobs(self, statuses: tuple[ReplicatedJobStatus, ...]) -> None:
        """Set new counters; another order alone is not a change."""
        old = self.status.replicated_jobs_status
        if {item.name: item for item in old} != {item.name: item for item in statuses}:
            self.status = evolve(self.status, replicated_jobs_status=statuses)

    def restart_all(self, *, counts_towards_max: bool) -> None:
        """Count a restart of all Jobs; the next plan of its Jobs begins a run."""
        self._restarted[history.RECREATE] = 1
        self.evolve(
            start_time=None,
            restarts=self.status.restarts + 1,
            restarts_count_towards_max=self.status.restarts_count_towards_max + counts_towards_max,
        )

    def restart_parts(
        self, statuses: tuple[ReplicatedJobStatus, ...], restarted: Mapping[str, int]
    ) -> None:
        """Set counters that include new restarts of Jobs and ReplicatedJobs, by kind."""
        self._restarted.update(restarted)
        self.evolve(replicated_jobs_status=statuses)

    def record(self, restart: RestartRecord) -> None:
        """Add a restart to the history."""
        self.evolve(restart_history=history.with_begun(self.status.restart_history, restart))

    def end_restart(self, outcome: str = history.COMPLETED, **details: Any) -> None:
        """End the latest restart in the history, unless it has ended."""
        known = self.status.restart_history
        self.evolve(restart_history=history.with_ended(known, self.now, outcome, **details))

    def fail(self, reason: str, message: str) -> None:
        """End the JobSet as failed."""
        self.end_restart(history.INTERRUPTED)
        self.set(cond.failed(reason, message))
        self.set(cond.RESTART_ENDED_FAILED)
        self.evolve(terminal_state=keys.TERMINAL_FAILED)

    def complete(self) -> None:
        """End the JobSet as completed."""
        self.end_restart(history.INTERRUPTED)
        self.set(cond.COMPLETED)
        self.set(cond.RESTART_ENDED_COMPLETED)
        self.evolve(terminal_state=keys.TERMINAL_COMPLETED)

    def change(self) -> StatusChange:
        """Return the current draft as a change; later modifications do not affect it."""
        was_finished = cond.finished(self.old.conditions)
        end = cond.finished(self.status.conditions) if was_finished is None else None
        return StatusChange(
            status=self.status,
            patch=status_patch(self.old, self.status),
            events=tuple(self._events),
            finished=end.type if end is not None else "",
            decisions=tuple(self._decisions),
            restarted=+self._restarted,
            restarts_over=history.over(
                self.old.restart_history, self.status.restart_history, self.now
            ),
        )


def condition_change(
    jobset: JobSet, now: Now, *wanted: cond.DesiredCondition, announce: bool = True
) -> StatusChange:
    """Return the change that sets conditions; without a patch if they are set already."""
    draft = StatusDraft(jobset.status, now.wall)
    for each in wanted:
        draft.set(each, announce=announce)
    return draft.change()


_PLAIN_FIELDS: Final = (
    *("restarts_count_towards_max", "terminal_state", "synced_epoch", "deprecated_epoch"),
    *("current_in_place_restart_attempt", "previous_in_place_restart_attempt"),
    *("start_time", "execution_attempts"),
)

_SELDOM: Final = frozenset(
    {
        *("highestStep", "restartsWithoutProgress", "podsDigest", "servedRequest"),
        *("readySpares", "takenSeats", "takenJobs", "jobSizes", "resizeTime", "growths"),
    }
)
"""Fields of ``inPlaceRestart`` that are written only when they change."""


def status_patch(old: JobSetStatus, new: JobSetStatus) -> dict[str, Any]:
    """Return the JSON of differing status fields, for a merge patch; {} if none differs.

    Lists are replaced as a whole, so the patch must carry the resourceVersion it is based on.
    """
    if new is old:  # nothing was set: no field has to be compared
        return {}
    patch: dict[str, Any] = {}
    if new.conditions != old.conditions:
        patch["conditions"] = [condition_json(item) for item in new.conditions]
    if new.replicated_jobs_status != old.replicated_jobs_status:
        patch["replicatedJobsStatus"] = [
            {name: each for name, each in whole_json(status).items() if each != []}
            for status in new.replicated_jobs_status
        ]
    if patch or _ends_and_restarts(new) != _ends_and_restarts(old):
        # kubectl shows it even if it is 0, so it is stored with the first write.
        patch["restarts"] = new.restarts
    for name in _PLAIN_FIELDS:
        if (value := getattr(new, name)) != getattr(old, name):
            patch[camel_case(name)] = whole_json(value)
    if new.in_place_restart != old.in_place_restart and new.in_place_restart is not None:
        patch["inPlaceRestart"] = _in_place_restart_json(old.in_place_restart, new.in_place_restart)
    if new.restart_history != old.restart_history:
        patch["restartHistory"] = [history.record_json(item) for item in new.restart_history]
    if new.restart_pacing != old.restart_pacing and new.restart_pacing is not None:
        patch["restartPacing"] = _restart_pacing_json(new.restart_pacing)
    if patch and new.ready_pods != old.ready_pods:
        # It is stored with other changes: otherwise each new pod would cost a write.
        patch["readyPods"] = new.ready_pods
    return patch


def _ends_and_restarts(status: JobSetStatus) -> tuple[object, ...]:
    return status.restarts, status.restarts_count_towards_max, status.terminal_state


_PLAIN: Final = (str, int, NoneType)


def condition_json(condition: Condition) -> dict[str, Any]:
    """Return a condition as JSON, with the fields that its schema requires even if empty."""
    return {name: each for name, each in whole_json(condition).items() if each not in (None, 0)}


def _in_place_restart_json(
    old: InPlaceRestartStatus | None, record: InPlaceRestartStatus
) -> dict[str, Any]:
    """Return the fields of the record, without rarely used ones that have not changed."""
    before, after = whole_json(old or InPlaceRestartStatus()), whole_json(record)
    return {
        name: each for name, each in after.items() if name not in _SELDOM or each != before[name]
    }


def _restart_pacing_json(pacing: RestartPacing) -> dict[str, Any]:
    """Return all fields. Pauses are short, so their times have milliseconds."""
    counted = [seconds_text(at) for at in pacing.counted_times]
    return {**whole_json(pacing, millis_text), "countedTimes": counted}


def whole_json(value: Any, time_text: Callable[[datetime], str] = seconds_text) -> Any:
    """Return a value as JSON; of a wire object all fields.

    So a merge patch leaves nothing of the object before.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, tuple):
        plain = isinstance(next(iter(value), None), _PLAIN)  # as the thousands of restart counts
        return list(value) if plain else [whole_json(each, time_text) for each in value]
    kind: Any = type(value)  # mypy takes no type for hashable
    return {wire: whole_json(getattr(value, name), time_text) for name, wire in _fields(kind)}


@cache
def _fields(kind: type[Any]) -> tuple[tuple[str, str], ...]:
    """Return the names of a wire class's fields, each with its name in JSON."""
    return tuple((each.name, wire_name(each)) for each in attrs.fields(kind))
