"""The update rule of conditions."""

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


def condition(wanted, *, status=None, reason=None, since=THEN):
    """A stored condition like the wanted one, except where said."""
    return Condition(
        type=wanted.type,
        status=status or ("True" if wanted.status else "False"),
        reason=wanted.reason if reason is None else reason,
        message=wanted.message,
        last_transition_time=since,
    )


CASES = {
    "added when it becomes True": ((), cond.SUSPENDED, (condition(cond.SUSPENDED, since=WHOLE),)),
    "never added as False": ((), cond.RESUMED, None),
    "flipped in place": (
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
    "the exclusive one flips in status only": (
        (condition(cond.STARTUP_IN_PROGRESS),),
        cond.STARTUP_COMPLETED,
        (
            condition(cond.STARTUP_IN_PROGRESS, status="False"),
            condition(cond.STARTUP_COMPLETED, since=WHOLE),
        ),
    ),
    "an exclusive one that is False already stays": (
        (
            condition(cond.STARTUP_IN_PROGRESS, status="False"),
            condition(cond.STARTUP_COMPLETED),
        ),
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
def test_updated(case):
    """A condition changes only when something about it does."""
    before, wanted, after = CASES[case]

    assert after == cond.updated(before, wanted, NOW)


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
def test_finished(conditions, expected):
    """Only a True Completed or Failed ends a JobSet."""
    end = cond.finished(conditions)

    assert expected == (end.type if end else None)


def test_a_draft_announces_only_changes():
    """One event for each changed condition, with its reason and message."""
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


def test_an_unchanged_draft_writes_nothing():
    """No change, no patch."""
    draft = StatusDraft(JobSetStatus(restarts=3, synced_epoch=2), NOW)

    assert draft.change().patch == {}


def test_a_patch_holds_the_epochs_only_if_they_change():
    """Who does not write them leaves them to the reconciler of pod epochs."""
    draft = StatusDraft(JobSetStatus(synced_epoch=2, deprecated_epoch=1), NOW)
    draft.restart_all(counts_towards_max=True)

    assert draft.change().patch == {"restarts": 1, "restartsCountTowardsMax": 1}

    draft.evolve(synced_epoch=9)
    assert draft.change().patch["syncedEpoch"] == 9
    assert "deprecatedEpoch" not in draft.change().patch


def test_foreign_conditions_survive():
    """Conditions of other writers stay in the list, with all their fields."""
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
