"""Two real nodes: pods find each other by name and talk, on one node and across nodes."""

import json

import pytest

from hack.cluster import Cluster, ClusterError
from hack.cluster._identity import wait_until
from hack.images.basic import SHELL
from support import patience

CORE = "/api/v1/namespaces/default"
SERVE = "httpd -f -p 8080 -h /www"
ASK = "until wget -q -O - http://server-{0}.gang:8080/healthz 2>/dev/null; do sleep 0.2; done"


def create(cluster, plural, name, spec, **metadata):
    kind = {"pods": "Pod", "services": "Service"}[plural]
    meta = {"name": name, **metadata}
    body = json.dumps({"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": spec})
    status, text = cluster.api.request("POST", f"{CORE}/{plural}", body)
    assert status == 201, text


def pod(cluster, name, node, command, **spec):
    container = {"name": "main", "image": SHELL, "command": ["sh", "-c", command]}
    if "subdomain" in spec:  # such a pod is never ready, and has a name all the same
        container["readinessProbe"] = {"exec": {"command": ["false"]}}
    common = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    create(cluster, "pods", name, {**common, "nodeName": node, **spec}, labels={"gang": "yes"})


def ends_with(cluster, name):
    """The log of a pod that comes to its end."""

    def ended():
        return (cluster.api.get(f"{CORE}/pods/{name}") or {}).get("status", {}).get("phase") in (
            "Succeeded",
            "Failed",
        )

    assert wait_until(ended, patience.scaled(60.0), 0.1), f"{name} does not end"
    return cluster.api.request("GET", f"{CORE}/pods/{name}/log")[1]


@pytest.mark.node
@pytest.mark.timeout(300)
def test_pods_reach_each_other_by_name_across_nodes(state):
    """By hostname and subdomain before they are ready, and again after a node was lost."""
    with Cluster(nodes=2, dns=True, timeout_s=180) as cluster:
        headless = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"gang": "yes"},
        }
        create(cluster, "services", "gang", headless)
        for number in (1, 2):
            pod(
                cluster,
                f"server-{number}",
                f"node-{number}",
                SERVE,
                hostname=f"server-{number}",
                subdomain="gang",
            )
        pod(cluster, "near", "node-1", ASK.format(1))
        pod(cluster, "far", "node-1", ASK.format(2))
        pod(cluster, "unknown", "node-2", "time nslookup no-such-host.example.org 2>&1")

        assert ends_with(cluster, "near") == "ok\n"
        assert ends_with(cluster, "far") == "ok\n"
        answer = ends_with(cluster, "unknown")
        assert "NXDOMAIN" in answer
        assert "0m 0." in answer, "an unknown name is refused at once"
        again_after_loss(cluster)


def again_after_loss(cluster):
    """A node that comes back is connected as before."""
    cluster.stop_node("node-2")
    cluster.start_node("node-2")
    cluster.api.request("DELETE", f"{CORE}/pods/server-2?gracePeriodSeconds=0")
    assert wait_until(
        lambda: cluster.api.get(f"{CORE}/pods/server-2") is None, patience.scaled(30.0), 0.1
    )
    pod(cluster, "server-2", "node-2", SERVE, hostname="server-2", subdomain="gang")
    pod(cluster, "again", "node-1", ASK.format(2))
    assert ends_with(cluster, "again") == "ok\n"


def test_names_without_pods_are_refused(state):
    """DNS is for pods, so it takes nodes to run them."""
    with pytest.raises(ClusterError, match="nodes"):
        Cluster(dns=True)
