"""Updates of conditions and drafts of a status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobsetpy.api.jobset import JobSetStatus
from jobsetpy.api.meta import Condition
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.status_draft import StatusDraft

THEN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = THEN + timedelta(hours=1, microseconds=5)
WHOLE = NOW.replace(microsecond=0)


def condition(change, *, status=None, reason=None, since=THEN):
    """Return the stored condition of a change, with other values where given."""
    return Condition(
        type=change.type,
        status=status or ("True" if change.status else "False"),
        reason=change.reason if reason is None else reason,
        message=change.message,
        last_transition_time=since,
    )


CASES = {
    "added when it becomes True": ((), cond.SUSPENDED, (condition(cond.SUSPENDED, since=WHOLE),)),
    "not added as False": ((), cond.RESUMED, None),
    "changed in place": (
        (condition(cond.SUSPENDED), condition(cond.COMPLETED)),
        cond.RESUMED,
        (condition(cond.RESUMED, since=WHOLE), condition(cond.COMPLETED)),
    ),
    "identical changes nothing": ((condition(cond.SUSPENDED),), cond.SUSPENDED, None),
    "another reason keeps the time": (
        (condition(cond.RESTART_ENDED_READY),),
        cond.RESTART_ENDED_SUSPENDED,
        (condition(cond.RESTART_ENDED_SUSPENDED),),
    ),
    "of an exclusive one only the status changes": (
        (condition(cond.STARTUP_IN_PROGRESS),),
        cond.STARTUP_COMPLETED,
        (
            condition(cond.STARTUP_IN_PROGRESS, status="False"),
            condition(cond.STARTUP_COMPLETED, since=WHOLE),
        ),
    ),
    "an exclusive one that is already False stays": (
        (condition(cond.STARTUP_IN_PROGRESS, status="False"), condition(cond.STARTUP_COMPLETED)),
        cond.STARTUP_COMPLETED,
        None,
    ),
    "others may be True together": (
        (condition(cond.SUSPENDED),),
        cond.STARTUP_IN_PROGRESS,
        (condition(cond.SUSPENDED), condition(cond.STARTUP_IN_PROGRESS, since=WHOLE)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_condition_is_updated_only_when_it_changes(case):
    """Its time changes with its status."""
    before, change, after = CASES[case]

    assert cond.updated(before, change, NOW) == after


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((), None),
        ((condition(cond.COMPLETED),), "Completed"),
        ((condition(cond.failed("r", "m")),), "Failed"),
        ((condition(cond.COMPLETED, status="False"),), None),
        ((condition(cond.SUSPENDED),), None),
    ],
)
def test_jobset_is_finished_when_completed_or_failed_is_true(conditions, expected):
    """No other condition ends it."""
    end = cond.finished(conditions)

    assert (end.type if end else None) == expected


def test_draft_has_events_for_changed_conditions_only():
    """One for each, with its reason and message."""
    draft = StatusDraft(JobSetStatus(conditions=(condition(cond.SUSPENDED),)), NOW)
    draft.set(cond.SUSPENDED)
    draft.set(cond.RESTART_ENDED_SUSPENDED)
    draft.set(cond.RESUMED)
    write = draft.change()

    assert [(event.type_, event.reason, event.message) for event in write.events] == [
        ("Normal", "ResumeJobs", "jobset is resumed")
    ]
    assert write.patch == {
        "conditions": [
            {
                "type": "Suspended",
                "status": "False",
                "reason": "ResumeJobs",
                "message": "jobset is resumed",
                "lastTransitionTime": "2026-01-01T01:00:00Z",
            }
        ],
        "restarts": 0,
    }


def test_unchanged_draft_has_no_patch():
    """Nothing is written."""
    draft = StatusDraft(JobSetStatus(restarts=3, synced_epoch=2), NOW)

    assert draft.change().patch == {}


def test_patch_has_the_epochs_only_if_they_change():
    """The reconciler of restart in place owns them."""
    draft = StatusDraft(JobSetStatus(synced_epoch=2, deprecated_epoch=1), NOW)
    draft.restart_all(counts_towards_max=True)

    assert draft.change().patch == {"restarts": 1, "restartsCountTowardsMax": 1}

    draft.evolve(synced_epoch=9)
    assert draft.change().patch["syncedEpoch"] == 9
    assert "deprecatedEpoch" not in draft.change().patch


def test_conditions_of_other_writers_stay():
    """With all their fields."""
    other = Condition(type="X", status="Unknown", observed_generation=4, last_transition_time=THEN)
    draft = StatusDraft(JobSetStatus(conditions=(other,)), NOW)
    draft.set(cond.SUSPENDED)

    assert draft.change().patch["conditions"][0] == {
        "type": "X",
        "status": "Unknown",
        "reason": "",
        "message": "",
        "observedGeneration": 4,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
