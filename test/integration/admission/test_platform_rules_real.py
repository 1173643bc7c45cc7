"""Table of docs/how-to/platform-rules.md: pods with injected containers under platform rules.

Pods are created by a dry run, as the Job controller would: quotas, Pod Security and
policies of a real API server check them. CEL policies represent those of Kyverno and Gatekeeper.
"""

import copy

import pytest
import pytest_asyncio

from jobsetpy.api import keys
from jobsetpy.errors import ApiError
from support.cluster.install import apply_object
from support.cluster.json_api import send
from support.cluster.objects import RESTRICTED_CONTAINER, RESTRICTED_POD, jobset, replicated_job
from support.patience import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

DIGEST = f"@sha256:{'0' * 64}"
WORKER = f"registry.test/train{DIGEST}"
BURSTABLE = {
    "requests": {"cpu": "250m", "memory": "256Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
GUARANTEED = {"limits": {"cpu": "200m", "memory": "128Mi"}}
ALL = "(object.spec.containers + object.spec.?initContainers.orValue([])).all(c, {})"


def quota(**hard: str) -> dict:
    return {"kind": "ResourceQuota", "spec": {"hard": hard}}


def policy(expression: str) -> str:
    return ALL.replace("{}", expression)


LIMITS = quota(**{"limits.cpu": "8", "limits.memory": "8Gi"})
REQUESTS = quota(**{"requests.cpu": "2", "requests.memory": "4Gi"})
HAS_LIMITS = policy(
    "has(c.resources) && has(c.resources.limits) && 'cpu' in c.resources.limits"
    " && 'memory' in c.resources.limits && 'cpu' in c.resources.requests"
)
READ_ONLY = policy(
    "has(c.securityContext) && c.securityContext.?readOnlyRootFilesystem.orValue(false)"
)
UNPRIVILEGED = policy(
    "c.securityContext.?allowPrivilegeEscalation.orValue(true) == false"
    " && c.securityContext.?runAsNonRoot.orValue(false)"
    " && c.securityContext.capabilities.drop == ['ALL']"
)
# OpenShift assigns a user of the namespace's range to containers without one, and refuses others.
USER_OF_THE_RANGE = policy(
    "has(c.securityContext) && (!has(c.securityContext.runAsUser)"
    " || c.securityContext.runAsUser >= 1000 && c.securityContext.runAsUser < 2000)"
)
BY_DIGEST = policy("c.image.contains('@sha256:')")
NO_LATEST = policy("c.image.contains(':') && !c.image.endsWith(':latest')")
REGISTRY = policy("c.image.startsWith('registry.test/')")
RULES = {
    "quota of limits": (LIMITS, BURSTABLE),
    "quota of limits, Guaranteed": (LIMITS, GUARANTEED),
    "quota of requests": (REQUESTS, BURSTABLE),
    "quota of a small Guaranteed worker": (
        quota(**{"limits.cpu": "300m", "limits.memory": "192Mi"}),
        GUARANTEED,
    ),
    "limits of every container": (HAS_LIMITS, BURSTABLE),
    "read-only root": (READ_ONLY, BURSTABLE),
    "no privileges": (UNPRIVILEGED, BURSTABLE),
    "users of the namespace's range": (USER_OF_THE_RANGE, BURSTABLE),
    "images by digest": (BY_DIGEST, BURSTABLE),
    "no image tag latest": (NO_LATEST, BURSTABLE),
    "registry": (REGISTRY, BURSTABLE),
    "restricted": ("restricted", BURSTABLE),
}


ADDED = {
    "sidecar": [keys.AGENT_NAME],
    "supervisor": [keys.AGENT_NAME],
    "group": [keys.GROUP_INIT_CONTAINER],
    "group, by a shell": [keys.GROUP_INIT_CONTAINER],
}
"""Containers that are added, by form."""


class Team:
    """A namespace with one rule."""

    def __init__(self, client, namespace: str) -> None:
        self.client, self.namespace = client, namespace

    async def post(self, kind: str, body: dict) -> dict:
        api = "/api/v1" if kind == "pods" else "/apis/jobset.x-k8s.io/v1alpha2"
        return await send(
            self.client,
            "POST",
            f"{api}/namespaces/{self.namespace}/{kind}",
            body,
            dryRun="All",
            fieldValidation="Strict",
        )

    async def add(self, rule) -> None:
        """Create the namespace's rule; ``in_force`` waits for its effect."""
        path = f"/api/v1/namespaces/{self.namespace}"
        if rule == "restricted":
            labels = {"pod-security.kubernetes.io/enforce": "restricted"}
            await send(self.client, "PATCH", path, {"metadata": {"labels": labels}})
        elif isinstance(rule, str):
            await self._add_policy(rule)
        else:
            body = {"apiVersion": "v1", "metadata": {"name": "rule"}, **rule}
            await send(self.client, "POST", f"{path}/{rule['kind'].lower()}s", body)

    async def _add_policy(self, expression: str) -> None:
        name, group = self.namespace, "admissionregistration.k8s.io/v1"
        pods = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods"],
        }
        own = {"kubernetes.io/metadata.name": self.namespace}
        specs = {
            "ValidatingAdmissionPolicy": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [pods]},
                "validations": [{"expression": expression}],
            },
            "ValidatingAdmissionPolicyBinding": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": {"matchLabels": own}},
            },
        }
        for kind, spec in specs.items():
            body = {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}
            await apply_object(self.client, body)

    async def refusal(self, pod: dict) -> str:
        """Return the API server's message; "" if it accepts the pod."""
        try:
            await self.post("pods", pod)
        except ApiError as error:
            return str(error)
        return ""


