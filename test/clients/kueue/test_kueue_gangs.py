"""Groups in a queue of Kueue's: restarted in place, started together, scheduled together."""

import asyncio

import pytest
import pytest_asyncio

from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from support.cluster.install import CONFIG
from support.coscheduling.coscheduler_process import (
    CoschedulerProcess,
    ExtenderSite,
)
from support.coscheduling.gangs import set_scheduler
from support.others.kueue_kit import condition, jobset, replicated_job
from support.patience import eventually
from support.restarts.scenario import WORKER_SCRIPT, kill_worker, worker_of

pytestmark = [
    pytest.mark.clients,
    pytest.mark.cluster,
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
]

SMALL = {"cpu": "10m"}
SHELL = ("sh", "-c", WORKER_SCRIPT)
REAL_NODE = {"kubernetes.io/hostname": "node-1"}


def real_job(name="w", pods=2, **more):
    """A ReplicatedJob for the real node."""
    return replicated_job(name, pods=pods, requests=SMALL, command=SHELL, **more)


class Workers:
    """The processes of a JobSet's workers on the real node.

    Args:
        tenant: whose it is.
        name: of the JobSet.
        supervised: whether the agent is their parent.
    """

    def __init__(self, tenant, name, *, supervised):
        self.tenant = tenant
        self.name = name
        self.supervised = supervised
        self.seen = set()

    async def _pods(self):
        items = (await self.tenant.client.list_page(Pod, self.tenant.namespace)).items
        return [pod for pod in items if pod.metadata.deletion_timestamp is None]

    async def run(self, count):
        """Wait until so many run, none of which was seen before; UIDs of their pods."""

        async def look():
            pods = await self._pods()
            found = [worker_of(pod, WORKER_SCRIPT, supervised=self.supervised) for pod in pods]
            processes = {process for process in found if process} - self.seen
            if len(pods) != count or len(processes) != count:
                return None
            return processes, {pod.metadata.uid for pod in pods}

        processes, uids = await self.tenant.until(look, f"{count} new workers")
        self.seen |= processes
        return uids

    async def kill_one(self):
        """End one of them."""
        await kill_worker((await self._pods())[0], supervised=self.supervised)


@pytest.mark.parametrize("mode", ["supervisor", "sidecar"])
async def test_a_group_restarts_in_place_before_and_after_it_is_admitted_again(
    tenant, kubectl, mode
):
    """A worker that is killed restarts its group in its pods; Kueue changes nothing about that."""
    kubectl("apply", "-n", tenant.namespace, "-k", str(CONFIG / "agent/account"))
    flavor = await tenant.flavor("real", nodeLabels=REAL_NODE)
    await tenant.queue((flavor, {"cpu": 1}))
    job = real_job()
    del job["template"]["spec"]["backoffLimit"]
    body = jobset("js", job, failurePolicy={"restartStrategy": "InPlaceRestart", "maxRestarts": 4})
    body["metadata"]["annotations"] = {keys.IN_PLACE_AGENT_ANNOTATION: mode}
    workers = Workers(tenant, "js", supervised=mode == "supervisor")
    await tenant.create(body)
    pods = await workers.run(2)

    await workers.kill_one()
    assert await workers.run(2) == pods

    await tenant.activate("js", on=False)
    await tenant.until_suspended("js")
    await tenant.activate("js", on=True)
    others = await workers.run(2)
    assert not others & pods

    await workers.kill_one()
    assert await workers.run(2) == others
    await tenant.until_condition("js", "RestartingInPlace", "False")
    status = (await tenant.jobset("js"))["status"]
    assert status["restarts"] == 0  # none by making Jobs anew
    assert not condition({"status": status}, "Failed")


async def test_a_group_starts_together_each_time_it_is_admitted(tenant):
    """No worker runs before all pods have started, at the first and at the second admission."""
    flavor = await tenant.flavor("real", nodeLabels=REAL_NODE)
    await tenant.queue((flavor, {"cpu": 1}))
    await tenant.create(jobset("js", real_job("a"), real_job("b", 1), groupSchedulingConfig={}))
    workers = Workers(tenant, "js", supervised=False)
    await workers.run(3)
    await tenant.until_condition("js", keys.GROUP_COMPLETED_CONDITION)
    await tenant.activate("js", on=False)
    await tenant.until_suspended("js")
    await tenant.activate("js", on=True)
    await workers.run(3)
    await tenant.until_condition("js", keys.GROUP_COMPLETED_CONDITION)


@pytest_asyncio.fixture(loop_scope="session")
async def coscheduler(cluster, tmp_path):
    """A coscheduler in the cluster's network, and the scheduler that asks it."""
    site = ExtenderSite(tmp_path)
    before = (cluster.folder / "scheduler.json").read_text()
    process = CoschedulerProcess(
        cluster.exec_kubeconfig, tmp_path / "log", site, prefix=cluster.exec_prefix
    )
    await process.start(wait=False)

    # Its health port is in the cluster's network, out of reach from here.
    def serves():
        return '"server":"extender"' in process.log.read_text()

    try:
        await eventually(serves, 60, poll_s=0.2)
        config = {**site.scheduler_config("marked-pods"), "podMaxBackoffSeconds": 2}
        await asyncio.to_thread(set_scheduler, cluster, config)
        yield process
    finally:
        await process.stop()
        cluster.stop_component("kube-scheduler")
        (cluster.folder / "scheduler.json").write_text(before)
        cluster.start_component("kube-scheduler")


async def test_gangs_of_two_jobsets_are_scheduled_one_after_the_other(tenant, coscheduler):
    """Kueue has quota for both, the nodes have room for one: no gang is there in part.

    One that is admitted again is a gang again.
    """
    flavor = await tenant.pool("pool", cpu=5)
    await tenant.queue((flavor, {"cpu": 8}))
    for name in ("one", "two"):
        body = jobset(name, replicated_job(pods=4))
        body["metadata"]["annotations"] = {keys.COSCHEDULING_ANNOTATION: "JobSet"}
        await tenant.create(body)
    for name in ("one", "two"):
        await tenant.until_condition(name, "Suspended", "False")

    async def one_runs():
        running = {name: len(await tenant.pods(name, "Running")) for name in ("one", "two")}
        return next((name for name, count in running.items() if count == 4), None)

    first = await tenant.until(one_runs, "one gang to run")
    (second,) = {"one", "two"} - {first}
    pods = await tenant.pods(second)
    assert len(pods) == 4
    assert not any(pod["spec"].get("nodeName") for pod in pods)
    await tenant.nodes.finish(tenant.namespace, f"{first}-")
    await tenant.until_condition(first, "Completed")
    pods = await tenant.until_runs(second, 4)
    await tenant.activate(second, on=False)
    await tenant.until_suspended(second)
    await tenant.activate(second, on=True)
    await tenant.until_runs(second, 4, old=pods)
