"""The Job controller's delay before it replaces pods that have failed."""

from __future__ import annotations

import pytest

from jobsetpy.reconcilers.restart_in_place.job_controller.replacement_delay import delay_s, explain
from jobsetpy.reconcilers.restart_in_place.observed.ledger import EpochLedger
from jobsetpy.reconcilers.rules.times import Now
from support.restarts import epoch_plans

NOW = Now(epoch_plans.START, 100.0)


def job(failed=0, uncounted=(), uid="", **spec):
    """Return a Job with failures."""
    uncounted = {"failed": [*uncounted]}
    return epoch_plans.job(uid=uid, spec=spec, failed=failed, uncountedTerminatedPods=uncounted)


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0), (1, 10), (2, 20), (5, 160), (6, 320), (7, 600), (5000, 600)]
)
def test_delay_doubles_up_to_ten_minutes(failures, seconds):
    """As the Job controller computes it."""
    assert delay_s(failures) == seconds


@pytest.mark.parametrize(
    ("of", "failed_at", "expected"),
    [
        (job(), None, ""),
        (job(1), 85.0, ""),
        (
            job(2, ["x"]),
            90.0,
            "3 failed pods and creates no pod before 2026-01-01T00:00:30Z, 40 s after the latest failure",
        ),
        (job(1), None, "1 failed pod and waits for up to 10 s after the latest failure"),
        (
            job(1, backoffLimitPerIndex=9),
            99.0,
            "1 failed pod and waits for up to 600 s after each failure of an index",
        ),
    ],
)
def test_delay_is_explained_with_its_end_when_the_failure_was_observed(of, failed_at, expected):
    """The end is wall-clock time; a failure that was not observed has none."""
    text = explain(of, failed_at, NOW)

    assert text == (f"the Job controller counts {expected}" if expected else "")


def test_ledger_keeps_the_time_of_a_failure_until_the_job_is_gone():
    """A failure that moves from one field of the status to another is no further one."""
    ledger = EpochLedger()
    states = [job(), job(0, ["x"]), job(1)]
    ledger.job_changed(None, states[0], 1.0)
    seen = [ledger.failed_at(states[0])]
    ledger.job_changed(states[0], states[1], 2.0)
    ledger.job_changed(states[1], states[2], 3.0)
    seen.append(ledger.failed_at(states[2]))
    ledger.job_changed(states[2], job(uid="other"), 4.0)

    assert [*seen, ledger.failed_at(states[2])] == [None, 2.0, None]
