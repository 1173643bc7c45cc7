"""``kubectl jobset simulate``: what would be decided when, by the controllers' own rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from jobsetpy.kubectl import main as plugin
from jobsetpy.testing.jobsets import jobset_json, replicated_job

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def simulate(capsys, file, *flags):
    """What came of it."""
    code = plugin.main(["simulate", str(file), *flags, "-o", "json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


@pytest.fixture
def manifest(tmp_path):
    """Writes a manifest of two Jobs with two pods each."""

    def write(rules=(), job_spec=None, *, max_restarts=2, container=None, **policy):
        pod = {"containers": [{"name": "worker", "image": "w:1", **(container or {})}]}
        item = replicated_job("w", 2, parallelism=2, job_spec=job_spec, pod_spec=pod)
        policy = {"maxRestarts": max_restarts, "rules": list(rules), **policy}
        data = jobset_json(item, name="js", failurePolicy=policy)
        data.update(apiVersion="jobset.x-k8s.io/v1alpha2", kind="JobSet")
        path = tmp_path / "js.yaml"
        path.write_text(yaml.safe_dump(data))
        return path

    return write


def told(found, text):
    """When something was told first, in seconds."""
    return next(each["seconds"] for each in found["log"] if text in each["text"])


class TestJobs:
    def test_a_failure_recreates_all_jobs(self, manifest, capsys):
        """After as many failed pods as the back-off limit allows, and as many restarts."""
        file = manifest(job_spec={"backoffLimit": 1})
        once = simulate(capsys, file, "--fail", "w-0-1@30s")
        twice = simulate(capsys, file, "--fail", "w-0-1@30s", "--fail", "w-0-0@40s:exit=3")

        assert (once["restarts"], once["state"]) == ([], "Running")
        (restart,) = twice["restarts"]
        assert (
            restart["kind"],
            restart["cause"]["job"],
            restart["outcome"],
        ) == ("Recreate", "js-w-0", "Completed")
        assert twice["spent"] == 1

    def test_pod_failure_policies(self, manifest, capsys):
        """An exit code that fails the Job at once meets the JobSet's rule for that."""
        codes = {"operator": "In", "values": [42]}
        file = manifest(
            [{"name": "bug", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
            {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]}},
        )
        found = simulate(capsys, file, "--fail", "w-1-0@1m:exit=42")

        assert found["state"] == "Failed"
        assert told(found, "FailJobSet") == 60.0

    def test_the_budget(self, manifest, capsys):
        """One failure more than restarts ends the JobSet, at that moment."""
        flags = [
            each for at in (100, 1000, 2000) for each in ("--fail-job", f"w-0@{at}s:reason=Evicted")
        ]
        found = simulate(capsys, manifest(), *flags)

        assert (found["state"], found["spent"]) == ("Failed", 2)
        assert told(found, "ReachedMaxRestarts") == 2000.0

    def test_a_pod_that_does_not_run(self, manifest, capsys):
        """It is said, and nothing happens."""
        found = simulate(capsys, manifest(), "--fail", "w-7-7@30s", "--lose-node", "x@31s")

        assert (found["restarts"], found["state"]) == ([], "Running")
        assert told(found, "js-w-7-7 does not run")
        assert told(found, "no pod js-x")


class TestInPlace:
    def test_supervisor(self, capsys):
        """All follow within a fifth of a second; one that comes at once after that is delayed."""
        file = EXAMPLES / "in-place-restart" / "injected-supervisor.yaml"
        flags = ("--fail", "workers-0-3@90s:exit=137", "--fail", "workers-0-1@91s")
        found = simulate(capsys, file, *flags, "--lose-node", "workers-0-2@10m")

        kinds = [(each["number"], each["cause"]["reason"]) for each in found["restarts"]]
        assert kinds == [(2, "PodRestarted"), (3, "PodRestarted"), (4, "PodDeleted")]
        assert pytest.approx(90.2) == told(found, "at epoch 2")
        assert told(found, "waits 1 s") == 91.0
        assert found["spent"] == 3

    def test_sidecar(self, capsys):
        """The exit code is seen, and the pods restart by their kubelets."""
        file = EXAMPLES / "in-place-restart" / "sidecar.yaml"
        found = simulate(capsys, file, "--fail", "workers-0-3@90s:exit=137", "--start", "2")
        (restart,) = found["restarts"]

        assert restart["cause"]["exitCode"] == 137
        assert told(found, "at epoch 2") == 92.0


def test_a_spare_takes_the_seat_of_a_pod_that_fails(capsys, tmp_path):
    """The restart does not wait for the pod's replacement."""
    path = with_spares(tmp_path, {"in-place-restart-end-pod-exit-codes": "3"})
    found = simulate(capsys, path, "--fail", "w-0-1@30s:exit=3")

    (restart,) = found["restarts"]
    assert (restart["outcome"], restart["seatsTaken"]) == ("Completed", 1)
    lifted = told(found, "SeatTaken: pod 'js-w-0-2' takes seat 1 of job 'js-w-0'")
    assert lifted < 32


