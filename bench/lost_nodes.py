"""Loss of a node with some of a group's real pods: seconds until all workers run again.

There are two nodes with real kubelets, and Kubernetes' own node monitoring. A node fails (all its
processes end immediately) and does not return. The manager runs outside of the cluster, as a
separate process. With Kubernetes' defaults the group does not run again: after ``--wait`` seconds
the node is marked as out of service, and the time is measured from there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import attrs
import uvloop

from bench.common import say, table
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy.api import keys
from jobsetpy.api._wire import wire
from jobsetpy.api.core import LabelledNode
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource
from jobsetpy.client import Client
from support.cluster.install import connected, install_crd
from support.cluster.manager_process import manager_process
from support.restarts.scenario import build_images, pod_log_folders, run_gang, supervised_jobset
from support.restarts.timeline import Timeline

LOST, STAYS = "node-2", "node-1"
OUT_OF_SERVICE = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "nodeshutdown",
    "effect": "NoExecute",
}


@resource("", "v1", "Pod", "pods")
@wire
class GoingPod:
    """A pod, and whether it is being deleted."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()


@attrs.frozen
class Mode:
    """Settings with which a group's pods are given up.

    Args:
        deadline: the JobSet's annotation, "" for none.
        grace_s: grace period of its pods.
        arguments: arguments of the controller manager.
    """

    deadline: str
    grace_s: int = 30
    arguments: tuple[str, ...] = ()


MODES = {
    "defaults": Mode(""),
    "30s": Mode("30s"),
    "10s": Mode("10s", 10),
    "10s-monitor-40s": Mode("10s", 10, ("--node-monitor-grace-period=40s",)),
}


async def until(what: Callable[[], Any], limit_s: float) -> float:
    """Wall-clock time at which a condition on a read object is true; 0 if it never is."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if await what():
            return time.time()
        await asyncio.sleep(0.1)
    return 0.0


async def lose_node(
    client: Client, cluster: Cluster, timeline: Timeline, pods: int, wait_s: float
) -> dict[str, float]:
    """Stop a node; return the time of each later event, in seconds since."""
    nodes = await placed(client)
    say(f"pods by node: {nodes}; cutting the power of {LOST}")
    before = {story.uid for story in timeline.pods.values()}
    logs = [folder for folder in timeline.pod_logs if STAYS in str(folder)]
    timeline.pod_logs = tuple(logs)
    await asyncio.to_thread(cluster.stop_node, LOST)
    began = time.time()
    at: dict[str, float] = {}

    async def unreachable() -> bool:
        page = await client.list_page(LabelledNode, field_selector=f"metadata.name={LOST}")
        return page.items[0].unreachable_since is not None

    async def deleted() -> bool:
        page = await client.list_page(GoingPod, "default")
        return any(pod.metadata.deletion_timestamp is not None for pod in page.items)

    async def given_up() -> bool:
        return any(story.phase == "Failed" for story in timeline.pods.values())

    async def replaced() -> bool:
        new = [story for story in timeline.pods.values() if story.uid not in before]
        return len(new) == nodes[LOST]

    def started() -> int:
        lines = [
            timeline.line_times(story, "worker started", began) for story in timeline.pods.values()
        ]
        return sum(bool(times) for times in lines)

    async def running() -> bool:
        return 2 in timeline.synced and started() == pods

    at["node unreachable"] = await until(unreachable, 120) - began
    say(f"unreachable after {at['node unreachable']:.1f} s")
    at["pods being deleted"] = await until(deleted, 400) - began
    say(f"pods deleted after {at['pods being deleted']:.1f} s")
    done = await until(given_up, wait_s)
    if done:
        at["pods given up"] = done - began
        done = await until(replaced, wait_s)
    if not done:
        at["still waiting"] = time.time() - began
        say(f"no worker restarted within {wait_s:.0f} s: setting the taint out-of-service")
        node = await client.list_page(TaintedNode, field_selector=f"metadata.name={LOST}")
        taints = [*node.items[0].spec["taints"], OUT_OF_SERVICE]
        await client.merge_patch(LabelledNode, "", LOST, {"spec": {"taints": taints}})
        done = await until(replaced, 120)
    if not done:
        raise SystemExit("the pods were not replaced")
    at["pods replaced"] = done - began
    at["all run again"] = await until(running, 60) - began
    say(f"all run again after {at['all run again']:.1f} s")
    return at


@resource("", "v1", "Node", "nodes", namespaced=False)
@wire
class TaintedNode:
    """A node with its whole spec."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = attrs.field(factory=dict)


async def placed(client: Client) -> dict[str, int]:
    """Return the number of pods of each node."""
    from jobsetpy.api.core import Pod

    counts: dict[str, int] = {}
    for pod in (await client.list_page(Pod, "default")).items:
        counts[pod.spec.node_name] = counts.get(pod.spec.node_name, 0) + 1
    return counts


async def run(cluster: Cluster, mode: Mode, pods: int, wait_s: float) -> dict[str, float]:
    """Measure the loss of a node."""
    async with connected(cluster.kubeconfig) as client:
        await install_crd(client)
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "manager.log"
            async with manager_process(cluster.kubeconfig, log):
                gang = supervised_jobset("gang", pods)
                template = gang["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
                template["spec"]["terminationGracePeriodSeconds"] = mode.grace_s
                spread = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1}
                template["spec"]["topologySpreadConstraints"] = [
                    {**spread, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
                ]
                if mode.deadline:
                    notes = {keys.LOST_NODE_DEADLINE_ANNOTATION: mode.deadline}
                    gang["metadata"]["annotations"] = notes
                with contextlib.suppress(TimeoutError):  # clean-up waits for the lost node's pods
                    async with run_gang(client, gang, pods, pod_log_folders(cluster)) as timeline:
                        await asyncio.sleep(15)  # heartbeats of kubelets get a random phase
                        found = await lose_node(client, cluster, timeline, pods, wait_s)
                return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--wait", type=float, default=400.0, help="timeout for new pods")
    parser.add_argument("--modes", default=",".join(MODES), help="default %(default)s")
    options = parser.parse_args()
    rows = []
    images = build_images()[1:]  # the agent's
    for name in options.modes.split(","):
        mode = MODES[name]
        for number in range(options.rounds):
            say(f"{name}, round {number + 1}: starting a cluster with two nodes")
            with Cluster(
                nodes=2, images=images, controller_manager_args=mode.arguments, timeout_s=300
            ) as cluster:
                found = uvloop.run(run(cluster, mode, options.pods, options.wait))
            rows += [(f"{name}: {what}", f"{seconds:.1f} s", "") for what, seconds in found.items()]
    table(f"A node is lost under {options.pods} pods on two nodes", rows)


if __name__ == "__main__":
    main()
