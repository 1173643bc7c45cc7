"""Flux's health of a JobSet, as the page of GitOps has it, by the evaluator of CEL that Flux uses too."""

import re
from pathlib import Path

import pytest
import yaml

from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import ApiError
from support.cluster.install import apply_object
from support.jobsets import jobset_json, replicated_job
from support.patience import eventually

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/gitops.md"
BLOCKS = [
    yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
]
(CHECK,) = [
    check
    for block in BLOCKS
    for check in block.get("spec", {}).get("healthCheckExprs", ())
    if check["kind"] == "JobSet"
]
HEALTHS = ("inProgress", "failed", "current")
NAME = "flux-health"


async def install(client, namespace):
    """Have the API server refuse each status of a JobSet, with the values of the expressions."""
    of_jobsets = {
        "apiGroups": [JobSet.RESOURCE.group],
        "apiVersions": [JobSet.RESOURCE.version],
        "resources": ["jobsets/status"],
        "operations": ["UPDATE"],
    }
    # Flux gives the object's fields to its expressions as variables.
    values = {name: re.sub(r"\bstatus\.", "object.status.", CHECK[name]) for name in HEALTHS}
    texts = (f"(({value}) ? '{name} ' : '')" for name, value in values.items())
    specs = {
        "ValidatingAdmissionPolicy": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [of_jobsets]},
            "validations": [
                {"expression": "false", "messageExpression": f"'health: ' + {' + '.join(texts)}"}
            ],
        },
        "ValidatingAdmissionPolicyBinding": {
            "policyName": NAME,
            "validationActions": ["Deny"],
            "matchResources": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
            },
        },
    }
    for kind, spec in specs.items():
        group = "admissionregistration.k8s.io/v1"
        body = {"apiVersion": group, "kind": kind, "metadata": {"name": NAME}, "spec": spec}
        await apply_object(client, body)


async def test_flux_sees_the_health_of_a_jobset(client, namespace):
    """Exactly one of the three expressions is true of each state."""
    body = jobset_json(replicated_job("w", 1), name="js")
    await client.create(JobSet, namespace, {**body, "metadata": {"name": "js"}})
    await install(client, namespace)

    async def health(status):
        try:
            await client.merge_patch(
                JobSet, namespace, "js", {"status": status}, subresource="status"
            )
        except ApiError as error:
            found = re.search(r"health: (.*)", error.message)
            return found[1].split() if found else [error.message]
        return []

    async def is_installed():
        return bool(await health({"restarts": 0}))

    await eventually(is_installed)
    states = (
        {"restarts": 1},
        {"state": "Suspended"},
        {"terminalState": "Failed"},
        {"terminalState": "Completed"},
    )
    found = [await health({"restarts": 0, **state}) for state in states]
    assert found == [["inProgress"], ["inProgress"], ["failed"], ["current"]]