def test_a_spare_job_takes_all_seats_of_a_job_that_loses_a_pod(capsys, tmp_path):
    """The restart waits for no replacement; the Job with a lost pod is the next spare."""
    notes = {
        "in-place-restart-end-pod-exit-codes": "3",
        "in-place-restart-spares": "0",
        "in-place-restart-spare-replicas": "1",
    }
    path = with_spares(tmp_path, notes, jobs=3)
    found = simulate(capsys, path, "--fail", "w-1-1@30s:exit=3", "--fail", "w-0-1@90s:exit=3")

    first, second = found["restarts"]
    assert (first["outcome"], first["seatsTaken"]) == ("Completed", 3)
    assert told(found, "SeatTaken: job 'js-w-2' takes all seats of job 'js-w-1'") < 32
    assert (second["outcome"], second["seatsTaken"]) == ("Completed", 3)
    assert told(found, "SeatTaken: job 'js-w-1' takes all seats of job 'js-w-0'") < 92


START = {"in-place-restart-start-without-spares": "true"}
GANG = {"coscheduling": "JobSet"}
RACK = {"exclusive-topology": "rack"}


@pytest.mark.parametrize(
    ("notes", "missing", "seconds"),
    [
        ({}, "w-0-2", None),
        ({}, "w-0-1", 65),
        (START, "w-0-1", 10),
        (START | GANG, "w-0-2", None),
        (START | GANG, "w-0-1", 10),
        (GANG, "w-0-2", "js-w-0-0 waits: nodes for 2 of 3 pods of its gang"),
        (RACK, "w-0-2", None),
        (RACK, "w-0-0", "js-w-0-1 waits: js-w-0-0, whose domain it follows, finds no node"),
    ],
)
def test_group_starts_or_says_what_it_waits_for_when_a_pod_finds_no_node(
    capsys, tmp_path, notes, missing, seconds
):
    """Two seats and a spare: alone, in a gang, under exclusive placement."""
    found = simulate(capsys, with_spares(tmp_path, notes), "--no-node", missing)

    assert found["restarts"] == []
    assert told(found, f"js-{missing} waits: it finds no node") == 5
    if isinstance(seconds, str):
        assert told(found, seconds) == 5
        assert not any("SeatTaken" in each["text"] for each in found["log"])
    elif seconds is not None:
        assert told(found, "SeatTaken: pod 'js-w-0-2' takes seat 1") == seconds


def with_spares(folder, more, jobs=1):
    """Writes the manifest of a Job with two seats and a spare."""
    notes = {
        "in-place-restart-agent": "supervisor",
        "in-place-restart-processes": "1",
        "in-place-restart-spares": "1",
        **more,
    }
    container = {"name": "worker", "image": "w:1", "command": ["python3", "train.py"]}
    item = replicated_job("w", jobs, parallelism=3, pod_spec={"containers": [container]})
    item["template"]["spec"]["completions"] = 3
    policy = {"maxRestarts": 2, "restartStrategy": "InPlaceRestart"}
    data = jobset_json(item, name="js", failurePolicy=policy)
    data.update(apiVersion="jobset.x-k8s.io/v1alpha2", kind="JobSet")
    alpha = {"exclusive-topology"}
    data["metadata"]["annotations"] = {
        f"{'alpha.' if name in alpha else ''}jobset.sigs.k8s.io/{name}": value
        for name, value in notes.items()
    }
    path = folder / "js.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--fail", "w-0-0"], "is not NAME@TIME"),
        (["--fail", "w-0-0@1.2.3s"], "is not NAME@TIME"),
        (["--fail", "w-0-0@1s:exit=0"], "is not exit=CODE"),
        (["--fail-job", "w-0@1s:because"], "is not reason=WORD"),
    ],
)
def test_bad_faults(manifest, capsys, flags, message):
    """A sentence says how they are written."""
    assert plugin.main(["simulate", str(manifest()), *flags]) == 1
    assert message in capsys.readouterr().err


def test_a_refused_manifest(manifest, capsys):
    """It is told why, as by lint."""
    file = manifest(restartStrategy="InPlaceRestart")

    assert plugin.main(["simulate", str(file)]) == 1
    assert "error: " in capsys.readouterr().err


def test_for_people(manifest, capsys):
    """Times, decisions, and the end."""
    assert plugin.main(["simulate", str(manifest()), "--fail-job", "w-1@2m"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].split() == ["2m00.0s", "!", "job", "js-w-1", "fails:", "BackoffLimitExceeded"]
    assert "1 of 2 restarts that count are spent." in lines
    assert lines[-1] == "- Recreate (1), counted: BackoffLimitExceeded js-w-1"
