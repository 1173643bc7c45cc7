"""Updates of JobSets that an agent was injected into."""

import copy

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.injection.agent import inject
from jobsetpy.reconcilers.restart_in_place.injection.update import restore
from jobsetpy.reconcilers.rules import json_tree
from jobsetpy.reconcilers.validation.defaulting import default_jobset
from jobsetpy.reconcilers.validation.update import validate_update

IN_PLACE = {"failurePolicy": {"restartStrategy": "InPlaceRestart"}}
MODE = keys.IN_PLACE_AGENT_ANNOTATION


def written(mode="supervisor", **more) -> dict:
    """A manifest with much in its pod template, as a user applies it again and again."""
    worker = {
        "name": "worker",
        "image": "test.invalid/train:1",
        "command": ["python3", "train.py"],
        "env": [{"name": "A", "value": "1"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    pod = {
        "containers": [{"name": "logs"}, worker],
        "initContainers": [{"name": "download"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    job = {"parallelism": 4, "template": {"spec": pod}}
    notes = {MODE: mode, keys.IN_PLACE_CONTAINER_ANNOTATION: "worker"}
    return {
        "metadata": {"name": "js", "annotations": notes},
        "spec": {
            "failurePolicy": {"restartStrategy": "InPlaceRestart"},
            "replicatedJobs": [
                {"name": "w", "template": {"spec": job}},
                {"name": "v", "template": {"spec": copy.deepcopy(job)}},
            ],
            **more,
        },
    }


def applied(obj: dict, patch: list[dict]) -> dict:
    out = copy.deepcopy(obj)
    for operation in patch:
        *parents, last = operation["path"].split("/")[1:]
        at = out
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        at[last] = operation["value"]
    return out


def stored(mode="supervisor", image="test.invalid/agent:1") -> dict:
    """What the API server has after the creation."""
    obj = inject(written(mode), image=image).jobset
    return applied(obj, default_jobset(obj))


def job_of(obj: dict, at: int = 0) -> dict:
    return obj["spec"]["replicatedJobs"][at]["template"]["spec"]


def sent_again(old: dict, new: dict) -> dict:
    """The update as the webhook leaves it."""
    restored = restore(old, new)
    assert applied(new, restored.patch) == restored.jobset
    assert restored.problems == []
    return applied(restored.jobset, default_jobset(restored.jobset))


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_the_same_manifest_again(mode):
    """The result is the stored object, whatever image new JobSets would get."""
    old = stored(mode, image="test.invalid/agent:old")

    assert sent_again(old, written(mode)) == old
    assert validate_update(old, sent_again(old, written(mode))) == []


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_the_stored_object_again(mode):
    """Full objects, as controllers and ``kubectl edit`` send them, are not touched."""
    old = stored(mode)
    new = copy.deepcopy(old)
    new["spec"]["suspend"] = True

    assert restore(old, new).patch == []


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_a_part_of_the_agent_is_lost(mode):
    """Whatever piece is missing comes back where it was, as after a server-side apply."""
    old = stored(mode)
    new = copy.deepcopy(old)
    pod = job_of(new)["template"]["spec"]
    pod["initContainers"] = pod["initContainers"][:1]
    worker = pod["containers"][1]
    worker["command"] = ["python3", "train.py"]
    worker["env"] = worker["env"][:1]
    worker.pop("restartPolicyRules", None)

    assert sent_again(old, new) == old


def test_resizing_by_the_manifest():
    """The count that the manifest leaves out follows the one it has."""
    old, new = stored(), written()
    job_of(new)["parallelism"] = 6
    again = sent_again(old, new)

    assert (job_of(again)["parallelism"], job_of(again)["completions"]) == (6, 6)
    assert validate_update(old, again) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda worker: worker.update(image="test.invalid/train:2"),
        lambda worker: worker.update(command=["python3", "other.py"]),
        lambda worker: worker["env"].append({"name": "B", "value": "2"}),
    ],
)
def test_real_changes_are_still_refused(change):
    """Only what was injected is put back; templates remain immutable."""
    old, new = stored(), written()
    change(job_of(new)["template"]["spec"]["containers"][1])
    (problem,) = validate_update(old, sent_again(old, new))

    assert problem.field == "spec.replicatedJobs"
    assert "immutable" in problem.message


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
@pytest.mark.parametrize("at", [0, 2])
def test_a_container_that_is_new_gets_nothing(mode, at):
    """The agent goes back to the worker, by name; what was added is as it was sent, and refused."""
    old, new = stored(mode), written(mode)
    added = {"name": "added", "command": ["run"], "env": [{"name": "A", "value": "1"}]}
    job_of(new)["template"]["spec"]["containers"].insert(at, copy.deepcopy(added))
    again = sent_again(old, new)
    (problem,) = validate_update(old, again)
    found = job_of(again)["template"]["spec"]["containers"]

    assert problem.field == "spec.replicatedJobs"
    assert found.pop(at) == added
    assert found == job_of(old)["template"]["spec"]["containers"]


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, "sidecar"), ("sidecar", None), ("sidecar", "supervisor")],
)
def test_the_annotation_cannot_change(before, after):
    """What it asks for happens at creation only; the refusal names it."""
    objects = []
    for mode in (before, after):
        obj = stored("sidecar") if before else written()
        obj["metadata"]["annotations"].pop(MODE)
        if mode is not None:
            obj["metadata"]["annotations"][MODE] = mode
        objects.append(obj)
    old, new = objects

    assert restore(old, new).patch == []
    (problem,) = validate_update(old, new)
    assert problem.field == f"metadata.annotations[{MODE}]"
    assert "when a JobSet is created" in problem.message


def test_its_settings_cannot_change():
    """A later grace period would have no effect."""
    old, new = stored(), stored()
    new["metadata"]["annotations"][keys.IN_PLACE_GRACE_ANNOTATION] = "9"
    (problem,) = validate_update(old, new)

    assert problem.field == f"metadata.annotations[{keys.IN_PLACE_GRACE_ANNOTATION}]"
    old["metadata"]["annotations"].pop(MODE)
    new["metadata"]["annotations"].pop(MODE)
    assert validate_update(old, new) == []


def test_a_deletion_is_not_disturbed():
    """Whatever its last updates leave out, such as a finalizer, they are not changed."""
    new = written()
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert restore(stored(), new).patch == []


def test_what_was_never_injected_is_not_restored():
    """With the annotation but no agent (made before the webhooks were), nothing is added."""
    old = written()

    assert restore(old, written()).patch == []


def test_odd_objects():
    """Parts of a wrong type are left for the schema, and new ReplicatedJobs for validation."""
    odd = {
        "metadata": {"annotations": {MODE: "sidecar"}},
        "spec": {"replicatedJobs": [1, {"name": "w", "template": 2}, {"name": "x"}]},
    }

    assert restore(stored("sidecar"), odd).patch == []
    assert restore(odd, odd).patch == []
    assert inject(odd | {"spec": odd["spec"] | IN_PLACE}, image="i").patch == []
    assert json_tree.EMPTY == {}


def test_a_sidecar_that_was_once_taken_for_the_agent():
    """What was stored without an agent, by an older rule, can be applied again all the same."""
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}
    proxy = {"name": "proxy", "restartPolicy": "Always", "restartPolicyRules": [rule]}
    manifest = written("sidecar")
    for job in manifest["spec"]["replicatedJobs"]:
        job["template"]["spec"]["template"]["spec"]["initContainers"] = [proxy]
    old = copy.deepcopy(manifest)
    for job in old["spec"]["replicatedJobs"]:
        filled = {"backoffLimit": keys.INT32_MAX, "podReplacementPolicy": "Failed"}
        job["template"]["spec"] |= {**filled, "completions": 4}
    restored = restore(old, copy.deepcopy(manifest)).jobset

    assert restored["spec"] == old["spec"]
    assert validate_update(old, restored) == []
