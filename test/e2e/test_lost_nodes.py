"""Nodes that lose power or network under a group; only Kubernetes writes statuses.

Node monitoring is fast here; ``bench/lost_nodes.py`` measures with Kubernetes' defaults.
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
from support.cluster import objects
from support.cluster.json_api import send
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
    """A cluster that notices silent nodes after ten seconds."""
    with Cluster(
        nodes=2,
        images=build_images()[1:],
        kubelet_config={"nodeLeaseDurationSeconds": 8, "nodeStatusUpdateFrequency": "2s"},
        controller_manager_args=["--node-monitor-grace-period=10s", "--node-monitor-period=1s"],
        timeout_s=180,
    ) as running:
        yield running


def spread(jobset):
    """Return the JobSet with a deadline for lost nodes and half of its pods on each node."""
    notes = {keys.LOST_NODE_DEADLINE_ANNOTATION: "10s"}
    jobset["metadata"].setdefault("annotations", {}).update(notes)
    (replicated_job,) = jobset["spec"]["replicatedJobs"]
    template = replicated_job["template"]["spec"]["template"]
    labels = {"test.example/gang": jobset["metadata"]["name"]}
    template.setdefault("metadata", {})["labels"] = labels
    template["spec"]["terminationGracePeriodSeconds"] = 10
    template["spec"]["topologySpreadConstraints"] = objects.spread(labels)
    return jobset


async def placed(client, gang):
    """Return the number of a gang's pods by node."""
    page = await client.list_page(Pod, "default", label_selector=f"{keys.JOBSET_NAME}={gang}")
    return Counter(pod.spec.node_name for pod in page.items)


async def no_taints(client):
    """Return True if no node has a taint: a node that was lost keeps some until it is ready again."""
    nodes = await send(client, "GET", "/api/v1/nodes")
    return not any(node["spec"].get("taints") for node in nodes["items"])


def workers(cluster, gang):
    """Return the number of running workers of a gang by rank, on all nodes.

    Pods of an indexed Job have their index in the host name, and a replacement has the same. Of the
    processes with the script, the first one of a container is an agent.
    """
    found = Counter()
    for each in processes(WORKER_SCRIPT, cluster):
        for variable in () if b"supervise" in each.command else each.environ:
            if variable.startswith(f"HOSTNAME={gang}-workers-0-".encode()):
                found[variable.decode().rpartition("-")[2]] += 1
    return found


ONE_EACH = Counter({str(rank): 1 for rank in range(PODS)})


async def all_run(timeline, epoch, seconds=90):
    """Wait until all workers run at an epoch."""
    await timeline.wait(
        lambda: timeline.all_running(PODS, epoch), seconds, f"{PODS} workers at epoch {epoch}"
    )


async def test_one_worker_of_each_rank_is_left_when_a_partition_heals(two_nodes, manager, client):
    """The old workers run on during the partition; then they end, and agents start none again.

    A supervisor does so alone: the kubelet is stopped. If its watch did not outlive the partition,
    its token has to be refused for minutes, as when keys are rotated. A sidecar needs the kubelet.
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
            # The risk of a deadline: two workers of a rank.
            await eventually(lambda g=gang: workers(two_nodes, g).total() == PODS + 2, seconds=20)

        two_nodes.signal_component(f"{LOST}/kubelet", signal.SIGSTOP)
        stack.callback(two_nodes.signal_component, f"{LOST}/kubelet", signal.SIGCONT)
        await asyncio.to_thread(two_nodes.plug_in_node, LOST)
        await eventually(
            lambda: workers(two_nodes, "supervised") == ONE_EACH, seconds=REFUSED_S + 60
        )
        assert workers(two_nodes, "sidecar").total() == PODS + 2
        # The remaining agents hold the next epoch, which must not let their workers start.
        victim = await client.get(Pod, "default", min(supervised.pods))
        await kill_worker(victim, supervised=True)
        await supervised.wait(lambda: 3 in supervised.synced, 60, "epoch 3 to be synced")
        await eventually(lambda: workers(two_nodes, "supervised") == ONE_EACH, seconds=20)
        await asyncio.sleep(2)  # time in which a forbidden worker would start
        assert workers(two_nodes, "supervised") == ONE_EACH

        two_nodes.signal_component(f"{LOST}/kubelet", signal.SIGCONT)
        await eventually(lambda: workers(two_nodes, "sidecar") == ONE_EACH, seconds=60)
        assert manager.scrape()[DELETED] == 4


async def test_group_continues_on_one_node_when_the_other_loses_power(two_nodes, manager, client):
    """The node's pods are given up, and an event reports it."""
    gang = spread(supervised_jobset("power", PODS))
    await eventually(lambda: no_taints(client), seconds=90)
    async with run_gang(client, gang, PODS) as timeline:
        assert (await placed(client, "power"))[LOST] == 2
        await asyncio.to_thread(two_nodes.stop_node, LOST)
        await all_run(timeline, 2)
        assert await placed(client, "power") == {STAYS: PODS}
        events = (await client.list_page(EventText, "default")).items
    assert manager.scrape()[DELETED] == 2
    notes = [event.note for event in events if event.reason == keys.NODE_LOST_REASON]
    assert any(note.startswith(f"2 pods were deleted by force, since nothing was heard of node {LOST!r}") for note in notes)  # fmt: skip
