"""Spares on a real node: losing a whole pod costs its group about a second."""

from __future__ import annotations

import os
import signal
import time

import pytest

from hack.images.training import PLAIN, framework_image
from jobsetpy.api import keys
from jobsetpy.api.agent_reports import PREPARED
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Node, Pod
from jobsetpy.api.jobset import JobSet
from support import patience
from support.agents.spares_kit import SEATS, Group, running
from support.agents.training_kit import NAMESPACE, RANKS_HAVE, Training, cordon, manifest
from support.cluster import objects
from support.cluster.json_api import StoredJobSet
from support.cluster.processes import pod_host_name, process_in
from support.restarts.scenario import install_agents

SEAT = "example.test/seat"
"""Resource of which the node has enough for two pods."""

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(400)]


async def test_spare_takes_the_seat_of_a_lost_pod(node_client, jax_on_node, tmp_path):
    """Deleted, then killed whole: each time a spare gets the rank, and the new pod is a spare."""
    async with running(node_client, "spares", jax_on_node, tmp_path, 1) as group:
        before = group.training.runs()
        victim = before[1]
        name = await group.pod_of(victim["host"])
        moment = time.time()
        await node_client.delete(Pod, NAMESPACE, name, grace_period_seconds=0)
        after = await group.training.stepping(moment, 60)
        deleted_s = max(run["joined"] for run in after.values()) - moment
        print(
            {
                k: [round(v[n] - moment, 2) for n in ("began", "joined", "at")]
                for k, v in after.items()
            }
        )
        (entry,) = (await group.record()).taken_seats
        assert (entry.seat, entry.pod_index) == (1, SEATS)
        assert after[1]["host"] == entry.pod.rpartition("-")[0] != victim["host"]
        assert after[0]["host"] == before[0]["host"]

        # The first rank: its address becomes that of its new holder.
        await group.reaches_spares(1)
        victim = after[0]
        agent = process_in(victim["host"], 1, RANKS_HAVE)
        moment = time.time()
        os.kill(agent, signal.SIGKILL)  # which ends all processes of its container
        last = await group.training.stepping(moment, 60)
        killed_s = max(run["joined"] for run in last.values()) - moment
        seats = {one.seat: one for one in (await group.record()).taken_seats}

        assert last[0]["host"] == seats[0].pod.rpartition("-")[0] != victim["host"]
        assert last[1]["host"] == after[1]["host"]
        assert seats[0].address
        print(f"until all ranks have joined: deleted {deleted_s:.2f} s, killed {killed_s:.2f} s")
        for record in (await node_client.get(JobSet, NAMESPACE, "spares")).status.restart_history:
            print(record)

        # A lost spare restarts no pod.
        await group.reaches_spares(1)
        status = (await node_client.get(JobSet, NAMESPACE, "spares")).status
        runs = group.training.runs()
        holders = {run["host"] for run in runs.values()}
        pods = (await node_client.list_page(Pod, NAMESPACE)).items
        (spare,) = [
            each
            for each in pods
            if pod_host_name(each) not in holders and each.status.phase == "Running"
        ]
        await node_client.delete(Pod, NAMESPACE, spare.metadata.name, grace_period_seconds=0)
        await group.reaches_spares(0)
        await group.reaches_spares(1)
        assert (await node_client.get(JobSet, NAMESPACE, "spares")).status.synced_epoch == (
            status.synced_epoch
        )
        assert group.training.runs() == runs


