"""The example controllers on a real API server, with the rights that their code needs."""

import asyncio
import contextlib
import importlib
import uuid
from datetime import timedelta

import pytest
import yaml

from jobsetpy import aio
from jobsetpy import runtime as rt
from jobsetpy.api.schema import crd_of
from jobsetpy.app.rbac import manifests
from jobsetpy.app.webhook_manifests import webhook_manifests
from jobsetpy.client import connect
from jobsetpy.serving.webhook_certificates import MutatingConfiguration, ValidatingConfiguration
from support.cluster.account import account_kubeconfig
from support.cluster.install import ROOT, Definition, apply_object
from support.cluster.manager_process import free_port
from support.patience import eventually

pytestmark = pytest.mark.cluster

FOLDER = ROOT / "examples/controllers"
NAMES = ("cron_jobs", "ephemeral_volume_claims", "node_summary", "websites")


class Ahead(rt.LoopClock):
    """A clock that is two minutes ahead: a CronJob is due as soon as it is created."""

    def now(self):
        return super().now() + timedelta(minutes=2)


@pytest.fixture
def examples(monkeypatch):
    """The examples' modules, by name."""
    monkeypatch.syspath_prepend(FOLDER)
    return {name: importlib.import_module(name) for name in NAMES}


@contextlib.asynccontextmanager
async def running(client, own_client, namespace, modules):
    """Run one manager with all of them, whose webhooks are called on loopback."""
    port = free_port()
    webhooks = rt.WebhookServerSettings(
        namespace=namespace,
        bind_address=f"127.0.0.1:{port}",
        extra_dns_names=("127.0.0.1",),
        check_period_s=0.5,
    )
    settings = rt.ManagerSettings(webhooks=webhooks)
    manager, stop = rt.Manager(own_client, settings=settings, clock=Ahead()), asyncio.Event()
    for module in modules:
        module.setup(manager)
    served = manager.runnables[-1]
    url = f"https://127.0.0.1:{port}"
    for manifest in webhook_manifests(served, namespace=namespace, url=url):
        await apply_object(client, manifest)
    async with aio.supervise() as tasks:
        run = tasks.start(manager.run(stop), name="manager")
        await eventually(lambda: not manager.problems(), 60)
        yield
        stop.set()
        await run


async def check_websites(client, namespace, website):
    """Check defaults and validation of the webhook."""
    site = {"metadata": {"name": "s"}, "spec": {"host": "www.example.com"}}
    made = await client.create(website, namespace, site)
    assert (made.spec.host, made.spec.port) == ("www.example.com", 443)
    with pytest.raises(rt.InvalidError, match=r'"s" is invalid: spec.host: cannot be changed'):
        await client.merge_patch(website, namespace, "s", {"spec": {"host": "a.b"}})


async def test_examples_do_their_work(client, cluster, namespace, examples, tmp_path):
    """Each has only the rights that ``jobsetpy rbac`` prints."""
    cron, claims = examples["cron_jobs"].CronJob, examples["ephemeral_volume_claims"]
    zone = f"zone-{uuid.uuid4().hex[:8]}"
    for cls in (cron, claims.EphemeralVolumeClaim, examples["websites"].Website):
        await apply_object(client, crd_of(cls))
    for document in yaml.safe_load_all(manifests(NAMES, name="examples", namespace=namespace)):
        await apply_object(client, document)
    own = await account_kubeconfig(client, cluster.kubeconfig, tmp_path, namespace, "examples")
    own_client = await connect(kubeconfig=str(own), qps=0)
    node = {"metadata": {"name": zone, "labels": {"topology.kubernetes.io/zone": zone}}}
    node["spec"] = {"unschedulable": True}
    await client.create(rt.Node, "", node)
    try:
        async with running(client, own_client, namespace, examples.values()):
            await check_websites(client, namespace, examples["websites"].Website)

            pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x.invalid/c"}]}
            spec = {"schedule": "* * * * *", "job": {"template": {"spec": pod}}}
            await client.create(cron, namespace, {"metadata": {"name": "c"}, "spec": spec})
            body = {"metadata": {"name": "v"}, "spec": {"size": "1Gi"}}
            await client.create(claims.EphemeralVolumeClaim, namespace, body)

            async def started():
                return (await client.list_page(rt.Job, namespace)).items

            async def ready():
                found = await client.get(claims.EphemeralVolumeClaim, namespace, "v")
                return found.status.claim == "v"

            async def counted():
                with contextlib.suppress(rt.NotFoundError):
                    found = await client.get(rt.ConfigMap, "default", "node-summary")
                    return (found.data or {}).get(zone) == "1"

            await eventually(started, 60, poll_s=0.1)
            await eventually(ready, 60, poll_s=0.1)
            await eventually(counted, 60, poll_s=0.1)
    finally:
        await own_client.aclose()
        for kind, name in (
            (MutatingConfiguration, "websites"),
            (ValidatingConfiguration, "websites"),
            (Definition, "websites.example.com"),
            (rt.Node, zone),
        ):
            with contextlib.suppress(rt.NotFoundError):
                await client.delete(kind, "", name)
