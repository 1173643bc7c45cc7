"""The definition in a real API server: what it refuses, fills in, prunes and shows."""

import copy
import uuid

import pytest
import yaml

import update_crds

pytestmark = pytest.mark.cluster

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobsets.jobset.x-k8s.io"
GROUP = "/apis/jobset.x-k8s.io/v1alpha2"
TEMPLATE = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}
IMMUTABLE = "Value is immutable"


def job(name="w", **fields):
    return {"name": name, "template": TEMPLATE, **fields}


def pod(**fields):
    """A ReplicatedJob whose pod spec has these fields."""
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["template"]["spec"].update(fields)
    return {"name": "w", "template": template}


def container(**fields):
    return pod(containers=[{"name": "c", "image": "i", **fields}])


def claim(**metadata):
    return {"metadata": metadata, "spec": {"accessModes": ["ReadWriteOnce"]}}


def depends(*names):
    return [{"name": name, "status": "Ready"} for name in names]


def rule(**fields):
    return {"failurePolicy": {"rules": [{"name": "r", "action": "FailJobSet", **fields}]}}


class JobSets:
    """JobSets of one namespace."""

    def __init__(self, api, namespace):
        self.api = api
        self.path = f"{GROUP}/namespaces/{namespace}/jobsets"

    def make(self, spec, *, dry_run=True, **top):
        body = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": f"j-{uuid.uuid4().hex[:8]}"},
            **top,
        }
        if spec is not None:
            body["spec"] = spec
        query = {"dryRun": "All"} if dry_run else {}
        return self.api("POST", self.path, body, **query)

    def replace(self, obj, subresource="", **query):
        path = f"{self.path}/{obj['metadata']['name']}{subresource}"
        return self.api("PUT", path, obj, **query)


@pytest.fixture(scope="module")
def jobsets(api, namespace):
    """JobSets of the module's namespace."""
    return JobSets(api, namespace)


def jobs(*items):
    return {"replicatedJobs": list(items)}


REFUSED = {
    "operator": ({"successPolicy": {"operator": "Some"}}, "successPolicy.operator"),
    "operator required": ({"successPolicy": {}}, "successPolicy.operator: Required"),
    "maxRestarts type": ({"failurePolicy": {"maxRestarts": "3"}}, "maxRestarts"),
    "maxRestarts int32": ({"failurePolicy": {"maxRestarts": 2**31}}, "maxRestarts"),
    "restartStrategy": ({"failurePolicy": {"restartStrategy": "Never"}}, "restartStrategy"),
    "action": (rule(action="RestartPod"), "rules[0].action"),
    "action required": ({"failurePolicy": {"rules": [{"name": "r"}]}}, "action: Required"),
    "rule name required": (
        {"failurePolicy": {"rules": [{"action": "FailJobSet"}]}},
        "name: Required",
    ),
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
def test_refused(jobsets, spec, text):
    """The object is invalid, and the answer says where or why."""
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
    "a pattern that is none": rule(onJobFailureMessagePatterns=["("]),
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
def test_accepted(jobsets, spec):
    """The object is valid as it is."""
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
def test_defaults(jobsets, spec, expected):
    """The API server fills in these defaults and no others."""
    assert jobsets.make(spec).accepted()["spec"] == expected


def test_defaults_of_embedded_types(jobsets):
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
        "cachingMode": "ReadWrite",
        "diskName": "d",
        "diskURI": "u",
        "fsType": "ext4",
        "kind": "Shared",
        "readOnly": False,
    }


def test_unknown_fields_are_pruned(jobsets):
    """What no schema names is dropped, in embedded metadata too."""
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


def test_strict_requests_name_unknown_fields(jobsets):
    """A client that asks for strictness is told which field is unknown."""
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "strict"},
        "spec": {"replicatedJob": []},
    }
    answer = jobsets.api("POST", jobsets.path, body, dryRun="All", fieldValidation="Strict")

    assert answer.status == 400
    assert 'unknown field "spec.replicatedJob"' in answer.message


# --- changes -----------------------------------------------------------------------------------

FULL = {
    "network": {"subdomain": "a"},
    "successPolicy": {"operator": "All"},
    "failurePolicy": {"maxRestarts": 3},
    "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
    "volumeClaimPolicies": [{"templates": [claim(name="a")]}],
    "groupSchedulingConfig": {"timeoutAfterSeconds": 10},
}
CHANGED = {
    "network": {"subdomain": "b"},
    "successPolicy": {"operator": "Any"},
    "failurePolicy": {"maxRestarts": 21},
    "startupPolicy": {"startupPolicyOrder": "InOrder"},
    "volumeClaimPolicies": [{"templates": [claim(name="b")]}],
    "groupSchedulingConfig": {"timeoutAfterSeconds": 11},
}


@pytest.fixture(scope="module")
def full(jobsets):
    """A stored JobSet that has all immutable fields."""
    spec = {**FULL, **jobs(job("a"), job("b"), job("c", dependsOn=depends("a")))}
    return jobsets.make(spec, dry_run=False).accepted()


