"""The annotation for heartbeats in new and changed JobSets: what is injected, and what is refused."""

from __future__ import annotations

import copy

import pytest

from jobsetpy.agent.supervisor.ring_rules import Part, interval_of, load
from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.injection.agent import inject
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.defaulting import default_jobset
from jobsetpy.reconcilers.validation.update import validate_update
from jobsetpy.reconcilers.validation.warnings import warnings
from jobsetpy.testing import json_patch

BEATS = keys.IN_PLACE_HEARTBEAT_ANNOTATION
FIELD = f"metadata.annotations[{BEATS}]"
POD = "spec.replicatedJobs[0].template.spec.template"
WORKER = {"name": "worker", "image": "test.invalid/w:1", "command": ["python3", "train.py"]}


def jobset(*, beats="auto", mode="supervisor", own=None, network=None, notes=None, **fields):
    """A JobSet of two Jobs of three pods, and one of one; ``None`` removes an annotation."""
    given = {keys.IN_PLACE_AGENT_ANNOTATION: mode, BEATS: beats, **(notes or {})}

    def job(name, replicas, pods, **more):
        template = {"spec": {"containers": [copy.deepcopy(WORKER)]}}
        if own is not None:
            template["metadata"] = {"annotations": own}
        spec = {"parallelism": pods, "completions": pods, "template": template, **more}
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "js",
            "annotations": {name: value for name, value in given.items() if value is not None},
        },
        "spec": {
            "failurePolicy": {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"},
            "replicatedJobs": [job("w", 2, 3, **fields), job("x", 1, 1)],
            **({} if network is None else {"network": network}),
        },
    }


def admitted(body):
    """The JobSet as admission stores it, and all errors."""
    injection = inject(body, image="test.invalid/agent:1")
    if injection.problems:
        return injection.jobset, injection.problems
    stored = json_patch(injection.jobset, default_jobset(injection.jobset))
    return stored, validate_create(stored)


def problems(body):
    """Field and reason of each error, as text."""
    return [str(each) for each in admitted(body)[1]]


def variables(body, at=0):
    """The supervisor's variables, by name; a field path in place of a value from the pod."""
    stored, errors = admitted(body)
    assert errors == []
    pod = stored["spec"]["replicatedJobs"][at]["template"]["spec"]["template"]["spec"]
    return {
        each["name"].removeprefix(keys.AGENT_VARIABLE_PREFIX): each.get("value")
        or each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in pod["containers"][0]["env"]
    }


def test_the_variables_of_all_pods_have_the_whole_ring():
    """The agent that reads them knows its neighbours without a request."""
    for at in (0, 1):
        found = variables(jobset(network={"subdomain": "net"}), at)
        assert found["HEARTBEAT_GROUP"] == "w:2:3,x:1:1"
        assert found["NODE_NAME"] == "spec.nodeName"
    own = {"NODE_NAME": "n", "WORKER_JOB": "js-w-1", "WORKER_POD_INDEX": "2"}
    rules = load(found | own, "js")

    assert rules is not None
    assert rules.members.parts == (Part("w", 2, 3), Part("x", 1, 1))
    assert (rules.position, rules.host_of(6), rules.interval_s) == (5, "js-x-0-0.net", 0.5)


def test_without_the_annotation_nothing_is_added():
    """Off by default."""
    assert not {"HEARTBEAT_SECONDS", "NODE_NAME"} & set(variables(jobset(beats=None)))


@pytest.mark.parametrize("text", ["auto", "0.1", "0.5", "10", "9.999"])
def test_intervals_that_are_accepted_are_those_of_the_agent(text):
    """Admission and agent read the same values."""
    assert variables(jobset(beats=text))["HEARTBEAT_SECONDS"] == text
    assert interval_of(text) is not None


@pytest.mark.parametrize("text", ["", "0", "0.05", "10.1", "100", "soon", "-1", "1e0", "٣", "0.5s"])
def test_other_intervals_are_refused(text):
    """The field, the value, and what would be right."""
    (error,) = problems(jobset(beats=text))

    assert error.startswith(FIELD)
    assert 'must be a number of seconds from 0.1 to 10, or "auto"' in error


@pytest.mark.parametrize(
    ("fields", "field", "why"),
    [
        ({"mode": "sidecar"}, FIELD, "needs the annotation"),
        ({"mode": None}, FIELD, "needs the annotation"),
        ({"network": {"enableDNSHostnames": False}}, "spec.network.enableDNSHostnames", "names"),
        ({"completionMode": "NonIndexed"}, "spec.replicatedJobs[0].template.spec.completionMode", "Indexed"),
        ({"own": {BEATS: "1"}}, f"{POD}.{FIELD}", "set it on the JobSet"),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_refused(fields, field, why):
    """With its field path."""
    found = problems(jobset(**fields))

    assert any(each.startswith(field) and why in each for each in found), found


def test_the_interval_cannot_change_later():
    """It is built into the pods."""
    stored, _ = admitted(jobset())
    changed = copy.deepcopy(stored)
    changed["metadata"]["annotations"][BEATS] = "2"

    assert any(str(each).startswith(FIELD) for each in validate_update(stored, changed))


@pytest.mark.parametrize(("notes", "count"), [({}, 1), ({keys.IN_PLACE_SPARES_ANNOTATION: "1"}, 0)])
def test_heartbeats_without_spares_are_warned_of(notes, count):
    """Nothing but events follows from them."""
    processes = {keys.IN_PLACE_PROCESSES_ANNOTATION: "1"}
    body = jobset(notes=notes | processes)
    body["spec"]["replicatedJobs"].pop()
    stored, errors = admitted(body)
    found = [each for each in warnings(stored, Features()) if each.field == FIELD]

    assert errors == []
    assert len(found) == count
