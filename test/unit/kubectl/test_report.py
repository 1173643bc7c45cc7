"""``kubectl jobset report``: figures, what they cover, and estimates."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from jobsetpy.aio import LoopClock
from jobsetpy.api.jobset import JobSet
from jobsetpy.kubectl import report
from jobsetpy.kubectl.bill import Restarts, bill, estimate, goodput
from support.jobsets import replicated_job

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HOUR = 3_600_000
RECORD = {
    "kind": "InPlace",
    "number": 3,
    "cause": {"reason": "NodeLost"},
    "detectionMillis": 60_000,
    "outcome": "Completed",
}
SPENT = {
    "activity": "Running",
    "beganAt": "2026-01-01T00:00:00.000Z",
    "since": "2026-01-01T22:00:00.000Z",
    "queuedMillis": 2 * HOUR,
    "waitingMillis": HOUR,
    "runningMillis": 18 * HOUR,
    "startingMillis": HOUR // 2,
    "repeatingMillis": HOUR // 2,
    "reportedMillis": 18 * HOUR,
    "repeatedSteps": 70,
    "firstStartMillis": HOUR,
    "restarts": [
        {"kind": "InPlace", "cause": "NodeLost", "count": 2, "millis": HOUR // 2},
        {"kind": "InPlace", "cause": "RestartRequested", "count": 1, "millis": HOUR // 2},
    ],
}
RECREATED = {"kind": "Recreate", "cause": "BackoffLimitExceeded", "count": 2, "millis": HOUR}


def jobset(**changes):
    """Return a JobSet of four pods that has run for a day, with changes of its use of time."""
    spent = {**SPENT, **changes.pop("spent", {})}
    item = {"replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 4}}}
    return {
        "metadata": {"namespace": "default", "name": "llm"},
        "spec": {"replicatedJobs": [item]},
        "status": {"state": "Running", "timeSpent": spent, **changes},
    }


def test_bill_adds_the_time_since_the_last_write_to_the_current_activity():
    """Two hours of running, so that 20 of 22 hours outside queues ran, one of them in vain."""
    found = bill(jobset(), NOW)

    hours = [each / 3600 for each in found[5:9]]
    assert hours == [24, 2, 1, 20]
    assert (found.training / 3600, goodput([found])) == (19, 19 / 22)
    assert (found.nodes_lost, found.pods, found.bound) == (2, 4, False)


def test_bill_counts_seats_without_a_pod_as_no_training():
    """Half an hour so far, and a quarter of the two hours since the last write."""
    sizes = {"pods": 3, "jobSizes": [{"job": "w-0", "seats": 1, "missing": 1}]}
    found = bill(jobset(spent={"missingMillis": HOUR // 2}, inPlaceRestart=sizes), NOW)

    assert (found.missing / 3600, found.training / 3600, goodput([found])) == (1, 18, 18 / 22)
    assert found.training + found.missing + found.starting + found.repeating == found.running


def test_nodes_that_heartbeats_find_silent_are_lost_ones():
    """No eviction follows where a spare has taken the seat, or the group has become smaller."""
    silent = {"kind": "InPlace", "cause": "PodSilent", "count": 3, "millis": 1}

    assert bill(jobset(spent={"restarts": [silent, *SPENT["restarts"]]}), NOW).nodes_lost == 5


def test_bill_counts_a_restart_in_progress():
    """Its cause is that of the open record."""
    open_record = {**RECORD, "outcome": ""}
    found = bill(jobset(spent={"activity": "Restarting"}, restartHistory=[open_record]), NOW)

    assert found.restarts[0] == Restarts("InPlace", "NodeLost", 3, 2.5 * 3600)


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ([RECREATED], [], (2, 1800, 1800, "mean of 2 measured of this JobSet")),
        ([], [RECREATED], (2, 1800, 1800, "mean of 2 measured of JobSets in this cluster")),
        ([], [], (2, 1800, 3600, "the first start of this JobSet")),
    ],
)
def test_estimate_names_the_measurement_that_it_comes_from(own, other, expected):
    """A requested restart is no failure; the JobSet's own measurements come first."""
    one = bill(jobset(spent={"restarts": [*SPENT["restarts"], *own]}), NOW)
    others = [bill(jobset(spent={"restarts": other}), NOW)]

    assert estimate(one, others) == expected


def test_estimate_is_not_known_without_a_measurement():
    """Neither a recreation nor a first start."""
    one = bill(jobset(), NOW)._replace(first_start=None)

    assert estimate(one, [one]) is None


def test_since_reports_restarts_of_the_history_and_a_bound_of_the_rest():
    """Figures of a JobSet that began before, as far as they are known."""
    recent = {**RECORD, "beganAt": "2026-01-01T21:00:00Z"}
    found = bill(
        jobset(restartHistory=[{**RECORD, "beganAt": "2026-01-01T01:00:00Z"}, recent]),
        NOW,
        NOW - timedelta(hours=10),
    )

    assert (found.seconds, found.restarts) == (36000, (Restarts("InPlace", "NodeLost", 1, 60),))
    assert (found.running, found.bound) == (36000 - 60, True)


