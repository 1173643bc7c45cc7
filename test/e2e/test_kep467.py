"""KEP-467 on two real nodes: its manifests unchanged, exit codes X, Y and Z, a lost node.

The same with agents that the manager's webhook injects, in both modes. The manager runs next to the
nodes, in their network; the API server calls it for every JobSet.
"""

import asyncio
import contextlib
import signal
import time
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from hack.cluster import Cluster
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from support import patience
from support.cluster.install import CONFIG, connected
from support.cluster.json_api import exchange
from support.cluster.objects import jobset, spread
from support.restarts.kep467_kit import manager_with_webhooks, send
from support.restarts.scenario import SHELL_IMAGE, build_images, pod_log_folders, run_gang

pytestmark = [
    pytest.mark.node,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

MANIFESTS = Path(__file__).with_name("kep467")
NAMESPACE = "default"
MODES = ("sidecar", "supervisor")
RECOVERABLE, TO_Y, TO_Z = signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2
"""Signals on which the workers of these tests exit with 7, Y (3) and Z (4)."""
SCRIPT = (
    "trap 'exit 3' USR1; trap 'exit 4' USR2; trap 'exit 7' HUP; trap 'exit 143' TERM; "
    "echo worker started; sleep 1000000 & wait $!"
)


@pytest.fixture(scope="module")
def two_nodes():
    """A cluster of the module's own, since its webhooks are called for every JobSet."""
    crd = CONFIG / "crd/jobset.x-k8s.io_jobsets.yaml"
    with Cluster(nodes=2, crds=[crd], images=build_images()[1:], timeout_s=180) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(two_nodes, tmp_path_factory):
    """An administrator's client; the manager serves its webhooks."""
    folder = tmp_path_factory.mktemp("manager")
    async with (
        connected(two_nodes.kubeconfig, qps=0) as client,
        manager_with_webhooks(two_nodes, client, folder),
    ):
        yield client


def story(number: int) -> dict:
    return yaml.safe_load((MANIFESTS / f"story-{number}.yaml").read_text())


def ordinary(name: str, mode: str, notes: dict[str, str], **job) -> dict:
    """A JobSet of two workers, on two nodes if possible, with the annotation for agents."""
    labels = {"test.example/group": name}
    worker = {"name": "worker", "image": SHELL_IMAGE, "command": ["sh", "-c", SCRIPT]}
    pod = {"containers": [worker], "topologySpreadConstraints": spread(labels)}
    template = {"metadata": {"labels": labels}, "spec": pod}
    policy = {"maxRestarts": 3, "restartStrategy": "InPlaceRestart", **job.pop("policy", {})}
    spec = {"parallelism": 2, "template": template, **job}
    workers = {"name": "workers", "template": {"spec": spec}}
    return jobset(name, workers, annotations={INJECT: mode, **notes}, failurePolicy=policy)


INJECT = "jobset.sigs.k8s.io/in-place-restart-agent"


class Group:
    """Two running workers: their state, and ways to end them."""

    def __init__(self, timeline, *, supervised: bool) -> None:
        self.timeline = timeline
        self.supervised = supervised

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, cluster, client, jobset: dict, *, supervised: bool = False):
        """Create the JobSet and yield once both workers run at epoch 1; delete it in the end."""
        since = time.time()
        async with run_gang(client, jobset, 2, pod_log_folders(cluster)) as timeline:
            group = cls(timeline, supervised=supervised)
            await group.at_work(1, since)
            yield group

    @property
    def alive(self) -> dict[str, str]:
        """UIDs of the pods that have not ended, by name."""
        pods = self.timeline.pods.values()
        return {p.name: p.uid for p in pods if p.phase not in {"Failed", "Succeeded"}}

    async def at_work(self, epoch: int, since: float, limit_s: float = 60) -> None:
        """Wait until two pods are synced at an epoch and their workers have started since."""

        def reported() -> bool:
            pods = [p for name, p in self.timeline.pods.items() if name in self.alive]
            return epoch in self.timeline.synced and [p.epoch for p in pods] == [epoch, epoch]

        def started() -> bool:
            pods = [self.timeline.pods[name] for name in self.alive]
            return all(self.timeline.line_times(p, "worker started", since) for p in pods)

        await self.timeline.wait(reported, limit_s, f"both pods to be synced at epoch {epoch}")
        async with patience.timeout(30):
            while not started():  # noqa: ASYNC110 - the kubelet writes the files
                await asyncio.sleep(0.05)

    async def signal(self, pod: str, number: int, text: str = "worker started") -> float:
        """Signal the worker, or the process with ``text`` in its command; return the time."""
        found = await self.timeline.client.get(Pod, NAMESPACE, pod)
        moment = time.time()
        is_worker = text == "worker started"
        send(found, number, text, first=not (self.supervised and is_worker))
        return moment

    async def restarts_counts(self) -> set[int]:
        """Return the restart counts of the workers' containers."""
        pods = (await self.timeline.client.list_page(Pod, NAMESPACE)).items
        return {
            status.restart_count
            for pod in pods
            if pod.metadata.name in self.alive
            for status in pod.status.container_statuses
        }


async def patch_node(client, name: str, body: dict, subresource: str = "") -> None:
    """Merge-patch a node or its status."""
    await exchange(client, "PATCH", f"/api/v1/nodes/{name}{subresource}", body)


async def conditions(client, name: str) -> dict[str, str]:
    """Return the reasons of the JobSet's true conditions, by type."""
    jobset = await client.get(JobSet, NAMESPACE, name)
    return {each.type: each.reason for each in jobset.status.conditions if each.status == "True"}


