"""Spare pods and spare Jobs, with a real API server and Job controller.

The manager is a process of its own with its own rights; kubelets and agents are simulated.
"""

import asyncio
import contextlib
import time

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.reconcilers.execution.kinds import CreatedPod, WholeJob
from jobsetpy.reconcilers.restart_in_place.replacing.successor_pod import successor_body
from jobsetpy.reconcilers.restart_in_place.replacing.successors import Successor
from jobsetpy.reconcilers.rules.json_tree import child
from support import patience
from support.restarts.played_group import managed_group

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

NAME = "spares"


@contextlib.asynccontextmanager
async def group(cluster, client, namespace, tmp_path, *, seats, spares=0, jobs=1, spare_jobs=0):
    """A group whose seats are all held at epoch 1, and whose spares are ready."""
    notes = {
        keys.IN_PLACE_SPARES_ANNOTATION: str(spares),
        keys.IN_PLACE_SPARE_JOBS_ANNOTATION: str(spare_jobs),
    }
    async with managed_group(cluster, client, namespace, NAME, tmp_path) as (one, manager):
        one.code = 143  # exit code of a parked agent
        one.seats, one.working_jobs = seats, jobs - spare_jobs if spare_jobs else 0
        await one.create(jobs=jobs, pods=seats + spares, annotations=notes)
        await working(one, (jobs - spare_jobs) * seats, 1)
        await one.reaches_spares((jobs - spare_jobs) * spares + spare_jobs * (seats + spares))
        yield one, manager


async def working(one, count, epoch):
    """Wait until all seats have a pod at an epoch; return the pods by seat."""
    deadline = time.monotonic() + patience.scaled(60)
    while one.epoch < epoch or len(one.seated()) < count:
        assert time.monotonic() < deadline, (one.epoch, one.states())
        await asyncio.sleep(0.02)
    return one.seated()


async def completed(one):
    """Wait until the JobSet is complete; return the conditions of its Jobs by index."""
    await one.reaches_condition("Completed", seconds=60)
    return {
        job.metadata.labels[keys.JOB_INDEX]: [
            each.type for each in job.status.conditions if each.status == "True"
        ]
        for job in (await one.client.list_page(Job, one.namespace)).items
        if job.metadata.deletion_timestamp is None
    }


async def test_job_completes_with_its_seats_and_its_spare_is_ended(
    cluster, client, namespace, tmp_path
):
    """The Job controller counts as many indexes as the Job has seats, in any combination."""
    async with group(cluster, client, namespace, tmp_path, seats=3, spares=1) as (one, _):
        await one.delete(one.seated()["0-1"], grace_s=0)
        seated = await working(one, 3, 2)
        for name in seated.values():
            await one.fail(name, 0)

        found = await completed(one)
        assert "Complete" in found["0"]
        assert (await one.job()).status.succeeded == 3

        def ended():
            assert all(pod.status.phase != "Running" for pod in one.pods.values()), one.states()
            return True

        await patience.eventually(ended, 60)


async def test_pod_that_was_created_while_its_job_finished_is_deleted(
    cluster, client, namespace, tmp_path
):
    """Created by the manager between its last look at the Job and the Job's end."""
    async with group(cluster, client, namespace, tmp_path, seats=3, spares=1) as (one, _):
        for name in one.seated().values():
            await one.fail(name, 0)
        assert "Complete" in (await completed(one))["0"]
        (job,) = (await client.list_page(WholeJob, namespace)).items
        name = f"{job.metadata.name}-1-late"
        late = Successor(index=1, name=name)
        meta, template = job.metadata, child(job.spec, "template")
        await client.create(
            CreatedPod, namespace, successor_body(meta.name, meta.uid, template, late)
        )

        def deleted():
            assert name in one.ready_at
            assert name not in one.pods, one.states()
            return True

        await patience.eventually(deleted, 30)


async def test_lost_pods_are_replaced_by_spares_and_return_as_spares(
    cluster, client, namespace, tmp_path
):
    """Each pod in turn, with one spare; the list of taken seats names the holders."""
    async with group(cluster, client, namespace, tmp_path, seats=3, spares=1) as (one, _):
        seconds = []
        for epoch in range(2, 6):
            at = await one.delete(one.seated()[f"0-{epoch % 3}"], grace_s=0)
            await working(one, 3, epoch)
            seconds.append(round(time.monotonic() - at, 2))
            await one.reaches_spares(1)
        print(f"deletion to the lift with a spare: {seconds}")

        assert not one.together
        assert (await one.job()).status.succeeded == 0


async def test_restarted_manager_gives_the_seat_of_a_lost_pod_to_the_spare(
    cluster, client, namespace, tmp_path
):
    """It was killed before the loss; only the status and the pods remain."""
    async with group(cluster, client, namespace, tmp_path, seats=3, spares=1) as (one, manager):
        before = one.seated()
        await manager.kill()
        await one.delete(before["0-0"], grace_s=0)
        await manager.start()
        after = await working(one, 3, 2)

        assert {seat: after[seat] for seat in ("0-1", "0-2")} == {
            seat: before[seat] for seat in ("0-1", "0-2")
        }
        assert after["0-0"] != before["0-0"]


async def test_jobset_completes_when_a_spare_job_has_taken_over(
    cluster, client, namespace, tmp_path
):
    """A Job that loses a pod gives up all its seats; the next manager keeps this assignment."""
    shape = {"seats": 2, "jobs": 3, "spare_jobs": 1}
    async with group(cluster, client, namespace, tmp_path, **shape) as (one, manager):
        await one.delete(one.seated()["1-0"], grace_s=0)
        seated = await working(one, 4, 2)
        record = (await one.jobset()).status.in_place_restart
        assert [(each.job, each.holder) for each in record.taken_jobs] == [
            (f"{NAME}-w-1", f"{NAME}-w-2")
        ]
        await manager.kill()
        await manager.start()
        await one.reaches_spares(2)  # the remaining pod of the other Job, and its new one
        assert (await one.jobset()).status.synced_epoch == 2

        for name in seated.values():
            await one.fail(name, 0)
        found = await completed(one)
        assert {index for index, states in found.items() if "Complete" in states} == {"0", "2"}

        async def deleted():
            jobs = (await client.list_page(Job, namespace)).items
            return {job.metadata.labels[keys.JOB_INDEX] for job in jobs} == {"0", "2"}

        assert await patience.eventually(deleted, 60)
