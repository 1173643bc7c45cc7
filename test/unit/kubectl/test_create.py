"""``kubectl jobset create``, ``list`` and ``scale``."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from unittest.mock import AsyncMock

import pytest
import yaml
from multidict import CIMultiDict

from jobsetpy.api import keys
from jobsetpy.client import HttpResponse
from jobsetpy.kubectl import cluster, listing, status
from jobsetpy.kubectl import main as plugin
from jobsetpy.kubectl.kubeconfig import Target
from support.jobsets import jobset_json, replicated_job
from support.patience import eventually

PROGRAM = ("--", "python", "train.py", "--lr", "3")
NOW = datetime(2026, 1, 1, 1, 0, tzinfo=UTC)


@pytest.fixture
def run(kubectl, monkeypatch, capsys):
    """Function that runs the whole plugin in a thread; it returns exit code, output and errors."""
    where = Target(kubectl.transport, "https://test:6443", "default")
    monkeypatch.setattr(cluster, "target", AsyncMock(return_value=where))

    def one(*words):
        code = plugin.main(words)
        return code, *capsys.readouterr()

    return one


def test_dry_run_prints_the_manifest(run):
    """The program's own flags are left alone; the manager adds the spares."""
    code, out, _ = run(
        "create", "llm", "--image", "r/x:1", "--nodes", "4", "--nproc", "8", "--spares", "1",
        "--gpus", "2", "--queue", "q", "--dry-run", "-o", "yaml", *PROGRAM,
    )  # fmt: skip
    made = yaml.safe_load(out)

    assert code == 0
    assert made["metadata"] == {
        "name": "llm",
        "annotations": {
            keys.IN_PLACE_RESTART_ANNOTATION: "fast",
            keys.IN_PLACE_PROCESSES_ANNOTATION: "8",
            keys.IN_PLACE_SPARES_ANNOTATION: "1",
        },
        "labels": {keys.KUEUE_QUEUE_LABEL: "q"},
    }
    spec = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (spec["parallelism"], spec["completions"]) == (4, 4)
    assert spec["template"]["spec"]["containers"] == [
        {
            "name": "worker",
            "image": "r/x:1",
            "command": list(PROGRAM[1:]),
            "resources": {"limits": {"nvidia.com/gpu": 2}},
        }
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x", "--image", "r"], "error: the program is missing: put it after --"),
        (["x" * 58, "--image", "r", *PROGRAM], "JobSet name is too long"),
        (["X_1", "--image", "r", *PROGRAM], "error: NAME 'X_1': a DNS-1035 label must"),
        (["x", "--image", "", *PROGRAM], "error: --image is empty: name the image"),
        (["x", "--image", "r", "--queue", "a b", *PROGRAM], "error: --queue 'a b': a valid label"),
        (["x", "--image", "r", "--spares", "1", *PROGRAM], "error: --spares needs --nproc N"),
        (["x", "--image", "r", "python"], "python: the program and its arguments go after --"),
        (["x", "--image", "r", "-o", "json", *PROGRAM], ""),
    ],
)
def test_invalid_request_is_refused_before_it_is_sent(run, kubectl, words, message):
    """No JobSet is created."""
    code, _, err = run("create", *words)

    assert (code != 0, message in err) == (bool(message), True)
    assert len(kubectl.world.list("jobsets")) == (0 if message else 1)


def test_unknown_command_has_a_suggestion(run):
    """It is the one that is spelt most alike."""
    assert run("creat", "x") == (2, "", "error: unknown command 'creat': did you mean 'create'?\n")


@pytest.mark.parametrize("command", ["list", "status"])
def test_closed_output_is_no_error(run, kubectl, monkeypatch, command):
    """Python has no `sys.stdout` then."""
    kubectl.jobset(replicated_job("w", 1))
    monkeypatch.setattr("sys.stdout", None)

    assert plugin.main((command, "test-js")[: 2 if command == "status" else 1]) == 0
    sys.stdout.close()


