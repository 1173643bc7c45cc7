"""Defaults that admission adds to a new JobSet."""

import copy

import pytest

from jobsetpy.reconcilers.validation.defaulting import default_jobset


def jobset(template_spec: dict | None = None, pod: dict | None = None, **spec) -> dict:
    job = {
        "name": "w",
        "template": {
            "spec": {
                **(template_spec or {}),
                "template": {"spec": {"containers": [], **(pod or {})}},
            }
        },
    }
    return {"metadata": {"name": "js"}, "spec": {"replicatedJobs": [job], **spec}}


def applied(obj: dict) -> dict:
    """The object with its defaults; each operation must add at a free place."""
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


def job_of(obj: dict) -> dict:
    return obj["spec"]["replicatedJobs"][0]["template"]["spec"]


NETWORK = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}


@pytest.mark.parametrize(
    ("given", "read", "expected"),
    [
        (jobset(), lambda o: job_of(o)["completionMode"], "Indexed"),
        (
            jobset({"completionMode": "NonIndexed"}),
            lambda o: job_of(o)["completionMode"],
            "NonIndexed",
        ),
        (jobset(), lambda o: o["spec"]["network"], NETWORK),
        (
            jobset(network={"enableDNSHostnames": False}),
            lambda o: o["spec"]["network"],
            {"enableDNSHostnames": False, "publishNotReadyAddresses": True},
        ),
        (
            jobset(network={"publishNotReadyAddresses": False}),
            lambda o: o["spec"]["network"],
            {"enableDNSHostnames": True, "publishNotReadyAddresses": False},
        ),
        (
            jobset(network={"enableDNSHostnames": False, "publishNotReadyAddresses": True}),
            lambda o: o["spec"]["network"],
            {"enableDNSHostnames": False, "publishNotReadyAddresses": True},
        ),
        (
            jobset(network={"subdomain": "sub"}),
            lambda o: o["spec"]["network"],
            {"subdomain": "sub", **NETWORK},
        ),
        (jobset(), lambda o: job_of(o)["template"]["spec"]["restartPolicy"], "OnFailure"),
        (
            jobset(pod={"restartPolicy": ""}),
            lambda o: job_of(o)["template"]["spec"]["restartPolicy"],
            "OnFailure",
        ),
        (
            jobset(pod={"restartPolicy": "Always"}),
            lambda o: job_of(o)["template"]["spec"]["restartPolicy"],
            "Always",
        ),
        (jobset(), lambda o: o["spec"]["successPolicy"], {"operator": "All"}),
        (
            jobset(successPolicy={"operator": "Any"}),
            lambda o: o["spec"]["successPolicy"],
            {"operator": "Any"},
        ),
        (jobset(), lambda o: o["spec"]["startupPolicy"], {"startupPolicyOrder": "AnyOrder"}),
        (
            jobset(startupPolicy={"startupPolicyOrder": "InOrder"}),
            lambda o: o["spec"]["startupPolicy"],
            {"startupPolicyOrder": "InOrder"},
        ),
        (jobset(), lambda o: o["spec"].get("managedBy"), None),
        (jobset(managedBy="a.b/c"), lambda o: o["spec"]["managedBy"], "a.b/c"),
        (
            jobset(failurePolicy={"rules": [{"action": "FailJobSet"}]}),
            lambda o: o["spec"]["failurePolicy"]["rules"][0]["name"],
            "failurePolicyRule0",
        ),
        (
            jobset(failurePolicy={"rules": [{"name": "a"}, {"name": ""}]}),
            lambda o: [rule["name"] for rule in o["spec"]["failurePolicy"]["rules"]],
            ["a", "failurePolicyRule1"],
        ),
        (
            jobset(volumeClaimPolicies=[{"templates": []}]),
            lambda o: o["spec"]["volumeClaimPolicies"][0]["retentionPolicy"],
            {"whenDeleted": "Delete"},
        ),
        (
            jobset(volumeClaimPolicies=[{"retentionPolicy": {"whenDeleted": "Retain"}}]),
            lambda o: o["spec"]["volumeClaimPolicies"][0]["retentionPolicy"],
            {"whenDeleted": "Retain"},
        ),
    ],
)
def test_defaults(given, read, expected):
    """Each default is filled in where a value is absent, and only there."""
    out = applied(given)
    assert read(out) == expected
    assert default_jobset(out) == []


def test_not_defaulted():
    """Fields whose absence has a meaning stay absent."""
    spec = applied(jobset())["spec"]
    absent = {"managedBy", "failurePolicy", "suspend", "coordinator", "groupSchedulingConfig"}
    assert not absent & set(spec)


def test_zero_and_unknown_fields_are_not_touched():
    """No operation names what the user wrote, be it zero or unknown."""
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
def test_never_fails(obj):
    """Whatever the shape, defaulting leaves it for the schema to refuse."""
    assert all(operation["op"] == "add" for operation in default_jobset(obj))
