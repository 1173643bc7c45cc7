"""The manager's role has all rights that the controllers need, and no others.

The manager runs with its account, and the API server's audit log lists its requests. The rules are
generated from the requests in the code (hack/generate/update_rbac.py); this test compares them with an
API server. The managers of other tests run with the same roles, so that none of them is refused.
"""

import json
import subprocess
import sys

import pytest
import yaml

from hack.cluster import Cluster
from hack.generate import update_crds
from hack.generate.kustomize import LOADER
from support import patience
from support.cluster.install import CONFIG
from support.cluster.objects import jobset, replicated_job
from support.patience import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(180)]

ACCOUNT = "system:serviceaccount:jobset-system:jobset-controller-manager"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
PODS = "/api/v1/namespaces/default/pods"
GONE = {"deletionTimestamp": "past"}  # metadata of an object that no longer exists
MERGE = "application/merge-patch+json"

VERBS = ("get", "list", "watch", "create", "patch", "delete")

# Granted, but not requested in this test, each for a reason.
UNSEEN = {
    # Requested after rare events: a name already taken, an event that repeats, tolerations
    # that a resumed Job has to keep.
    ("jobs", "get"),
    ("jobsets", "get"),
    ("events", "patch"),
    # Only if the Job controller has not yet cleared the start time of a suspended Job itself.
    ("jobs/status", "patch"),
    # Exclusive placement, which needs webhooks and a scheduler: test/integration/placement.
    ("pods", "patch"),
    ("pods", "delete"),
    ("pods/status", "patch"),
    # Group scheduling, which needs webhooks: test/integration/groups.
    ("configmaps", "create"),
    ("configmaps", "patch"),
    ("configmaps", "get"),  # only if another client changes one at the same time
    # The backend "podgroup", which needs an API server with these: test/integration/coscheduling.
    *((kind, verb) for kind in ("podgroups", "workloads") for verb in VERBS),
    # Checked by the API server itself, when an owner reference blocks the owner's deletion.
    ("jobsets/finalizers", "update"),
}


def documents(folder):
    for path in sorted((CONFIG / folder).glob("*.yaml")):
        yield from (item for item in yaml.safe_load_all(path.read_text()) if item)


def jobset_with_claim(name, **spec):
    mount = {"name": "data", "mountPath": "/data"}
    container = {"name": "c", "image": "i", "volumeMounts": [mount]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    item = replicated_job(pod, 1, completionMode="Indexed", backoffLimit=0)
    item["template"]["spec"]["template"]["metadata"] = {"annotations": {"a": "b"}}
    storage = {"requests": {"storage": "1Gi"}}
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": storage},
    }
    claims = {"templates": [claim], "retentionPolicy": {"whenDeleted": "Delete"}}
    return jobset(
        name,
        item,
        network={"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        successPolicy={"operator": "All"},
        volumeClaimPolicies=[claims],
        **spec,
    )


@pytest.fixture(scope="module")
def audited(tmp_path_factory, make_api):
    """A control plane that keeps an audit log of the manager's account."""
    folder = tmp_path_factory.mktemp("audit")
    policy = folder / "policy.yaml"
    rules = [{"level": "Metadata", "users": [ACCOUNT], "omitStages": ["RequestReceived"]}]
    policy.write_text(
        yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules})
    )
    log = folder / "audit.log"
    with Cluster(
        scheduler=False,
        apiserver_args=[f"--audit-policy-file={policy}", f"--audit-log-path={log}"],
    ) as cluster:
        if cluster.is_existing:
            pytest.skip("the audit log needs a control plane of our own")
        yield make_api(cluster.kubeconfig), cluster.kubeconfig, log


@pytest.fixture(scope="module")
def manager(audited, tmp_path_factory):
    """The manager, running with its account."""
    api, kubeconfig, _ = audited
    for item in sorted(
        [*documents("manager"), *documents("rbac")], key=lambda i: i["kind"] != "Namespace"
    ):
        path = path_of(item)
        if path:
            api.apply(path, item).accepted()
    token = api(
        "POST",
        "/api/v1/namespaces/jobset-system/serviceaccounts/jobset-controller-manager/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    ).accepted()["status"]["token"]
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    folder = tmp_path_factory.mktemp("manager")
    own = folder / "kubeconfig"
    own.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "jobsetpy.app.main", "manager", "--kubeconfig", str(own)]
    command += ["--metrics-bind-address=0", "--health-probe-bind-address=0", "--log-format=json"]
    log = folder / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        yield log
        process.terminate()
        try:
            process.wait(patience.scaled(20))
        except subprocess.TimeoutExpired:
            process.kill()


