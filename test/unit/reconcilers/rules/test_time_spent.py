"""Use of a JobSet's time: what each status write charges to which activity."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs
import pytest

from jobsetpy.api._wire import evolve
from jobsetpy.api.jobset import JobSet, RestartCause, RestartRecord
from jobsetpy.reconcilers.rules import history
from jobsetpy.reconcilers.rules.plan import Run
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.reconcilers.rules.time_spent import MAX_CAUSES, OTHER, accounted
from jobsetpy.testing import decoded
from support.jobsets import jobset_json, replicated_job

CREATED = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds):
    """Return the time that many seconds after the creation."""
    return CREATED + timedelta(seconds=seconds)


def failure(seconds, reason="WorkerFailed", kind=history.IN_PLACE):
    """Return the record of a restart whose first sign is from a time."""
    cause = RestartCause(reason=reason)
    return RestartRecord(kind=kind, number=2, counted=True, began_at=at(seconds), cause=cause)


class Life:
    """A JobSet of one Job, whose status a test writes."""

    def __init__(self, **status):
        body = jobset_json(replicated_job("w"))
        body["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        self.jobset = decoded(JobSet, {**body, "status": status})

    def write(self, seconds, *, ready=1, record=None, over=False, run=None, complete=False):
        """Store a change of the status; return whether the use of time was stored, too."""
        draft = StatusDraft(self.jobset.status, at(seconds))
        counts = {"name": "w", "ready": ready, "active": 1}
        draft.evolve(replicated_jobs_status=decoded(JobSet, {**jobset_json(), "status": {
            "replicatedJobsStatus": [counts]}}).status.replicated_jobs_status)  # fmt: skip
        if record is not None:
            draft.record(record)
        if over:
            draft.end_restart()
        if complete:
            draft.complete()
        change = attrs.evolve(draft.change(), run=run or Run())
        spent = accounted(self.jobset, change, at(seconds))
        status = change.status if spent is None else evolve(change.status, time_spent=spent)
        self.jobset = evolve(self.jobset, status=status)
        return spent is not None

    @property
    def spent(self):
        """The stored use of time."""
        return self.jobset.status.time_spent

    def sums(self):
        """Return seconds queued, waiting, running, and seconds and number of restarts by cause."""
        spent = self.spent
        times = (spent.queued_millis, spent.waiting_millis, spent.running_millis)
        restarts = {(e.kind, e.cause): (e.millis / 1000, e.count) for e in spent.restarts}
        return *(each / 1000 for each in times), restarts


IN_PLACE = (history.IN_PLACE, "WorkerFailed")
RECREATE = (history.RECREATE, "WorkerFailed")


@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        pytest.param(
            [(0, {"ready": 0}), (10, {}), (100, {"ready": 0}), (130, {})],
            (0, 40, 90, {}),
            id="pods that are not ready",
        ),
        pytest.param(
            [(0, {}), (60, {"record": failure(50)}), (65, {"over": True}), (100, {})],
            (0, 0, 50, {IN_PLACE: (15, 1)}),
            id="a restart counts from its first sign",
        ),
        pytest.param(
            [(0, {}), (60, {"record": failure(50), "over": True}), (100, {"complete": True})],
            (0, 0, 90, {IN_PLACE: (10, 1)}),
            id="begun and ended by one write",
        ),
        pytest.param(
            [(0, {"ready": 0}), (50, {}), (60, {"record": failure(30)}), (65, {"over": True})],
            (0, 50, 0, {IN_PLACE: (15, 1)}),
            id="a first sign before the last write takes no more than the run had",
        ),
        pytest.param(
            [
                (0, {}),
                (60, {"record": failure(50)}),
                (70, {"record": failure(65, kind=history.RECREATE)}),
                (100, {"over": True}),
            ],
            (0, 0, 50, {RECREATE: (50, 1)}),
            id="a restart in place that becomes one of all Jobs",
        ),
        pytest.param(
            [(0, {}), (60, {"record": failure(60)}), (90, {"complete": True}), (500, {"ready": 0})],
            (0, 0, 60, {IN_PLACE: (30, 1)}),
            id="nothing changes after the end",
        ),
    ],
)
def test_time_is_charged_to_the_activity_of_the_write_before(writes, expected):
    """A row per history: writes by their second, and the sums after the last."""
    life = Life()
    for seconds, change in writes:
        life.write(seconds, **change)
    last = life.spent.since
    queued, waiting, running, restarts = life.sums()
    assert (queued, waiting, running, restarts) == expected
    parts = queued + waiting + running + sum(took for took, _ in restarts.values())
    assert parts == (last - CREATED).total_seconds()


def test_nothing_is_written_while_the_activity_stays():
    """A changed counter alone adds nothing to the patch."""
    life = Life()
    assert life.write(0)
    assert not life.write(10, ready=1)
    assert life.write(20, ready=0)


def test_past_of_an_older_release_is_not_invented():
    """A JobSet with a status, but without the record, is accounted for from now on."""
    life = Life(state="Running", restarts=0)
    life.write(500)
    assert (life.spent.began_at, life.sums()) == (at(500), (0, 0, 0, {}))


def test_clock_that_is_set_back_takes_no_time_away():
    """The time is charged when the clock has passed the last write again."""
    life = Life()
    life.write(100)
    life.write(40, ready=0)
    life.write(130)
    assert life.sums() == (0, 130, 0, {})


def test_causes_beyond_the_bound_share_one_entry():
    """Reasons of failed Jobs are any text."""
    life = Life()
    life.write(0)
    for number in range(3 * MAX_CAUSES):
        life.write(number + 1, record=failure(number + 1, f"Reason{number}"), over=True)
    restarts = life.sums()[3]
    assert len(restarts) == MAX_CAUSES - 3
    assert restarts[history.IN_PLACE, OTHER][1] == 3 * MAX_CAUSES - (MAX_CAUSES - 4)


def test_report_of_workers_takes_no_more_than_they_ran():
    """Any client that may write a pod can report any step and any time."""
    life = Life()
    life.write(0)
    spent = {"starting": 1e6, "repeating": 1e6, "training": 1e6}
    life.write(60, record=failure(60), over=True, run=Run(lost_steps=7, spent=spent))
    known = life.spent
    assert known.starting_millis + known.repeating_millis <= known.reported_millis == 60_000
    assert known.repeated_steps == 7


def test_time_with_fewer_pods_is_charged_to_the_seats_without_one():
    """A quarter of a run with three of four pods, also if the next one has all; no restart's."""
    sizes = [{"job": "w-0", "seats": 3, "missing": 1}]
    life = Life(syncedEpoch=2, inPlaceRestart={"pods": 3, "jobSizes": sizes})
    life.write(0)
    spent = {"missing": 10.0, "starting": 3.0, "repeating": 0.0, "training": 27.0}
    life.write(60, record=failure(40), over=True, run=Run(spent=spent))
    life.write(100, complete=True)

    assert life.sums() == (0, 0, 80, {IN_PLACE: (20, 1)})
    known = life.spent
    assert (known.missing_millis, known.starting_millis) == (20_000, 3_000)
    assert known.reported_millis == 40_000
