"""``kubectl jobset simulate``: decisions of the controllers' own rules, and their times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from jobsetpy.kubectl import main as plugin
from jobsetpy.reconcilers.coscheduling.plan import plan_coscheduling
from jobsetpy.testing.jobsets import jobset_json, replicated_job

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def simulate(capsys, file, *flags):
    """Run the command; return its output."""
    code = plugin.main(["simulate", str(file), *flags, "-o", "json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


@pytest.fixture
def manifest(tmp_path):
    """Function that writes a manifest of two Jobs with two pods each."""

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


def time_of(found, text):
    """Return the second at which a text was first logged."""
    return next(each["seconds"] for each in found["log"] if text in each["text"])


class TestJobs:
    def test_failure_recreates_all_jobs_after_the_backoff_limit(self, manifest, capsys):
        """It takes one failed pod more than the limit allows."""
        file = manifest(job_spec={"backoffLimit": 1})
        once = simulate(capsys, file, "--fail", "w-0-1@30s")
        twice = simulate(capsys, file, "--fail", "w-0-1@30s", "--fail", "w-0-0@40s:exit=3")

        assert (once["restarts"], once["state"]) == ([], "Running")
        (restart,) = twice["restarts"]
        assert (restart["kind"], restart["outcome"]) == ("Recreate", "Completed")
        assert restart["cause"]["job"] == "js-w-0"
        assert twice["spent"] == 1

    def test_pod_failure_policy_is_applied(self, manifest, capsys):
        """An exit code that fails the Job matches the JobSet's rule for it."""
        codes = {"operator": "In", "values": [42]}
        file = manifest(
            [{"name": "bug", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
            {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]}},
        )
        found = simulate(capsys, file, "--fail", "w-1-0@1m:exit=42")

        assert found["state"] == "Failed"
        assert time_of(found, "FailJobSet") == 60.0

    def test_jobset_fails_when_its_budget_is_spent(self, manifest, capsys):
        """It fails at the moment of the first failure without a restart left."""
        flags = [
            each for at in (100, 1000, 2000) for each in ("--fail-job", f"w-0@{at}s:reason=Evicted")
        ]
        found = simulate(capsys, manifest(), *flags)

        assert (found["state"], found["spent"]) == ("Failed", 2)
        assert time_of(found, "ReachedMaxRestarts") == 2000.0

    def test_fault_of_a_pod_that_does_not_run_is_reported(self, manifest, capsys):
        """It changes nothing."""
        found = simulate(capsys, manifest(), "--fail", "w-7-7@30s", "--lose-node", "x@31s")

        assert (found["restarts"], found["state"]) == ([], "Running")
        assert time_of(found, "js-w-7-7 does not run")
        assert time_of(found, "no pod js-x")


class TestInPlace:
    def test_supervisors_restart_together(self, capsys):
        """All follow within a fifth of a second; another failure soon after that is delayed."""
        file = EXAMPLES / "in-place-restart" / "injected-supervisor.yaml"
        flags = ("--fail", "workers-0-3@90s:exit=137", "--fail", "workers-0-1@91s")
        found = simulate(capsys, file, *flags, "--lose-node", "workers-0-2@10m")

        kinds = [(each["number"], each["cause"]["reason"]) for each in found["restarts"]]
        assert kinds == [(2, "PodRestarted"), (3, "PodRestarted"), (4, "PodDeleted")]
        assert time_of(found, "at epoch 2") == pytest.approx(90.2)
        assert time_of(found, "waits 1 s") == 91.0
        assert found["spent"] == 3

    def test_sidecars_restart_with_their_pods(self, capsys):
        """The cause has the exit code, and the kubelets restart the pods."""
        file = EXAMPLES / "in-place-restart" / "sidecar.yaml"
        found = simulate(capsys, file, "--fail", "workers-0-3@90s:exit=137", "--start", "2")
        (restart,) = found["restarts"]

        assert restart["cause"]["exitCode"] == 137
        assert time_of(found, "at epoch 2") == 92.0


def test_spare_takes_the_seat_of_a_pod_that_fails(capsys, tmp_path):
    """The restart does not wait for the pod's replacement."""
    path = with_spares(tmp_path, {"in-place-restart-end-pod-exit-codes": "3"})
    found = simulate(capsys, path, "--fail", "w-0-1@30s:exit=3")

    (restart,) = found["restarts"]
    assert (restart["outcome"], restart["seatsTaken"]) == ("Completed", 1)
    assert time_of(found, "SeatTaken: pod 'js-w-0-2' takes seat 1 of job 'js-w-0'") < 32