def path_of(item):
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    inside = "namespaces/jobset-system"
    name = item["metadata"]["name"] if "metadata" in item else ""
    return {
        "Namespace": f"/api/v1/namespaces/{name}",
        "ServiceAccount": f"/api/v1/{inside}/serviceaccounts/{name}",
        "ClusterRole": f"{rbac}/clusterroles/{name}",
        "ClusterRoleBinding": f"{rbac}/clusterrolebindings/{name}",
        "Role": f"{rbac}/{inside}/roles/{name}",
        "RoleBinding": f"{rbac}/{inside}/rolebindings/{name}",
    }.get(item["kind"])


def pods_of(api, name, phase="Pending"):
    selector = f"jobset.sigs.k8s.io/jobset-name={name}"
    items = api("GET", PODS, labelSelector=selector).accepted()["items"]
    return [item for item in items if item["status"]["phase"] == phase]


def end(api, pod, phase):
    path = f"{PODS}/{pod['metadata']['name']}/status"
    api("PATCH", path, {"status": {"phase": phase}}, content_type=MERGE).accepted()


def set_suspend(api, name, *, suspend):
    body = {"spec": {"suspend": suspend}}
    api("PATCH", f"{JOBSETS}/{name}", body, content_type=MERGE).accepted()


def walk_through(api):
    """Make the controllers use all of their rights."""
    body = jobset_with_claim("all", failurePolicy={"maxRestarts": 1}, ttlSecondsAfterFinished=0)
    api("POST", JOBSETS, body).accepted()
    (first,) = wait_for(lambda: pods_of(api, "all"))
    set_suspend(api, "all", suspend=True)
    wait_for(lambda: not pods_of(api, "all"))
    set_suspend(api, "all", suspend=False)
    (second,) = wait_for(lambda: pods_of(api, "all"))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    end(api, second, "Failed")
    wait_for(lambda: api("GET", f"{JOBSETS}/all").accepted()["status"].get("restarts") == 1)
    (third,) = wait_for(lambda: pods_of(api, "all"))
    end(api, third, "Succeeded")
    # Gone, or being deleted: the garbage collector discovers a new kind only every half minute.
    wait_for(lambda: "deletionTimestamp" in api("GET", f"{JOBSETS}/all").body.get("metadata", GONE))

    body = jobset_with_claim("gang", failurePolicy={"restartStrategy": "InPlaceRestart"})
    api("POST", JOBSETS, body).accepted()
    (pod,) = wait_for(lambda: pods_of(api, "gang"))
    patch = {"metadata": {"annotations": {"jobset.sigs.k8s.io/epoch": "1"}}}
    api("PATCH", f"{PODS}/{pod['metadata']['name']}", patch, content_type=MERGE).accepted()
    wait_for(lambda: api("GET", f"{JOBSETS}/gang").accepted()["status"].get("syncedEpoch") == 1)

    # Pods that a rule of the namespace refuses.
    rule = {"type": "Container", "min": {"cpu": "1"}, "max": {"cpu": "1"}}
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "small"},
        "spec": {"limits": [rule]},
    }
    api("POST", "/api/v1/namespaces/default/limitranges", limits).accepted()
    body = jobset_with_claim("refused")
    pod = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["resources"] = {"requests": {"cpu": "10m"}, "limits": {"cpu": "10m"}}
    api("POST", JOBSETS, body).accepted()

    def message():
        status = api("GET", f"{JOBSETS}/refused").accepted().get("status", {})
        found = {each["type"]: each for each in status.get("conditions", ())}
        return found.get("PodsRefused", {}).get("message", "")

    text = wait_for(message, 60)
    refused = "pods of job refused-w-0 are refused: Error creating: a pod is forbidden"
    assert text.startswith(refused)
    assert "minimum cpu usage per Container is 1, but request is 10m" in text


def requests(log):
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if reference := event.get("objectRef"):
            resource = reference["resource"]
            if "subresource" in reference:
                resource += f"/{reference['subresource']}"
            yield (resource, event["verb"]), event["responseStatus"]["code"]


def test_role_has_all_rights_that_the_manager_needs_and_no_others(audited, manager):
    """No request of the manager is refused, and it uses every verb that it has."""
    api, _, log = audited
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobsets.jobset.x-k8s.io"
    api.apply(crd, yaml.load(update_crds.CRD.read_text(), LOADER)).accepted()
    wait_for(lambda: api("GET", JOBSETS).status == 200)
    try:
        walk_through(api)
    except AssertionError:
        print(manager.read_text()[-20_000:])
        raise

    made = list(requests(log))
    role = next(item for item in documents("rbac") if item["kind"] == "ClusterRole")
    granted = {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert [request for request, code in made if code == 403] == []
    unused = granted - {request for request, _ in made} - UNSEEN
    assert not unused, sorted(f"{verb} {resource}" for resource, verb in unused)
