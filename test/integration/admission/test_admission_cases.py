"""Rules of JobSets one by one, as users meet them: API server, CRD and webhooks.

Creations are dry runs, which pass through all of these and store nothing.
"""

import copy
import json

import pytest
import pytest_asyncio

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


def rule(action="FailJobSet", name="r", **fields):
    return {"action": action, "name": name, **fields}


def generated(base, *jobs, **spec):
    body = jobset(*jobs, **spec)
    body["metadata"] = {"generateName": base}
    return body


def placed(mode, *names):
    """A JobSet with exclusive placement, in the forms of these annotations."""
    notes = {f"alpha.jobset.sigs.k8s.io/{name}": "zone" for name in names}
    body = jobset(job(spec={"completionMode": mode}))
    return {**body, "metadata": {**body["metadata"], "annotations": notes}}


def depends(*names, on="Complete"):
    return [{"name": name, "status": on} for name in names]


def in_place(strategy="InPlaceRestart", **spec):
    agent = {
        "name": "agent",
        "image": "i",
        "restartPolicy": "Always",
        "restartPolicyRules": [
            {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}
        ],
    }
    good = {"backoffLimit": INT32_MAX, "podReplacementPolicy": "Failed"}
    spec = {k: v for k, v in {**good, **ONE, **spec}.items() if v is not None}
    return jobset(
        job(spec=spec, pod={"initContainers": [agent]}), failurePolicy={"restartStrategy": strategy}
    )


def grouped(scope="JobSet"):
    body = jobset()
    body["metadata"]["annotations"] = {"jobset.sigs.k8s.io/coscheduling": scope}
    return body


def three(*, second=None, third=None):
    parts = [job("a"), job("b"), job("c")]
    for part, wanted in zip(parts[1:], (second, third), strict=True):
        if wanted is not None:
            part["dependsOn"] = wanted
    return jobset(*parts)


COORDINATED = job(replicas=2, spec={**ONE, "completions": 2, "parallelism": 2})

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

