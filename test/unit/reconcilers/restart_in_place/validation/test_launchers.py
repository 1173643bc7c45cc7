"""Warnings about workers that are started by a launcher."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.validation.launchers import MAX_WARNINGS, warnings
from jobsetpy.reconcilers.rules.features import Features


def jobset(*commands, agent=None, strategy="InPlaceRestart", **container):
    """A JobSet with one ReplicatedJob for each command."""
    prefix = [] if agent is None else [agent]
    return {
        "spec": {
            "failurePolicy": {"restartStrategy": strategy},
            "replicatedJobs": [
                {
                    "name": f"w{at}",
                    "replicas": 2,
                    "template": {
                        "spec": {
                            "parallelism": 2,
                            "template": {
                                "spec": {
                                    "containers": [
                                        {"name": "c", "command": [*prefix, *command], **container}
                                    ]
                                }
                            },
                        }
                    },
                }
                for at, command in enumerate(commands)
            ],
        }
    }


def said(obj):
    """The warnings."""
    return [str(each) for each in warnings(obj, Features())]


def test_a_launcher_under_restart_in_place_is_warned_of():
    """With the annotation and the command that replace it; limits give the number of devices."""
    obj = jobset(
        ["torchrun", "--nnodes=4", "--nproc-per-node=gpu", "--max-restarts=3", "train.py"],
        agent=keys.AGENT_PROGRAM,
        resources={"limits": {"nvidia.com/gpu": "8"}},
    )

    (text,) = said(obj)
    assert text == (
        "spec.replicatedJobs[0].template.spec.template.spec.containers[0].command: torchrun starts "
        "the processes itself, so that each restart imports the framework twice and no standby "
        "process can be kept. In its place write jobset.sigs.k8s.io/in-place-restart-processes: "
        '"8" and the command ["python", "-u", "train.py"], as "kubectl jobset convert" does; '
        "1 more point in it"
    )


def test_a_sidecar_agent_has_to_be_replaced_as_well():
    """Only a supervisor starts several processes."""
    (text,) = said(jobset(["torchrun", "--nproc-per-node=2", "train.py"]))

    assert "write jobset.sigs.k8s.io/in-place-restart-agent: supervisor, " in text


def test_a_command_that_cannot_be_translated_is_warned_of_with_the_reason():
    """Nothing is guessed."""
    (text,) = said(jobset(["torchrun", "--bogus", "train.py"]))

    assert text.endswith("; torchrun is not translated: its option --bogus is not known here")


@pytest.mark.parametrize(
    "obj",
    [
        jobset(["python", "train.py"]),
        jobset(["torchrun", "train.py"], strategy="Recreate"),
        jobset(),
    ],
)
def test_others_are_not_warned_of(obj):
    """Python's own command, and launchers where nothing restarts in place."""
    assert said(obj) == []


def test_a_jobset_of_many_launchers_has_few_warnings():
    """The parsing is bounded, however large the object is."""
    assert len(said(jobset(*[["torchrun", "train.py"]] * 100))) == MAX_WARNINGS
