"""Drafts of a status: the patches that store them."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
import msgspec
import pytest

from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSetStatus, JobSize, TakenJob, TakenSeat
from jobsetpy.reconcilers.rules.status_draft import StatusDraft, status_patch

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VALUES = {
    "resume_time": NOW,
    "job_sizes": (JobSize(job="js-w-0", seats=3, missing=1),),
    "resize_time": NOW,
    "taken_seats": (TakenSeat(job="js-w-0", seat=1, pod="p", pod_uid="u", pod_index=3),),
    "taken_jobs": (TakenJob(job="js-w-0", holder="js-w-1"),),
}
FIELDS = [each.name for each in attrs.fields(InPlaceRestartStatus)]


@pytest.mark.parametrize("field", FIELDS)
def test_patch_has_field_of_record_when_it_changes(field):
    """A field that is left out is never stored, and a plan that reads it decides as if it was."""
    old = InPlaceRestartStatus()
    other = "text" if getattr(old, field) == "" else 7
    record = evolve(old, **{field: VALUES.get(field, other)})
    before, after = (JobSetStatus(in_place_restart=each) for each in (old, record))

    patch = status_patch(before, after)["inPlaceRestart"]

    assert msgspec.convert(patch, InPlaceRestartStatus) == record
    assert status_patch(after, before)["inPlaceRestart"].keys() >= patch.keys()


def test_draft_keeps_its_status_when_no_field_differs():
    """A reconcile that changes nothing neither copies the status nor compares its fields."""
    draft = StatusDraft(JobSetStatus(ready_pods="1/2"), NOW)
    draft.evolve(ready_pods="1/2")

    assert draft.status is draft.old
    assert draft.change().patch == {}
