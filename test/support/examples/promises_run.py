"""Outcomes of the examples about start, order, end and changes of a JobSet."""

import time

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from support.cluster.json_api import send
from support.examples.examples_kit import Play, of_job, same_pods

ATTEMPT = keys.EXECUTION_ATTEMPT_ANNOTATION


async def all_jobs_have_to_succeed(play: Play) -> None:
    """All Jobs start together; the JobSet is complete when the last one is."""
    *loaders, indexer = play.all_jobs()
    assert len(await play.until_pods(*loaders, indexer)) == 5
    await play.succeed(*loaders)
    assert await play.condition("Completed") is None
    await play.succeed(indexer)
    await play.until_completed()


async def api_groups_are_counted_together(play: Play) -> None:
    """The labels number the Jobs of all ReplicatedJobs of an API group."""
    jobs = await play.until_jobs(*play.all_jobs())
    places = {
        name: tuple(
            job["metadata"]["labels"][key]
            for key in (keys.GROUP_NAME, keys.JOB_GROUP_INDEX, keys.GROUP_REPLICAS)
        )
        for name, job in jobs.items()
    }
    assert places == {
        "groups-chief-0": ("training", "0", "4"),
        "groups-worker-0": ("training", "1", "4"),
        "groups-worker-1": ("training", "2", "4"),
        "groups-worker-2": ("training", "3", "4"),
        "groups-logger-0": ("default", "0", "1"),
    }
    await play.succeed(*jobs)
    await play.until_completed()


async def one_success_is_enough(play: Play) -> None:
    """The first complete Job completes the JobSet; the others are deleted."""
    _, winner, _ = jobs = play.all_jobs()
    await play.until_pods(*jobs)
    await play.succeed(winner)
    await play.until_completed()
    await play.until_jobs(winner)


async def only_the_driver_counts(play: Play) -> None:
    """A complete worker is not enough, but the driver is."""
    driver, *workers = play.all_jobs()
    await play.until_pods(driver, *workers)
    await play.succeed(workers[0])

    async def counted() -> None:
        stored = (await play.stored())["status"]["replicatedJobsStatus"]
        assert {each["name"]: each["succeeded"] for each in stored}["workers"] == 1

    await play.until(counted)
    assert await play.condition("Completed") is None
    await play.succeed(driver)
    await play.until_completed()
    await play.until_jobs(driver, workers[0])


async def jobs_start_in_order(play: Play) -> None:
    """``InOrder``: leader, workers, watcher; each starts when the one before is ready."""
    leader, workers = play.job("leader"), [play.job("workers", 0), play.job("workers", 1)]
    watcher = play.job("watcher")
    await play.only_jobs(leader)
    await play.until_condition("StartupPolicyInProgress", "True", "InOrderStartupPolicyInProgress")
    await play.ready(leader)
    await play.only_jobs(leader, *workers)
    await play.ready(*workers)
    await play.until_jobs(leader, *workers, watcher)
    assert (await play.condition("StartupPolicyInProgress"))[0] == "True"
    await play.ready(watcher)
    await play.until_condition("StartupPolicyCompleted", "True", "InOrderStartupPolicyCompleted")
    assert (await play.condition("StartupPolicyInProgress"))[0] == "False"
    await play.succeed(watcher)
    await play.until_completed()


async def workers_wait_for_a_ready_server(play: Play) -> None:
    """Workers start when the server is ready, and the JobSet ends with them."""
    server, *workers = play.all_jobs()
    await play.only_jobs(server)
    await play.ready(server)
    await play.until_jobs(server, *workers)
    await play.succeed(*workers)
    await play.until_completed()
    await play.until_jobs(*workers)


async def each_step_waits_for_the_one_before(play: Play) -> None:
    """A step starts when the one before is complete, not when it is ready."""
    downloader, trainer, evaluator = play.all_jobs()
    await play.ready(downloader)
    await play.only_jobs(downloader)
    await play.succeed(downloader)
    await play.only_jobs(downloader, trainer)
    await play.succeed(trainer)
    await play.until_jobs(downloader, trainer, evaluator)
    await play.succeed(evaluator)
    await play.until_completed()


async def trainer_waits_for_both(play: Play) -> None:
    """One dependency is not enough."""
    dataset, server, trainer = play.all_jobs()
    await play.only_jobs(dataset, server)
    await play.ready(server)
    await play.only_jobs(dataset, server)
    await play.succeed(dataset)
    await play.until_jobs(dataset, server, trainer)
    await play.succeed(trainer)
    await play.until_completed()


async def jobset_is_deleted_in_time(play: Play) -> None:
    """The finished JobSet is kept for a while, and then deleted with its objects."""
    began = time.monotonic()
    await play.succeed(*play.all_jobs())
    await play.until_completed()
    await play.until_gone()
    assert time.monotonic() - began > 4  # five seconds after a moment in whole seconds


