"""Groups in a queue of Kueue: restarts in place, startup groups, gangs."""

import asyncio

import pytest
import pytest_asyncio

from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from support.cluster.install import CONFIG
from support.coscheduling.coscheduler_process import CoschedulerProcess, ExtenderSite
from support.coscheduling.gangs import set_scheduler
from support.others.kueue_kit import condition, jobset, replicated_job
from support.others.marks import client_marks
from support.patience import eventually
from support.restarts.scenario import WORKER_SCRIPT, kill_worker, worker_of

pytestmark = client_marks()

SMALL = {"cpu": "10m"}
STUBBORN = "trap '' TERM; echo worker started; sleep 1000000 & wait $!"
"""A worker that ignores SIGTERM until it is killed at the end of its grace period."""
REAL_NODE = {"kubernetes.io/hostname": "node-1"}


def real_job(tenant, name="w", pods=2, *, script=WORKER_SCRIPT, **more):
    """A ReplicatedJob for the real node."""
    command = ("sh", "-c", own(tenant, script))
    return replicated_job(name, pods=pods, requests=SMALL, command=command, **more)


def own(tenant, script=WORKER_SCRIPT):
    """Return a script that workers of no other test run: some of them may still be ending."""
    return f"{script} # {tenant.namespace}"


class Workers:
    """The processes of a JobSet's workers on the real node.

    Args:
        tenant: tenant of the JobSet.
        name: name of the JobSet.
        supervised: True if the agent is their parent.
        script: script that they run.
    """

    def __init__(self, tenant, name, *, supervised, script=WORKER_SCRIPT):
        self.tenant = tenant
        self.name = name
        self.supervised = supervised
        self.script = own(tenant, script)
        self.seen = set()

    async def _pods(self):
        items = (await self.tenant.client.list_page(Pod, self.tenant.namespace)).items
        return [
            pod
            for pod in items
            if pod.metadata.deletion_timestamp is None
            and pod.metadata.labels.get(keys.JOBSET_NAME) == self.name
        ]

    async def run(self, count):
        """Wait until ``count`` new ones run; return the UIDs of their pods."""

        async def new_workers():
            pods = await self._pods()
            found = [worker_of(pod, self.script, supervised=self.supervised) for pod in pods]
            processes = {process for process in found if process} - self.seen
            if len(pods) != count or len(processes) != count:
                return None
            return processes, {pod.metadata.uid for pod in pods}

        processes, uids = await self.tenant.until(new_workers, f"{count} new workers")
        self.seen |= processes
        return uids

    async def kill_one(self):
        """Kill one of them."""
        await kill_worker((await self._pods())[0], self.script, supervised=self.supervised)


@pytest.mark.parametrize("mode", ["supervisor", "sidecar"])
async def test_group_is_preempted_during_a_restart_in_place(tenant, kubectl, mode):
    """Its pods end while a worker still stops; admitted again, it runs and restarts in place."""
    kubectl("apply", "-n", tenant.namespace, "-k", str(CONFIG / "agent/account"))
    flavor = await tenant.flavor("real", nodeLabels=REAL_NODE)
    low_priority, high = await tenant.priority("low", 1), await tenant.priority("high", 2)
    preemption = {"withinClusterQueue": "LowerPriority"}
    # Enough for either of them: a sidecar adds its request to the worker's.
    quota = {"cpu": "50m" if mode == "sidecar" else "30m"}
    await tenant.queue((flavor, quota), preemption=preemption)
    job = real_job(tenant, script=STUBBORN, terminationGracePeriodSeconds=20)
    del job["template"]["spec"]["backoffLimit"]
    policy = {"restartStrategy": "InPlaceRestart", "maxRestarts": 4}
    body = jobset("low", job, priority=low_priority, failurePolicy=policy)
    body["metadata"]["annotations"] = {
        keys.IN_PLACE_AGENT_ANNOTATION: mode,
        keys.RESTART_BACKOFF_ANNOTATION: "0",
    }
    supervised = mode == "supervisor"
    workers = Workers(tenant, "low", supervised=supervised, script=STUBBORN)
    await tenant.create(body)
    first = await workers.run(2)

    await workers.kill_one()
    await tenant.until_condition("low", "RestartingInPlace")
    await tenant.create(jobset("high", real_job(tenant, pods=2), priority=high))
    await tenant.until_suspended("low")
    await Workers(tenant, "high", supervised=False).run(2)

    await tenant.delete("high")
    second = await workers.run(2)
    assert not second & first
    await tenant.until_condition("low", "RestartingInPlace", "False")
    await workers.kill_one()
    assert await workers.run(2) == second
    low = await tenant.jobset("low")
    assert low["status"]["restarts"] == 0  # no Job was recreated
    assert not condition(low, "Failed")


