"""Network policies of docs/how-to/platform-rules.md on a real node, enforced by nftables."""

import asyncio

import pytest
import yaml

from hack.cluster import Cluster
from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import ApiError
from support.cluster.install import (
    CONFIG,
    apply_manifest,
    apply_object,
    connected,
    create_namespace,
    install_manager,
)
from support.cluster.json_api import StoredJobSet, send
from support.cluster.network_policies import NetworkPolicies
from support.docs import docs_kit
from support.patience import eventually
from support.restarts.scenario import (
    WORKER_SCRIPT,
    build_images,
    gang_jobset,
    kill_worker,
    manager_ready,
    supervised_jobset,
)

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(600)]

TEAM = "team"
PAGE = docs_kit.ROOT / "docs/how-to/platform-rules.md"
LIMIT_S = 90.0


@pytest.fixture(scope="module")
def cluster():
    """A cluster of its own: rules of its network would disturb other tests."""
    with Cluster(nodes=1, dns=True, images=build_images(), timeout_s=180) as running:
        if running.is_existing:
            pytest.skip("an existing cluster does not allow rules in the node's network")
        yield running


@pytest.fixture
async def client(cluster):
    """An administrator's client; the manager and the team's account are installed."""
    async with connected(cluster.kubeconfig) as made:
        await install_manager(made)
        for path in sorted((CONFIG / "agent/policy").glob("*.yaml")):
            if path.name != "kustomization.yaml":
                await apply_manifest(made, path)
        await apply_manifest(made, CONFIG / "group-scheduling/manager_role.yaml")
        await create_namespace(made, TEAM)
        for path in ("service_account", "role"):
            for document in docs_of(CONFIG / f"agent/account/{path}.yaml"):
                document["metadata"]["namespace"] = TEAM
                await apply_object(made, document)
        await manager_ready(made)
        yield made


def docs_of(path):
    """Documents of a YAML file."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def commands(cluster, folder, count):
    """Run the page's first ``count`` blocks about network policies."""
    blocks = docs_kit.read(PAGE).at("node")
    blocks = tuple(each for each in blocks if "kubectl create namespace" not in each.text)
    folder.mkdir()
    env = docs_kit.environment(cluster.kubeconfig, "kubectl")
    docs_kit.run(blocks[:count], docs_kit.checkout(folder), env)


async def deny_all(client, namespace):
    """Deny all traffic of a namespace."""
    body = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "deny-all"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    }
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    await send(client, "POST", path, body)


def jobsets():
    """One JobSet for each kind of added container, by name."""
    group = gang_jobset("group", 2)
    pod = group["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    del pod["initContainers"], group["spec"]["failurePolicy"], pod["serviceAccountName"]
    for container in pod["containers"]:
        container.pop("restartPolicy", None)
        container.pop("restartPolicyRules", None)
    group["spec"]["groupSchedulingConfig"] = {}
    return {
        "sidecar": gang_jobset("sidecar", 2),
        "supervised": supervised_jobset("supervised", 2),
        "group": group,
    }


async def pods_of(client, name):
    """Return the pods of a JobSet that are not being deleted."""
    items = (await client.list_page(Pod, TEAM)).items
    return [
        pod
        for pod in items
        if pod.metadata.labels.get(keys.JOBSET_NAME) == name
        and pod.metadata.deletion_timestamp is None
    ]


async def test_added_containers_and_the_manager_work_when_all_other_traffic_is_denied(
    cluster, client, tmp_path
):
    """Nothing works without the page's policies, and everything works with them."""
    policies = NetworkPolicies(cluster, client)
    async with policies.enforced():
        for namespace in (TEAM, "jobset-system"):
            await deny_all(client, namespace)
        await policies.settled()
        sidecar = jobsets()["sidecar"]
        with pytest.raises(ApiError, match="failed calling webhook"):
            await client.create(JobSet, TEAM, sidecar)

        await asyncio.to_thread(commands, cluster, tmp_path / "system", 2)
        await policies.settled()

        await manager_ready(client)  # it ends when it cannot reach the API server
        for body in jobsets().values():
            await client.create(JobSet, TEAM, body)

        async def agents_are_refused():
            running = [await pods_of(client, name) for name in jobsets()]
            return all(len(pods) == 2 for pods in running) and await policies.refused(TEAM) >= 4

        await eventually(agents_are_refused, LIMIT_S, poll_s=0.5)
        for name in ("sidecar", "supervised"):
            assert (await client.get(JobSet, TEAM, name)).status.synced_epoch == 0
        # Not so the startup group: its containers also read a file, which the kubelet updates.
        assert not any(ready(pod) for pod in await pods_of(client, "sidecar"))

        await asyncio.to_thread(commands, cluster, tmp_path / "team", 3)
        for name in jobsets():
            await eventually(lambda name=name: all_ready(client, name), LIMIT_S, poll_s=0.5)

        for name, supervised in (("sidecar", False), ("supervised", True)):
            pods = await pods_of(client, name)
            uids = {pod.metadata.uid for pod in pods}
            await kill_worker(pods[0], WORKER_SCRIPT, supervised=supervised)
            await StoredJobSet(client, TEAM, name).reaches_epoch(2, LIMIT_S)
            assert {pod.metadata.uid for pod in await pods_of(client, name)} == uids


def ready(pod):
    """Return True if all workers of a pod have started."""
    return bool(pod.status.container_statuses) and all(
        each.state.running is not None for each in pod.status.container_statuses
    )


async def all_ready(client, name):
    """Return True if all pods are ready and epochs are synced, or the startup group released."""
    pods = await pods_of(client, name)
    status = (await client.get(JobSet, TEAM, name)).status
    started = name == "group" or status.synced_epoch == 1
    return len(pods) == 2 and all(map(ready, pods)) and started