def worker(resources: dict) -> dict:
    own = {"readOnlyRootFilesystem": True, "runAsUser": 1000}
    security = {**RESTRICTED_POD, **RESTRICTED_CONTAINER, **own}
    out = {"name": "w", "image": WORKER, "command": ["train"], "securityContext": security}
    return {**out, "resources": resources} if resources else out


def in_place(mode: str, resources: dict) -> dict:
    job = replicated_job({"containers": [worker(resources)]})
    notes = {keys.IN_PLACE_AGENT_ANNOTATION: mode}
    policy = {"maxRestarts": 1, "restartStrategy": "InPlaceRestart"}
    return jobset("js", job, annotations=notes, failurePolicy=policy)


async def pod_of(team: Team, form: str, resources: dict) -> dict:
    """Return a pod as the Job controller creates it; its JobSet is admitted first."""
    labels = {keys.JOBSET_NAME: "js", keys.JOBSET_UID: "u"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": labels}}
    if form.startswith("group"):
        pod["metadata"]["annotations"] = {keys.GROUP_ATTEMPT: "1", keys.GROUP_SIZE: "1"}
        spec = {"restartPolicy": "Never", "containers": [worker(resources)]}
        if form == "group, by a shell":
            spec["automountServiceAccountToken"] = False
        return pod | {"spec": spec}
    stored = await team.post("jobsets", in_place(form, resources))
    (job,) = stored["spec"]["replicatedJobs"]
    spec = copy.deepcopy(job["template"]["spec"]["template"]["spec"])
    return pod | {"spec": spec | {"serviceAccountName": "default"}}


@pytest_asyncio.fixture(loop_scope="module")
async def team(shared_client, platform_namespace):
    """A namespace in which pods can be created, still without a rule."""
    namespace = platform_namespace
    team = Team(shared_client, namespace)

    async def has_account() -> bool:
        bare = {"restartPolicy": "Never", "containers": [worker({})]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": bare}
        return not await team.refusal(pod)

    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    await apply_object(
        shared_client, account | {"metadata": {"name": "default", "namespace": namespace}}
    )
    await eventually(has_account, 30, poll_s=0.1)
    return team


async def in_force(team: Team, rule, resources: dict) -> None:
    """Wait until the rule applies to pods."""
    await team.add(rule)
    bare = worker(resources)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}}

    async def applies() -> bool:
        good = {**pod, "spec": {"restartPolicy": "Never", "containers": [bare]}}
        if await team.refusal(good):
            return False
        bad = copy.deepcopy(good)
        bad["spec"]["containers"].append({"name": "bad", "image": "bad:latest"})
        bad["spec"]["containers"].append({"name": "worse", "image": "bad"})
        return bool(await team.refusal(bad))

    await eventually(applies, 60, poll_s=0.2)


@pytest.mark.parametrize("rule", list(RULES))
async def test_every_form_of_injected_container_satisfies_the_rule(team, rule):
    """A pod whose worker satisfies the rule satisfies it with the injected container."""
    definition, resources = RULES[rule]
    await in_force(team, definition, resources)

    refused = {form: await team.refusal(await pod_of(team, form, resources)) for form in ADDED}
    assert refused == dict.fromkeys(refused, "")


async def test_every_form_adds_its_container(team):
    """The pods of the test above have the containers that the forms are named after."""
    found = {}
    for form in ADDED:
        made = await team.post("pods", await pod_of(team, form, BURSTABLE))
        found[form] = [each["name"] for each in made["spec"]["initContainers"]]

    assert found == ADDED


async def test_pod_of_a_startup_group_gets_the_pull_secret(team):
    """It is added to the pod's own pull secrets."""
    pod = await pod_of(team, "group", {})
    pod["spec"]["imagePullSecrets"] = [{"name": "team"}]
    made = await team.post("pods", pod)

    assert made["spec"]["imagePullSecrets"] == [{"name": "team"}, {"name": "registry"}]


async def test_jobset_gets_the_pull_secret_and_can_be_applied_again(team):
    """An update with the user's own manifest keeps the template as it is stored."""
    body = in_place("sidecar", {})
    pod = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["imagePullSecrets"] = [{"name": "team"}]
    body["metadata"]["namespace"] = team.namespace
    await apply_object(team.client, body)
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{team.namespace}/jobsets/js"
    for _ in range(2):
        made = await send(team.client, "PATCH", path, body)
        spec = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        assert spec["imagePullSecrets"] == [{"name": "team"}, {"name": "registry"}]
