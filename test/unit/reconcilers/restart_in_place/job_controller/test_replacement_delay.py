"""The Job controller's delay before it replaces pods that have failed."""

from __future__ import annotations

import pytest

from jobsetpy.reconcilers.restart_in_place.job_controller.replacement_delay import (
    FailureTimes,
    delay_s,
    explain,
)
from support.restarts import epoch_plans


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
    ("of", "expected"),
    [
        (job(), ""),
        (job(2, ["x"]), "3 failed pods and waits for up to 40 s after the latest failure"),
        (job(1), "1 failed pod and waits for up to 10 s after the latest failure"),
        (
            job(1, backoffLimitPerIndex=9),
            "1 failed pod and waits for up to 600 s after each failure of an index",
        ),
    ],
)
def test_delay_is_explained_when_a_job_counts_failures(of, expected):
    """From the Job's status alone."""
    assert explain(of) == (f"the Job controller counts {expected}" if expected else "")


def test_time_of_a_failure_is_kept_until_the_job_is_gone():
    """A failure that moves from one field of the status to another is no further one."""
    times = FailureTimes()
    states = [job(), job(0, ["x"]), job(1)]
    times.job_changed(None, states[0], 1.0)
    seen = [times.of(states[0])]
    times.job_changed(states[0], states[1], 2.0)
    times.job_changed(states[1], states[2], 3.0)
    seen.append(times.of(states[2]))
    times.job_changed(states[2], job(uid="other"), 4.0)

    assert [*seen, times.of(states[2])] == [None, 2.0, None]
