"""Behavior across Kubernetes releases; run by ``make test-versions``, not by ``make test``.

``hack/ci/versions.py`` chooses the releases by environment variables; the default ones contain no
older release to upgrade from.
"""

import asyncio

import pytest

from hack.ci.versions import between
from hack.cluster import Cluster
from hack.cluster._versions import Release
from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from support.cluster.install import connected, install_manager
from support.cluster.json_api import StoredJobSet, exchange, send
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


async def restart_counts(client) -> dict[str, int]:
    """Return the restarts of the containers of the JobSets' pods, by UID."""
    page = await client.list_page(Pod, NAMESPACE, label_selector=keys.JOBSET_NAME)
    return {
        pod.metadata.uid: sum(
            each.restart_count
            for each in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        )
        for pod in page.items
    }


async def version(client) -> str:
    """Return the API server's release."""
    return (await send(client, "GET", "/version"))["gitVersion"]


async def test_workers_run_on_when_the_control_plane_is_upgraded():
    """One minor release at a time, from the kubelets' one, on the same etcd."""
    wanted = Release.wanted()
    old = wanted.kubelet
    assert old, "JOBSETPY_KUBELET_VERSION names no older release"
    with Cluster(
        nodes=1, dns=True, images=build_images(), kubernetes=old, timeout_s=180
    ) as cluster:
        async with connected(cluster.kubeconfig) as client:
            assert await version(client) == f"v{old}"
            await install_manager(client)
            await manager_ready(client)
            logs = pod_log_folders(cluster)
            async with run_gang(client, supervised_jobset("moved", 2), 2, logs) as timeline:
                before = await restart_counts(client)
                for release in between(old, wanted.kubernetes):
                    await asyncio.to_thread(cluster.move_to, release)
                    assert await version(client) == f"v{release}"
                    await manager_ready(client)
                    restart = await restart_supervised_once(timeline, 2, STARTED)
                    assert restart.recreated == 0
                assert await restart_counts(client) == before
                runs = [len(timeline.line_times(pod, STARTED, 0)) for pod in timeline.pods.values()]
                assert set(runs) == {1 + len(between(old, wanted.kubernetes))}
                assert timeline.restarts == 0


async def test_sidecar_is_reported_when_no_kubelet_supports_it(node_client):
    """A warning at creation, and the condition while its pods wait."""
    await install_agents(node_client)
    response = await exchange(node_client, "POST", JOBSETS, gang_jobset("waits", 1))
    try:
        warning = response.headers.get("warning", "")
        assert f"none of 1 nodes declares the feature {keys.RESTART_ALL_FEATURE}" in warning
        text = "nodes lack features that it requires"
        stored = StoredJobSet(node_client, NAMESPACE, "waits")
        await stored.reaches_condition(keys.BARRIER_STALLED_CONDITION, text, seconds=120)
    finally:
        await node_client.delete(JobSet, NAMESPACE, "waits", propagation="Foreground")
