"""Rules of JobSets one by one, as users meet them: API server, CRD and webhooks.

Creations are dry runs, which pass through all of these and store nothing.
"""

import json

import pytest

from jobsetpy.api import keys
from jobsetpy.errors import InvalidError
from support.admission.admission_kit import Api, job, jobset

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("webhooks"),
]

INT32_MAX = keys.INT32_MAX
STORAGE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
ONE = {"completionMode": "Indexed", "parallelism": 1, "completions": 1}


def claim(name="d", **metadata):
    return {"metadata": {"name": name, **metadata}, "spec": STORAGE}


def mounts(*names, where="containers"):
    mounting = [{"name": name, "mountPath": f"/{at}"} for at, name in enumerate(names)]
    container = {"name": "m", "image": "i", "volumeMounts": mounting}
    plain = {"name": "c", "image": "i"}
    return {"containers": [plain], where: [container]}


def claims(*names, pod=None, policies=1, **policy):
    templates = [claim(name) for name in names]
    many = [{"templates": templates, **policy}] * policies
    return jobset(job(pod=mounts(*names) if pod is None else pod), volumeClaimPolicies=many)


def rules(*rules, jobs=(), **policy):
    return jobset(*jobs, failurePolicy={"rules": list(rules), **policy})


def depends(*names, on="Complete"):
    return [{"name": name, "status": on} for name in names]


# Run on each Kubernetes release by hack/ci/versions.py.
COMMON_ACCEPTED = {
    "no jobs": jobset() | {"spec": {}},
    "AnyOrder with dependencies": jobset(job("a"), job("b", dependsOn=depends("a", on="Ready")), startupPolicy={"startupPolicyOrder": "AnyOrder"}),
    "no replicas": jobset(job(replicas=0)),
    "claim": claims("d"),
}  # fmt: skip
COMMON_REFUSED = {
    "target": (jobset(successPolicy={"operator": "All", "targetReplicatedJobs": ["x"]}), "invalid replicatedJob name 'x'"),
    "replicas -1": (jobset(job(replicas=-1)), "replicas"),
    "coordinator's long JobSet": (jobset(job(spec={"completions": 1}), name="n" * 60, coordinator={"replicatedJob": "w"}), "spec will lead to invalid label value"),
    "dependsOn of the first, itself": (jobset(job(dependsOn=depends("w", on="Ready"))), "DependsOn can't be set"),
    "dependsOn in order": (jobset(job("a"), job("b", dependsOn=depends("a", on="Ready")), startupPolicy={"startupPolicyOrder": "InOrder"}), "mutually exclusive"),
    "dependsOn status": (jobset(job("a"), job("b", dependsOn=depends("a", on="Failed"))), "dependsOn[0].status"),
    "managed by no path": (jobset(managedBy="x"), "spec.managedBy: Invalid value"),
    "template of another namespace": (jobset(job(pod=mounts("d")), volumeClaimPolicies=[{"templates": [claim(namespace="x")]}]), "namespace cannot be set"),
    "in place": (jobset(failurePolicy={"restartStrategy": "InPlaceRestart"}), "backoffLimit must be set to 2147483647"),
}  # fmt: skip


@pytest.fixture(scope="module")
def api(shared_client, module_namespace):
    return Api(shared_client, module_namespace)


async def refused(api, body, words):
    """Assert that a JobSet is refused as invalid with these words."""
    with pytest.raises(InvalidError) as caught:
        await api.try_create(body)
    assert caught.value.status == 422
    assert words in caught.value.message


@pytest.mark.parametrize("body", COMMON_ACCEPTED.values(), ids=COMMON_ACCEPTED)
async def test_common_jobset_is_accepted(api, body):
    """JobSets with features that users combine most."""
    await api.try_create(body)


@pytest.mark.parametrize(("body", "words"), COMMON_REFUSED.values(), ids=COMMON_REFUSED)
async def test_common_mistake_is_refused(api, body, words):
    """The answer is 422, and its message names the reason."""
    await refused(api, body, words)


async def test_policies_get_their_defaults(api):
    """An empty failure policy, and a claim policy without retention."""
    body = claims("d")
    body["spec"]["failurePolicy"] = {}
    spec = (await api.try_create(body))["spec"]
    assert spec["failurePolicy"] == {"restartStrategy": "Recreate"}
    assert spec["volumeClaimPolicies"][0]["retentionPolicy"] == {"whenDeleted": "Delete"}


TEMPLATE = ("spec", "replicatedJobs", 0, "template")
POD = (*TEMPLATE, "spec", "template")


async def test_equal_values_are_no_change_when_they_are_written_differently(api):
    """Quantities are compared by value, and empty lists as absent."""
    resources = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}
    old = await api.create(jobset(job(pod=resources), name="quantities"))
    container = (*POD, "spec", "containers", 0)
    same = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1000m"}}, "env": []}
    await api.change(old, same, *container, dry_run=True)


@pytest.mark.parametrize("condition", ["Completed", "Failed"])
async def test_parallelism_is_fixed_when_the_jobset_has_ended(api, condition):
    """The change is refused as forbidden, with a cause of the webhook."""
    name = condition.lower()
    old = await api.create(jobset(job(spec=ONE), name=name))
    end = {
        "type": condition,
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    old = await api.set_status(old, {"conditions": [end]})
    spec = old["spec"]["replicatedJobs"][0]["template"]["spec"]
    changed = {**spec, "parallelism": 2, "completions": 2}
    with pytest.raises(InvalidError) as caught:
        await api.change(old, changed, *TEMPLATE, "spec", dry_run=True)
    (cause,) = json.loads(caught.value.body)["details"]["causes"]
    assert cause["reason"] == "FieldValueForbidden"
    assert cause["field"] == "spec.replicatedJobs[0].template.spec"
