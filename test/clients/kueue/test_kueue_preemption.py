"""JobSets that are preempted in a queue of Kueue, and admitted again."""

from support.others.kueue_kit import jobset, pod_spec, replicated_job
from support.others.marks import client_marks

pytestmark = client_marks()


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
