"""JobSets that wait in a queue of Kueue's, run where it says, give way, and end."""

import pytest

from support.kueue_kit import condition, jobset, pod_spec, replicated_job

pytestmark = [
    pytest.mark.clients,
    pytest.mark.cluster,
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
]


async def test_a_jobset_is_admitted_runs_and_gives_its_quota_back(tenant):
    """Suspended at creation, resumed with selector and toleration of its flavor, ready, finished.

    What of it has ended is no longer counted while the rest still runs.
    """
    flavor = await tenant.pool("pool")
    await tenant.queue((flavor, {"cpu": 4}))
    made = await tenant.create(
        jobset("js", replicated_job("driver"), replicated_job("w", replicas=2))
    )
    assert made["spec"]["suspend"] is True

    pods = await tenant.until_runs("js", 3)
    key = tenant.label("pool")
    for job in await tenant.jobs("js"):
        assert pod_spec(job)["nodeSelector"] == {key: "yes"}
        assert [each["key"] for each in pod_spec(job)["tolerations"]] == [key]
    assert {pod["spec"]["nodeName"] for pod in pods} == {f"played-pool-{tenant.id}"}
    await tenant.until_workload("js", "PodsReady")
    assert await tenant.used() == {"cpu": "3"}

    await tenant.nodes.finish(tenant.namespace, "driver")

    async def given_back():
        return await tenant.used() == {"cpu": "2"}

    await tenant.until(given_back, "the driver's quota to be given back")
    await tenant.nodes.finish(tenant.namespace)
    await tenant.until_condition("js", "Completed")
    await tenant.until_workload("js", "Finished")

    async def all_given_back():
        return await tenant.used() == {}

    await tenant.until(all_given_back, "all quota to be given back")
    assert condition(await tenant.jobset("js"), "Failed") == ""
    assert (await tenant.jobset("js"))["status"].get("restarts", 0) == 0
