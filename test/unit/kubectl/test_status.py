"""``kubectl jobset status``: the tree, the barrier and the budget."""

from __future__ import annotations

import asyncio
import json
import xml.etree.ElementTree as ET
from datetime import UTC, datetime

import pytest

from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import NotFoundError
from jobsetpy.kubectl import output, status, timeline
from jobsetpy.kubectl.errors import CommandError, explain
from jobsetpy.kubectl.objects import describe
from jobsetpy.testing.jobsets import jobset_json, replicated_job
from support.patience import eventually


async def test_the_barrier_is_reported(training, capsys):
    """Who holds it, where and why; the budget; every pod with its epoch and node."""
    await training.run("status", "test-js")
    text = capsys.readouterr().out

    for part in (
        "default/test-js Restarting",
        "2 of 3 left",
        "barrier of epoch 3 is closed",
        "waits for test-js-w-0-1 on node-2: it is at epoch 2",
        "pod 'p' failed [x]",
        "1/2 ready",
        "test-js-w-0-0 Running not ready epoch 3 node-1",
    ):
        assert part in text, text


async def test_restarts_that_cost_nothing_are_reported(training, capsys):
    """A restart that somebody asked for is none of those that count, but no secret."""
    status = {"inPlaceRestart": {"restarts": 0, "uncountedEpochs": 1}, "restarts": 0}
    training.world.patch("jobsets", "test-js", {"status": status}, subresource="status")
    await training.run("status", "test-js")
    text = capsys.readouterr().out

    assert "restarts: 1 in place not counted (asked for, resumed or resized)" in text
    assert "3 of 3 left" in text


async def test_for_programs(training, capsys):
    """JSON and YAML have the same."""
    await training.run("status", "test-js", "-o", "json")
    found = json.loads(capsys.readouterr().out)

    assert [each["pod"] for each in found["barrier"]["waitsFor"]] == ["test-js-w-0-1"]
    assert found["budget"] == {"max": 3, "spent": 1, "left": 2}
    await training.run("status", "test-js", "-o", "yaml")
    assert "syncedEpoch" not in capsys.readouterr().out


async def test_seats_and_spares_are_shown(training, capsys):
    """Who has which seat, which pods are spares, and how many of these are ready."""
    world = training.world
    note = "jobset.sigs.k8s.io/in-place-restart-"
    for job in world.list("jobs"):
        meta = {"metadata": {"annotations": {f"{note}spares": "1"}}}
        world.patch("jobs", job["metadata"]["name"], meta)
    pods = {pod["metadata"]["name"]: pod for pod in world.list("pods")}
    holder, job = pods["test-js-w-0-1"]["metadata"], "test-js-w-0"
    meta = {"metadata": {"annotations": {f"{note}state": "ready"}}}
    world.patch("pods", "test-js-w-0-0", meta)
    entry = {"job": job, "seat": 0, "pod": holder["name"], "podUID": holder["uid"]}
    status = {"inPlaceRestart": {"readySpares": 1, "takenSeats": [entry]}}
    world.patch("jobsets", "test-js", {"status": status}, subresource="status")
    await training.run("status", "test-js")
    text = capsys.readouterr().out

    assert "spares: 1 of 1 ready" in text
    assert "test-js-w-0-0 Running not ready epoch 3 spare, ready node-1" in text
    assert "seat 0" in text


def job_with_spare_jobs(index):
    """One of three Jobs with a pod each; the last one is a spare."""
    note, name = "jobset.sigs.k8s.io/", f"js-w-{index}"
    notes = {
        f"{note}in-place-restart-spares": "0",
        f"{note}in-place-restart-spare-replicas": "1",
        f"{note}job-index": str(index),
        f"{note}replicatedjob-replicas": "3",
    }
    owner = {"uid": "js", "controller": True}
    meta = {
        "name": name, "uid": name, "annotations": notes, "ownerReferences": [owner],
        "labels": {f"{note}replicatedjob-name": "w"},
    }  # fmt: skip
    return {"metadata": meta, "spec": {"parallelism": 1}}


def pod_of(index):
    """The pod of such a Job."""
    name = f"js-w-{index}"
    owner = {"uid": name, "controller": True}
    notes = {"batch.kubernetes.io/job-completion-index": "0"}
    meta = {
        "name": f"{name}-0",
        "uid": f"{name}-0",
        "annotations": notes,
        "ownerReferences": [owner],
    }
    return {"metadata": meta, "status": {"phase": "Running"}}