@pytest.fixture(scope="module")
def bare(jobsets):
    """A stored JobSet that has none of them."""
    return jobsets.make(jobs(job("a"), job("b")), dry_run=False).accepted()


def changed(obj, **spec):
    obj = copy.deepcopy(obj)
    obj["spec"].update(spec)
    return obj


@pytest.mark.parametrize("field", FULL)
def test_a_policy_may_not_change(jobsets, full, field):
    """A present policy cannot get another value."""
    answer = jobsets.replace(changed(full, **{field: CHANGED[field]}), dryRun="All")

    assert answer.status == 422
    assert IMMUTABLE in answer.message


@pytest.mark.parametrize("field", FULL)
def test_a_policy_may_be_removed(jobsets, full, field):
    """The rule compares two present values: removing one is not refused."""
    obj = changed(full)
    del obj["spec"][field]

    assert field not in jobsets.replace(obj, dryRun="All").accepted()["spec"]


@pytest.mark.parametrize("field", FULL)
def test_a_policy_may_be_added(jobsets, bare, field):
    """A policy that was absent can be set later."""
    made = jobsets.replace(changed(bare, **{field: FULL[field]}), dryRun="All").accepted()

    assert field in made["spec"]


def test_claims_may_not_be_added_to_policies(jobsets, full):
    """The list of claim policies is immutable as a whole."""
    more = [*full["spec"]["volumeClaimPolicies"], {"templates": []}]
    answer = jobsets.replace(changed(full, volumeClaimPolicies=more), dryRun="All")

    assert IMMUTABLE in answer.message


def test_dependencies_may_not_change(jobsets, full):
    """The dependsOn of a ReplicatedJob keeps its entries and their status."""
    for entries in (
        depends("b"),
        [*depends("a"), *depends("b")],
        [],
        [{"name": "a", "status": "Complete"}],
    ):
        spec = jobs(job("a"), job("b"), job("c", dependsOn=entries))
        answer = jobsets.replace(changed(full, **spec), dryRun="All")

        assert answer.status == 422
        assert IMMUTABLE in answer.message


def test_dependencies_are_compared_by_name(jobsets, full):
    """Old and new ReplicatedJobs are matched by name, not by position."""
    spec = jobs(job("c", dependsOn=depends("a")), job("b"), job("a"))
    jobsets.replace(changed(full, **spec), dryRun="All").accepted()


def test_dependencies_may_be_added_and_removed(jobsets, full):
    """As with policies, presence may change."""
    spec = jobs(job("a"), job("b", dependsOn=depends("a")), job("c"))
    jobsets.replace(changed(full, **spec), dryRun="All").accepted()


def test_other_fields_may_change(jobsets, full):
    """Suspension, time to live and coordinator are mutable."""
    spec = {"suspend": True, "ttlSecondsAfterFinished": 5, "coordinator": {"replicatedJob": "a"}}
    jobsets.replace(changed(full, **spec), dryRun="All").accepted()


def test_lists_merge_by_name(jobsets, namespace):
    """Two appliers own one ReplicatedJob each."""
    path = f"{jobsets.path}/merged"
    for manager in ("one", "two"):
        body = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "merged"},
            "spec": jobs(job(manager)),
        }
        made = jobsets.api.apply(path, body, fieldManager=manager, force="false").accepted()

    assert [item["name"] for item in made["spec"]["replicatedJobs"]] == ["one", "two"]


# --- status ------------------------------------------------------------------------------------

