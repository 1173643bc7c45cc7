"""A real node: pods run, use their service account, and survive failures of the node."""

import json
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
