"""Use of a JobSet's time, kept in its status.

Each status write that changes the activity charges the time since the last such write to the
activity that was stored with that one. So everything follows from the stored status and the present
time: a manager that takes over loses nothing, and the record has a bounded size. It costs no write
of its own. The parts always sum up to the time since ``beganAt``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import JobSet, RestartRecord, RestartTime, TimeSpent
from jobsetpy.api.timestamps import millis_text
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import history, in_place_record, summary
from jobsetpy.reconcilers.rules.plan import Run, StatusChange
from jobsetpy.reconcilers.rules.status_draft import whole_json

QUEUED: Final = "Queued"
WAITING: Final = "Waiting"
RUNNING: Final = "Running"
RESTARTING: Final = "Restarting"
ENDED: Final = "Ended"

MAX_CAUSES: Final = 16
"""Maximum number of kinds and causes of restarts that are told apart."""
OTHER: Final = "Other"

_ACTIVITIES: Final[Mapping[str, str]] = {
    keys.COMPLETED_CONDITION: ENDED,
    keys.FAILED_CONDITION: ENDED,
    summary.SUSPENDED: QUEUED,
    summary.RESTARTING: RESTARTING,
    summary.RUNNING: RUNNING,
}
_MILLI: Final = timedelta(milliseconds=1)
_CAUSE_LETTERS: Final = 40
_NO_RUN: Final = Run()

Use = tuple[str, str]
"""Activity; or kind and cause of a restart."""


def activity_of(jobset: JobSet) -> str:
    """Return the activity of a JobSet, as far as its status shows it."""
    status = jobset.status
    word = _ACTIVITIES.get(summary.state(jobset), WAITING)
    if word == RESTARTING and history.is_open(status.restart_history):
        return WAITING if _is_start(status.restart_history[-1]) else RESTARTING
    # Counters of ready pods are written later than the lift of a barrier, after which workers run.
    lifted = jobset.spec.restarts_in_place and status.synced_epoch > status.deprecated_epoch
    stalled = cond.is_true(status.conditions, keys.BARRIER_STALLED_CONDITION)
    if word == WAITING and lifted and not stalled and not in_place_record.is_starting(jobset):
        return RUNNING
    return word


def accounted(jobset: JobSet, change: StatusChange, now: datetime) -> TimeSpent | None:
    """Return the use of time to store with a change of the status; ``None`` if it does not differ.

    Args:
        jobset: JobSet on which the change was decided.
        change: the change.
        now: aware.
    """
    now, known = history.whole_millis(now), jobset.status.time_spent
    spent = known or _begun(jobset, now)
    now = max(now, spent.since or now)  # clocks of managers differ
    if spent.activity == ENDED:
        return None
    old, new = jobset.status.restart_history, change.status.restart_history
    before = {history.identity(each) for each in old}
    begun = [each for each in new if history.identity(each) not in before and not _is_start(each)]
    activity = activity_of(evolve(jobset, status=change.status))
    over = [each.record for each in change.restarts_over if not _is_start(each.record)]
    if known and activity == spent.activity and not (begun or over or change.run != _NO_RUN):
        return None
    sums = _sums(spent)
    _charge(sums, spent, old, begun, now)
    counts = {(each.kind, each.cause): each.count for each in spent.restarts}
    for record in over:
        use = _use_of(record, sums)
        counts[use] = counts.get(use, 0) + 1
    for use in sums:
        if use[1]:  # a restart in progress
            counts.setdefault(use, 0)
    first = spent.first_start_millis
    if first is None and activity == RUNNING:
        first = sums[WAITING, ""]
    ran = sums[RUNNING, ""] - spent.running_millis
    missing = round(ran * in_place_record.missing_share(jobset))
    spent = evolve(
        spent,
        activity=activity,
        since=now,
        queued_millis=sums[QUEUED, ""],
        waiting_millis=sums[WAITING, ""],
        running_millis=sums[RUNNING, ""],
        missing_millis=max(0, spent.missing_millis + missing),
        first_start_millis=first,
        restarts=tuple(
            RestartTime(kind=kind, cause=cause, count=count, millis=sums.get((kind, cause), 0))
            for (kind, cause), count in counts.items()
            if count or sums.get((kind, cause))  # not one that became a restart of Jobs
        ),
    )
    return _with_run(spent, change.run)


def spent_json(spent: TimeSpent) -> Mapping[str, Any]:
    """Return the record for a merge patch: with all fields, since times may move back to 0."""
    out: dict[str, Any] = whole_json(spent, millis_text)
    return out


def _begun(jobset: JobSet, now: datetime) -> TimeSpent:
    """Return an empty record; the past of a JobSet from an earlier release is not known."""
    status, created = jobset.status, jobset.metadata.creation_timestamp
    unknown = bool(status.state or status.conditions) or created is None
    began = now if unknown or created is None else min(created, now)
    if unknown:
        activity = activity_of(jobset)
    else:
        activity = QUEUED if jobset.spec.suspend else WAITING
    return TimeSpent(activity=activity, began_at=began, since=began)


def _sums(spent: TimeSpent) -> dict[Use, int]:
    return {
        (QUEUED, ""): spent.queued_millis,
        (WAITING, ""): spent.waiting_millis,
        (RUNNING, ""): spent.running_millis,
        **{(each.kind, each.cause): each.millis for each in spent.restarts},
    }


def _charge(
    sums: dict[Use, int],
    spent: TimeSpent,
    old: history.History,
    begun: list[RestartRecord],
    now: datetime,
) -> None:
    """Charge the time since the last write to its activity, and to the restarts that have begun."""
    at, use = spent.since or now, (spent.activity, "")
    if spent.activity == RESTARTING:
        use = _use_of(old[-1] if old else RestartRecord(kind=history.RECREATE), sums)
    for record in begun:
        # The first sign of a failure may be older than the last write: that time was charged to
        # what went before, and only so much of it is moved as it has.
        first = max(record.began_at or now, at - sums.get(use, 0) * _MILLI)
        first = min(first, now)
        sums[use] = sums.get(use, 0) + (first - at) // _MILLI
        at, use = first, _use_of(record, sums)
    sums[use] = sums.get(use, 0) + (now - at) // _MILLI


def _use_of(record: RestartRecord, known: Mapping[Use, int]) -> Use:
    """Return kind and cause of a restart; OTHER if there are too many of them."""
    cause = "" if record.cause is None else record.cause.reason[:_CAUSE_LETTERS]
    use = record.kind, cause or OTHER
    restarts = sum(1 for _, each in known if each and each != OTHER)
    # Each of the four kinds may need an entry for its other causes.
    return use if use in known or restarts < MAX_CAUSES - 4 else (record.kind, OTHER)


def _is_start(record: RestartRecord) -> bool:
    """Return True for new pods without a failure: the group was resumed."""
    seen = record.cause is None or record.cause.reason == keys.POD_RESTARTED_REASON
    return record.kind == history.IN_PLACE and not record.counted and seen


def _with_run(spent: TimeSpent, run: Run) -> TimeSpent:
    """Add what workers reported on the run before."""
    left = spent.running_millis - spent.reported_millis
    missing, starting, repeating, training = (
        round(run.spent.get(use, 0.0) * 1000)
        for use in ("missing", "starting", "repeating", "training")
    )
    reported = min(left, missing + starting + repeating + training)
    starting = min(starting, reported)
    return evolve(
        spent,
        starting_millis=spent.starting_millis + starting,
        repeating_millis=spent.repeating_millis + min(repeating, reported - starting),
        reported_millis=spent.reported_millis + reported,
        repeated_steps=spent.repeated_steps + (run.lost_steps or 0),
    )
