"""Updates of JobSets that an agent was injected into."""

import copy

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.injection.agent import inject
from jobsetpy.reconcilers.restart_in_place.injection.update import restore
from jobsetpy.reconcilers.rules import json_tree
from jobsetpy.reconcilers.validation.defaulting import default_jobset
from jobsetpy.reconcilers.validation.update import validate_update
from jobsetpy.testing import json_patch
from support.restarts import injection_kit
from support.restarts.injection_kit import IMAGE, WORKER, admitted, job, job_of, pod_of

IN_PLACE = {"failurePolicy": {"restartStrategy": "InPlaceRestart"}}
MODE = keys.IN_PLACE_AGENT_ANNOTATION
BOTH = pytest.mark.parametrize("mode", ["sidecar", "supervisor"])


def written(mode="supervisor") -> dict:
    """Return a manifest with many fields in its pod template, as a user applies it repeatedly."""
    worker = {
        **WORKER,
        "env": [{"name": "A", "value": "1"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    pod = {
        "containers": [{"name": "logs"}, worker],
        "initContainers": [{"name": "download"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    jobs = [job(name, parallelism=4, pod=copy.deepcopy(pod)) for name in ("w", "v")]
    notes = {keys.IN_PLACE_CONTAINER_ANNOTATION: "worker"}
    return injection_kit.jobset(*jobs, mode=mode, notes=notes)


def stored(mode="supervisor", image=IMAGE) -> dict:
    """Return the object in the API server after the creation."""
    return admitted(written(mode), image)[0]


def sent_again(old: dict, new: dict) -> dict:
    """Return the update as the webhook changes it."""
    restored = restore(old, new)
    assert json_patch(new, restored.patch) == restored.jobset
    assert restored.problems == []
    return json_patch(restored.jobset, default_jobset(restored.jobset))


@BOTH
def test_stored_object_is_the_result_when_the_same_manifest_is_applied_again(mode):
    """Even if new JobSets would get another image."""
    old = stored(mode, image="test.invalid/agent:old")

    assert sent_again(old, written(mode)) == old
    assert validate_update(old, sent_again(old, written(mode))) == []


@BOTH
def test_full_object_is_not_changed(mode):
    """As controllers and ``kubectl edit`` send it."""
    old = stored(mode)
    new = copy.deepcopy(old)
    new["spec"]["suspend"] = True

    assert restore(old, new).patch == []


@BOTH
def test_missing_part_of_the_agent_is_restored(mode):
    """In its place, as after a server-side apply."""
    old = stored(mode)
    new = copy.deepcopy(old)
    pod = pod_of(new)
    pod["initContainers"] = pod["initContainers"][:1]
    worker = pod["containers"][1]
    worker["command"] = ["python3", "train.py"]
    worker["env"] = worker["env"][:1]
    worker.pop("restartPolicyRules", None)

    assert sent_again(old, new) == old


def test_jobset_is_resized_by_its_manifest():
    """The number that the manifest leaves out becomes the other one."""
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
def test_other_changes_of_the_template_are_refused(change):
    """Only injected fields are restored; templates are immutable."""
    old, new = stored(), written()
    change(pod_of(new)["containers"][1])
    (problem,) = validate_update(old, sent_again(old, new))

    assert problem.field == "spec.replicatedJobs"
    assert "immutable" in problem.message


@BOTH
@pytest.mark.parametrize("at", [0, 2])
def test_new_container_is_not_changed(mode, at):
    """The agent is restored in the worker, by name; the added container is refused."""
    old, new = stored(mode), written(mode)
    added = {"name": "added", "command": ["run"], "env": [{"name": "A", "value": "1"}]}
    pod_of(new)["containers"].insert(at, copy.deepcopy(added))
    again = sent_again(old, new)
    (problem,) = validate_update(old, again)
    found = pod_of(again)["containers"]

    assert problem.field == "spec.replicatedJobs"
    assert found.pop(at) == added
    assert found == pod_of(old)["containers"]


@pytest.mark.parametrize(
    ("before", "after"), [(None, "sidecar"), ("sidecar", None), ("sidecar", "supervisor")]
)
def test_annotation_cannot_change(before, after):
    """The agent is injected at creation only; the error names the annotation."""
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


def test_settings_of_the_agent_cannot_change():
    """A later grace period would have no effect."""
    old, new = stored(), stored()
    new["metadata"]["annotations"][keys.IN_PLACE_GRACE_ANNOTATION] = "9"
    (problem,) = validate_update(old, new)

    assert problem.field == f"metadata.annotations[{keys.IN_PLACE_GRACE_ANNOTATION}]"
    old["metadata"]["annotations"].pop(MODE)
    new["metadata"]["annotations"].pop(MODE)
    assert validate_update(old, new) == []


def test_update_is_not_changed_when_the_jobset_is_being_deleted():
    """Such as the one that removes a finalizer."""
    new = written()
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert restore(stored(), new).patch == []


def test_agent_is_not_restored_when_it_was_never_injected():
    """The JobSet was created before the webhooks, with the annotation."""
    old = written()

    assert restore(old, written()).patch == []


def test_invalid_objects_are_not_changed():
    """The schema refuses fields of a wrong type, validation new ReplicatedJobs."""
    odd = {
        "metadata": {"annotations": {MODE: "sidecar"}},
        "spec": {"replicatedJobs": [1, {"name": "w", "template": 2}, {"name": "x"}]},
    }

    assert restore(stored("sidecar"), odd).patch == []
    assert restore(odd, odd).patch == []
    assert inject(odd | {"spec": odd["spec"] | IN_PLACE}, image="i").patch == []
    assert json_tree.EMPTY == {}


def test_manifest_can_be_applied_again_when_its_sidecar_was_mistaken_for_an_agent():
    """It was stored without an agent, by an older rule."""
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}
    proxy = {"name": "proxy", "restartPolicy": "Always", "restartPolicyRules": [rule]}
    manifest = written("sidecar")
    for at in (0, 1):
        pod_of(manifest, at)["initContainers"] = [proxy]
    old = copy.deepcopy(manifest)
    for at in (0, 1):
        filled = {"backoffLimit": keys.INT32_MAX, "podReplacementPolicy": "Failed"}
        job_of(old, at).update(filled, completions=4)
    restored = restore(old, copy.deepcopy(manifest)).jobset

    assert restored["spec"] == old["spec"]
    assert validate_update(old, restored) == []
