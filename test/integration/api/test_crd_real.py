"""The CRD in a real API server: validation, defaults and pruning."""

import copy

import pytest

from support.cluster.crd_kit import TEMPLATE, claim, depends, job, jobs

pytestmark = pytest.mark.cluster


def pod(**fields):
    """A ReplicatedJob whose pod spec has these fields."""
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["template"]["spec"].update(fields)
    return {"name": "w", "template": template}


def container(**fields):
    return pod(containers=[{"name": "c", "image": "i", **fields}])


def rule(**fields):
    return {"failurePolicy": {"rules": [{"name": "r", "action": "FailJobSet", **fields}]}}


REFUSED = {
    "operator": ({"successPolicy": {"operator": "Some"}}, "successPolicy.operator"),
    "operator required": ({"successPolicy": {}}, "successPolicy.operator: Required"),
    "maxRestarts type": ({"failurePolicy": {"maxRestarts": "3"}}, "maxRestarts"),
    "maxRestarts int32": ({"failurePolicy": {"maxRestarts": 2**31}}, "maxRestarts"),
    "restartStrategy": ({"failurePolicy": {"restartStrategy": "Never"}}, "restartStrategy"),
    "action": (rule(action="RestartPod"), "rules[0].action"),
    "action required": ({"failurePolicy": {"rules": [{"name": "r"}]}}, "action: Required"),
    "order": ({"startupPolicy": {"startupPolicyOrder": "Random"}}, "startupPolicyOrder"),
    "order required": ({"startupPolicy": {}}, "startupPolicyOrder: Required"),
    "coordinator": ({"coordinator": {"jobIndex": 0}}, "coordinator.replicatedJob: Required"),
    "coordinator index": ({"coordinator": {"replicatedJob": "w", "jobIndex": 1.5}}, "jobIndex"),
    "ttl": ({"ttlSecondsAfterFinished": -1}, "greater than or equal to 0"),
    "suspend": ({"suspend": "yes"}, "suspend"),
    "group timeout": (
        {"groupSchedulingConfig": {"timeoutAfterSeconds": 0}},
        "greater than or equal to 1",
    ),
    "whenDeleted": (
        {"volumeClaimPolicies": [{"templates": [], "retentionPolicy": {"whenDeleted": "Keep"}}]},
        "whenDeleted",
    ),
    "51 policies": ({"volumeClaimPolicies": [{"templates": []}] * 51}, "at most 50 items"),
    "51 templates": (
        {"volumeClaimPolicies": [{"templates": [claim(name="t")] * 51}]},
        "at most 50 items",
    ),
    "rule B: namespace": (
        {"volumeClaimPolicies": [{"templates": [claim(name="t", namespace="other")]}]},
        "namespace cannot be set",
    ),
    "rule B: no templates": ({"volumeClaimPolicies": [{}]}, "no such key: templates"),
    "rule B: no metadata": (
        {"volumeClaimPolicies": [{"templates": [{"spec": {}}]}]},
        "no such key: metadata",
    ),
    "rule A: dependsOn": (
        {
            "startupPolicy": {"startupPolicyOrder": "InOrder"},
            **jobs(job("a"), job("b", dependsOn=depends("a"))),
        },
        "mutually exclusive",
    ),
    "rule A: an empty list is present": (
        {"startupPolicy": {"startupPolicyOrder": "InOrder"}, **jobs(job("a", dependsOn=[]))},
        "mutually exclusive",
    ),
    "rule A: no jobs": (
        {"startupPolicy": {"startupPolicyOrder": "InOrder"}},
        "no such key: replicatedJobs",
    ),
    "job name required": (jobs({"template": TEMPLATE}), "name: Required"),
    "job template required": (jobs({"name": "w"}), "template: Required"),
    "pod template required": (jobs(job(template={"spec": {}})), "template: Required"),
    "containers required": (
        jobs(job(template={"spec": {"template": {"spec": {}}}})),
        "containers: Required",
    ),
    "two jobs of a name": (jobs(job("a"), job("a")), "Duplicate value"),
    "replicas": (jobs(job(replicas=-1)), "greater than or equal to 0"),
    "replicas int32": (jobs(job(replicas=2**31)), "replicas"),
    "dependsOn status": (
        jobs(job("a"), job("b", dependsOn=[{"name": "a", "status": "Failed"}])),
        "dependsOn[0].status",
    ),
    "dependsOn status required": (jobs(job(dependsOn=[{"name": "a"}])), "status: Required"),
    "dependsOn name required": (jobs(job(dependsOn=[{"status": "Ready"}])), "name: Required"),
    "6 dependsOn": (jobs(job(dependsOn=depends(*"abcdef"))), "at most 5 items"),
    "dependsOn twice": (jobs(job(dependsOn=depends("a", "a"))), "Duplicate value"),
    "quantity": (
        jobs(container(resources={"limits": {"cpu": "lots"}})),
        "resources.limits.cpu",
    ),
    "port twice": (
        jobs(container(ports=[{"containerPort": 1}, {"containerPort": 1, "protocol": "TCP"}])),
        "Duplicate value",
    ),
    "environment twice": (
        jobs(container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])),
        "Duplicate value",
    ),
    "required port number": (jobs(container(ports=[{"name": "p"}])), "containerPort: Required"),
}


