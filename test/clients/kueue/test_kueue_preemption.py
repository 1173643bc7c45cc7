"""JobSets that are preempted in a queue of Kueue, and admitted again."""

from support.others.kueue_kit import jobset, pod_spec, replicated_job
from support.others.marks import client_marks

pytestmark = client_marks()


async def test_preempted_jobset_runs_again(tenant):
    """One of higher priority takes its quota; when that has ended it runs again and completes."""
    flavor = await tenant.pool("pool")
    low, high = await tenant.priority("low", 1), await tenant.priority("high", 2)
    preemption = {"withinClusterQueue": "LowerPriority"}
    await tenant.queue((flavor, {"cpu": 2}), preemption=preemption)
    await tenant.create(jobset("low", replicated_job(replicas=2), priority=low))
    first = await tenant.until_runs("low", 2)

    await tenant.create(jobset("high", replicated_job(pods=2), priority=high))
    await tenant.until_suspended("low")
    await tenant.until_runs("high", 2)
    await tenant.nodes.finish(tenant.namespace, "high-")
    await tenant.until_runs("low", 2, old=first)
    await tenant.nodes.finish(tenant.namespace, "low-")
    await tenant.until_condition("low", "Completed")
    assert (await tenant.jobset("low"))["status"].get("restarts", 0) == 0


async def test_flavor_is_replaced_at_the_next_admission(tenant):
    """On nodes with another label and taint; selectors of the first flavor are removed."""
    flavors = [await tenant.pool("here"), await tenant.pool("there")]
    none, some = {"cpu": 0}, {"cpu": 2}
    await tenant.queue((flavors[0], some), (flavors[1], none))
    own = {"key": "own.test.example", "operator": "Exists"}
    await tenant.create(jobset("js", replicated_job(pods=2, tolerations=[own])))
    pods = await tenant.until_runs("js", 2)

    for quotas, name in (((none, some), "there"), ((some, none), "here")):
        await tenant.activate("js", on=False)
        await tenant.until_suspended("js")
        spec = tenant.queue_spec(*zip(flavors, quotas, strict=True))
        await tenant.change_queue(resourceGroups=spec["resourceGroups"])
        await tenant.activate("js", on=True)
        pods = await tenant.until_runs("js", 2, old=pods)
        key = tenant.label(name)
        for each in (*map(pod_spec, await tenant.jobs("js")), *(pod["spec"] for pod in pods)):
            assert each["nodeSelector"] == {key: "yes"}
            added = [one["key"] for one in each["tolerations"] if "test.example" in one["key"]]
            assert added == ["own.test.example", key]
        assert {pod["spec"]["nodeName"] for pod in pods} == {f"played-{name}-{tenant.id}"}