async def test_story_1_group_restarts_in_place_when_a_worker_fails(two_nodes, client):
    """One worker on each node of a pool, with accelerators; a failure restarts both in place.

    The JobSet completes when both workers have succeeded.
    """
    for name in ("node-1", "node-2"):
        tpus = {"google.com/tpu": "4"}
        await patch_node(
            client, name, {"status": {"capacity": tpus, "allocatable": tpus}}, "/status"
        )
        await patch_node(client, name, {"metadata": {"labels": {"cloud.google.com/gke-nodepool": name}}})  # fmt: skip
    async with Group.of(two_nodes, client, story(1)) as group:
        before = group.alive
        failed_at = await group.signal(min(before), RECOVERABLE)
        await group.at_work(2, failed_at)

        assert group.alive == before
        assert await group.restarts_counts() == {1}
        assert (group.timeline.restarts, max(group.timeline.deprecated)) == (0, 1)

        # Like "kill 1" in the agent's container: it must not come back next to its old worker.
        failed_at = await group.signal(min(before), signal.SIGTERM, "jobsetpy.agent")
        await group.at_work(3, failed_at)
        assert group.alive == before
        assert await group.restarts_counts() == {2}

        for pod in before:
            await group.signal(pod, signal.SIGALRM)  # the workers exit with 0
        await group.timeline.wait(lambda: group.timeline.terminal == "Completed", 30, "the end")
        assert (max(group.timeline.synced), group.alive) == (3, {})


async def story_2(two_nodes, client, jobset: dict, *, supervised: bool) -> None:
    """Run all exit codes of story 2 on one group."""
    async with Group.of(two_nodes, client, jobset, supervised=supervised) as group:
        before = group.alive
        victim, other = sorted(before)
        failed_at = await group.signal(victim, RECOVERABLE)
        await group.at_work(2, failed_at)
        assert group.alive == before
        assert await group.restarts_counts() == {0 if supervised else 1}

        failed_at = await group.signal(victim, TO_Z)
        await group.at_work(3, failed_at)
        assert group.timeline.pods[victim].phase == "Failed"
        assert (other in group.alive, victim in group.alive) == (True, False)
        assert group.timeline.restarts == 0

        await group.signal(other, TO_Y)
        await group.timeline.wait(lambda: group.timeline.terminal == "Failed", 30, "the failure")
        found = await conditions(client, group.timeline.name)
        assert found["Failed"] == "FailJobSetFailurePolicyAction"


async def test_story_2_exit_codes_have_their_effect(two_nodes, client):
    """Y fails the JobSet, Z ends the pod alone, another code restarts the group in place.

    With the KEP's manifest, and with ordinary manifests with injected agents, at the same time.
    """
    rule = {"name": "unrecoverable", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}  # fmt: skip
    codes = {"containerName": "worker", "operator": "In", "values": [3]}
    job = {
        "policy": {"rules": [rule]},
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]},
    }
    notes = {"jobset.sigs.k8s.io/in-place-restart-end-pod-exit-codes": "4"}
    async with asyncio.TaskGroup() as plays:
        plays.create_task(story_2(two_nodes, client, story(2), supervised=False))
        for mode in MODES:
            jobset = ordinary(f"injected-{mode}", mode, notes, **job)
            supervised = mode == "supervisor"
            plays.create_task(story_2(two_nodes, client, jobset, supervised=supervised))


async def kill_agent(group: Group) -> None:
    """Kill a sidecar: its worker ends with it, and the group restarts."""
    before = group.alive
    failed_at = await group.signal(min(before), signal.SIGKILL, "jobsetpy.agent")
    await group.at_work(2, failed_at)

    assert group.alive == before
    assert await group.restarts_counts() == {1}


async def give_up(client, pod: str) -> None:
    """Fail and delete a pod as the pod garbage collector does, later, on nodes out of service.

    Without the phase the Job controller would wait for the lost kubelet to confirm the pod's end.
    """
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}"
    status = {"status": {"phase": "Failed", "reason": "NodeLost"}}
    await exchange(client, "PATCH", f"{path}/status", status)
    await exchange(client, "DELETE", path, gracePeriodSeconds="0")


async def lose_node(client, group: Group, node: str) -> None:
    """Give up the pod on a node; the group continues on the other one."""
    pods = {
        pod.metadata.name: pod.spec.node_name
        for pod in (await client.list_page(Pod, NAMESPACE)).items
        if pod.metadata.name in group.alive
    }
    (lost,) = [name for name, place in pods.items() if place == node]
    epoch, since = max(group.timeline.synced), time.time()
    await give_up(client, lost)
    await group.at_work(epoch + 1, since)

    assert lost not in group.alive
    assert len(set(pods) & set(group.alive)) == 1


async def test_killed_sidecar_and_lost_node_cost_one_restart_each(two_nodes, client):
    """With injected agents in both modes."""
    async with contextlib.AsyncExitStack() as groups:
        both = []
        for mode in MODES:
            jobset = ordinary(f"lost-{mode}", mode, {})
            group = Group.of(two_nodes, client, jobset, supervised=mode == "supervisor")
            both.append(await groups.enter_async_context(group))
        await kill_agent(both[0])

        await patch_node(client, "node-2", {"spec": {"unschedulable": True}})
        await asyncio.to_thread(two_nodes.stop_node, "node-2")
        async with asyncio.TaskGroup() as plays:
            for group in both:
                plays.create_task(lose_node(client, group, "node-2"))
