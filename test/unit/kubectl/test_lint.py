"""``kubectl jobset lint``: the errors of API server and webhooks, without either."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from jobsetpy.api import quantities
from jobsetpy.kubectl import main as plugin
from jobsetpy.kubectl import manifests
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.validation.create import validate_create
from support.jobsets import jobset_json, replicated_job

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))


def manifest(*items, **spec):
    """Return a manifest as a user writes it."""
    data = jobset_json(*items, **spec)
    data["apiVersion"], data["kind"] = "jobset.x-k8s.io/v1alpha2", "JobSet"
    del data["metadata"]["uid"], data["metadata"]["resourceVersion"]
    data.pop("status", None)
    return data


def errors_of(data):
    """Return the errors of a manifest."""
    return manifests.judge(data, Features(), "agent").errors


def changed(path, value):
    """Return a valid manifest with one changed value."""
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
REPLICAS = "spec.replicatedJobs[0].replicas"
SCHEMA = {
    "a wrong type": (
        changed(("spec", "replicatedJobs", 0, "replicas"), "3"),
        f'{REPLICAS}: Invalid value: "string": {REPLICAS} in body must be of type integer: "string"',
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
        f"{REPLICAS}: Invalid value: -1: {REPLICAS} in body should be greater than or equal to 0",
    ),
    "nothing": (
        changed(("spec", "replicatedJobs", 0, "template", "spec"), {}),
        "spec.replicatedJobs[0].template.spec.template: Required value",
    ),
    "a name twice": (
        manifest(replicated_job("w"), replicated_job("w")),
        'spec.replicatedJobs[1]: Duplicate value: {"name":"w"}',
    ),
    "an invalid quantity": (
        changed((*CONTAINER, "resources"), {"limits": {"memory": "lots"}}),
        (
            f'{FIELD}.resources.limits.memory: Invalid value: "lots": {FIELD}.resources.limits'
            f".memory in body should match '{quantities.PATTERN}'"
        ),
    ),
    "a misspelt version": (
        changed(("apiVersion",), "jobset.x-k8s.io/v1alpah2"),
        'apiVersion: Invalid value: "jobset.x-k8s.io/v1alpah2": must be "jobset.x-k8s.io/v1alpha2"',
    ),
    "an unknown field": (
        changed(("spec", "replicatedJobs", 0, "replica"), 3),
        'strict decoding error: unknown field "spec.replicatedJobs[0].replica"',
    ),
}


@pytest.mark.parametrize("case", SCHEMA.values(), ids=SCHEMA)
def test_violations_of_the_crd_are_reported_like_the_api_server_does(case):
    """The error is the API server's."""
    data, error = case

    assert error in errors_of(data)


def test_number_with_a_fraction_is_accepted_as_an_amount():
    """Admission writes it as text before the schema is checked."""
    assert errors_of(changed((*CONTAINER, "resources"), {"limits": {"cpu": 0.5}})) == []


def test_errors_are_those_of_the_webhook():
    """A manifest has no defaults yet."""
    data = manifest(
        replicated_job("w", parallelism=2),
        successPolicy={"operator": "All", "targetReplicatedJobs": ["gone"]},
        failurePolicy={"maxRestarts": 1, "restartStrategy": "InPlaceRestart"},
    )
    expected = {str(each) for each in validate_create(data)}

    assert expected
    assert set(errors_of(data)) == expected


@pytest.mark.parametrize(("scope", "refused"), [("JobSet", True), ("Job", False)])
def test_gang_of_several_jobs_that_starts_without_spares_is_refused(scope, refused):
    """The error is that of the annotation to change."""
    annotations = {
        "in-place-restart-agent": "supervisor",
        "in-place-restart-processes": "1",
        "in-place-restart-spares": "1",
        "in-place-restart-start-without-spares": "true",
        "coscheduling": scope,
    }
    container = {"name": "worker", "image": "w:1", "command": ["python3", "train.py"]}
    data = manifest(
        replicated_job("w", 2, parallelism=3, pod_spec={"containers": [container]}),
        annotations={f"jobset.sigs.k8s.io/{name}": value for name, value in annotations.items()},
        failurePolicy={"maxRestarts": 1, "restartStrategy": "InPlaceRestart"},
    )
    field = "metadata.annotations[jobset.sigs.k8s.io/coscheduling]: "

    assert [str(each).startswith(field) for each in errors_of(data)] == [True] * refused


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_accepted(path):
    """The repository's examples have no errors."""
    for document in manifests.read([str(path)]):
        if document.is_jobset:
            assert errors_of(document.data) == []


def test_output_for_programs_separates_errors_and_warnings(tmp_path, capsys):
    """The exit code is 0 if there are no errors."""
    file = tmp_path / "one.json"
    file.write_text(json.dumps(manifest()))

    assert plugin.main(["lint", str(file), "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["name"], found["errors"]) == ("test-js", [])


def test_jobset_of_a_misspelt_group_is_refused(tmp_path, capsys):
    """It is not skipped next to a valid one, since no cluster would know it."""
    wrong = {**manifest(), "apiVersion": "jobset.k8s.io/v1alpha2"}
    file = tmp_path / "two.json"
    file.write_text(json.dumps({"kind": "List", "items": [manifest(), wrong]}))

    assert plugin.main(["lint", str(file)]) == 1
    assert 'error: apiVersion: Invalid value: "jobset.k8s.io' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere"], 'the path "/nowhere" does not exist'),
        ([str(ROOT / "config" / "crd" / "kustomization.yaml")], "no JobSet in what was given"),
        (["x", "--feature-gates", "Nope=true"], "unrecognized feature gate: Nope"),
        (["x", "--feature-gates", "RestartJob"], "is not NAME=true"),
    ],
)
def test_invalid_input_is_an_error(capsys, arguments, message):
    """The exit code is 1."""
    assert plugin.main(["lint", *arguments]) == 1
    assert message in capsys.readouterr().err


async def test_dry_run_stores_nothing(kubectl):
    """It is a server-side apply that is strict about fields."""
    from jobsetpy.kubectl.cluster import Cluster
    from jobsetpy.kubectl.kubeconfig import Target

    cluster = Cluster(Target(kubectl.transport, "https://test", "default"))
    await cluster.dry_run(manifest(), "default")
    (request,) = kubectl.world.requests.writes

    assert (request.query["dryRun"], request.query["fieldValidation"]) == ("All", "Strict")


def test_fields_of_disabled_gates_are_refused():
    """The manager would refuse them."""
    data = manifest(failurePolicy={"maxRestarts": 1, "restartStrategy": "InPlaceRestart"})
    verdict = manifests.judge(data, Features(in_place_restart=False), "agent")

    assert any("InPlaceRestart is disabled" in each for each in verdict.errors)
    with pytest.raises(CommandError):
        next(manifests.read(["/nowhere"]))