CONDITION = {
    "type": "Completed",
    "status": "True",
    "reason": "AllJobsCompleted",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
COUNTS = {"name": "w", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}


def with_status(obj, **status):
    return {**obj, "status": status}


BAD_STATUS = {
    "condition type": {"conditions": [{**CONDITION, "type": "no spaces"}]},
    "condition status": {"conditions": [{**CONDITION, "status": "Yes"}]},
    "condition reason": {"conditions": [{**CONDITION, "reason": ""}]},
    "condition reason pattern": {"conditions": [{**CONDITION, "reason": "1st"}]},
    "condition time": {"conditions": [{**CONDITION, "lastTransitionTime": "now"}]},
    "condition generation": {"conditions": [{**CONDITION, "observedGeneration": -1}]},
    "condition message length": {"conditions": [{**CONDITION, "message": "m" * 32769}]},
    "condition twice": {"conditions": [CONDITION, CONDITION]},
    **{
        f"condition without {key}": {
            "conditions": [{k: v for k, v in CONDITION.items() if k != key}]
        }
        for key in CONDITION
    },
    **{
        f"counts without {key}": {
            "replicatedJobsStatus": [{k: v for k, v in COUNTS.items() if k != key}]
        }
        for key in COUNTS
    },
    "counts twice": {"replicatedJobsStatus": [COUNTS, COUNTS]},
    "jobRestarts": {"replicatedJobsStatus": [{**COUNTS, "jobRestarts": [0] * 1025}]},
    "jobRestartsCountTowardsMax": {
        "replicatedJobsStatus": [{**COUNTS, "jobRestartsCountTowardsMax": [0] * 1025}]
    },
    "previous attempt": {"previousInPlaceRestartAttempt": -1},
    "current attempt": {"currentInPlaceRestartAttempt": -1},
    "epoch": {"syncedEpoch": 2**31},
}


@pytest.mark.parametrize("status", BAD_STATUS.values(), ids=BAD_STATUS)
def test_bad_status(jobsets, bare, status):
    """The status subresource is validated too."""
    assert jobsets.replace(with_status(bare, **status), "/status", dryRun="All").status == 422


def test_status_fields(jobsets, bare):
    """Every status field is kept, at its limits, and unknown ones are dropped."""
    status = {
        "conditions": [{**CONDITION, "type": "example.com/Some.Type_1", "observedGeneration": 3}],
        "restarts": 0,
        "restartsCountTowardsMax": 1,
        "terminalState": "Completed",
        "replicatedJobsStatus": [
            {**COUNTS, "jobRestarts": [1] * 1024, "jobRestartsCountTowardsMax": [0] * 1024}
        ],
        "syncedEpoch": 2,
        "deprecatedEpoch": 1,
        "previousInPlaceRestartAttempt": 0,
        "currentInPlaceRestartAttempt": 1,
    }
    answer = jobsets.replace(with_status(bare, **status, unknown=1), "/status", dryRun="All")

    assert answer.accepted()["status"] == status


def test_epochs_default_to_zero(jobsets, bare):
    """A status without epochs reads as epoch zero."""
    answer = jobsets.replace(with_status(bare, restarts=1), "/status", dryRun="All")

    assert answer.accepted()["status"] == {"restarts": 1, "syncedEpoch": 0, "deprecatedEpoch": 0}


def test_status_and_spec_are_written_apart(jobsets, bare):
    """A write of the object leaves the status, a write of the status the spec."""
    assert "status" not in jobsets.make({}, status={"restarts": 1}).accepted()
    obj = with_status(changed(bare, suspend=True), restarts=7)

    assert "suspend" not in jobsets.replace(obj, "/status", dryRun="All").accepted()["spec"]
    assert "status" not in jobsets.replace(obj, dryRun="All").accepted()


# --- how it looks ------------------------------------------------------------------------------


def test_printer_columns(jobsets):
    """A table has the columns of the API, filled from spec and status."""
    made = jobsets.make({"suspend": True}, dry_run=False).accepted()
    status = {"restarts": 3, "terminalState": "Completed", "conditions": [CONDITION]}
    jobsets.replace(with_status(made, **status), "/status").accepted()

    table = jobsets.api(
        "GET",
        f"{jobsets.path}/{made['metadata']['name']}",
        accept="application/json;as=Table;g=meta.k8s.io;v=v1",
    ).accepted()

    assert [(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("TerminalState", "string", 0),
        ("Restarts", "string", 0),
        ("Completed", "string", 0),
        ("Suspended", "string", 0),
        ("Age", "date", 0),
    ]
    cells = table["rows"][0]["cells"]
    assert cells[1:5] == ["Completed", "3", "True", "true"]


def test_discovery(api):
    """The resource has a status subresource, no scale, no short names and no categories."""
    resources = api("GET", GROUP).accepted()["resources"]

    assert {item["name"] for item in resources} == {"jobsets", "jobsets/status"}
    main = next(item for item in resources if item["name"] == "jobsets")
    assert (main["kind"], main["singularName"], main["namespaced"]) == ("JobSet", "jobset", True)
    assert "shortNames" not in main
    assert "categories" not in main


def test_the_definition_is_established(api):
    """The definition has been accepted, and its schema is structural."""
    conditions = {
        item["type"]: item["status"] for item in api("GET", CRD).accepted()["status"]["conditions"]
    }

    assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_strict_creation_has_nothing_to_complain_about(api):
    """No keyword of the definition is unknown, and nothing gives a warning."""
    text = update_crds.CRD.read_text()
    answer = api.apply(CRD, yaml.safe_load(text), dryRun="All")

    answer.accepted()
    assert answer.warnings == []


def test_the_api_server_publishes_the_descriptions(api):
    """Clients such as kubectl explain see the texts of the fields."""
    document = api("GET", "/openapi/v3/apis/jobset.x-k8s.io/v1alpha2").accepted()
    schemas = document["components"]["schemas"]
    (spec,) = (item for name, item in schemas.items() if name.endswith(".JobSet"))

    assert spec["properties"]["spec"]["properties"]["suspend"]["description"]


def test_the_snapshot_is_what_the_api_server_publishes(api):
    """The packaged schemas of built-in types are those of the cluster's Kubernetes version."""
    found = update_crds.fetch_definitions(api.server, api.tls, api.token)

    assert update_crds.snapshot_text(found) == update_crds.SNAPSHOT.read_text()
