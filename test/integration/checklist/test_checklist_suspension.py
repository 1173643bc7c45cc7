"""Checklist of the controller, cases 42-44 and 47-50: suspending and resuming."""

import pytest

from hack.cluster._versions import Release, minor_of
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from support import patience
from support.cluster.install import apply_object
from support.cluster.json_api import send
from support.cluster.pod_status import now
from support.features.checklist_kit import A0, ALL, B0, B1, B2, RA, RB, standard_jobset

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

SUSPENDED = ((RB, {"suspended": 3}), (RA, {"suspended": 1}))
RUNNING = ((RB, {}), (RA, {}))
COLOR, ZONE = {"example.com/color": "blue"}, {"example.com/zone": "east"}
TOLERATIONS = [
    {"key": "example.com/spot", "operator": "Exists", "effect": "NoSchedule"},
    {
        "key": "example.com/slow",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 60,
    },
]


async def created_suspended(js, jobset=None):
    """A JobSet that is suspended from the start, with its four Jobs."""
    await js.started((jobset or standard_jobset()).suspend())
    await js.until_suspended_jobs(*ALL)
    await js.until_condition("Suspended", "True", "SuspendedJobs")


async def confirm_suspension(js):
    """Set the condition of each Job by which its controller confirms that no pod runs.

    Without it the API server refuses changes of the template.
    """
    condition = {
        "type": "Suspended",
        "status": "True",
        "reason": "JobSuspended",
        "message": "Job suspended",
        "lastProbeTime": now(),
        "lastTransitionTime": now(),
    }
    body = {"status": {"conditions": [condition], "active": 0, "ready": 0}}
    for name in ALL:
        await js.client.merge_patch(Job, js.namespace, name, body, subresource="status")


def place(item):
    """Change the fields that may change while a JobSet is suspended: those for placement."""
    template = item["template"]["spec"]["template"]
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = {**COLOR, keys.JOB_INDEX: "7"}
    metadata["annotations"] = COLOR
    template["spec"]["nodeSelector"] = ZONE
    template["spec"]["tolerations"] = TOLERATIONS


async def check_placed(js):
    """Assert that every Job has the changes, and the labels and annotations of the controller."""
    for name, job in (await js.read_all(Job)).items():
        template = job["spec"]["template"]
        for values in (template["metadata"]["labels"], template["metadata"]["annotations"]):
            assert values.items() >= COLOR.items()
            assert values[keys.JOB_INDEX] == name.rsplit("-", 1)[1]
        assert template["spec"]["nodeSelector"] == ZONE
        assert template["spec"]["tolerations"] == TOLERATIONS


async def test_case_42_created_suspended(js):
    """All Jobs are created suspended, and counted as suspended."""
    await created_suspended(js)
    await js.settled()

    assert await js.counters() == list(SUSPENDED)
    assert await js.services() == ["test-js"]
    await js.rests()


async def test_case_43_placed_while_suspended(js):
    """Changes of the templates by a queueing system reach the Jobs when they are resumed."""
    await created_suspended(js)
    await confirm_suspension(js)
    await js.replace_templates(place)
    await js.settled()
    assert await js.counters() == list(SUSPENDED)
    assert await js.suspended_jobs() == ALL

    await js.suspend(on=False)
    await js.until_suspended_jobs()
    await js.until_condition("Suspended", "False", "ResumeJobs")
    await js.until_counters(*RUNNING)
    await check_placed(js)
    await js.complete(*ALL)
    await js.until_completed()
    await js.until_counters((RB, {"succeeded": 3}), (RA, {"succeeded": 1}))


def policy(namespace, operations):
    """A policy of a platform that adds a label and a toleration to Jobs, and its binding."""
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": namespace}}
    at = '[JSONPatch{op: "add", path: "/spec/template/'
    label = f'{at}metadata/labels/cost-center", value: "research"}}]'
    # A map: the API server of Kubernetes 1.36.3 panics at a list of objects (Object.spec...).
    tolerated = '{"key": "platform", "operator": "Exists"}'
    toleration = f'{at}spec/tolerations", value: [{tolerated}]}}]'
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"]}
    own = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "namespaceSelector": own,
            "resourceRules": [{**rule, "operations": operations}],
        },
        "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": each}}
            for each in (label, toleration)
        ],
    }
    yield {**group, "kind": "MutatingAdmissionPolicy", "spec": spec}
    yield {
        **group,
        "kind": "MutatingAdmissionPolicyBinding",
        "spec": {"policyName": namespace},
    }


@pytest.mark.skipif(
    minor_of(Release.wanted().kubernetes) == "1.35",
    reason="MutatingAdmissionPolicy has v1 since Kubernetes 1.36",
)
@pytest.mark.parametrize("operations", [["CREATE"], ["CREATE", "UPDATE"]])
async def test_fields_that_a_policy_adds_stay_when_jobs_are_resumed(js, operations):
    """A JobSet that a queue admits, evicts and admits elsewhere."""
    for body in policy(js.namespace, operations):
        await apply_object(js.client, body)

    async def added():
        probe = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "probe"}}
        path = f"{Job.RESOURCE.path(js.namespace)}?dryRun=All"
        container = {"name": "c", "image": "i"}
        pod = {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        job = await send(js.client, "POST", path, {**probe, "spec": {"template": pod}})
        return "cost-center" in job["spec"]["template"]["metadata"]["labels"]

    await patience.eventually(added, 30, poll_s=0.1)
    await created_suspended(js)
    for at, pool in enumerate(("one", "two")):
        if at:
            await js.suspend(on=True)
            await js.until_suspended_jobs(*ALL)
        await confirm_suspension(js)

        def place_in(item, pool=pool):
            item["template"]["spec"]["template"]["spec"]["nodeSelector"] = {f"{pool}.test/x": "y"}

        await js.replace_templates(place_in)
        await js.suspend(on=False)
        await js.until_suspended_jobs()
        for job in (await js.read_all(Job)).values():
            template = job["spec"]["template"]
            assert template["metadata"]["labels"]["cost-center"] == "research"
            assert [each["key"] for each in template["spec"]["tolerations"]] == ["platform"]
            assert template["spec"]["nodeSelector"] == {f"{pool}.test/x": "y"}
    await js.rests()


async def test_case_50_in_order_resumed(js):
    """``InOrder`` resumes b's Jobs once a's are ready; ``Suspended`` stays True until the end."""
    await created_suspended(js, standard_jobset().startup_policy("InOrder"))
    await js.suspend(on=False)
    await js.until_suspended_jobs(B0, B1, B2)
    await js.settled()
    assert await js.counters() == [(RB, {"suspended": 3}), (RA, {})]
    assert await js.suspended_jobs() == [B0, B1, B2]
    assert await js.condition("Suspended") == ("True", "SuspendedJobs")

    await js.ready(A0)
    await js.until_suspended_jobs()
    await js.settled()
    assert await js.counters() == [(RB, {}), (RA, {"ready": 1, "active": 1})]
    in_progress = await js.condition("StartupPolicyInProgress")
    assert in_progress == ("True", "InOrderStartupPolicyInProgress")

    await js.ready(B0, B1, B2)
    await js.until_condition("StartupPolicyCompleted", "True", "InOrderStartupPolicyCompleted")
    await js.until_counters((RB, {"ready": 3, "active": 3}), (RA, {"ready": 1, "active": 1}))
    assert (await js.condition("StartupPolicyInProgress"))[0] == "False"
    assert await js.condition("Suspended") == ("False", "ResumeJobs")
