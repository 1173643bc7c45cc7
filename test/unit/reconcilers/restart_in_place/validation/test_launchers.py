"""Warnings about workers that are started by a launcher."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.validation.launchers import MAX_WARNINGS, warnings
from jobsetpy.reconcilers.rules.features import Features
from support.restarts import injection_kit
from support.restarts.injection_kit import job


def jobset(*commands, agent=None, strategy="InPlaceRestart", **container):
    """Return a JobSet with one ReplicatedJob for each command."""
    prefix = [] if agent is None else [agent]
    jobs = [
        job(f"w{at}", replicas=2, parallelism=2,
            containers=[{"name": "c", "command": [*prefix, *command], **container}])
        for at, command in enumerate(commands)
    ]  # fmt: skip
    return injection_kit.jobset(*jobs, mode=None, strategy=strategy)


def texts(obj):
    """Return the warnings as text."""
    return [str(each) for each in warnings(obj, Features())]


def test_warning_names_the_replacement_of_a_launcher():
    """The annotation and the command; limits give the number of devices."""
    obj = jobset(
        ["torchrun", "--nnodes=4", "--nproc-per-node=gpu", "--max-restarts=3", "train.py"],
        agent=keys.AGENT_PROGRAM,
        resources={"limits": {"nvidia.com/gpu": "8"}},
    )

    (text,) = texts(obj)
    assert text == (
        "spec.replicatedJobs[0].template.spec.template.spec.containers[0].command: torchrun starts "
        "the processes itself, so that each restart imports the framework twice and no standby "
        "process can be kept. In its place write jobset.sigs.k8s.io/in-place-restart-processes: "
        '"8" and the command ["python", "-u", "train.py"], as "kubectl jobset convert" does; '
        "1 more point in it"
    )


def test_warning_names_the_supervisor_when_the_agent_is_a_sidecar():
    """Only a supervisor starts several processes."""
    (text,) = texts(jobset(["torchrun", "--nproc-per-node=2", "train.py"]))

    assert "write jobset.sigs.k8s.io/in-place-restart-agent: supervisor, " in text


def test_warning_has_the_reason_when_a_command_cannot_be_translated():
    """Nothing is guessed."""
    (text,) = texts(jobset(["torchrun", "--bogus", "train.py"]))

    assert text.endswith("; torchrun is not translated: its option --bogus is not known here")


@pytest.mark.parametrize(
    "obj",
    [
        jobset(["python", "train.py"]),
        jobset(["torchrun", "train.py"], strategy="Recreate"),
        injection_kit.jobset(mode=None, replicatedJobs=[]),
    ],
)
def test_no_warning_is_returned_for_other_jobsets(obj):
    """Python's own command, and launchers where nothing restarts in place."""
    assert texts(obj) == []


def test_number_of_warnings_is_limited():
    """The parsing is bounded, however large the object is."""
    assert len(texts(jobset(*[["torchrun", "train.py"]] * 100))) == MAX_WARNINGS