ACCEPTED = {
    # names: <js>-<rj>-<index>, and <that>-<pod index>-abcde, of at most 63 characters
    "job name 63": jobset(name="n" * 59),
    "job name 63, two digits": jobset(job(replicas=11), name="n" * 58),
    "job name 63, no replicas": jobset(job(replicas=0), name="n" * 58),
    "pod name 63": jobset(job(spec=ONE), name="n" * 51),
    "pod name of a NonIndexed Job": jobset(job(spec={**ONE, "completionMode": "NonIndexed"}), name="n" * 59),
    "generated name": generated("a" * 48 + "-", job("worker")),
    "subdomain 63": jobset(network={"subdomain": "s" * 63}),
    "group 63": jobset(job(groupName="g" * 63)),
    "claim 63": claims("d" * 60),
    "product": jobset(job(replicas=1)),
    "product at its limit": jobset(job(replicas=1, spec={"parallelism": INT32_MAX})),
    # managedBy
    "managed by this": jobset(managedBy=keys.JOBSET_CONTROLLER_NAME),
    "managed by another": jobset(managedBy="a.b/c"),
    # failure policy
    "rule": rules(rule(name="A1_,:b_")),
    "rule name 128": rules(rule(name="r" * 128)),
    "rule without a name": rules({"action": "FailJobSet"}, rule()),
    "no rules": jobset(failurePolicy={"maxRestarts": -1}),
    "all reasons": rules(rule(onJobFailureReasons=["BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"])),
    "every action": rules(*(rule(action, f"r{at}") for at, action in enumerate(("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "RestartJob", "RestartJobAndIgnoreMaxRestarts", "RestartReplicatedJob", "RestartReplicatedJobAndIgnoreMaxRestarts", "FailJob")))),
    "single restarts at their limit": rules(rule("RestartJob"), jobs=[job(replicas=1024)]),
    # coordinator
    "coordinator": jobset(COORDINATED, coordinator={"replicatedJob": "w", "jobIndex": 1, "podIndex": 1}),
    # dependsOn
    "b on a": three(second=depends("a")),
    "b and c on a": three(second=depends("a"), third=depends("a")),
    "a chain": three(second=depends("a"), third=depends("b", on="Ready")),
    "two dependencies": three(third=depends("a", "b")),
    "nothing at all": jobset() | {"spec": {"startupPolicy": {"startupPolicyOrder": "AnyOrder"}}},
    "in order": jobset(startupPolicy={"startupPolicyOrder": "InOrder"}),
    # exclusive placement
    "placed": placed("Indexed", "exclusive-topology"),
    "placed by node selectors": placed("NonIndexed", "exclusive-topology", "node-selector"),
    "node selectors without a topology": placed("NonIndexed", "node-selector"),
    # volume claims
    "claim of an init container": claims("d", pod=mounts("d", where="initContainers")),
    "two policies": jobset(job(pod=mounts("d", "e")), volumeClaimPolicies=[{"templates": [claim("d")]}, {"templates": [claim("e")], "retentionPolicy": {"whenDeleted": "Retain"}}]),
    "50 templates": claims(*(f"d{n}" for n in range(50))),
    "success policy": jobset(successPolicy={"operator": "Any", "targetReplicatedJobs": ["w"]}),
    "in place": in_place(),
}  # fmt: skip

REFUSED = {
    "job name 64": (jobset(name="n" * 60), "JobSet name is too long, job names generated"),
    "job name 64, two digits": (jobset(job(replicas=11), name="n" * 59), "JobSet name is too long, job names"),
    "job name 64, no replicas": (jobset(job(replicas=0), name="n" * 59), "JobSet name is too long, job names"),
    "62 characters, 101 replicas": (jobset(job(replicas=101), name="n" * 62), "JobSet name is too long, job names"),
    "pod name 64": (jobset(job(spec=ONE), name="n" * 52), "JobSet name is too long, pod names generated"),
    "generated name": (generated("a" * 49 + "-", job("worker")), "JobSet name is too long, job names"),
    "generated claim name": (generated("a" * 49 + "-", job("w", pod=mounts("datasets")), volumeClaimPolicies=[{"templates": [claim("datasets")]}]), "VolumeClaimPolicies template name is too long"),
    "dot": (jobset(job("a.b")), "a DNS-1035 label must consist of"),
    "upper case": (jobset(job("W")), "a DNS-1035 label must consist of"),
    "leading digit": (jobset(name="1a"), "a DNS-1035 label must consist of"),
    "subdomain 64": (jobset(network={"subdomain": "s" * 64}), ".spec.network.subdomain is too long"),
    "subdomain with a dot": (jobset(network={"subdomain": "a.b"}), "spec.network.subdomain: Invalid value"),
    "group 64": (jobset(job(groupName="g" * 64)), ".spec.replicatedJob[].groupName is too long"),
    "empty group": (jobset(job(groupName="")), "spec.replicatedJobs[0].groupName: Invalid value"),
    "product": (jobset(job(replicas=INT32_MAX, spec={"parallelism": INT32_MAX})), "the product of replicas and parallelism must not exceed 2147483647 for replicatedJob 'w'"),
    "negative replicas": (jobset(job(replicas=-INT32_MAX - 1)), "spec.replicatedJobs[0].replicas"),
    "same names": (jobset(job(), job()), "Duplicate value"),
    "target": (jobset(successPolicy={"operator": "All", "targetReplicatedJobs": ["does not exist"]}), "invalid replicatedJob name 'does not exist'"),
    "operator": (jobset(successPolicy={"operator": "Some"}), "spec.successPolicy.operator: Unsupported value"),
    "managed by no path": (jobset(managedBy="a"), "must be a domain-prefixed path"),
    "managed by nothing": (jobset(managedBy=""), "spec.managedBy: Required value"),
    "managed by too much": (jobset(managedBy="foo.bar/" + "a" * 63), "spec.managedBy: Too long"),
    # failure policy
    "reason": (rules(rule(onJobFailureReasons=["no reason"])), "invalid job failure reason 'no reason' in failure policy"),
    "rule's target": (rules(rule(targetReplicatedJobs=["x"])), "invalid replicatedJob name 'x' in failure policy"),
    "rule name 129": (rules(rule(name="r" * 129)), "invalid failure policy rule name of length 129"),
    "rule name begins": (rules(rule(name="1r")), "a failure policy rule name must start with an alphabetic character"),
    "rule name ends": (rules(rule(name="r:")), "must end with an alphanumeric character or '_'"),
    "same rule names": (rules(rule(), rule("RestartJob")), "rule names are not unique: the rules with the indices [0, 1] all have the name 'r'"),
    "default rule name": (rules(rule(name="failurePolicyRule1"), {"action": "FailJobSet"}), "rule names are not unique"),
    "a bad pattern": (rules(rule(onJobFailureMessagePatterns=["("])), "missing )"),
    "action": (rules(rule("Explode")), "spec.failurePolicy.rules[0].action: Unsupported value"),
    "strategy": (jobset(failurePolicy={"restartStrategy": "Never"}), "spec.failurePolicy.restartStrategy: Unsupported value"),
    "single restarts": (rules(rule("RestartJob"), jobs=[job(replicas=1025)]), "at most 1024 replicas"),
    "uncounted single restarts": (rules(rule("RestartJobAndIgnoreMaxRestarts"), jobs=[job(replicas=1025)]), "at most 1024 replicas"),
    # coordinator
    "coordinator": (jobset(COORDINATED, coordinator={"replicatedJob": "x"}), "coordinator replicatedJob x does not exist"),
    "coordinator's job": (jobset(COORDINATED, coordinator={"replicatedJob": "w", "jobIndex": 2}), "coordinator job index 2 is invalid"),
    "coordinator's job, negative": (jobset(COORDINATED, coordinator={"replicatedJob": "w", "jobIndex": -1}), "coordinator job index -1 is invalid"),
    "coordinator's pod": (jobset(COORDINATED, coordinator={"replicatedJob": "w", "podIndex": 2}), "coordinator pod index 2 is invalid"),
    "coordinator not indexed": (jobset(job(spec={"completionMode": "NonIndexed", "completions": 1}), coordinator={"replicatedJob": "w"}), "job for coordinator must be indexed completion mode"),
    "coordinator without completions": (jobset(coordinator={"replicatedJob": "w"}), "completions number must be set"),
    "coordinator's long job": (jobset(job("r" * 50, spec=ONE), coordinator={"replicatedJob": "r" * 50}, name="n" * 10), "spec will lead to invalid label value"),
    "coordinator's long subdomain": (jobset(COORDINATED, coordinator={"replicatedJob": "w"}, network={"subdomain": "s" * 60}), "spec will lead to invalid label value"),
    # dependsOn
    "dependsOn of the first": (jobset(job(dependsOn=[])), "DependsOn can't be set for the first ReplicatedJob"),
    "b on c": (three(second=depends("c")), "replicatedJob: b cannot depend on replicatedJob: c"),
    "b on c and a": (three(second=depends("c", "a")), "replicatedJob: b cannot depend on replicatedJob: c"),
    "b on unknown": (three(second=depends("x")), "replicatedJob: b cannot depend on replicatedJob: x"),
    "six dependencies": (three(second=depends(*"abcdef")), "spec.replicatedJobs[1].dependsOn: Too many"),
    "in order without jobs": (jobset() | {"spec": {"startupPolicy": {"startupPolicyOrder": "InOrder"}}}, "spec"),
    # exclusive placement
    "placed without indexes": (placed("NonIndexed", "exclusive-topology"), "spec.replicatedJobs[0].template.spec.completionMode: Invalid value"),
    # volume claims
    "claim 64": (claims("d" * 61), "VolumeClaimPolicies template name is too long"),
    "claim of upper case": (claims("D"), "a lowercase RFC 1123 subdomain must consist of"),
    "same claims": (claims("d", "d"), "template name must be unique within the JobSet"),
    "claim that no container mounts": (claims("d", pod={}), "no container or initContainer mounts the volume"),
    "claim and volume": (claims("d", pod={**mounts("d"), "volumes": [{"name": "d", "emptyDir": {}}]}), "spec.replicatedJobs[0].template.spec.template.spec.volumes[0].name: Invalid value"),
    "retention": (claims("d", retentionPolicy={"whenDeleted": "Maybe"}), "whenDeleted: Unsupported value"),
    "51 policies": (claims("d", policies=51), "spec.volumeClaimPolicies: Too many"),
    "51 templates": (claims(*(f"d{n}" for n in range(51))), "spec.volumeClaimPolicies[0].templates: Too many"),
    "policy without templates": (jobset(volumeClaimPolicies=[{}]), "spec.volumeClaimPolicies[0]"),
    # in place
    "backoff limit": (in_place(backoffLimit=6), "backoffLimit must be set to 2147483647"),
    "replacement": (in_place(podReplacementPolicy=None), "podReplacementPolicy must be set to Failed"),
    "unequal": (in_place(completions=2), "completions and parallelism must be set and equal"),
    "no completions": (in_place(completions=None), "completions and parallelism must be set and equal"),
    "no parallelism": (in_place(parallelism=None), "completions and parallelism must be set and equal"),
}  # fmt: skip

# With the feature gates off.
GATES_OFF = {
    "RestartJob": (rules(rule("RestartJob")), "while the feature gate RestartJob is disabled"),
    "uncounted": (rules(rule("RestartJobAndIgnoreMaxRestarts")), "while the feature gate RestartJob is disabled"),
    "RestartReplicatedJob": (rules(rule("RestartReplicatedJob")), "while the feature gate RestartJob is disabled"),
    "InPlaceRestart": (in_place(), "while the feature gate InPlaceRestart is disabled"),
    "Coscheduling": (grouped(), "while the feature gate Coscheduling is disabled"),
}  # fmt: skip


@pytest.fixture(scope="module")
def api(shared_client, module_namespace):
    return Api(shared_client, module_namespace)


@pytest.fixture(scope="module")
def api_gates_off(shared_client, namespace_gates_off):
    return Api(shared_client, namespace_gates_off)


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


@pytest.mark.parametrize("body", ACCEPTED.values(), ids=ACCEPTED)
async def test_jobset_is_accepted_when_it_is_within_the_limits(api, body):
    """JobSets at the limits of the rules are accepted."""
    await api.try_create(body)


@pytest.mark.parametrize(("body", "words"), REFUSED.values(), ids=REFUSED)
async def test_jobset_is_refused_when_it_breaks_a_rule(api, body, words):
    """The answer is 422, and its message names the reason."""
    await refused(api, body, words)


@pytest.mark.parametrize(("body", "words"), GATES_OFF.values(), ids=GATES_OFF)
async def test_feature_is_refused_when_its_gate_is_off(api_gates_off, body, words):
    """The message names the feature gate."""
    await refused(api_gates_off, body, words)


async def test_policies_get_their_defaults(api):
    """An empty failure policy, and a claim policy without retention."""
    body = claims("d")
    body["spec"]["failurePolicy"] = {}
    spec = (await api.try_create(body))["spec"]
    assert spec["failurePolicy"] == {"restartStrategy": "Recreate"}
    assert spec["volumeClaimPolicies"][0]["retentionPolicy"] == {"whenDeleted": "Delete"}


TEMPLATE = ("spec", "replicatedJobs", 0, "template")
POD = (*TEMPLATE, "spec", "template")
RJ = ("spec", "replicatedJobs", 0)

SPEC = {
    "failurePolicy": {"maxRestarts": 3},
    "coordinator": {"replicatedJob": "w"},
    "network": {"subdomain": "s"},
    "volumeClaimPolicies": [{"templates": [claim()], "retentionPolicy": {"whenDeleted": "Delete"}}],
}
# path, new value (None: removed), True if allowed while running, True if allowed while suspended
CHANGES = {
    "labels": (("metadata", "labels"), {"a": "b"}, True, True),
    "annotations": (("metadata", "annotations"), {keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: "z"}, True, True),
    "ttl": (("spec", "ttlSecondsAfterFinished"), 5, True, True),
    "no coordinator": (("spec", "coordinator"), None, True, True),
    "pod labels": ((*POD, "metadata"), {"labels": {"a": "b"}}, False, True),
    "pod annotations": ((*POD, "metadata"), {"annotations": {"a": "b"}}, False, True),
    "tolerations": ((*POD, "spec", "tolerations"), [{"operator": "Exists"}], False, True),
    "node selector": ((*POD, "spec", "nodeSelector"), {"a": "b"}, False, True),
    "scheduling gates": ((*POD, "spec", "schedulingGates"), [{"name": "a.b/c"}], False, True),
    "host name": ((*POD, "spec", "hostname"), "h", False, False),
    "pod subdomain": ((*POD, "spec", "subdomain"), "s", False, False),
    "affinity": ((*POD, "spec", "affinity"), {"nodeAffinity": {}}, False, False),
    "image": ((*POD, "spec", "containers", 0, "image"), "other", False, False),
    "job labels": ((*TEMPLATE, "metadata"), {"labels": {"a": "b"}}, False, False),
    "backoff limit": ((*TEMPLATE, "spec", "backoffLimit"), 1, False, False),
    "replicas": ((*RJ, "replicas"), 2, False, False),
    "name": ((*RJ, "name"), "x", False, False),
    "group": ((*RJ, "groupName"), "x", False, False),
    "max restarts": (("spec", "failurePolicy", "maxRestarts"), 21, False, False),
    "no failure policy": (("spec", "failurePolicy"), None, True, True),
    "subdomain": (("spec", "network", "subdomain"), "t", False, False),
    "no network": (("spec", "network"), None, True, True),
    "order": (("spec", "startupPolicy", "startupPolicyOrder"), "InOrder", False, False),
    "retention": (("spec", "volumeClaimPolicies", 0, "retentionPolicy", "whenDeleted"), "Retain", False, False),
    "managed by": (("spec", "managedBy"), keys.JOBSET_CONTROLLER_NAME, False, False),
    "managed by another": (("spec", "managedBy"), "a.b/c", False, False),
    "success policy": (("spec", "successPolicy"), {"operator": "Any"}, False, False),
    "parallelism": ((*TEMPLATE, "spec"), {**ONE, "parallelism": 3, "completions": 3, "template": ...}, True, True),
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stored(api, webhooks):
    """A running and a suspended JobSet with many fields."""
    made = []
    for name, suspend in (("running", False), ("suspended", True)):
        body = jobset(job(spec=ONE, pod=mounts("d")), name=name, suspend=suspend, **SPEC)
        made.append(await api.create(body))
    return made


@pytest.mark.parametrize(("path", "value", "running", "suspended"), CHANGES.values(), ids=CHANGES)
async def test_field_changes_only_when_it_may(api, stored, path, value, running, suspended):
    """Each field is immutable, mutable while suspended, or mutable at any time."""
    for old, allowed in zip(stored, (running, suspended), strict=True):
        new = copy.deepcopy(value)
        if isinstance(new, dict) and new.get("template") is ...:
            new["template"] = old["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        if allowed:
            await api.change(old, new, *path, dry_run=True)
            continue
        with pytest.raises(InvalidError, match=r"(?i)immutable"):
            await api.change(old, new, *path, dry_run=True)


async def test_field_may_be_added_when_it_was_missing(api):
    """The rules compare old and new values, so both have to be present."""
    old = await api.create(jobset(name="bare"))
    await api.change(old, {"maxRestarts": 3}, "spec", "failurePolicy", dry_run=True)


@pytest.mark.parametrize("how", ["reordered", "added", "removed", "renamed"])
async def test_list_of_replicated_jobs_is_immutable(api, how):
    """While suspended too, and by position."""
    old = await api.create(jobset(job("a"), job("b"), name=how, suspend=True))
    parts = copy.deepcopy(old["spec"]["replicatedJobs"])
    match how:
        case "reordered":
            parts.reverse()
        case "added":
            parts.append({**parts[0], "name": "c"})
        case "removed":
            parts.pop()
        case _:
            parts[1]["name"] = "c"
    with pytest.raises(InvalidError, match=r"spec\.replicatedJobs.*field is immutable"):
        await api.change(old, parts, "spec", "replicatedJobs", dry_run=True)


async def test_dependencies_are_immutable(api):
    """Ready cannot become Complete."""
    old = await api.create(jobset(job("a"), job("b", dependsOn=depends("a", on="Ready")), name="d"))
    path = ("spec", "replicatedJobs", 1, "dependsOn", 0, "status")
    with pytest.raises(InvalidError, match="immutable"):
        await api.change(old, "Complete", *path, dry_run=True)


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


async def test_parallelism_is_immutable_when_the_gate_is_off(api_gates_off):
    """Without elastic JobSets the field is immutable like all others."""
    old = await api_gates_off.create(jobset(job(spec=ONE), name="elastic"))
    spec = old["spec"]["replicatedJobs"][0]["template"]["spec"]
    changed = {**spec, "parallelism": 8, "completions": 8}
    with pytest.raises(InvalidError, match="field is immutable"):
        await api_gates_off.change(old, changed, *TEMPLATE, "spec")
