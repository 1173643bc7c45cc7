"""Defaults that admission adds to a new JobSet."""

import copy

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.validation.defaulting import default_jobset, rewrite_jobset


def jobset(template_spec: dict | None = None, pod: dict | None = None, **spec) -> dict:
    """Return a JobSet without defaults."""
    template = {**(template_spec or {}), "template": {"spec": {"containers": [], **(pod or {})}}}
    job = {"name": "w", "template": {"spec": template}}
    return {"metadata": {"name": "js"}, "spec": {"replicatedJobs": [job], **spec}}


def applied(obj: dict) -> dict:
    """Return the object with its defaults; each operation must add an absent field."""
    out = copy.deepcopy(obj)
    for operation in default_jobset(obj):
        assert operation["op"] == "add"
        *parents, last = operation["path"].split("/")[1:]
        at = out
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        assert not at.get(last)
        at[last] = operation["value"]
    return out


def test_jobset_has_no_suspend_when_a_queue_suspends_its_jobs():
    """The annotation is that of KEP-1172; the field would suspend all Jobs."""
    new = jobset(suspend=True)
    new["metadata"]["annotations"] = {keys.SKIP_SUSPEND_ANNOTATION: "true"}
    stored, patch = rewrite_jobset(new, new)
    assert ("suspend" in stored["spec"], patch) == (
        False,
        [{"op": "remove", "path": "/spec/suspend"}],
    )


def read(obj: dict, *path):
    """Return the value at a path in the spec; numbers are indexes of lists."""
    at = obj["spec"]
    for part in path:
        at = at[part]
    return at


JOB = ("replicatedJobs", 0, "template", "spec")
RESTART = (*JOB, "template", "spec", "restartPolicy")
NETWORK = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
NO_DNS = {**NETWORK, "enableDNSHostnames": False}
RETENTION = ("volumeClaimPolicies", 0, "retentionPolicy")
ANY, IN_ORDER = {"startupPolicyOrder": "AnyOrder"}, {"startupPolicyOrder": "InOrder"}


@pytest.mark.parametrize(
    ("obj", "path", "expected"),
    [
        (jobset(), (*JOB, "completionMode"), "Indexed"),
        (jobset({"completionMode": "NonIndexed"}), (*JOB, "completionMode"), "NonIndexed"),
        (jobset(), ("network",), NETWORK),
        (jobset(network={"enableDNSHostnames": False}), ("network",), NO_DNS),
        (
            jobset(network={"publishNotReadyAddresses": False}),
            ("network",),
            {"enableDNSHostnames": True, "publishNotReadyAddresses": False},
        ),
        (jobset(network=NO_DNS), ("network",), NO_DNS),
        (jobset(network={"subdomain": "sub"}), ("network",), {"subdomain": "sub", **NETWORK}),
        (jobset(), RESTART, "OnFailure"),
        (jobset(pod={"restartPolicy": ""}), RESTART, "OnFailure"),
        (jobset(pod={"restartPolicy": "Always"}), RESTART, "Always"),
        (jobset(), ("successPolicy",), {"operator": "All"}),
        (jobset(successPolicy={"operator": "Any"}), ("successPolicy",), {"operator": "Any"}),
        (jobset(), ("startupPolicy",), ANY),
        (jobset(startupPolicy=IN_ORDER), ("startupPolicy",), IN_ORDER),
        (jobset(managedBy="a.b/c"), ("managedBy",), "a.b/c"),
        (
            jobset(failurePolicy={"rules": [{"action": "FailJobSet"}]}),
            ("failurePolicy", "rules", 0, "name"),
            "failurePolicyRule0",
        ),
        (
            jobset(failurePolicy={"rules": [{"name": "a"}, {"name": ""}]}),
            ("failurePolicy", "rules"),
            [{"name": "a"}, {"name": "failurePolicyRule1"}],
        ),
        (jobset(volumeClaimPolicies=[{"templates": []}]), RETENTION, {"whenDeleted": "Delete"}),
        (
            jobset(volumeClaimPolicies=[{"retentionPolicy": {"whenDeleted": "Retain"}}]),
            RETENTION,
            {"whenDeleted": "Retain"},
        ),
    ],
)
def test_absent_fields_get_their_defaults(obj, path, expected):
    """Fields that are present stay as they are."""
    out = applied(obj)
    assert read(out, *path) == expected
    assert default_jobset(out) == []


def test_fields_whose_absence_has_a_meaning_stay_absent():
    """They have no default."""
    spec = applied(jobset())["spec"]
    absent = {"managedBy", "failurePolicy", "suspend", "coordinator", "groupSchedulingConfig"}
    assert not absent & set(spec)


def test_zero_and_unknown_fields_are_not_touched():
    """No operation names a field that the user wrote."""
    obj = jobset(future={"a": None})
    obj["spec"]["replicatedJobs"][0]["replicas"] = 0
    out = applied(obj)
    assert out["spec"]["replicatedJobs"][0]["replicas"] == 0
    assert out["spec"]["future"] == {"a": None}


@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"spec": None},
        {"spec": []},
        {"spec": {"replicatedJobs": "x", "network": 3, "failurePolicy": {"rules": [1]}}},
        {"spec": {"replicatedJobs": [{"template": {"spec": {"template": 5}}}, {"template": []}]}},
    ],
)
def test_object_of_a_wrong_shape_is_left_to_the_schema(obj):
    """Defaulting raises no error."""
    assert all(operation["op"] == "add" for operation in default_jobset(obj))