async def test_spares_need_quota_even_when_the_jobset_starts_without_them(tenant, kubectl):
    """Kueue counts all pods; it neither admits a part nor has another annotation for it."""
    kubectl("apply", "-n", tenant.namespace, "-k", str(CONFIG / "agent/account"))
    flavor = await tenant.pool("pool", cpu=20)
    await tenant.queue((flavor, {"cpu": "5"}))
    for name in ("first", "second"):
        job = replicated_job(pods=2)
        del job["template"]["spec"]["backoffLimit"]
        policy = {"restartStrategy": "InPlaceRestart", "maxRestarts": 4}
        body = jobset(name, job, failurePolicy=policy)
        body["metadata"]["annotations"] = {
            keys.IN_PLACE_AGENT_ANNOTATION: "supervisor",
            keys.IN_PLACE_PROCESSES_ANNOTATION: "1",
            keys.IN_PLACE_SPARES_ANNOTATION: "1",
            keys.START_WITHOUT_SPARES_ANNOTATION: "true",
            # With it, Kueue admits a part of a Job without a JobSet.
            "kueue.x-k8s.io/job-min-parallelism": "2",
        }
        await tenant.create(body)
        if name == "first":
            await tenant.until_runs("first", 3)
    waiting = await tenant.until_workload("second", "QuotaReserved", "False")
    (podset,) = waiting["spec"]["podSets"]
    assert (podset["count"], podset.get("minCount")) == (3, None)
    assert await tenant.suspended() == ["second"]
    await tenant.until_used(cpu="3")

    await tenant.delete("first")
    await tenant.until_runs("second", 3)


@pytest_asyncio.fixture(loop_scope="session")
async def coscheduler(cluster, tmp_path):
    """A coscheduler in the cluster's network, and the scheduler that calls it."""
    site = ExtenderSite(tmp_path)
    before = (cluster.folder / "scheduler.json").read_text()
    process = CoschedulerProcess(
        cluster.exec_kubeconfig, tmp_path / "log", site, prefix=cluster.exec_prefix
    )
    await process.start(wait=False)

    # Its health port is in the cluster's network and cannot be reached from here.
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


async def test_gangs_of_two_jobsets_run_one_after_the_other(tenant, coscheduler):
    """Kueue has quota for both, the nodes have capacity for one: no gang runs in part.

    A gang that is admitted again is a gang again.
    """
    flavor = await tenant.pool("pool", cpu=5)
    await tenant.queue((flavor, {"cpu": 8}))
    # Types of Kueue do not have these fields; it must not remove them.
    newer = {"scheduling": {}, "activeDeadlineSeconds": 86400}
    by_annotation = jobset("one", replicated_job(pods=4))
    by_annotation["metadata"]["annotations"] = {keys.COSCHEDULING_ANNOTATION: "JobSet"}
    for body in (by_annotation, jobset("two", replicated_job(pods=4), **newer)):
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
    assert (await tenant.jobset("two"))["spec"].items() >= newer.items()
