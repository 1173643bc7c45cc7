"""The annotation for heartbeats in new and changed JobSets: injected variables, and errors."""

from __future__ import annotations

import copy

import pytest

from jobsetpy.agent.supervisor.heartbeats.rules import Part, interval_of, load
from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.validation.update import validate_update
from jobsetpy.reconcilers.validation.warnings import warnings
from support.restarts import injection_kit
from support.restarts.injection_kit import admitted, job, problems, variables

BEATS = keys.IN_PLACE_HEARTBEAT_ANNOTATION
FIELD = f"metadata.annotations[{BEATS}]"
POD = "spec.replicatedJobs[0].template.spec.template"


def jobset(*, beats="auto", mode="supervisor", own=None, network=None, notes=None, **fields):
    """Return a JobSet of two Jobs of three pods, and one of one; ``own`` are their annotations."""
    jobs = [
        job("w", replicas=2, parallelism=3, completions=3, notes=own, **fields),
        job("x", replicas=1, parallelism=1, completions=1, notes=own),
    ]
    spec = {} if network is None else {"network": network}
    return injection_kit.jobset(*jobs, mode=mode, notes={BEATS: beats, **(notes or {})}, **spec)


def test_variables_of_all_pods_have_the_whole_ring():
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


def test_no_variable_is_added_without_the_annotation():
    """Off by default."""
    assert not {"HEARTBEAT_SECONDS", "NODE_NAME"} & set(variables(jobset(beats=None)))


@pytest.mark.parametrize("text", ["auto", "0.1", "0.5", "10", "9.999"])
def test_interval_is_accepted_when_the_agent_can_read_it(text):
    """Admission and agent accept the same values."""
    assert variables(jobset(beats=text))["HEARTBEAT_SECONDS"] == text
    assert interval_of(text) is not None


@pytest.mark.parametrize(
    ("fields", "field", "why"),
    [
        ({"mode": "sidecar"}, FIELD, "has no effect in sidecar mode"),
        ({"mode": None}, FIELD, "has no effect without the annotation"),
        ({"network": {"enableDNSHostnames": False}}, "spec.network.enableDNSHostnames", "names"),
        ({"completionMode": "NonIndexed"}, "spec.replicatedJobs[0].template.spec.completionMode", "Indexed"),
        ({"own": {BEATS: "1"}}, f"{POD}.{FIELD}", "set it on the JobSet"),
    ],
)  # fmt: skip
def test_annotation_is_refused_when_it_has_no_effect(fields, field, why):
    """With its field path."""
    found = problems(jobset(**fields))

    assert any(each.startswith(field) and why in each for each in found), found


def test_interval_cannot_change_later():
    """It is built into the pods."""
    stored, _ = admitted(jobset())
    changed = copy.deepcopy(stored)
    changed["metadata"]["annotations"][BEATS] = "2"

    assert any(str(each).startswith(FIELD) for each in validate_update(stored, changed))


@pytest.mark.parametrize(("notes", "count"), [({}, 1), ({keys.IN_PLACE_SPARES_ANNOTATION: "1"}, 0)])
def test_warning_is_returned_when_heartbeats_have_no_spares(notes, count):
    """They have no effect but events then."""
    processes = {keys.IN_PLACE_PROCESSES_ANNOTATION: "1"}
    body = jobset(notes=notes | processes)
    body["spec"]["replicatedJobs"].pop()
    stored, errors = admitted(body)
    found = [each for each in warnings(stored, Features()) if each.field == FIELD]

    assert errors == []
    assert len(found) == count