def test_spare_jobs_are_shown():
    """Which Job is a spare, and which one holds the seats of another."""
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
    text = status.drawn(found, datetime.now(UTC)) + "\n"
    assert "spares: 0 of 1 ready, 1 spare job" in text
    assert "js-w-0 Running 0/1 ready, spare\n" in text
    assert "js-w-2 Running 0/1 ready, seats of js-w-0\n" in text


async def test_pods_of_others_are_not_shown(training, capsys):
    """A label alone makes no pod one of the JobSet's."""
    stranger = training.world.list("pods")[0]
    stranger["metadata"] = {"name": "stranger", "labels": stranger["metadata"]["labels"]}
    training.world.create("pods", stranger)
    await training.run("status", "test-js")

    assert "stranger" not in capsys.readouterr().out


async def test_what_is_not_there(kubectl):
    """The error says what kubectl says."""
    with pytest.raises(NotFoundError) as raised:
        await kubectl.run("status", "nothing")

    assert (
        explain(raised.value, "https://test:6443")
        == 'Error from server (NotFound): jobsets.jobset.x-k8s.io "nothing" not found'
    )


class TestRestarts:
    async def test_the_table(self, training, capsys):
        """Cause with the signal's name, durations, the last pod."""
        await training.run("restarts", "test-js")
        text = capsys.readouterr().out

        for part in ("in place, epoch 2", "exit 137 (SIGKILL)", "1.5 s", "12 ms", "test-js-w-0-0"):
            assert part in text, text

    async def test_pictures(self, training, tmp_path):
        """Well-formed, with a bar for each phase; what the cluster says is no markup."""
        svg, html = tmp_path / "a.svg", tmp_path / "a.html"
        await training.run("restarts", "test-js", "--svg", str(svg), "--html", str(html))
        bars = ET.parse(svg).findall(".//{*}rect/{*}title")

        assert [bar.text for bar in bars] == [
            "detection: 40 ms",
            "deprecation: 1.5 s",
            "gathering: 2.5 s, last came test-js-w-0-0",
            "lift: 12 ms",
        ]
        assert "node-&lt;1&gt;" in html.read_text()
        assert "<1>" not in html.read_text()

    async def test_no_history(self, kubectl, capsys):
        """None yet, or a definition that knows none: each is said."""
        kubectl.jobset()
        await kubectl.run("restarts", "test-js")
        assert "No restarts of test-js." in capsys.readouterr().out

        kubectl.world.patch("jobsets", "test-js", {"status": {"restarts": 4}}, subresource="status")
        await kubectl.run("restarts", "test-js")
        assert "has no history" in capsys.readouterr().out

    async def test_a_file_that_cannot_be_written(self, training):
        """A sentence with the file's name."""
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
    def test_durations(self, millis, text):
        """A restart of many minutes is no power of ten."""
        assert output.millis(millis) == text

    async def test_the_title_reports_how_many_pods(self, training, capsys):
        """As of the last time that all had come, if that is known."""
        await training.run("restarts", "test-js", "--svg", "-")
        assert "<title>Restarts of default/test-js</title>" in capsys.readouterr().out

        status = {"inPlaceRestart": {"pods": 2}}
        training.world.patch("jobsets", "test-js", {"status": status}, subresource="status")
        await training.run("restarts", "test-js", "--svg", "-")
        assert "<title>Restarts of default/test-js, 2 pods</title>" in capsys.readouterr().out

    def test_an_empty_history_is_a_picture_too(self):
        """It says so."""
        assert "no restarts yet" in timeline.svg("t", [])


class TestWatch:
    async def test_where_there_is_no_terminal(self, training, capsys, monkeypatch):
        """Once more with each change; a server that is away for a while does not end it."""
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

    async def test_a_jobset_that_is_deleted(self, training, monkeypatch):
        """It ends as the command would without a watch."""
        monkeypatch.setattr(status, "EVERY_S", 0.01)
        with pytest.raises(NotFoundError):
            async with asyncio.timeout(30):
                await watch_until_deleted(training)


async def watch_until_deleted(training):
    """Watch a JobSet, and delete it once it has been shown."""
    training.world.faults.latency(0.01, verb="list", resource="pods")
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(training.run("status", "test-js", "--watch"))
            await asyncio.sleep(0.05)
            training.world.delete("jobsets", "test-js")
    except ExceptionGroup as ended:
        raise ended.exceptions[0] from None