@pytest.mark.parametrize(("spec", "text"), REFUSED.values(), ids=REFUSED)
def test_jobset_is_refused_when_it_is_invalid(jobsets, spec, text):
    """The answer names the field or the reason."""
    answer = jobsets.make(spec)

    assert answer.status == 422, answer.body
    assert text in answer.message


ACCEPTED = {
    "nothing": None,
    "empty spec": {},
    "no jobs": {"replicatedJobs": []},
    "negative maxRestarts": {"failurePolicy": {"maxRestarts": -1}},
    "no replicas": jobs(job(replicas=0)),
    "AnyOrder with dependsOn": {
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        **jobs(job("a"), job("b", dependsOn=depends("a"))),
    },
    "InOrder without dependsOn": {
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        **jobs(job("a"), job("b")),
    },
    "InOrder with an empty list of jobs": {
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        **jobs(),
    },
    "5 dependsOn": jobs(job(dependsOn=depends(*"abcde"))),
    "50 policies": {"volumeClaimPolicies": [{"templates": []}] * 50},
    "50 templates": {"volumeClaimPolicies": [{"templates": [claim(name="t")] * 50}]},
    "empty namespace": {"volumeClaimPolicies": [{"templates": [claim(name="t", namespace="")]}]},
    "several policies": {
        "volumeClaimPolicies": [
            {"templates": [claim(name="a")]},
            {"templates": [claim(name="b")], "retentionPolicy": {"whenDeleted": "Retain"}},
        ]
    },
    "coordinator": {"coordinator": {"replicatedJob": "w", "jobIndex": 2**40, "podIndex": -1}},
    "group scheduling": {"groupSchedulingConfig": {"targetReplicatedJobs": ["w"]}},
    "number as a quantity": jobs(container(resources={"limits": {"cpu": 1, "memory": "1Gi"}})),
    "one port, two protocols": jobs(
        container(ports=[{"containerPort": 1}, {"containerPort": 1, "protocol": "UDP"}])
    ),
    "a value of a newer Job API": jobs(container(restartPolicyRules=[{"action": "NewOne"}])),
    "same reasons twice": rule(onJobFailureReasons=["DeadlineExceeded"] * 2),
    "an invalid pattern": rule(onJobFailureMessagePatterns=["("]),
    **{f"operator {v}": {"successPolicy": {"operator": v}} for v in ("All", "Any")},
    **{
        f"strategy {v}": {"failurePolicy": {"restartStrategy": v}}
        for v in ("Recreate", "BlockingRecreate", "InPlaceRestart")
    },
    **{
        f"action {v}": rule(action=v)
        for v in (
            "FailJobSet",
            "FailJob",
            "RestartJobSet",
            "RestartJobSetAndIgnoreMaxRestarts",
            "RestartReplicatedJob",
            "RestartReplicatedJobAndIgnoreMaxRestarts",
            "RestartJob",
            "RestartJobAndIgnoreMaxRestarts",
        )
    },
    **{
        f"dependsOn {v}": jobs(job(dependsOn=[{"name": "a", "status": v}]))
        for v in ("Ready", "Complete")
    },
}


