"""What only a matrix of Kubernetes releases shows; run by ``make test-versions``, not by ``make test``.

``hack/ci/versions.py`` chooses the releases by the environment; on its default ones there is nothing
older to move from.
"""

import asyncio
import json

import pytest

from hack.ci.versions import between
from hack.cluster import Cluster
from hack.cluster._versions import Release
from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import HttpRequest, connect
from support.cluster.install import install_manager
from support.patience import eventually
from support.restarts.scenario import (
    NAMESPACE,
    build_images,
    gang_jobset,
    install_agents,
    manager_ready,
    pod_log_folders,
    restart_supervised_once,
    run_gang,
    supervised_jobset,
)

pytestmark = [pytest.mark.releases, pytest.mark.slow, pytest.mark.timeout(600)]
JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
STARTED = "worker started"


async def lives(client) -> dict[str, int]:
    """Pods of JobSets by UID, and how often their containers were restarted."""
    page = await client.list_page(Pod, NAMESPACE, label_selector=keys.JOBSET_NAME)
    return {
        pod.metadata.uid: sum(
            each.restart_count
            for each in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        )
        for pod in page.items
    }


async def version(client) -> str:
    """The API server's release."""
    answer = await client.raw(HttpRequest(method="GET", path="/version"))
    return json.loads(answer.body)["gitVersion"]


async def test_a_control_plane_moves_on_under_running_workers():
    """On the same etcd, one minor release at a time, from that of the kubelets: no pod notices."""
    wanted = Release.wanted()
    old = wanted.kubelet
    assert old, "JOBSETPY_KUBELET_VERSION names no older release"
    with Cluster(
        nodes=1, dns=True, images=build_images(), kubernetes=old, timeout_s=180
    ) as cluster:
        client = await connect(kubeconfig=str(cluster.kubeconfig))
        assert await version(client) == f"v{old}"
        await install_manager(client)
        await manager_ready(client)
        logs = pod_log_folders(cluster)
        async with run_gang(client, supervised_jobset("moved", 2), 2, logs) as timeline:
            before = await lives(client)
            for release in between(old, wanted.kubernetes):
                await asyncio.to_thread(cluster.move_to, release)
                assert await version(client) == f"v{release}"
                await manager_ready(client)
                restart = await restart_supervised_once(timeline, 2, STARTED)
                assert restart.recreated == 0
            assert await lives(client) == before
            runs = [len(timeline.line_times(pod, STARTED, 0)) for pod in timeline.pods.values()]
            assert set(runs) == {1 + len(between(old, wanted.kubernetes))}
            assert timeline.restarts == 0
        await client.aclose()


async def test_a_sidecar_that_no_kubelet_knows_is_reported(node_client):
    """By a warning to whoever makes the JobSet, and by its condition while its pods wait."""
    await install_agents(node_client)
    warned = await create(node_client, "waits")
    try:
        assert f"none of 1 nodes declares the feature {keys.RESTART_ALL_FEATURE}" in warned

        async def told():
            conditions = (await node_client.get(JobSet, NAMESPACE, "waits")).status.conditions
            said = [
                each.message
                for each in conditions
                if each.type == keys.BARRIER_STALLED_CONDITION and each.status == "True"
            ]
            return said[0] if said else ""

        message = await eventually(told, 120, poll_s=1)
        assert "nodes lack features that it requires" in message
    finally:
        await node_client.delete(JobSet, NAMESPACE, "waits", propagation="Foreground")


async def create(client, name: str) -> str:
    """Create a gang with sidecar agents; the warnings that come with the answer."""
    answer = await client.raw(
        HttpRequest(
            method="POST",
            path=JOBSETS,
            content_type="application/json",
            body=json.dumps(gang_jobset(name, 1)).encode(),
        )
    )
    return answer.headers.get("warning", "")
