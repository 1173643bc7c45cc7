"""Every form that typed clients write back differently is resumed by Kueue."""

import asyncio

from support.admission.forms import FORMS, pair
from support.others.marks import client_marks

pytestmark = client_marks()

PLENTY = {"cpu": 1000, "memory": "10Ti", "nvidia.com/gpu": 1000}


def container_of(body):
    """Return the only container of a JobSet."""
    (job,) = body["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    return container


def written(name, form):
    """Return the form as a user writes it; its pods request a resource, so that they get a flavor."""
    body, _ = pair(form)
    container = container_of(body)
    if form.path[-1] != "resources":
        container["resources"] = {"requests": {"cpu": "1"}}
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return {**kind, **body, "metadata": {"name": name}}


async def test_every_form_is_resumed(tenant):
    """No form is refused when Kueue writes it back as its types print it."""
    flavor = await tenant.flavor("none")  # no node has its label, so that no pod runs
    await tenant.queue((flavor, PLENTY))
    names = {f"form-{at}": form.name for at, form in enumerate(FORMS)}
    bodies = iter([written(name, form) for name, form in zip(names, FORMS, strict=True)])

    async def create():
        for body in bodies:
            await tenant.create(body)

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(create())

    async def all_resumed():
        waiting = {names[each] for each in await tenant.suspended()}
        assert waiting == set()
        return True

    await tenant.until(all_resumed, "all forms to be resumed", 120)
    for name, form in names.items():
        stored = await tenant.jobset(name)
        resources = container_of(stored).get("resources", {})
        (template,) = await tenant.templates(name)
        if resources.get("requests") or resources.get("limits"):
            assert template["nodeSelector"] == {tenant.label("none"): "yes"}, form
