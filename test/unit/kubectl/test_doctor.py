"""``kubectl jobset doctor``: each finding, from answers of a server."""

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
    "/version": {"gitVersion": "v1.37.2"},
    doctor._CRD: jobset_crd(),
    "mutatingwebhookconfigurations": {"webhooks": [HOOK]},
    "validatingwebhookconfigurations": {"webhooks": [HOOK]},
    "endpointslices": {"items": [{"endpoints": [{"conditions": {"ready": True}}]}]},
    "validatingadmissionpolicies": {},
    "serviceaccounts": {},
    "/nodes": {"items": [{"status": {"nodeInfo": {"kubeletVersion": "v1.37.2"}}}]},
    "/pods": {"items": []},
}
UNPULLED = {"name": "m", "image": "x/m:1", "state": {"waiting": {"reason": "ErrImagePull"}}}
MANAGERS = {"items": [{"metadata": {"name": "p"}, "status": {"containerStatuses": [UNPULLED]}}]}


class Answers:
    """A transport with answers for parts of paths; a number is a status."""

    def __init__(self, answers):
        self.answers = answers

    async def request(self, request):
        """Return the first answer with a key that is part of the path."""
        found = next(value for key, value in self.answers.items() if key in request.path)
        if isinstance(found, int):
            reason = {403: "Forbidden", 404: "NotFound"}[found]
            body = {"kind": "Status", "reason": reason, "message": reason, "code": found}
            return HttpResponse(found, {}, json.dumps(body).encode())
        return HttpResponse(200, {}, json.dumps(found).encode())


async def findings(capsys, **changes):
    """Return exit code and findings for a cluster without problems but for given answers."""
    names = {"crd": doctor._CRD, "version": "/version", "nodes": "/nodes"}
    changed = {names.get(name, name): value for name, value in changes.items()}
    answers = {**changed, **{key: each for key, each in FIT.items() if key not in changed}}
    cluster = Cluster(Target(Answers(answers), "https://x", "team"))
    code = await doctor.run(cluster, Namespace(output="json"))
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("declared", "verdict"), [(["RestartAllContainersOnContainerExits"], "ok"), ([], "warning")]
)
async def test_gate_is_required_of_kubelets_that_do_not_declare_it(capsys, declared, verdict):
    """Those of 1.35 declare their features."""
    node = {"nodeInfo": {"kubeletVersion": "v1.35.4"}, "declaredFeatures": declared}
    _, found = await findings(capsys, nodes={"items": [{"status": node}]})
    (kubelets,) = [each for each in found if each["check"] == "kubelets"]

    assert kubelets["verdict"] == verdict
    needs_gate = "need the gate RestartAllContainersOnContainerExits" in kubelets["message"]
    assert needs_gate is not bool(declared)


async def test_cluster_without_problems_is_ok(capsys):
    """The exit code is 0."""
    code, found = await findings(capsys)

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
        ({"mutatingwebhookconfigurations": {"webhooks": [{"clientConfig": {}}]}}, "error",
         "certificate authority", "logs"),
        ({"endpointslices": {"items": []}}, "error", "no pod answers", "-n s get pods"),
        ({"endpointslices": {"items": []}, "namespaces/s/pods": MANAGERS}, "error",
         "p cannot pull its image: x/m:1 (ErrImagePull)", "-n s describe pod p"),
        ({"namespaces/s/pods": MANAGERS,
          "mutatingwebhookconfigurations": {"webhooks": [
              {"clientConfig": {"service": {"namespace": "s"}}}]}}, "error",
         "p cannot pull its image: x/m:1 (ErrImagePull)", "-n s describe pod p"),
        ({"validatingadmissionpolicies": 404}, "warning", "own epoch", "config/agent/policy"),
        ({"serviceaccounts": 404}, "warning", "no account", "-n team apply"),
        ({"nodes": {"items": [{"status": {"nodeInfo": {"kubeletVersion": "v1.34.0"}}}]}}, "warning",
         "sidecar agents need 1.35", "supervisor"),
    ],
)  # fmt: skip
async def test_problem_is_found_with_a_remedy(capsys, changes, verdict, message, fix):
    """Each has a severity and a command; only errors make the exit code 1."""
    code, found = await findings(capsys, **changes)
    (bad, *_) = [each for each in found if each["verdict"] != "ok"]

    assert bad["verdict"] == verdict
    assert message in bad["message"]
    assert fix in bad["fix"]
    assert bad["fix"] or verdict == "unknown"
    assert code == (verdict == "error")