async def test_wait_shows_progress_and_exits_with_the_outcome(kubectl, monkeypatch, capsys):
    """An outage of the API server does not end it."""
    monkeypatch.setattr(status, "EVERY_S", 0.01)
    where = Target(kubectl.transport, "https://test:6443", "default")
    kubectl.jobset(replicated_job("w", 1))
    seen = []

    def shown(part):
        seen.append(capsys.readouterr().err)
        return part in "".join(seen)

    from jobsetpy.kubectl.create import _ended

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(_ended(cluster.Cluster(where), "test-js"))
        await eventually(lambda: shown("test-js is waiting, 0 restarts"))
        kubectl.world.faults.status(503)
        await eventually(lambda: shown("Error from server"))
        kubectl.world.faults.clear()
        # It serves requests before it has read roles and definitions of resources.
        for code in (403, 404):
            starting = kubectl.world.faults.status(code)
            await eventually(lambda starting=starting: starting.hits >= 3)
            kubectl.world.faults.clear()
        failed = {
            "type": "Failed", "status": "True", "message": "jobset failed",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        change = {"status": {"conditions": [failed]}}
        kubectl.world.patch("jobsets", "test-js", change, subresource="status")
    assert waiting.result() == 1
    assert shown("test-js is failed, 0 restarts: test-js has failed")


def test_listed_jobset_has_its_rate_and_share():
    """The rate is that of the last minute; the share, since creation."""
    record = {"kind": "InPlace", "outcome": "Completed", "detectionMillis": 1000}
    jobset = jobset_json(
        replicated_job("w", 1), failurePolicy={"restartStrategy": "InPlaceRestart"}
    )
    jobset["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    jobset["status"] = {
        "syncedEpoch": 3,
        "inPlaceRestart": {"restarts": 2, "highestStep": 90},
        "restartHistory": [
            record | {"beganAt": "2026-01-01T00:10:00Z"},
            record | {"beganAt": "2026-01-01T00:10:31Z"},
        ],
    }
    notes = {keys.PROGRESS_ANNOTATION: "110", keys.PACE_ANNOTATION: "140 0.250"}
    found = listing.entry(jobset, [notes], NOW)

    assert {key: found[key] for key in ("epoch", "step", "stepsPerSecond", "restarts")} == {
        "epoch": 3, "step": 140, "stepsPerSecond": 0.25, "restarts": 2,
    }  # fmt: skip
    assert found["running"] == pytest.approx(1 - 2 / 3600)


def test_list_shows_all_jobsets(run, kubectl):
    """Without any, it says so."""
    assert run("list")[1] == "No JobSets found.\n"
    kubectl.jobset(replicated_job("w", 1))
    head, line = run("list", "-A")[1].splitlines()

    assert head.split()[:3] == ["NAMESPACE", "NAME", "STATE"]
    assert line.split()[:3] == ["default", "test-js", "Waiting"]


async def test_warnings_of_the_api_server_are_shown(capsys):
    """As kubectl does: on standard error, such as for ignored defaults of the namespace."""

    class Answers:
        async def request(self, request):
            texts = [("Warning", f'299 - "{each}"') for each in ("one", r"a \"b\"")]
            return HttpResponse(201, CIMultiDict([("Date", "now"), *texts]), b"{}")

    await cluster.Cluster(Target(Answers(), "https://x", "default")).send("POST", "/x", {})

    assert capsys.readouterr() == ("", 'Warning: one\nWarning: a "b"\n')


def test_scale_changes_elastic_jobs_only(run, kubectl):
    """Both numbers of a template are set; another template is refused."""
    elastic = replicated_job("w", 1, parallelism=2, job_spec={"completions": 2})
    kubectl.jobset(elastic, replicated_job("fixed", 1, parallelism=2, job_spec={"completions": 9}))
    with pytest.raises(SystemExit):
        run("scale", "test-js", "--nodes", "0")
    refused = run("scale", "test-js", "--nodes", "3")
    code, out, _ = run("scale", "test-js", "--nodes", "3", "--replicated-job", "w")
    items = kubectl.world.list("jobsets")[0]["spec"]["replicatedJobs"]
    sizes = [
        (each["template"]["spec"].get("parallelism"), each["template"]["spec"].get("completions"))
        for each in items
    ]

    assert refused[0] == 1
    assert "the Jobs of fixed cannot be resized" in refused[2]
    assert (code, out) == (0, "jobset.jobset.x-k8s.io/test-js scaled to 3\n")
    assert (sizes[0], json.dumps(items).count('"parallelism": 3')) == ((3, 3), 1)