async def test_a_spare_job_takes_all_seats_when_a_job_loses_a_pod(
    node_cluster, node_client, tmp_path
):
    """Deleted, then killed whole: what is left of the Job waits, and is the next spare Job."""
    node_cluster.load_images([framework_image(PLAIN)])
    name = "units"
    async with running(node_client, name, PLAIN, tmp_path, 1, whole_jobs=True) as group:

        def pods_of(job):
            return {rank: f"{name}-w-{job}-{rank}" for rank in range(SEATS)}

        def hosts(runs):
            return {rank: run["host"] for rank, run in runs.items()}

        assert hosts(group.training.runs()) == pods_of(0)
        lost = await group.pod_of(pods_of(0)[1])
        moment = time.time()
        await node_client.delete(Pod, NAMESPACE, lost, grace_period_seconds=0)
        after = await group.training.stepping(moment, 60)
        deleted_s = max(run["joined"] for run in after.values()) - moment
        taken = [(one.job, one.holder) for one in (await group.record()).taken_jobs]
        assert (hosts(after), taken) == (pods_of(1), [(f"{name}-w-0", f"{name}-w-1")])

        await group.reaches_spares(SEATS)
        agent = process_in(pods_of(1)[0], 1, RANKS_HAVE)
        moment = time.time()
        os.kill(agent, signal.SIGKILL)  # and with it all processes of its container
        last = await group.training.stepping(moment, 60)
        killed_s = max(run["joined"] for run in last.values()) - moment
        assert (hosts(last), (await group.record()).taken_jobs) == (pods_of(0), ())
        await group.reaches_spares(SEATS)
        print(f"until all ranks have joined: deleted {deleted_s:.2f} s, killed {killed_s:.2f} s")
        history = (await node_client.get(JobSet, NAMESPACE, name)).status.restart_history
        assert [one.seats_taken for one in history if one.seats_taken] == [SEATS, SEATS]


def jobset(name, *, notes=None, requests=None, **spec):
    """A JobSet of one Job with two seats and a spare, whose workers end after a second."""
    resources = {"requests": requests or {}, "limits": requests or {}}
    container = objects.shell_worker("sleep 1", resources=resources)
    annotations = {
        keys.IN_PLACE_AGENT_ANNOTATION: "supervisor",
        keys.IN_PLACE_PROCESSES_ANNOTATION: "1",
        keys.IN_PLACE_SPARES_ANNOTATION: "1",
        **(notes or {}),
    }
    policy = {"maxRestarts": 3, "restartStrategy": keys.IN_PLACE_RESTART}
    spec = {"failurePolicy": policy, **spec}
    item = objects.replicated_job({"containers": [container]}, 2)
    return objects.jobset(name, item, annotations=annotations, **spec)


async def completes(client, body):
    """Create a JobSet and wait until it has completed; return the status of its Job."""
    name = body["metadata"]["name"]
    stored = StoredJobSet(client, NAMESPACE, name)
    async with stored.living(body):
        await stored.reaches(lambda s: s.terminal_state == keys.TERMINAL_COMPLETED, 60)
        (job,) = (await client.list_page(Job, NAMESPACE)).items
        return job.status


async def test_job_is_complete_when_its_seats_have_succeeded(node_client):
    """The spare ends with the Job, and the JobSet completes."""
    await install_agents(node_client)
    status = await completes(node_client, jobset("completes"))

    assert (status.succeeded, status.completed_indexes) == (2, "0,1")  # of three pods


async def test_jobset_runs_to_its_end_when_its_spare_finds_no_node(node_client):
    """With the annotation, neither the startup group nor the barrier waits for the spare."""
    await install_agents(node_client)
    (node,) = (await node_client.list_page(Node)).items
    body = {"status": {"capacity": {SEAT: "2"}}}
    await node_client.merge_patch(Node, "", node.metadata.name, body, subresource="status")
    notes = {keys.START_WITHOUT_SPARES_ANNOTATION: "true"}
    status = await completes(
        node_client, jobset("early", notes=notes, requests={SEAT: "1"}, groupSchedulingConfig={})
    )

    assert status.succeeded == 2


