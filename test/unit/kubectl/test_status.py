"""``kubectl jobset status``: the tree, the barrier and the budget."""

from __future__ import annotations

import asyncio
import json
import xml.etree.ElementTree as ET
from datetime import UTC, datetime

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import NotFoundError
from jobsetpy.kubectl import output, status, timeline
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.kubectl.objects import describe
from support.jobsets import jobset_json, replicated_job
from support.patience import eventually


def ended(code, reason="Error"):
    """Return the status of a container that has ended."""
    return {"name": "worker", "state": {"terminated": {"exitCode": code, "reason": reason}}}


async def test_status_shows_the_barrier(training, capsys):
    """Pods that hold it, with their nodes and why; the budget; every pod with epoch and node."""
    await training.run("status", "test-js")
    text = capsys.readouterr().out

    for part in (
        "default/test-js Restarting",
        "2 of 3 left",
        "barrier of epoch 3 is closed",
        "waits for test-js-w-0-1 (it is at epoch 2).",
        "pod 'p' failed [x]",
        "1/2 ready",
        "test-js-w-0-0 Running not ready epoch 3 node-1",
    ):
        assert part in text, text


async def test_job_that_is_refused_is_the_reason(kubectl, capsys):
    """The last event about a failed creation has the field, its value and what would be right."""
    uid = kubectl.jobset(replicated_job("w", 1))["metadata"]["uid"]
    for at, why in ((2, "limits: Invalid value: -1"), (1, "before")):
        kubectl.world.create("events", {
            "metadata": {"name": f"e{at}"}, "regarding": {"uid": uid}, "reason": "JobCreationFailed",
            "eventTime": f"2026-01-01T00:00:0{at}.000000Z", "note": why,
        })  # fmt: skip
    await kubectl.run("status", "test-js")

    assert "├── limits: Invalid value: -1\n" in capsys.readouterr().out


async def test_uncounted_restarts_are_shown(training, capsys):
    """A requested restart is not among those that count."""
    status = {"inPlaceRestart": {"restarts": 0, "uncountedEpochs": 1}, "restarts": 0}
    training.world.patch("jobsets", "test-js", {"status": status}, subresource="status")
    await training.run("status", "test-js")
    text = capsys.readouterr().out

    assert "restarts: 1 in place not counted (asked for, resumed or resized)" in text
    assert "3 of 3 left" in text


async def test_run_and_its_deadline_are_shown(training, capsys):
    """Its number, its time, and the limit of that."""
    status = {"executionAttempts": 2, "startTime": "2026-01-01T00:00:00Z"}
    training.world.patch("jobsets", "test-js", {"status": status}, subresource="status")
    training.world.patch("jobsets", "test-js", {"spec": {"activeDeadlineSeconds": 60}})
    await training.run("status", "test-js")
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "attempt 2, for" in each]
    assert line.endswith(" of 60 s")


async def test_output_for_programs_has_the_barrier_and_the_budget(training, capsys):
    """JSON and YAML have the same fields."""
    await training.run("status", "test-js", "-o", "json")
    found = json.loads(capsys.readouterr().out)

    assert [each["pod"] for each in found["barrier"]["waitsFor"]] == ["test-js-w-0-1"]
    assert found["budget"] == {"max": 3, "spent": 1, "left": 2}
    await training.run("status", "test-js", "-o", "yaml")
    assert "syncedEpoch" not in capsys.readouterr().out


async def test_seats_and_spares_are_shown(training, capsys):
    """Each pod has its seat or is a spare, which may be ready."""
    world = training.world
    prefix = "jobset.sigs.k8s.io/in-place-restart-"
    for job in world.list("jobs"):
        meta = {"metadata": {"annotations": {f"{prefix}spares": "1"}}}
        world.patch("jobs", job["metadata"]["name"], meta)
    pods = {pod["metadata"]["name"]: pod for pod in world.list("pods")}
    holder, job = pods["test-js-w-0-1"]["metadata"], "test-js-w-0"
    meta = {"metadata": {"annotations": {f"{prefix}state": "ready"}}}
    world.patch("pods", "test-js-w-0-0", meta)
    entry = {"job": job, "seat": 0, "pod": holder["name"], "podUID": holder["uid"]}
    status = {"inPlaceRestart": {"readySpares": 1, "takenSeats": [entry]}}
    world.patch("jobsets", "test-js", {"status": status}, subresource="status")
    await training.run("status", "test-js")
    text = capsys.readouterr().out

    assert "spares: 1 of 1 ready" in text
    assert "test-js-w-0-0 Running not ready epoch 3 spare, ready node-1" in text
    assert "seat 0" in text


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"phase": "Running"}, "test-js-w-0-1 Running not ready epoch 2 spare, starting node-2"),
        (
            {"phase": "Failed", "containerStatuses": [ended(137)]},
            "test-js-w-0-1 Failed epoch 2 (exit 137 (SIGKILL)) no seat node-2",
        ),
        (
            {"phase": "Failed", "containerStatuses": [ended(137, "OOMKilled")]},
            "test-js-w-0-1 Failed epoch 2 (OOMKilled) no seat node-2",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            "test-js-w-0-1 Failed epoch 2 (Evicted) no seat node-2",
        ),
        ({"phase": "Failed"}, "(no reason is reported) no seat node-2"),
        ({"phase": "Succeeded"}, "test-js-w-0-1 Succeeded epoch 2 no seat node-2"),
    ],
)
async def test_pod_that_has_ended_is_no_spare(training, capsys, status, shown):
    """It says why it has failed, in place of the state that its agent wrote last."""
    world, spares = training.world, {keys.IN_PLACE_SPARES_ANNOTATION: "1"}
    world.patch("jobs", "test-js-w-0", {"metadata": {"annotations": spares}})
    world.patch("pods", "test-js-w-0-1", {"status": status}, subresource="status")
    await training.run("status", "test-js")

    assert shown in capsys.readouterr().out


