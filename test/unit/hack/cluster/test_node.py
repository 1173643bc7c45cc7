"""A real node: pods run, use their service account, and survive failures of the node."""

import json
import time
from pathlib import Path

import pytest

from hack.cluster import Cluster
from hack.cluster._cgroups import node_paths
from hack.cluster._config import cgroup_name
from hack.cluster._identity import wait_until
from hack.images import project
from hack.images.basic import SHELL
from support import patience

pytestmark = [pytest.mark.node, pytest.mark.timeout(300)]
PODS = "/api/v1/namespaces/default/pods"
CALL_API = """
import os, ssl, sys, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount/"
url = "https://" + os.environ["KUBERNETES_SERVICE_HOST"] + "/version"
headers = {"Authorization": "Bearer " + open(account + "token").read()}
context = ssl.create_default_context(cafile=account + "ca.crt")
request = urllib.request.Request(url, headers=headers)
print(os.getuid(), urllib.request.urlopen(request, context=context, timeout=10).status)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A control plane, one node, and the agent's image for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("nodes")
        patch.setenv("JOBSETPY_STATE_DIR", str(place / "state"))
        for name in ("JOBSETPY_KUBECONFIG", "KUBECONFIG"):
            patch.delenv(name, raising=False)
        built = project.build("agent", place)
        made = Cluster(nodes=1, images=[built.path], timeout_s=180)
        with made:
            supervisor = json.loads((made.folder / "supervisor.json").read_text())["pid"]
            yield made
        assert not Path(f"/proc/{supervisor}").exists()
        assert not made.folder.exists()
        assert not [p for p in node_paths(cgroup_name(made.name, 1)) if p.exists()]
        mounts = Path("/proc/self/mounts").read_text()
        assert made.name not in mounts


def create(cluster, name, command, image=SHELL, **security):
    container = {"name": "main", "image": image, "command": command, "securityContext": security}
    spec = {"restartPolicy": "Never", "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    status, text = cluster.api.request("POST", PODS, json.dumps(body))
    assert status == 201, text


def phase_becomes(cluster, name, phase, timeout_s=60.0):
    def reached():
        return (cluster.api.get(f"{PODS}/{name}") or {}).get("status", {}).get("phase") == phase

    return wait_until(reached, patience.scaled(timeout_s), 0.1)


def log_of(cluster, name):
    return cluster.api.request("GET", f"{PODS}/{name}/log")[1]


def test_a_pod_runs_and_its_log_can_be_read(cluster):
    """API server, scheduler and kubelet work together."""
    create(cluster, "hello", ["sh", "-c", "echo hello; nslookup x || true"])
    begun = time.monotonic()
    assert phase_becomes(cluster, "hello", "Succeeded")
    # The runtime copies output and errors from two pipes: either may be first in the log, and the
    # end of the container may be reported before its output is in the log.
    assert wait_until(
        lambda: "hello" in log_of(cluster, "hello").splitlines(), patience.scaled(10), 0.1
    ), log_of(cluster, "hello")
    assert time.monotonic() - begun < patience.scaled(30), (
        "a name look-up has to fail immediately, not time out"
    )


def test_a_pod_reaches_the_api_server_with_its_service_account(cluster):
    """The agent's image works as non-root user on a read-only file system, with verified TLS."""
    create(
        cluster,
        "caller",
        ["python", "-S", "-c", CALL_API],
        image=project.Release().reference("agent"),
        runAsNonRoot=True,
        readOnlyRootFilesystem=True,
        allowPrivilegeEscalation=False,
    )
    assert phase_becomes(cluster, "caller", "Succeeded"), log_of(cluster, "caller")
    assert log_of(cluster, "caller") == "65532 200\n"


def test_kubeconfigs_work_inside_and_outside_of_the_cluster(cluster):
    """Commands may run in the cluster's network, or in the machine's network on loopback."""
    assert cluster.exec_prefix[0] == "nsenter"
    assert cluster.api.ready()
    assert "127.0.0.1" in cluster.kubeconfig.read_text()
    assert "10.96.0.1" in cluster.exec_kubeconfig.read_text()


def test_a_node_comes_back_after_a_power_cut(cluster):
    """Its pod has failed then, and new pods run; killing only the kubelet affects no pod."""
    create(cluster, "sleeper", ["sleep", "1000"])
    assert phase_becomes(cluster, "sleeper", "Running")
    cluster.kill_component("node-1/kubelet")
    cluster.start_component("node-1/kubelet")
    assert cluster.component_pid("node-1/kubelet") > 0
    cluster.stop_node("node-1")
    assert "node-1/kubelet" not in cluster.components()
    cluster.start_node("node-1")
    assert phase_becomes(cluster, "sleeper", "Failed")
    create(cluster, "after", ["true"])
    assert phase_becomes(cluster, "after", "Succeeded")