@pytest.mark.parametrize("spec", ACCEPTED.values(), ids=ACCEPTED)
def test_jobset_is_accepted_when_it_is_valid(jobsets, spec):
    """JobSets at the limits of the schema are accepted."""
    jobsets.make(spec).accepted()


DEFAULTS = {
    "job": (
        jobs(job()),
        {"replicatedJobs": [{**job(), "groupName": "default", "replicas": 1}]},
    ),
    "failure policy": ({"failurePolicy": {}}, {"failurePolicy": {"restartStrategy": "Recreate"}}),
    "retention policy": (
        {"volumeClaimPolicies": [{"templates": [], "retentionPolicy": {}}]},
        {"volumeClaimPolicies": [{"templates": [], "retentionPolicy": {"whenDeleted": "Delete"}}]},
    ),
    "none for absent objects": (
        {"network": {}, "volumeClaimPolicies": [{"templates": []}]},
        {"network": {}, "volumeClaimPolicies": [{"templates": []}]},
    ),
    "none at all": ({}, {}),
}


@pytest.mark.parametrize(("spec", "expected"), DEFAULTS.values(), ids=DEFAULTS)
def test_absent_fields_get_defaults(jobsets, spec, expected):
    """The API server adds these defaults and no others."""
    assert jobsets.make(spec).accepted()["spec"] == expected


def test_fields_of_built_in_types_get_defaults(jobsets):
    """Optional fields of built-in types get their documented defaults."""
    spec = jobs(
        pod(
            containers=[
                {
                    "name": "c",
                    "ports": [{"containerPort": 1}],
                    "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"key": "k"}}}],
                    "livenessProbe": {"grpc": {"port": 1}},
                }
            ],
            volumes=[{"name": "v", "azureDisk": {"diskName": "d", "diskURI": "u"}}],
        )
    )
    made = jobsets.make(spec).accepted()["spec"]["replicatedJobs"][0]
    spec = made["template"]["spec"]["template"]["spec"]

    assert spec["containers"] == [
        {
            "name": "c",
            "ports": [{"containerPort": 1, "protocol": "TCP"}],
            "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"key": "k", "name": ""}}}],
            "livenessProbe": {"grpc": {"port": 1, "service": ""}},
        }
    ]
    assert spec["volumes"][0]["azureDisk"] == {
        "diskName": "d",
        "diskURI": "u",
        "fsType": "ext4",
        "readOnly": False,
    }


def test_unknown_fields_are_pruned(jobsets):
    """Fields without a schema are dropped, in embedded metadata too."""
    metadata = {
        "annotations": {"a": "1"},
        "finalizers": ["x.example/f"],
        "labels": {"b": "2"},
        "name": "n",
        "namespace": "",
    }
    lost = {"creationTimestamp": None, "generateName": "g-", "uid": "u"}
    template = copy.deepcopy(TEMPLATE)
    template["metadata"] = {**metadata, **lost}
    template["spec"]["template"]["metadata"] = {**metadata, **lost}
    template["spec"]["template"]["spec"]["unknown"] = True
    spec = {
        "unknown": {"a": 1},
        "replicatedJobs": [{"name": "w", "template": template, "unknown": 1}],
        "volumeClaimPolicies": [{"templates": [{"metadata": {**metadata, **lost}}]}],
    }

    made = jobsets.make(spec, unknown=1).accepted()

    assert "unknown" not in made
    assert set(made["spec"]) == {"replicatedJobs", "volumeClaimPolicies"}
    (first,) = made["spec"]["replicatedJobs"]
    assert set(first) == {"name", "groupName", "replicas", "template"}
    assert first["template"]["metadata"] == metadata
    assert first["template"]["spec"]["template"]["metadata"] == metadata
    assert "unknown" not in first["template"]["spec"]["template"]["spec"]
    assert made["spec"]["volumeClaimPolicies"] == [{"templates": [{"metadata": metadata}]}]


def test_strict_request_is_refused_when_a_field_is_unknown(jobsets):
    """The answer names the unknown field."""
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "strict"},
        "spec": {"replicatedJob": []},
    }
    answer = jobsets.api("POST", jobsets.path, body, dryRun="All", fieldValidation="Strict")

    assert answer.status == 400
    assert 'unknown field "spec.replicatedJob"' in answer.message