def test_since_leaves_out_a_jobset_that_had_ended():
    """One that ended in that time is reported until its end."""
    ended = jobset(spent={"activity": "Ended"})

    assert bill(ended, NOW, NOW - timedelta(hours=1)) is None
    assert bill(ended, NOW, NOW - timedelta(hours=30)).seconds == 22 * 3600


@pytest.fixture
def day(kubectl, monkeypatch):
    """A cluster with that JobSet, at the end of its day."""
    status = jobset()["status"]
    kubectl.jobset(replicated_job("w", 2, parallelism=2), status=status)
    monkeypatch.setattr(LoopClock, "now", lambda _: NOW)
    return kubectl


async def test_report_prints_uses_of_time_with_their_costs(day, capsys):
    """Four pods of 22 hours outside queues at 10 an hour; recreations are an estimate."""
    assert await day.run("report", "test-js", "--node-hour", "10") == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["training", "19h", "79.17%", "760.00"]
    assert lines[5].split()[:4] == ["restarts:", "2", "×", "NodeLost,"]
    assert lines[9].split() == ["all", "24h", "100.00%", "880.00"]
    assert lines[10] == "goodput: 86.36% of the time outside queues; nodes lost: 2"
    assert lines[11].startswith("estimate, all Jobs recreated instead: 2 × 60m = 120m instead")
    assert lines[12].startswith("Of the time of training, 120m cannot be divided")


async def test_report_has_a_row_for_missing_pods(day, capsys):
    """In the table, and in the picture."""
    status = {"timeSpent": {"missingMillis": HOUR}}
    day.world.patch(JobSet, "test-js", {"status": status}, subresource="status")
    assert await day.run("report", "test-js") == 0
    assert ["missing", "pods", "60m", "4.17%"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]

    assert await day.run("report", "--svg", "-") == 0
    assert "<title>missing pods: 60m, 4.17%</title>" in capsys.readouterr().out


async def test_report_of_all_ends_with_their_sum(day, capsys):
    """In every namespace."""
    assert await day.run("report", "-A") == 0

    header, one, total, _ = capsys.readouterr().out.splitlines()
    assert header.split()[-3:] == ["GOODPUT", "NODES", "LOST"]
    assert one.split()[2:] == total.split()[1:]


async def test_goodput_of_all_is_a_share_of_what_is_paid_for(day, capsys):
    """4 pods trained 19 of 22 h, 96 pods 1 of 2 h: 172 of 280 pod-hours, at 10 each."""
    spent = {"activity": "Running", "beganAt": "2026-01-01T22:00:00Z", "waitingMillis": HOUR}
    spent["since"] = "2026-01-01T23:00:00Z"
    large = replicated_job("w", 1, parallelism=96)
    day.jobset(large, name="large", status={"timeSpent": spent})
    assert await day.run("report", "--node-hour", "10") == 0

    total = capsys.readouterr().out.splitlines()[3].split()
    assert (total[:3], total[-3], total[-1]) == (["TOTAL", "26h", "20h"], "61.43%", "2800.00")


async def test_report_is_json_for_programs(day, capsys):
    """Seconds, and the estimate with its basis."""
    assert await day.run("report", "test-js", "-o", "json", "--node-hour", "10") == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["goodput"], found["nodesLost"], found["cost"]) == (19 / 22, 2, 880.0)
    assert found["estimateIfRecreated"]["basis"] == "the first start of this JobSet"


async def test_report_draws_a_bar_for_each_jobset(day, capsys):
    """Parts of the bar are named with their share."""
    assert await day.run("report", "--svg", "-") == 0

    drawn = capsys.readouterr().out
    assert "<title>training: 19h, 79.17%</title>" in drawn
    assert drawn.rstrip().endswith("</svg>")


async def test_report_says_that_nothing_is_known_of_an_older_manager(kubectl, capsys):
    """Its JobSets have no record."""
    kubectl.jobset(replicated_job("w"))
    assert await kubectl.run("report", "-A") == 0

    assert capsys.readouterr().out.startswith("Nothing is known")


@pytest.mark.parametrize(
    "words", [("--since", "7"), ("--since", "0d"), ("--node-hour", "-1"), ("--node-hour", "nan")]
)
def test_bad_option_is_refused_with_its_form(words, capsys):
    """By the parser."""
    from jobsetpy.kubectl.main import parser

    with pytest.raises(SystemExit):
        parser("report").parse_args(["report", *words])
    assert "expected a" in capsys.readouterr().err


def test_picture_has_no_more_than_a_bar_for_a_jobset_without_time():
    """Nothing is divided by zero."""
    drawn = report.picture("t", [bill(jobset(), NOW)._replace(seconds=0.0, running=0.0)])

    assert drawn.count("<rect") >= 1