def job_with_spare_jobs(index):
    """Return one of three Jobs with a pod each, of which the last one is a spare."""
    prefix, name = "jobset.sigs.k8s.io/", f"js-w-{index}"
    annotations = {
        f"{prefix}in-place-restart-spares": "0",
        f"{prefix}in-place-restart-spare-replicas": "1",
        f"{prefix}job-index": str(index),
        f"{prefix}replicatedjob-replicas": "3",
    }
    owner = {"uid": "js", "controller": True}
    meta = {
        "name": name, "uid": name, "annotations": annotations, "ownerReferences": [owner],
            "labels": {f"{prefix}replicatedjob-name": "w"},
        }  # fmt: skip
    return {"metadata": meta, "spec": {"parallelism": 1}}


def pod_of(index):
    """Return the pod of such a Job."""
    job = f"js-w-{index}"
    meta = {
        "name": f"{job}-0", "uid": f"{job}-0", "ownerReferences": [{"uid": job, "controller": True}],
        "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
    }  # fmt: skip
    return {"metadata": meta, "status": {"phase": "Running"}}


def test_spare_jobs_are_shown():
    """A Job is a spare, and may have the seats of another."""
    jobs, pods = [job_with_spare_jobs(at) for at in range(3)], [pod_of(at) for at in range(3)]
    jobset = jobset_json(
        replicated_job("w", 3),
        name="js",
        failurePolicy={"maxRestarts": 1, "restartStrategy": "InPlaceRestart"},
    )
    jobset["metadata"]["uid"] = "js"
    jobset["status"] = {"syncedEpoch": 1, "inPlaceRestart": {"readySpares": 1}}

    found = describe(jobset, jobs, pods)
    assert found["spares"] == {"ready": 1, "of": 1, "jobs": 1}
    shown = [(job.get("worksFor"), job["pods"][0]) for job in found["replicatedJobs"][0]["jobs"]]
    assert [(works, pod.get("seat"), pod.get("spare")) for works, pod in shown] == [
        (None, 0, None),
        (None, 0, None),
        ("", None, "starting"),
    ]

    moved = [{"job": "js-w-0", "holder": "js-w-2"}]
    jobset["status"]["inPlaceRestart"] = {"readySpares": 0, "takenJobs": moved}
    found = describe(jobset, jobs, pods)
    text = status.drawn(found | {"why": [], "more": ""}, datetime.now(UTC)) + "\n"
    assert "spares: 0 of 1 ready, 1 spare job" in text
    assert "js-w-0 Running 0/1 ready, spare\n" in text
    assert "js-w-2 Running 0/1 ready, seats of js-w-0\n" in text


