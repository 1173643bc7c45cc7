"""JobSets that wait in a queue of Kueue, run on its flavors, are preempted, and end."""

from jobsetpy.api import keys
from support.cluster.install import install_agent_account
from support.others.kueue_kit import condition, jobset, pod_spec, replicated_job
from support.others.marks import client_marks

pytestmark = client_marks()


async def test_admitted_jobset_runs_and_returns_its_quota(tenant):
    """It is suspended at creation, and resumed with selector and toleration of its flavor.

    Parts that have ended are no longer counted while the rest still runs.
    """
    flavor = await tenant.pool("pool")
    await tenant.queue((flavor, {"cpu": 4}))
    body = jobset("js", replicated_job("driver"), replicated_job("w", replicas=2))
    made = await tenant.create(body)
    assert made["spec"]["suspend"] is True

    pods = await tenant.until_runs("js", 3)
    key = tenant.label("pool")
    for job in await tenant.jobs("js"):
        assert pod_spec(job)["nodeSelector"] == {key: "yes"}
        assert [each["key"] for each in pod_spec(job)["tolerations"]] == [key]
    assert {pod["spec"]["nodeName"] for pod in pods} == {f"played-pool-{tenant.id}"}
    await tenant.until_workload("js", "PodsReady")
    await tenant.until_used(cpu="3")

    await tenant.nodes.finish(tenant.namespace, "driver")
    await tenant.until_used(cpu="2")
    await tenant.nodes.finish(tenant.namespace)
    await tenant.until_condition("js", "Completed")
    await tenant.until_workload("js", "Finished")
    await tenant.until_used()
    assert condition(await tenant.jobset("js"), "Failed") == ""
    assert (await tenant.jobset("js"))["status"].get("restarts", 0) == 0


async def test_jobset_waits_when_the_quota_suffices_for_another_one_only(tenant):
    """The second one waits without running Jobs, and follows."""
    flavor = await tenant.pool("pool")
    await tenant.queue((flavor, {"cpu": 2}))
    await tenant.create(jobset("one", replicated_job(pods=2)))
    await tenant.until_runs("one", 2)
    await tenant.create(jobset("two", replicated_job(pods=2)))
    await tenant.until_workload("two", "QuotaReserved", "False")
    await tenant.until_suspended("two")

    await tenant.nodes.finish(tenant.namespace, "one-")
    await tenant.until_condition("one", "Completed")
    await tenant.until_runs("two", 2)
    await tenant.nodes.finish(tenant.namespace, "two-")
    await tenant.until_condition("two", "Completed")


async def test_waiting_jobset_is_deleted(tenant):
    """No object of it remains, in the cluster or in the queue."""
    flavor = await tenant.pool("pool")
    await tenant.queue((flavor, {"cpu": 1}))
    await tenant.create(jobset("js", replicated_job(pods=2)))
    await tenant.until_workload("js", "QuotaReserved", "False")
    await tenant.until_suspended("js")
    await tenant.delete("js")

    async def gone():
        return not (await tenant.jobs("js") or await tenant.workload("js"))

    await tenant.until(gone, "Jobs and workload to go")


async def test_resized_jobset_is_admitted_again(tenant):
    """Kueue suspends it and counts again, and it runs at its new size; too large a size waits."""
    flavor = await tenant.pool("pool")
    await tenant.queue((flavor, {"cpu": 4}))
    await tenant.create(jobset("js", replicated_job(pods=2)))
    first = await tenant.until_runs("js", 2)

    await tenant.resize("js", 3)
    second = await tenant.until_runs("js", 3, old=first)
    await tenant.until_used(cpu="3")

    await tenant.resize("js", 5)
    await tenant.until_suspended("js")
    await tenant.resize("js", 4)
    await tenant.until_runs("js", 4, old=second)
    await tenant.until_used(cpu="4")
    assert (await tenant.jobset("js"))["status"].get("restarts", 0) == 0


async def test_jobset_of_another_manager_is_ignored(tenant):
    """Kueue may dispatch a JobSet to another cluster: no object is created here."""
    flavor = await tenant.pool("pool")
    await tenant.queue((flavor, {"cpu": 4}))
    await tenant.create(jobset("far", managedBy="kueue.x-k8s.io/multikueue"))
    await tenant.create(jobset("near"))
    await tenant.until_runs("near", 1)
    await tenant.until_workload("far", "Admitted")
    assert await tenant.jobs("far") == []
    assert "conditions" not in (await tenant.jobset("far")).get("status", {})


async def test_queue_without_memory_admits_an_injected_agent(tenant):
    """The agent requests only resources that the worker requests; a quota for them suffices."""
    await install_agent_account(tenant.client, tenant.namespace)
    flavor = await tenant.pool("pool")
    await tenant.queue((flavor, {"cpu": 2}))
    body = jobset("js", failurePolicy={"restartStrategy": "InPlaceRestart", "maxRestarts": 1})
    body["metadata"]["annotations"] = {keys.IN_PLACE_AGENT_ANNOTATION: "supervisor"}
    (job,) = body["spec"]["replicatedJobs"]
    del job["template"]["spec"]["backoffLimit"]
    made = await tenant.create(body)
    (job,) = made["spec"]["replicatedJobs"]
    (agent,) = job["template"]["spec"]["template"]["spec"]["initContainers"]
    assert agent["resources"]["requests"].keys() == {"cpu"}
    await tenant.until_workload("js", "Admitted")
    await tenant.until_condition("js", "Suspended", "False")


async def test_jobset_with_a_replicated_job_without_jobs_is_resumed(tenant):
    """Kueue's types drop the zero; the webhook keeps it, so that the rest runs."""
    flavor = await tenant.pool("pool")
    await tenant.queue((flavor, {"cpu": 2}))
    body = jobset("js", replicated_job("w", pods=2), replicated_job("none", replicas=0))
    await tenant.create(body)
    await tenant.until_runs("js", 2)

    jobs = (await tenant.jobset("js"))["spec"]["replicatedJobs"]
    assert [(each["name"], each["replicas"]) for each in jobs] == [("w", 1), ("none", 0)]
