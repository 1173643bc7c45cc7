"""``kubectl jobset doctor``: each finding, from the answers of a server."""

from __future__ import annotations

import json
from argparse import Namespace

import pytest

from jobsetpy.api.schema import jobset_crd
from jobsetpy.client import HttpResponse
from jobsetpy.kubectl import doctor
from jobsetpy.kubectl.cluster import Cluster
from jobsetpy.kubectl.kubeconfig import Target

HOOK = {"clientConfig": {"caBundle": "eA==", "service": {"namespace": "s", "name": "w"}}}
FIT = {
    "/version": {"gitVersion": "v1.36.3"},
    doctor._CRD: jobset_crd(),
    "mutatingwebhookconfigurations": {"webhooks": [HOOK]},
    "validatingwebhookconfigurations": {"webhooks": [HOOK]},
    "endpointslices": {"items": [{"endpoints": [{"conditions": {"ready": True}}]}]},
    "validatingadmissionpolicies": {},
    "serviceaccounts": {},
    "/nodes": {"items": [{"status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}}}]},
    "/pods": {
        "items": [
            {
                "metadata": {"name": "p"},
                "status": {"initContainerStatuses": [{"name": "agent", "image": "i", "state": {}}]},
            }
        ]
    },
    "selfsubjectaccessreviews": {"status": {"allowed": True}},
}
WAITING = {"waiting": {"reason": "ErrImagePull"}}


class Answers:
    """A transport that answers by what a path has in it; a number is a status."""

    def __init__(self, answers):
        self.answers = answers

    async def request(self, request):
        """The first answer whose key is part of the path."""
        found = next(value for key, value in self.answers.items() if key in request.path)
        if isinstance(found, int):
            reason = {403: "Forbidden", 404: "NotFound"}[found]
            body = {"kind": "Status", "reason": reason, "message": reason, "code": found}
            return HttpResponse(found, {}, json.dumps(body).encode())
        return HttpResponse(200, {}, json.dumps(found).encode())


async def examined(capsys, **changes):
    """Exit code and findings of a fit cluster with some other answers."""
    names = {"crd": doctor._CRD, "version": "/version", "nodes": "/nodes", "pods": "/pods"}
    changed = {names.get(name, name): value for name, value in changes.items()}
    cluster = Cluster(Target(Answers({**FIT, **changed}), "https://x", "team"))
    code = await doctor.run(cluster, Namespace(output="json"))
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("declared", "verdict"), [(["RestartAllContainersOnContainerExits"], "ok"), ([], "warning")]
)
async def test_kubelets_that_have_the_gate_on(capsys, declared, verdict):
    """Those of 1.35 say so themselves; the others are asked for it."""
    node = {"nodeInfo": {"kubeletVersion": "v1.35.4"}, "declaredFeatures": declared}
    _, found = await examined(capsys, nodes={"items": [{"status": node}]})
    (kubelets,) = [each for each in found if each["check"] == "kubelets"]

    assert kubelets["verdict"] == verdict
    needs_gate = "need the gate RestartAllContainersOnContainerExits" in kubelets["message"]
    assert needs_gate is not bool(declared)


async def test_a_fit_cluster(capsys):
    """Nothing to mend, exit code 0."""
    code, found = await examined(capsys)

    assert code == 0
    assert {"ok"} == {each["verdict"] for each in found}


@pytest.mark.parametrize(
    ("changes", "verdict", "message", "fix"),
    [
        ({"crd": 404}, "error", "not installed", "config/default"),
        ({"crd": {"spec": {}}}, "error", "knows no epochs", "jobsetpy crds"),
        ({"crd": 403}, "unknown", "no right to read it", ""),
        ({"version": {"gitVersion": "v1.28.1"}}, "warning", "older than 1.30", ""),
        ({"mutatingwebhookconfigurations": 404}, "warning", "no defaults", "config/default"),
        (
            {"mutatingwebhookconfigurations": {"webhooks": [{"clientConfig": {}}]}},
            "error",
            "certificate authority",
            "logs",
        ),
        ({"endpointslices": {"items": []}}, "error", "no pod answers", "-n s get pods"),
        ({"validatingadmissionpolicies": 404}, "warning", "own epoch", "config/agent/policy"),
        ({"serviceaccounts": 404}, "warning", "no account", "-n team apply"),
        (
            {"nodes": {"items": [{"status": {"nodeInfo": {"kubeletVersion": "v1.34.0"}}}]}},
            "warning",
            "sidecar agents need 1.35",
            "supervisor",
        ),
        (
            {
                "pods": {
                    "items": [
                        {
                            "metadata": {"name": "p"},
                            "status": {
                                "initContainerStatuses": [
                                    {"name": "agent", "image": "x/y:1", "state": WAITING}
                                ]
                            },
                        }
                    ]
                }
            },
            "error",
            "x/y:1 (ErrImagePull)",
            "describe pod p",
        ),
        (
            {"selfsubjectaccessreviews": {"status": {"allowed": False}}},
            "warning",
            "patch jobsets",
            "auth can-i",
        ),
    ],
)
async def test_what_is_found(capsys, changes, verdict, message, fix):
    """Each with its weight and a command; only errors make the exit code 1."""
    code, found = await examined(capsys, **changes)
    (bad, *_) = [each for each in found if each["verdict"] != "ok"]

    assert verdict == bad["verdict"]
    assert message in bad["message"]
    assert fix in bad["fix"]
    assert bad["fix"] or verdict == "unknown"
    assert code == (verdict == "error")
