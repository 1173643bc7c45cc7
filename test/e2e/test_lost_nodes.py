"""Nodes that are lost under a group, by power and by network; nobody writes a status but Kubernetes.

Node monitoring is fast here; ``bench/lost_nodes.py`` has it at Kubernetes' defaults.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from hack.cluster import Cluster
from jobsetpy.agent.protocol.follower import REFUSED_S
from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.client import connect
from support.cluster.install import install_crd
from support.cluster.manager_process import ManagerProcess
from support.cluster.processes import processes
from support.patience import eventually
from support.restarts.scenario import (
    WORKER_SCRIPT,
    EventText,
    build_images,
    gang_jobset,
    kill_worker,
    run_gang,
    supervised_jobset,
)

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(600)]

STAYS, LOST = "node-1", "node-2"
PODS = 4
DELETED = "jobset_lost_node_pods_deleted_total"


@pytest.fixture(scope="module")
def two_nodes():
    """A cluster whose silent nodes are noticed after ten seconds."""
    with Cluster(
        nodes=2,
        images=build_images()[1:],
        kubelet_config={"nodeLeaseDurationSeconds": 8, "nodeStatusUpdateFrequency": "2s"},
        controller_manager_args=["--node-monitor-grace-period=10s", "--node-monitor-period=1s"],
        timeout_s=180,
    ) as running:
        yield running


@pytest.fixture
async def manager(two_nodes, tmp_path):
    """A manager beside the cluster, where no node takes it along."""
    client = await connect(kubeconfig=str(two_nodes.kubeconfig))
    await install_crd(client)
    await client.aclose()
    process = ManagerProcess(two_nodes.kubeconfig, tmp_path / "manager.log", metrics=True)
    await process.start()
    yield process
    await process.stop()


@pytest.fixture
async def client(two_nodes, manager):
    """A client of the cluster."""
    made = await connect(kubeconfig=str(two_nodes.kubeconfig))
    yield made
    await made.aclose()


def spread(jobset):
    """The same with a deadline, and half of its pods on each node."""
    notes = {keys.LOST_NODE_DEADLINE_ANNOTATION: "10s"}
    jobset["metadata"].setdefault("annotations", {}).update(notes)
    (replicated_job,) = jobset["spec"]["replicatedJobs"]
    template = replicated_job["template"]["spec"]["template"]
    labels = {"test.example/gang": jobset["metadata"]["name"]}
    template.setdefault("metadata", {})["labels"] = labels
    template["spec"]["terminationGracePeriodSeconds"] = 10
    template["spec"]["topologySpreadConstraints"] = [
        {
            "topologyKey": "kubernetes.io/hostname",
            "maxSkew": 1,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels},
        }
    ]
    return jobset


async def placed(client, gang):
    """How many pods of a gang are on each node."""
    page = await client.list_page(Pod, "default", label_selector=f"{keys.JOBSET_NAME}={gang}")
    return Counter(pod.spec.node_name for pod in page.items)


def workers(cluster, gang):
    """How many workers of each rank of a gang run, wherever their node is.

    Pods of an indexed Job have their index in the host name, and a pod that replaces another one
    has the same. What runs the script beside a worker, as a container's first process, is an agent.
    """
    found = Counter()
    for each in processes(WORKER_SCRIPT, cluster):
        for variable in () if b"supervise" in each.command else each.environ:
            if variable.startswith(f"HOSTNAME={gang}-workers-0-".encode()):
                found[variable.decode().rpartition("-")[2]] += 1
    return found


ONE_EACH = Counter({str(rank): 1 for rank in range(PODS)})


async def all_run(timeline, epoch, seconds=90):
    """Wait until the group is complete at an epoch."""
    await timeline.wait(
        lambda: timeline.all_running(PODS, epoch), seconds, f"{PODS} workers at epoch {epoch}"
    )


async def test_a_partition_that_heals_leaves_one_worker_of_each_rank(two_nodes, manager, client):
    """While it lasts the old workers run on; then they end, and the agents start none again.

    A supervisor does it alone: the kubelet stands still. If its watch did not outlive the partition,
    it has to see its token refused for minutes, as when keys are rotated. A sidecar needs the
    kubelet.
    """
    async with AsyncExitStack() as stack:
        supervised = await stack.enter_async_context(
            run_gang(client, spread(supervised_jobset("supervised", PODS)), PODS)
        )
        sidecar = await stack.enter_async_context(
            run_gang(client, spread(gang_jobset("sidecar", PODS)), PODS)
        )
        for gang in ("supervised", "sidecar"):
            assert await placed(client, gang) == {STAYS: 2, LOST: 2}
        await asyncio.to_thread(two_nodes.unplug_node, LOST)
        stack.callback(two_nodes.plug_in_node, LOST)
        await all_run(supervised, 2)
        await all_run(sidecar, 2)
        for gang in ("supervised", "sidecar"):
            assert await placed(client, gang) == {STAYS: PODS}
            # What a deadline risks: two workers of a rank.
            await eventually(lambda g=gang: workers(two_nodes, g).total() == PODS + 2, seconds=20)

        two_nodes.signal_component(f"{LOST}/kubelet", signal.SIGSTOP)
        stack.callback(two_nodes.signal_component, f"{LOST}/kubelet", signal.SIGCONT)
        await asyncio.to_thread(two_nodes.plug_in_node, LOST)
        await eventually(
            lambda: workers(two_nodes, "supervised") == ONE_EACH, seconds=REFUSED_S + 60
        )
        assert workers(two_nodes, "sidecar").total() == PODS + 2
        # The agents that are left over hold the next epoch; it must not let their workers start.
        victim = await client.get(Pod, "default", min(supervised.pods))
        await kill_worker(victim, supervised=True)
        await supervised.wait(lambda: 3 in supervised.synced, 60, "epoch 3 to be synced")
        await eventually(lambda: workers(two_nodes, "supervised") == ONE_EACH, seconds=20)
        await asyncio.sleep(2)  # nothing is waited for: what must not come would come now
        assert workers(two_nodes, "supervised") == ONE_EACH

        two_nodes.signal_component(f"{LOST}/kubelet", signal.SIGCONT)
        await eventually(lambda: workers(two_nodes, "sidecar") == ONE_EACH, seconds=60)
        assert manager.scrape()[DELETED] == 4


async def test_a_node_without_power(two_nodes, manager, client):
    """Its pods are given up, and the group goes on on the other node, told by an event."""
    gang = spread(supervised_jobset("power", PODS))
    async with run_gang(client, gang, PODS) as timeline:
        assert (await placed(client, "power"))[LOST] == 2
        await asyncio.to_thread(two_nodes.stop_node, LOST)
        await all_run(timeline, 2)
        assert await placed(client, "power") == {STAYS: PODS}
        events = (await client.list_page(EventText, "default")).items
    assert manager.scrape()[DELETED] == 2
    told = [event.note for event in events if event.reason == keys.NODE_LOST_REASON]
    assert any(note.startswith(f"2 pods were deleted by force, since nothing was heard of node {LOST!r}") for note in told)  # fmt: skip
