"""Two real nodes: pods reach each other by name, on one node and across nodes."""

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
    if "subdomain" in spec:  # the pod has a name although it is never ready
        container["readinessProbe"] = {"exec": {"command": ["false"]}}
    common = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "nodeName": node}
    body = {**common, "containers": [container], **spec}
    create(cluster, "pods", name, body, labels={"gang": "yes"})


def serve(cluster, number):
    """Create a pod of the headless service on the node with its number."""
    name = f"server-{number}"
    pod(cluster, name, f"node-{number}", SERVE, hostname=name, subdomain="gang")


def ends_with(cluster, name):
    """Wait until a pod has ended; return its log."""

    def ended():
        status = (cluster.api.get(f"{CORE}/pods/{name}") or {}).get("status", {})
        return status.get("phase") in ("Succeeded", "Failed")

    assert wait_until(ended, patience.scaled(60.0), 0.1), f"{name} does not end"
    return cluster.api.request("GET", f"{CORE}/pods/{name}/log")[1]


@pytest.mark.node
@pytest.mark.timeout(300)
def test_pods_reach_each_other_by_name_across_nodes(state):
    """Names are served before pods are ready, and again after the loss of a node."""
    with Cluster(nodes=2, dns=True, timeout_s=180) as cluster:
        headless = {"clusterIP": "None", "publishNotReadyAddresses": True}
        create(cluster, "services", "gang", {**headless, "selector": {"gang": "yes"}})
        for number in (1, 2):
            serve(cluster, number)
        pod(cluster, "near", "node-1", ASK.format(1))
        pod(cluster, "far", "node-1", ASK.format(2))
        pod(cluster, "unknown", "node-2", "time nslookup no-such-host.example.org 2>&1")

        assert ends_with(cluster, "near") == "ok\n"
        assert ends_with(cluster, "far") == "ok\n"
        answer = ends_with(cluster, "unknown")
        assert "NXDOMAIN" in answer
        assert "0m 0." in answer, "an unknown name is refused immediately"

        cluster.stop_node("node-2")
        cluster.start_node("node-2")
        cluster.api.request("DELETE", f"{CORE}/pods/server-2?gracePeriodSeconds=0")
        assert wait_until(
            lambda: cluster.api.get(f"{CORE}/pods/server-2") is None, patience.scaled(30.0), 0.1
        )
        serve(cluster, 2)
        pod(cluster, "again", "node-1", ASK.format(2))
        assert ends_with(cluster, "again") == "ok\n"


def test_dns_without_nodes_is_refused(state):
    """DNS is for pods, which need nodes."""
    with pytest.raises(ClusterError, match="nodes"):
        Cluster(dns=True)