@pytest.mark.parametrize(
    ("minimum", "jobs", "left"),
    [(keys.MIN_PODS_ANNOTATION, 1, 3), (keys.MIN_REPLICAS_ANNOTATION, 2, 2)],
    ids=["pods", "Jobs"],
)
async def test_fewer_ranks_step_until_the_missing_pod_is_back(
    node_cluster, node_client, tmp_path, minimum, jobs, left
):
    """Those that are left of four are a world of their own, and a restart makes them four again."""
    node_cluster.load_images([framework_image(PLAIN)])
    await install_agents(node_client)
    name = "elastic"
    fewer, whole = Training(tmp_path, left), Training(tmp_path, 4)
    body = manifest(name, PLAIN, "list", 4 // jobs, tmp_path)
    body["spec"]["replicatedJobs"][0]["replicas"] = jobs
    body["metadata"]["annotations"] |= {
        minimum: "3" if jobs == 1 else "1",
        keys.MIN_PODS_AFTER_ANNOTATION: "0",
        keys.GROW_AFTER_ANNOTATION: "0",
    }
    group = Group(node_client, name, whole)
    async with group.living(body):
        lost = (await whole.stepping(0, 120))[1]
        moment = time.time()
        await node_client.delete(
            Pod, NAMESPACE, await group.pod_of(lost["host"]), grace_period_seconds=0
        )
        few = await fewer.stepping(moment, 60)
        stepped_s = max(run["at"] for run in few.values()) - moment
        await group.reaches(lambda status: len(status.restart_history) == 2, 60)
        grown = (await group.jobset()).status.restart_history[1].began_at.timestamp()
        four = await whole.stepping(grown, 60)
        grown_s = max(run["at"] for run in four.values()) - grown
        print(
            f"{left} ranks step after {stepped_s:.2f} s, four {grown_s:.2f} s after the last is ready"
        )
        await group.reaches(lambda status: status.in_place_restart.pods == 4, 60)
        status = (await group.jobset()).status

        assert [(one.pods, one.cause.reason) for one in status.restart_history] == [
            (left, "PodDeleted"),
            (4, "GroupGrows"),
        ]
        assert status.in_place_restart.restarts == 1
        assert status.in_place_restart.job_sizes == ()
        assert len({run["host"] for run in four.values()}) == 4


async def test_smaller_group_withdraws_its_report_when_a_standby_dies(
    node_cluster, node_client, tmp_path
):
    """Until there is another one; then the missing pod comes, and both step within a moment."""
    node_cluster.load_images([framework_image(PLAIN)])
    await install_agents(node_client)
    body = manifest("fewer", PLAIN, "list", 2, tmp_path)
    notes = (keys.MIN_PODS_ANNOTATION, keys.MIN_PODS_AFTER_ANNOTATION, keys.GROW_AFTER_ANNOTATION)
    body["metadata"]["annotations"] |= dict(zip(notes, "100", strict=True))
    group, one = Group(node_client, "fewer", Training(tmp_path, 2)), Training(tmp_path, 1)
    (node,) = (await node_client.list_page(Node)).items
    async with group.living(body):
        runs = await group.training.stepping(0, 120)
        left, lost = [await group.pod_of(runs[rank]["host"]) for rank in (0, 1)]

        async def reports(state):
            notes = (await group.read(Pod, left))["metadata"]["annotations"]
            assert notes.get(keys.AGENT_STATE_ANNOTATION) == state

        try:
            await cordon(node_client, node.metadata.name, cordoned=True)
            await node_client.delete(Pod, NAMESPACE, lost, grace_period_seconds=0)
            await group.until(reports, PREPARED)
            os.kill(one.unreleased()[runs[0]["host"]], signal.SIGKILL)
            await group.until(reports, None)
            await group.until(reports, PREPARED)
        finally:
            await cordon(node_client, node.metadata.name, cordoned=False)
        history = await group.reaches(lambda s: s.synced_epoch == 3 and s.restart_history, 60)
        grown = history[1].began_at.timestamp()
        steps = await group.training.stepping(grown, 60)
        assert max(run["at"] for run in steps.values()) - grown < patience.scaled(3)