def test_job_with_fewer_pods_is_shown():
    """A pod above the number of seats waits like a spare; the history has the number of pods."""
    jobs, pods = [job_with_spare_jobs(0)], [pod_of(0), pod_of(0)]
    del jobs[0]["metadata"]["annotations"]["jobset.sigs.k8s.io/in-place-restart-spare-replicas"]
    jobs[0]["spec"]["parallelism"] = 2
    pods[1]["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = "1"
    policy = {"maxRestarts": 1, "restartStrategy": "InPlaceRestart"}
    jobset = jobset_json(replicated_job("w", 1), name="js", failurePolicy=policy)
    sizes = [{"job": "js-w-0", "seats": 1, "missing": 1}]
    jobset["metadata"]["uid"] = "js"
    jobset["status"] = {"syncedEpoch": 2, "inPlaceRestart": {"jobSizes": sizes}}

    found = describe(jobset, jobs, pods)
    text = status.drawn(found | {"why": [], "more": ""}, datetime.now(UTC))
    (job,) = found["replicatedJobs"][0]["jobs"]
    assert [(pod.get("seat"), pod.get("spare")) for pod in job["pods"]] == [
        (0, None),
        (None, "starting"),
    ]
    assert "0/2 ready, works with 1 of 2 pods" in text
    since = {"lastTransitionTime": "2026-01-01T00:00:00Z", "type": "Suspended", "status": "True"}
    jobset["status"]["conditions"] = [since]  # its next pods begin with all seats
    assert "missing" not in describe(jobset, jobs, pods)["replicatedJobs"][0]["jobs"][0]
    record = {"cause": {"reason": "PodDeleted"}, "pods": 1, "seatsTaken": 1}
    assert timeline.cause_of(record) == "PodDeleted; 1 pod works since then"


async def test_pods_of_other_owners_are_not_shown(training, capsys):
    """The JobSet's label is not enough."""
    stranger = training.world.list("pods")[0]
    stranger["metadata"] = {"name": "stranger", "labels": stranger["metadata"]["labels"]}
    training.world.create("pods", stranger)
    await training.run("status", "test-js")

    assert "stranger" not in capsys.readouterr().out


class TestRestarts:
    async def test_table_has_cause_durations_and_last_pod(self, training, capsys):
        """A signal has its name."""
        await training.run("restarts", "test-js")
        text = capsys.readouterr().out

        for part in ("in place, epoch 2", "exit 137 (SIGKILL)", "1.5 s", "12 ms", "test-js-w-0-0"):
            assert part in text, text

    async def test_pictures_have_a_bar_for_each_phase(self, training, tmp_path):
        """They are well-formed; texts of the cluster are escaped."""
        svg = tmp_path / "a.svg"
        await training.run("restarts", "test-js", "--svg", str(svg))
        bars = ET.parse(svg).findall(".//{*}rect/{*}title")

        assert [bar.text for bar in bars] == [
            "detection: 40 ms",
            "deprecation: 1.5 s",
            "gathering: 2.5 s, last came test-js-w-0-0",
            "lift: 12 ms",
        ]
        assert "<1>" not in svg.read_text()

    async def test_missing_history_is_reported(self, kubectl, capsys):
        """There is none yet, or the CRD does not have it."""
        kubectl.jobset()
        await kubectl.run("restarts", "test-js")
        assert "No restarts of test-js." in capsys.readouterr().out

        kubectl.world.patch("jobsets", "test-js", {"status": {"restarts": 4}}, subresource="status")
        await kubectl.run("restarts", "test-js")
        assert "has no history" in capsys.readouterr().out

    async def test_file_that_cannot_be_written_is_an_error(self, training):
        """The error names it."""
        with pytest.raises(CommandError, match=r"cannot write /nowhere/a\.svg: No such file"):
            await training.run("restarts", "test-js", "--svg", "/nowhere/a.svg")

    @pytest.mark.parametrize(
        ("millis", "text"),
        [
            (None, ""),
            (0, "0 ms"),
            (999, "999 ms"),
            (1000, "1 s"),
            (99_900, "99.9 s"),
            (100_000, "100s"),
            (1_250_000, "20m"),
            (12_600_000, "3h30m"),
        ],
    )
    def test_durations_have_a_unit(self, millis, text):
        """Those of many minutes have no exponent."""
        assert output.millis(millis) == text

    async def test_title_has_the_number_of_pods(self, training, capsys):
        """It is that of the last lift, if it is known."""
        await training.run("restarts", "test-js", "--svg", "-")
        assert "<title>Restarts of default/test-js</title>" in capsys.readouterr().out

        status = {"inPlaceRestart": {"pods": 2}}
        training.world.patch("jobsets", "test-js", {"status": status}, subresource="status")
        await training.run("restarts", "test-js", "--svg", "-")
        assert "<title>Restarts of default/test-js, 2 pods</title>" in capsys.readouterr().out

    def test_picture_of_an_empty_history_has_a_text(self):
        """It says that there were no restarts."""
        assert "no restarts yet" in timeline.svg("t", [])


class TestWatch:
    async def test_changes_are_printed_without_a_terminal(self, training, capsys, monkeypatch):
        """The status is printed again at each change; an outage of the server does not end it."""
        monkeypatch.setattr(status, "EVERY_S", 0.01)
        seen = []

        def shown(part):
            seen.append(capsys.readouterr().out)
            return "".join(seen).count(part)

        title = "default/test-js"
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(training.run("status", "test-js", "--watch"))
            await eventually(lambda: shown(title) == 1)
            away = training.world.faults.status(503)
            await eventually(lambda: away.hits >= 3)
            training.world.faults.clear()
            training.world.patch(
                JobSet, "test-js", {"status": {"restarts": 7}}, subresource="status"
            )
            await eventually(lambda: shown("7 of all jobs") == 1)
            watching.cancel()

        assert "".join(seen).count(title) == 2

    async def test_watch_ends_when_the_jobset_is_deleted(self, training, monkeypatch):
        """The error is that of the command without a watch."""
        monkeypatch.setattr(status, "EVERY_S", 0.01)
        training.world.faults.latency(0.01, verb="list", resource="pods")
        with pytest.raises(ExceptionGroup) as ended:
            async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
                tasks.create_task(training.run("status", "test-js", "--watch"))
                await asyncio.sleep(0.05)
                training.world.delete("jobsets", "test-js")
        assert [type(each) for each in ended.value.exceptions] == [NotFoundError]
