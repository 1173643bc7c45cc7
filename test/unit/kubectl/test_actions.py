"""``restart``, ``suspend``, ``resume`` and completion."""

from __future__ import annotations

import json

import pytest

from jobsetpy.api import keys
from jobsetpy.kubectl import completion
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.kubectl.main import COMMANDS
from support.jobsets import replicated_job


def restarted(kubectl):
    """Return the names of the Jobs that are annotated to be recreated."""
    return sorted(
        job["metadata"]["name"]
        for job in kubectl.world.list("jobs")
        if keys.RESTART_ANNOTATION in job["metadata"].get("annotations", {})
    )


@pytest.fixture
def two(kubectl):
    """A JobSet with two Jobs of one ReplicatedJob, and one of another."""
    made = kubectl.jobset(replicated_job("w", 2), replicated_job("d"))
    for item, index in (("w", 0), ("w", 1), ("d", 0)):
        kubectl.job(made, item, index)
    return kubectl


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), ["test-js-d-0", "test-js-w-0", "test-js-w-1"]),
        (("--job", "test-js-w-1"), ["test-js-w-1"]),
        (("--replicated-job", "w"), ["test-js-w-0", "test-js-w-1"]),
        (("--dry-run", "server"), []),
    ],
)
async def test_restart_annotates_the_chosen_jobs(two, capsys, flags, expected):
    """The controller acts on the annotation; a dry run changes nothing."""
    await two.run("restart", "test-js", *flags)

    assert restarted(two) == expected
    assert "job.batch/test-js-w-1 restarted" in capsys.readouterr().out or "w-1" not in expected


async def test_restart_in_place_annotates_the_jobset(training):
    """The value differs each time, and no Job is changed."""
    values = []
    for _ in range(2):
        await training.run("restart", "test-js", "--in-place")
        annotations = training.world.get("jobsets", "test-js")["metadata"]["annotations"]
        values.append(annotations["jobset.sigs.k8s.io/restart-in-place"])

    assert restarted(training) == []
    assert values[0] != values[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("restart", "test-js", "--in-place"), "restartStrategy is not InPlaceRestart"),
        (("restart", "test-js", "--job", "x"), 'has no job "x"'),
        (("restart", "test-js", "--replicated-job", "x"), 'has no jobs of "x"'),
    ],
)
async def test_restart_is_refused_with_a_reason(two, arguments, message):
    """Nothing is changed."""
    with pytest.raises(CommandError, match=message):
        await two.run(*arguments)
    assert restarted(two) == []


async def test_suspend_and_resume_change_the_spec(two, capsys):
    """The output says so, and whether there was anything to change."""
    await two.run("suspend", "test-js")
    assert two.world.get("jobsets", "test-js")["spec"]["suspend"] is True
    with pytest.raises(CommandError, match="is suspended; resume it instead"):
        await two.run("restart", "test-js")
    await two.run("resume", "test-js")
    await two.run("resume", "test-js")

    assert capsys.readouterr().out.splitlines() == [
        "jobset.jobset.x-k8s.io/test-js suspended",
        "jobset.jobset.x-k8s.io/test-js resumed",
        "jobset.jobset.x-k8s.io/test-js resumed (no change)",
    ]


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        (("suspend",), ["JobSet"]),
        (("resume",), ["JobSet"]),
        (("restart", "--job", "test-js-w-1"), ["Job"]),
        (("restart",), ["List", "Job", "Job", "Job"]),
    ],
)
async def test_output_for_programs_has_the_stored_objects(two, capsys, arguments, kinds):
    """It is one document, whether they were changed or not."""
    for job in two.world.list("jobs"):
        job.setdefault("kind", "Job")
    command, *flags = arguments
    await two.run(command, "test-js", *flags, "-o", "json")
    found = json.loads(capsys.readouterr().out)

    assert kinds == [each["kind"] for each in (found, *found.get("items", ()))]


async def test_jobset_that_has_ended_is_not_restarted(kubectl):
    """The error says so."""
    kubectl.jobset(status={"conditions": [{"type": "Failed", "status": "True"}]})
    with pytest.raises(CommandError, match="has ended"):
        await kubectl.run("restart", "test-js")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["st"], (["status"], ":4")),
        (["restart", "--k"], (["--kubeconfig"], ":4")),
        (["-o", "j"], (["json"], ":4")),
        (["--kubeconfig", ""], ([], ":0")),
        ([], (list(COMMANDS), ":4")),
        (["status", "--w"], (["--watch"], ":4")),
        (["restarts", "x", "--svg", ""], ([], ":0")),
        (["restart", "--in"], (["--in-place"], ":4")),
        (["lint", "--s"], (["--server"], ":4")),
        (["suspend", "x", "--dry-run", ""], (["none", "server"], ":4")),
    ],
)
def test_completion_suggests_the_next_word(words, expected):
    """The suggestions have kubectl's format."""
    assert completion.suggestions(words) == expected


def test_completion_without_a_cluster_suggests_nothing(tmp_path, monkeypatch, capsys):
    """It does not fail."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert completion.main(["status", ""]) == 0
    assert capsys.readouterr().out.strip() == ":4"
