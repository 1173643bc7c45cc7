"""``kubectl jobset lint``: what API server and webhooks would say, without either."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import yaml

from jobsetpy.api import quantities
from jobsetpy.kubectl import main as plugin
from jobsetpy.kubectl import manifests
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.testing.jobsets import jobset_json, replicated_job

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))


def manifest(*items, **spec):
    """A manifest as a user writes it."""
    data = jobset_json(*items, **spec)
    data["apiVersion"], data["kind"] = "jobset.x-k8s.io/v1alpha2", "JobSet"
    del data["metadata"]["uid"], data["metadata"]["resourceVersion"]
    data.pop("status", None)
    return data


def judged(data):
    """What is wrong with a manifest."""
    return manifests.judge(data, Features(), "agent").errors


def changed(path, value):
    """A good manifest with one bad value."""
    data = copy.deepcopy(manifest())
    at = data
    *parents, last = path
    for part in parents:
        at = at[part]
    at[last] = value
    return data


CONTAINER = (
    *("spec", "replicatedJobs", 0, "template"),
    *("spec", "template", "spec", "containers", 0),
)
FIELD = "spec.replicatedJobs[0].template.spec.template.spec.containers[0]"
SCHEMA = {
    "a wrong type": (
        changed(("spec", "replicatedJobs", 0, "replicas"), "3"),
        (
            'spec.replicatedJobs[0].replicas: Invalid value: "string": '
            'spec.replicatedJobs[0].replicas in body must be of type integer: "string"'
        ),
    ),
    "a wrong word": (
        changed(("spec", "failurePolicy"), {"restartStrategy": "Never"}),
        (
            'spec.failurePolicy.restartStrategy: Unsupported value: "Never": supported values: '
            '"Recreate", "BlockingRecreate", "InPlaceRestart"'
        ),
    ),
    "too little": (
        changed(("spec", "replicatedJobs", 0, "replicas"), -1),
        (
            "spec.replicatedJobs[0].replicas: Invalid value: -1: spec.replicatedJobs[0].replicas "
            "in body should be greater than or equal to 0"
        ),
    ),
    "nothing": (
        changed(("spec", "replicatedJobs", 0, "template", "spec"), {}),
        "spec.replicatedJobs[0].template.spec.template: Required value",
    ),
    "a name twice": (
        manifest(replicated_job("w"), replicated_job("w")),
        'spec.replicatedJobs[1]: Duplicate value: {"name":"w"}',
    ),
    "a quantity that is none": (
        changed((*CONTAINER, "resources"), {"limits": {"memory": "lots"}}),
        (
            f'{FIELD}.resources.limits.memory: Invalid value: "lots": {FIELD}.resources.limits'
            f".memory in body should match '{quantities.PATTERN}'"
        ),
    ),
    "a field that there is not": (
        changed(("spec", "replicatedJobs", 0, "replica"), 3),
        'strict decoding error: unknown field "spec.replicatedJobs[0].replica"',
    ),
}


@pytest.mark.parametrize("case", SCHEMA.values(), ids=SCHEMA)
def test_what_the_definition_forbids(case):
    """In the API server's words."""
    data, error = case

    assert error in judged(data)


def test_what_the_webhook_forbids():
    """Exactly what the webhook answers, of a manifest without its defaults."""
    data = manifest(
        replicated_job("w", parallelism=2),
        successPolicy={"operator": "All", "targetReplicatedJobs": ["gone"]},
        failurePolicy={"maxRestarts": 1, "restartStrategy": "InPlaceRestart"},
    )
    expected = {str(each) for each in validate_create(data)}

    assert expected
    assert expected == set(judged(data))


@pytest.mark.parametrize(("scope", "refused"), [("JobSet", True), ("Job", False)])
def test_gang_of_several_jobs_that_starts_without_spares_is_refused(scope, refused):
    """By the annotation that has to be another one."""
    notes = {
        "in-place-restart-agent": "supervisor",
        "in-place-restart-processes": "1",
        "in-place-restart-spares": "1",
        "in-place-restart-start-without-spares": "true",
        "coscheduling": scope,
    }
    container = {"name": "worker", "image": "w:1", "command": ["python3", "train.py"]}
    data = manifest(
        replicated_job("w", 2, parallelism=3, pod_spec={"containers": [container]}),
        annotations={f"jobset.sigs.k8s.io/{name}": value for name, value in notes.items()},
        failurePolicy={"maxRestarts": 1, "restartStrategy": "InPlaceRestart"},
    )
    field = "metadata.annotations[jobset.sigs.k8s.io/coscheduling]: "

    assert [str(each).startswith(field) for each in judged(data)] == [True] * refused


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_accepted(path):
    """Each JobSet of the repository's own examples."""
    for document in manifests.read([str(path)]):
        if document.is_jobset:
            assert judged(document.data) == []


def test_a_broken_document_hides_no_other(tmp_path, capsys):
    """Three documents of which one is broken: each is told of, and the exit code is 1."""
    good = yaml.safe_dump(manifest())
    file = tmp_path / "three.yaml"
    file.write_text(f"{good}---\na: [\n---\n{good}")
    code = plugin.main(["lint", str(file)])
    lines = capsys.readouterr().out.splitlines()

    assert code == 1
    assert [next(word for word in ("error parsing", "ok") if word in line) for line in lines] == [
        "ok",
        "error parsing",
        "ok",
    ]
    assert "three.yaml, document 2: error: error parsing" in lines[1]


def test_for_programs(tmp_path, capsys):
    """JSON, with errors and warnings apart; exit code 0 if nothing is refused."""
    file = tmp_path / "one.json"
    file.write_text(json.dumps(manifest()))

    assert plugin.main(["lint", str(file), "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["name"], found["errors"]) == ("test-js", [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere"], 'the path "/nowhere" does not exist'),
        ([str(ROOT / "config" / "crd" / "kustomization.yaml")], "no JobSet in what was given"),
        (["x", "--feature-gates", "Nope=true"], "unrecognized feature gate: Nope"),
        (["x", "--feature-gates", "RestartJob"], "is not NAME=true"),
    ],
)
def test_bad_input(capsys, arguments, message):
    """A sentence and exit code 1."""
    assert plugin.main(["lint", *arguments]) == 1
    assert message in capsys.readouterr().err


async def test_the_api_server_is_asked_without_storing(kubectl):
    """A dry run by server-side apply, strict about fields."""
    from jobsetpy.kubectl.cluster import Cluster
    from jobsetpy.kubectl.kubeconfig import Target

    cluster = Cluster(Target(kubectl.transport, "https://test", "default"))
    await cluster.dry_run(manifest(), "default")
    (request,) = kubectl.world.requests.writes

    assert (request.query["dryRun"], request.query["fieldValidation"]) == ("All", "Strict")


def test_gates_that_are_off():
    """What needs them is refused, as the manager would."""
    data = manifest(failurePolicy={"maxRestarts": 1, "restartStrategy": "InPlaceRestart"})
    verdict = manifests.judge(data, Features(in_place_restart=False), "agent")

    assert any("InPlaceRestart is disabled" in each for each in verdict.errors)
    with pytest.raises(CommandError):
        next(manifests.read(["/nowhere"]))
