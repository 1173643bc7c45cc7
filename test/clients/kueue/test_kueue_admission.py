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