async def jobset_waits_until_it_is_resumed(play: Play) -> None:
    """It has no pods while it is suspended, and counts no restarts."""
    jobs = play.all_jobs()
    await play.until_jobs(*jobs)
    await play.until_condition("Suspended", "True", "SuspendedJobs")
    assert await play.read_all(Pod) == {}

    await play.change({"spec": {"suspend": False}})
    before = await play.until_pods(*jobs)
    await play.until_condition("Suspended", "False", "ResumeJobs")

    await play.change({"spec": {"suspend": True}})
    await play.until_condition("Suspended", "True", "SuspendedJobs")

    async def no_pods() -> None:
        assert await play.pods() == {}

    await play.until(no_pods)
    await play.change({"spec": {"suspend": False}})
    after = await play.until_pods(*jobs, other_than=before)
    notes = {each["metadata"]["annotations"][ATTEMPT] for each in after.values()}
    await play.succeed(*jobs)
    await play.until_completed()
    assert await play.restarts() == (0, 0)
    assert (notes, (await play.stored())["status"]["executionAttempts"]) == ({"1"}, 1)


async def queue_suspends_single_jobs(play: Play) -> None:
    """The controller leaves the field suspend of Jobs alone."""
    first, other = jobs = play.all_jobs()
    before = await play.until_pods(*jobs)
    assert "suspend" not in (await play.stored())["spec"]
    await play.client.merge_patch(Job, play.namespace, first, {"spec": {"suspend": True}})
    # The Job controller must have acted: a Job that is resumed earlier keeps its pods.
    await play.until_equal(play.pods, {}, first)
    assert same_pods(await play.pods(other), of_job(before, other))
    await play.client.merge_patch(Job, play.namespace, first, {"spec": {"suspend": False}})
    await play.until_pods(first, other_than=of_job(before, first))
    await play.succeed(*jobs)
    await play.until_completed()
    assert (await play.stored())["status"]["executionAttempts"] == 0


async def queue_selects_the_nodes(play: Play) -> None:
    """Changes that a queue makes when it resumes the JobSet are in the pods."""
    (job,) = play.all_jobs()
    await play.until_condition("Suspended", "True", "SuspendedJobs")
    assert await play.pods() == {}

    admitted = (await play.stored())["spec"]["replicatedJobs"]
    template = admitted[0]["template"]["spec"]["template"]
    template["metadata"] = {"labels": {"example.com/admitted": "yes"}}
    template["spec"]["nodeSelector"] = {"example.com/flavor": "spot"}
    template["spec"]["tolerations"] = [{"key": "example.com/spot", "operator": "Exists"}]
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "200m"}}
    await play.change({"spec": {"suspend": False, "replicatedJobs": admitted}})

    for pod in (await play.until_pods(job)).values():
        assert pod["metadata"]["labels"]["example.com/admitted"] == "yes"
        assert pod["spec"]["nodeSelector"] == {"example.com/flavor": "spot"}
        assert "example.com/spot" in {each["key"] for each in pod["spec"]["tolerations"]}
        assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "200m"}}
        assert pod["metadata"]["annotations"][ATTEMPT] == "0"
    await play.succeed(job)
    await play.until_completed()


async def workers_are_added_and_removed(play: Play) -> None:
    """The running Job is resized, and the other pods are kept."""
    (job,) = play.all_jobs()
    before = await play.until_pods(job)
    assert len(before) == 2
    for size in (4, 2):
        field_path = "/spec/replicatedJobs/0/template/spec"
        patch = [
            {"op": "replace", "path": f"{field_path}/{field}", "value": size}
            for field in ("parallelism", "completions")
        ]
        path, kind = JobSet.RESOURCE.path(play.namespace, play.name), "application/json-patch+json"
        await send(play.client, "PATCH", path, patch, content_type=kind)

        async def resized(size=size) -> None:
            assert (await play.jobs())[job]["spec"]["completions"] == size
            assert len(await play.pods(job)) == size

        await play.until(resized)
    assert same_pods(await play.pods(job), before)
    assert await play.restarts() == (0, 0)


async def jobset_of_another_controller_is_ignored(play: Play) -> None:
    """It has no Job, no Service and no status."""
    await play.only_jobs()
    assert await play.services() == {}
    assert "status" not in await play.stored()


PROMISES = {
    "simple/jobset.yaml": all_jobs_have_to_succeed,
    "simple/groups.yaml": api_groups_are_counted_together,
    "success-policy/any.yaml": one_success_is_enough,
    "success-policy/target.yaml": only_the_driver_counts,
    "startup-policy/in-order.yaml": jobs_start_in_order,
    "depends-on/ready.yaml": workers_wait_for_a_ready_server,
    "depends-on/complete.yaml": each_step_waits_for_the_one_before,
    "depends-on/several.yaml": trainer_waits_for_both,
    "ttl/ttl.yaml": jobset_is_deleted_in_time,
    "suspend/suspended.yaml": jobset_waits_until_it_is_resumed,
    "suspend/queue-per-job.yaml": queue_suspends_single_jobs,
    "suspend/kueue.yaml": queue_selects_the_nodes,
    "elastic/elastic.yaml": workers_are_added_and_removed,
    "managed-by/managed-by.yaml": jobset_of_another_controller_is_ignored,
}
