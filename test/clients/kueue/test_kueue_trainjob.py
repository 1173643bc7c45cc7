"""A TrainJob in a queue: Trainer creates its JobSet, Kueue decides when and where it runs."""

from support.others.kueue_kit import QUEUE, QUEUE_LABEL, condition, pod_spec
from support.others.marks import client_marks
from support.others.trainer_kit import (
    container,
    path,
    replicated_job,
    runtime,
    train_job,
    until_taken,
)

pytestmark = client_marks()


async def test_admitted_trainjob_runs_and_returns_its_quota(trainer, tenant):
    """Its JobSet is suspended before; its pods get the flavor's selector and toleration."""
    flavor = await tenant.pool("pool")
    await tenant.queue((flavor, {"cpu": 2}))
    node = container(resources={"requests": {"cpu": "1"}})
    body = runtime(replicated_job(containers=[node], job={"backoffLimit": 0}))
    await tenant.send("POST", path(tenant.namespace, "trainingruntimes"), body)
    await until_taken(tenant.client, tenant.namespace, train_job("probe"))
    jobs = path(tenant.namespace, "trainjobs")
    labels = {"labels": {QUEUE_LABEL: QUEUE}}
    await tenant.send("POST", jobs, train_job("first", nodes=2, metadata=labels))
    await tenant.until_runs("first", 2)  # of two of the same second, either may be admitted
    await tenant.send("POST", jobs, train_job("second", nodes=2, metadata=labels))

    for name, other in (("first", "second"), ("second", "first")):
        await tenant.until_runs(name, 2)
        await tenant.until_used(cpu="2")
        assert not await tenant.pods(other)
        key = tenant.label("pool")
        for job in await tenant.jobs(name):
            assert pod_spec(job)["nodeSelector"] == {key: "yes"}
            assert [each["key"] for each in pod_spec(job)["tolerations"]] == [key]
        await tenant.nodes.finish(tenant.namespace)

        async def complete(name=name):
            return condition(await tenant.send("GET", f"{jobs}/{name}"), "Complete") == "True"

        await tenant.until(complete, f"{name} to be complete")

    await tenant.until_used()
    for name in ("first", "second"):
        await tenant.send("DELETE", f"{jobs}/{name}")