def test_spare_job_takes_all_seats_of_a_job_that_loses_a_pod(capsys, tmp_path):
    """The restart does not wait for a replacement; the Job with the lost pod is the next spare."""
    annotations = {
        "in-place-restart-end-pod-exit-codes": "3",
        "in-place-restart-spares": "0",
        "in-place-restart-spare-replicas": "1",
    }
    path = with_spares(tmp_path, annotations, jobs=3)
    found = simulate(capsys, path, "--fail", "w-1-1@30s:exit=3", "--fail", "w-0-1@90s:exit=3")

    first, second = found["restarts"]
    assert (first["outcome"], first["seatsTaken"]) == ("Completed", 3)
    assert time_of(found, "SeatTaken: job 'js-w-2' takes all seats of job 'js-w-1'") < 32
    assert (second["outcome"], second["seatsTaken"]) == ("Completed", 3)
    assert time_of(found, "SeatTaken: job 'js-w-1' takes all seats of job 'js-w-0'") < 92


START = {"in-place-restart-start-without-spares": "true"}
GANG = {"coscheduling": "JobSet"}
RACK = {"exclusive-topology": "rack"}


@pytest.mark.parametrize(
    ("annotations", "missing", "seconds"),
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
def test_group_starts_or_reports_what_it_waits_for_when_a_pod_finds_no_node(
    capsys, tmp_path, annotations, missing, seconds
):
    """There are two seats and a spare: without a gang, in a gang, with exclusive placement."""
    found = simulate(capsys, with_spares(tmp_path, annotations), "--no-node", missing)

    assert found["restarts"] == []
    assert time_of(found, f"js-{missing} waits: it finds no node") == 5
    if isinstance(seconds, str):
        assert time_of(found, seconds) == 5
        assert not any("SeatTaken" in each["text"] for each in found["log"])
    elif seconds is not None:
        assert time_of(found, "SeatTaken: pod 'js-w-0-2' takes seat 1") == seconds


def test_gang_does_not_wait_for_lost_spares_when_its_workers_have_run(capsys, tmp_path):
    """After the first start, a pod that replaces a lost one waits for nodes for the seats alone."""
    flags = ("--no-node", "w-0-2@30s", "--lose-node", "w-0-2@30s", "--lose-node", "w-0-1@60s")
    found = simulate(capsys, with_spares(tmp_path, GANG), *flags)

    assert time_of(found, "js-w-0-2 waits: it finds no node") == 35
    (restart,) = found["restarts"]
    assert (restart["cause"]["pod"], restart["outcome"]) == ("js-w-0-1", "Completed")
    assert time_of(found, "2 pods are at epoch 2: workers may run") == 65


def test_gangs_are_planned_once_a_moment_when_many_pods_start(capsys, tmp_path, monkeypatch):
    """The work at a start grows with the pods, not with their square."""
    moments = []

    def counted(observed, memory, now):
        moments.append(now.monotonic)
        return plan_coscheduling(observed, memory, now)

    monkeypatch.setattr("jobsetpy.kubectl.simulate.plan_coscheduling", counted)
    found = simulate(capsys, with_spares(tmp_path, GANG, jobs=4))

    assert found["state"] == "Running"
    assert len(moments) == len(set(moments))


def with_spares(folder, more, jobs=1):
    """Write the manifest of Jobs with two seats and a spare; return its path."""
    annotations = {
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
        for name, value in annotations.items()
    }
    path = folder / "js.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--fail", "w-0-0"], "is not NAME@TIME"),
        (["--fail", "@90s"], "is not NAME@TIME"),
        (["--fail", "w-0-0@1.2.3s"], "is not NAME@TIME"),
        (["--fail", "w-0-0@1s:exit=0"], "is not exit=CODE"),
        (["--fail-job", "w-0@1s:because"], "is not reason=WORD"),
    ],
)
def test_invalid_fault_is_refused(manifest, capsys, flags, message):
    """The error has the right form."""
    assert plugin.main(["simulate", str(manifest()), *flags]) == 1
    assert message in capsys.readouterr().err


def test_invalid_manifest_is_refused(manifest, capsys):
    """The errors are those of lint."""
    file = manifest(restartStrategy="InPlaceRestart")

    assert plugin.main(["simulate", str(file)]) == 1
    assert "error: " in capsys.readouterr().err


def test_output_for_people_has_times_decisions_and_the_end(manifest, capsys):
    """It is a table with a summary."""
    assert plugin.main(["simulate", str(manifest()), "--fail-job", "w-1@2m"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].split() == ["2m00.0s", "!", "job", "js-w-1", "fails:", "BackoffLimitExceeded"]
    assert "1 of 2 restarts that count are spent." in lines
    assert lines[-1] == "- Recreate (1), counted: BackoffLimitExceeded js-w-1"
