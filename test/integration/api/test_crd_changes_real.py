"""The CRD in a real API server: changes of JobSets, and their status."""

import copy

import pytest

from support.cluster.crd_kit import claim, depends, job, jobs

pytestmark = pytest.mark.cluster

IMMUTABLE = "Value is immutable"
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
def test_policy_may_not_change(jobsets, full, field):
    """A policy that is present cannot get another value."""
    answer = jobsets.replace(changed(full, **{field: CHANGED[field]}), dryRun="All")

    assert answer.status == 422
    assert IMMUTABLE in answer.message


@pytest.mark.parametrize("field", FULL)
def test_policy_may_be_removed(jobsets, full, field):
    """The rule compares two present values: removing one is not refused."""
    obj = changed(full)
    del obj["spec"][field]

    assert field not in jobsets.replace(obj, dryRun="All").accepted()["spec"]


@pytest.mark.parametrize("field", FULL)
def test_policy_may_be_added(jobsets, bare, field):
    """A policy that is absent can be set later."""
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
    """As for policies, presence may change."""
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


@pytest.mark.slow
def test_rules_are_evaluated_when_objects_are_as_large_as_possible(jobsets):
    """Near the size limit of a request, no rule exceeds its budget, at creation or later."""
    claims = [{**claim(name="c"), "metadata": {"annotations": {"a": "x" * 200}}}] * 50
    spec = {
        **jobs(*(job(f"w{i}", dependsOn=depends(*"abcde")) for i in range(1000))),
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        "volumeClaimPolicies": [{"templates": claims}] * 25,
    }
    made = jobsets.make(spec, dry_run=False).accepted()

    jobsets.replace(changed(made, suspend=True)).accepted()


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
        f"condition without {key}": {"conditions": [{k: CONDITION[k] for k in CONDITION if k != key}]}
        for key in CONDITION
    },
    **{
        f"counts without {key}": {"replicatedJobsStatus": [{k: COUNTS[k] for k in COUNTS if k != key}]}
        for key in COUNTS
    },
    "counts twice": {"replicatedJobsStatus": [COUNTS, COUNTS]},
    "jobRestarts": {"replicatedJobsStatus": [{**COUNTS, "jobRestarts": [0] * 1025}]},
    "jobRestartsCountTowardsMax": {"replicatedJobsStatus": [{**COUNTS, "jobRestartsCountTowardsMax": [0] * 1025}]},
    "previous attempt": {"previousInPlaceRestartAttempt": -1},
    "current attempt": {"currentInPlaceRestartAttempt": -1},
    "epoch": {"syncedEpoch": 2**31},
}  # fmt: skip


@pytest.mark.parametrize("status", BAD_STATUS.values(), ids=BAD_STATUS)
def test_status_is_refused_when_it_is_invalid(jobsets, bare, status):
    """The status subresource is validated, too."""
    assert jobsets.replace(with_status(bare, **status), "/status", dryRun="All").status == 422


def test_status_fields_are_stored(jobsets, bare):
    """Every field is stored, at its limits, and unknown ones are dropped."""
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


def test_status_and_spec_are_written_separately(jobsets, bare):
    """A write of the object does not change the status, nor a write of the status the spec."""
    assert "status" not in jobsets.make({}, status={"restarts": 1}).accepted()
    obj = with_status(changed(bare, suspend=True), restarts=7)

    assert "suspend" not in jobsets.replace(obj, "/status", dryRun="All").accepted()["spec"]
    assert "status" not in jobsets.replace(obj, dryRun="All").accepted()
