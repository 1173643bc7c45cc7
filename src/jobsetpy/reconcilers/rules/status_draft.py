"""Drafts of the JobSet's status, and its JSON patches.

A draft collects the changes of one reconcile. The patch has only the differences from the stored
status, so that fields of other writers are never changed and an unchanged status costs no write.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import (
    InPlaceRestartStatus,
    JobSet,
    JobSetStatus,
    ReplicatedJobStatus,
    RestartPacing,
    RestartRecord,
    TakenJob,
    TakenSeat,
)
from jobsetpy.api.meta import Condition
from jobsetpy.api.timestamps import millis_text, seconds_text
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import history
from jobsetpy.reconcilers.rules.plan import EmitEvent, StatusChange
from jobsetpy.reconcilers.rules.times import Now


class StatusDraft:
    """Draft of a status: set conditions and fields, then get the ``change``."""

    __slots__ = ("_decisions", "_events", "_parts", "_restarted", "now", "old", "status")

    def __init__(self, old: JobSetStatus, now: datetime) -> None:
        self.old = old
        self.now = now
        self._events: list[EmitEvent] = []
        self._decisions: list[str] = []
        self._restarted = 0
        self._parts = {True: 0, False: 0}
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

    def tell(self, *events: EmitEvent) -> None:
        """Add events, recorded once the draft is stored."""
        self._events += events

    def decided(self, decision: str, times: int = 1) -> None:
        """Add a decision of the failure policy, counted once the draft is stored."""
        self._decisions += [decision] * times

    def evolve(self, **changes: Any) -> None:
        """Replace top-level status fields."""
        self.status = evolve(self.status, **changes)

    def count_replicated_jobs(self, statuses: tuple[ReplicatedJobStatus, ...]) -> None:
        """Set new counters; another order alone is not a change."""
        old = self.status.replicated_jobs_status
        if {item.name: item for item in old} != {item.name: item for item in statuses}:
            self.status = evolve(self.status, replicated_jobs_status=statuses)

    def count_pods(self, ready: str) -> None:
        """Set the number of ready pods, stored with the next other change.

        Args:
            ready: value of ``status.readyPods``.
        """
        if ready != self.status.ready_pods:
            self.evolve(ready_pods=ready)

    def restart_all(self, *, counts_towards_max: bool) -> None:
        """Count a restart of all Jobs."""
        self._restarted = 1
        self.evolve(
            restarts=self.status.restarts + 1,
            restarts_count_towards_max=self.status.restarts_count_towards_max + counts_towards_max,
        )

    def restart_parts(
        self, statuses: tuple[ReplicatedJobStatus, ...], *, jobs: int, replicated_jobs: int
    ) -> None:
        """Set counters that include new restarts of Jobs and ReplicatedJobs."""
        self._parts[False] += jobs
        self._parts[True] += replicated_jobs
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
            restarted=self._restarted,
            jobs_restarted=self._parts[False],
            replicated_jobs_restarted=self._parts[True],
            restarts_over=history.over(
                self.old.restart_history, self.status.restart_history, self.now
            ),
        )


def condition_change(jobset: JobSet, wanted: cond.DesiredCondition, now: Now) -> StatusChange:
    """Return the change that sets one condition; without a patch if it is set already."""
    draft = StatusDraft(jobset.status, now.wall)
    draft.set(wanted)
    return draft.change()


_PLAIN_FIELDS: Final = {
    "restarts_count_towards_max": "restartsCountTowardsMax",
    "terminal_state": "terminalState",
    "synced_epoch": "syncedEpoch",
    "deprecated_epoch": "deprecatedEpoch",
    "current_in_place_restart_attempt": "currentInPlaceRestartAttempt",
    "previous_in_place_restart_attempt": "previousInPlaceRestartAttempt",
}


def status_patch(old: JobSetStatus, new: JobSetStatus) -> dict[str, Any]:
    """Return the JSON of differing status fields, for a merge patch; {} if none differs.

    Lists are replaced as a whole, so the patch must carry the resourceVersion it is based on.
    """
    patch: dict[str, Any] = {}
    if new.conditions != old.conditions:
        patch["conditions"] = [condition_json(item) for item in new.conditions]
    if new.replicated_jobs_status != old.replicated_jobs_status:
        patch["replicatedJobsStatus"] = [_counters_json(i) for i in new.replicated_jobs_status]
    if patch or _ends_and_restarts(new) != _ends_and_restarts(old):
        # kubectl shows it even if it is 0, so it is stored with the first write.
        patch["restarts"] = new.restarts
    for field, name in _PLAIN_FIELDS.items():
        if (value := getattr(new, field)) != getattr(old, field):
            patch[name] = value
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


def condition_json(condition: Condition) -> dict[str, Any]:
    """Return a condition as JSON, with the fields that its schema requires even if empty."""
    out: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    if condition.last_transition_time is not None:
        out["lastTransitionTime"] = seconds_text(condition.last_transition_time)
    if condition.observed_generation:
        out["observedGeneration"] = condition.observed_generation
    return out


def _counters_json(status: ReplicatedJobStatus) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": status.name,
        "ready": status.ready,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "active": status.active,
        "suspended": status.suspended,
    }
    if status.job_restarts:
        out["jobRestarts"] = list(status.job_restarts)
    if status.job_restarts_count_towards_max:
        out["jobRestartsCountTowardsMax"] = list(status.job_restarts_count_towards_max)
    return out


def _in_place_restart_json(
    old: InPlaceRestartStatus | None, record: InPlaceRestartStatus
) -> dict[str, Any]:
    """Return all fields, so that a merge patch leaves nothing of the previous record.

    Rarely used fields are included only if they have changed.
    """
    at = record.resume_time
    before = old or InPlaceRestartStatus()
    seldom = {
        "highestStep": (before.highest_step, record.highest_step),
        "restartsWithoutProgress": (
            before.restarts_without_progress,
            record.restarts_without_progress,
        ),
        "readySpares": (before.ready_spares, record.ready_spares),
        "takenSeats": (
            [_taken_seat_json(one) for one in before.taken_seats],
            [_taken_seat_json(one) for one in record.taken_seats],
        ),
        "takenJobs": (
            [_taken_job_json(one) for one in before.taken_jobs],
            [_taken_job_json(one) for one in record.taken_jobs],
        ),
        "servedRequest": (before.served_request, record.served_request),
        "crashTimes": (
            [seconds_text(at) for at in before.crash_times],
            [seconds_text(at) for at in record.crash_times],
        ),
    }
    return {
        **{name: new for name, (was, new) in seldom.items() if was != new},
        "uncountedEpochs": record.uncounted_epochs,
        "lastUncountedEpoch": record.last_uncounted_epoch,
        "pods": record.pods,
        "restarts": record.restarts,
        "allJobsRestartsAtSync": record.all_jobs_restarts_at_sync,
        "jobRestartsAtSync": record.job_restarts_at_sync,
        "resumeTime": None if at is None else seconds_text(at),
        "containerRestarts": record.container_restarts,
        "crashes": record.crashes,
        "crashingPod": record.crashing_pod,
        "crashingContainer": record.crashing_container,
    }


def _taken_seat_json(one: TakenSeat) -> dict[str, Any]:
    return {
        "job": one.job,
        "seat": one.seat,
        "pod": one.pod,
        "podUID": one.pod_uid,
        "podIndex": one.pod_index,
        "address": one.address,
    }


def _taken_job_json(one: TakenJob) -> dict[str, Any]:
    return {"job": one.job, "holder": one.holder}


def _restart_pacing_json(pacing: RestartPacing) -> dict[str, Any]:
    """Return all fields, as above. Pauses are short, so their times have milliseconds."""
    return {
        "series": pacing.series,
        "seriesStartTime": _moment_json(pacing.series_start_time),
        "lastStartTime": _moment_json(pacing.last_start_time),
        "notBefore": _moment_json(pacing.not_before),
        "countedTimes": [seconds_text(at) for at in pacing.counted_times],
    }


def _moment_json(at: datetime | None) -> str | None:
    return None if at is None else millis_text(at)
