"""The operator examples as their docstrings say, each in a process with its own rights."""

import asyncio
import contextlib
import importlib

import pytest
import yaml

from jobsetpy import runtime as rt
from jobsetpy.api.schema import crd_of
from jobsetpy.app.main import main
from jobsetpy.app.rbac import manifests
from jobsetpy.serving.webhook_certificates import MutatingConfiguration, ValidatingConfiguration
from support.cluster.account import account_kubeconfig
from support.cluster.install import ROOT, Definition, apply_object
from support.cluster.manager_process import ProgramProcess, configured, free_port
from support.patience import eventually

pytestmark = pytest.mark.cluster

FOLDER = ROOT / "examples/controllers"
WAIT_S = 60


@pytest.fixture
def example(monkeypatch):
    """Function that imports an example by name."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


@pytest.fixture
async def run(client, cluster, namespace, tmp_path):
    """Function that starts an example as a process with the rights that ``jobsetpy rbac`` prints."""
    async with contextlib.AsyncExitStack() as started:

        async def start(module, *arguments, number=0, wait=True, **of_rights):
            name = module.replace("_", "-")
            rights = {"name": name, "namespace": namespace, **of_rights}
            for document in yaml.safe_load_all(manifests([module], **rights)):
                await apply_object(client, document)
            own = await account_kubeconfig(
                client, cluster.kubeconfig, tmp_path, rights["namespace"], name
            )
            log = tmp_path / f"{name}-{number}.log"
            process = ProgramProcess(FOLDER, own, log, f"{module}:setup", *arguments)
            await process.start(wait=wait)
            started.push_async_callback(process.stop)
            return process

        yield start


async def found(client, cls, namespace, name):
    """Return the object; ``None`` if it does not exist."""
    with contextlib.suppress(rt.NotFoundError):
        return await client.get(cls, namespace, name)


async def test_memcached_is_deployed_reported_and_repaired(client, namespace, example, run):
    """Its objects are restored after a change, and deleted with it."""
    module = example("memcached")
    await apply_object(client, crd_of(module.Memcached))
    whole = rt.unstructured(rt.Deployment.RESOURCE)
    await run("memcached")
    body = {"metadata": {"name": "a"}, "spec": {"size": 2}}
    await client.create(module.Memcached, namespace, body)

    async def replicas():
        made = await found(client, whole, namespace, "a")
        return made and made.at("spec.replicas")

    async def reported():
        (one,) = (await client.get(module.Memcached, namespace, "a")).status.conditions or [None]
        return one and (one.type, one.status, one.message)

    async def addresses():
        listed = await found(client, rt.ConfigMap, namespace, "memcached-addresses")
        return listed and listed.data

    async def repaired():
        return await replicas() == 2

    await eventually(repaired, WAIT_S)
    await eventually(reported, WAIT_S)
    assert await reported() == ("Available", "False", "0 of 2 servers are ready")
    assert await addresses() == {"a": f"a.{namespace}.svc:11211"}
    await client.merge_patch(whole, namespace, "a", {"spec": {"replicas": 5}})
    await eventually(repaired, WAIT_S)

    async def served():
        """Make the pods ready, in place of a kubelet; return True if both are reported."""
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        for pod in (await client.list_page(rt.Pod, namespace)).items:
            with contextlib.suppress(rt.NotFoundError):  # a surplus pod that was just deleted
                await client.merge_patch(
                    rt.Pod, namespace, pod.metadata.name, ready, subresource="status"
                )
        return await reported() == ("Available", "True", "2 of 2 servers are ready")

    await eventually(served, WAIT_S)

    async def service():
        return await found(client, rt.Service, namespace, "a")

    await client.delete(rt.Service, namespace, "a")
    await eventually(service, WAIT_S)
    await client.delete(module.Memcached, namespace, "a")

    async def gone():
        objects = [await found(client, cls, namespace, "a") for cls in (module.Memcached, rt.Service, rt.Deployment)]  # fmt: skip
        return objects == [None, None, None]

    await eventually(gone, WAIT_S)
    assert not await addresses()


async def test_standby_replica_of_pod_ttl_takes_over(client, namespace, example, run, tmp_path):
    """One of two is elected and killed; the other deletes the pod in time."""
    example("pod_ttl")
    election = {"resourceNamespace": namespace, "leaderElect": True}
    election |= {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "1s"}
    config = configured(tmp_path / "configuration.yaml", leaderElection=election)
    flags = (*config, "--namespace", namespace)

    async def holder():
        lease = await found(client, rt.Lease, namespace, "pod-ttl-setup")
        return lease.spec.holder_identity if lease is not None else ""

    one = await run("pod_ttl", *flags, leader_elect=True)
    leader = await eventually(holder, WAIT_S)
    other = await run("pod_ttl", *flags, number=1, leader_elect=True)

    container = {"name": "c", "image": "x.invalid/c"}
    metadata = {"name": "debug", "labels": {"example.com/ttl": "5s"}}
    await one.kill()
    await client.create(
        rt.Pod, namespace, {"metadata": metadata, "spec": {"containers": [container]}}
    )

    async def gone():
        return await found(client, rt.Pod, namespace, "debug") is None

    await eventually(gone, WAIT_S)
    assert await holder() not in {"", leader}
    assert f"delete pods {namespace}/debug" in other.log.read_text()


async def test_web_apps_are_defaulted_and_validated_by_their_webhooks(
    client, namespace, example, run, capsys
):
    """The manifests of the program's commands are enough; the Deployment has the defaults."""
    module, port = example("web_apps"), free_port()
    url = f"https://127.0.0.1:{port}"
    words = ["webhooks", "web_apps:setup", "--namespace", "default", "--url", url]
    assert await asyncio.to_thread(main, words) == 0
    for document in (crd_of(module.WebApp), *yaml.safe_load_all(capsys.readouterr().out)):
        await apply_object(client, document)
    try:
        at = (f"--webhook-bind-address=127.0.0.1:{port}", "--webhook-dns-name=127.0.0.1")
        await run("web_apps", *at, namespace="default")
        body = {"metadata": {"name": "a"}, "spec": {"image": {"repository": "shop"}}}
        made = await client.create(module.WebApp, namespace, body)
        assert made.spec.image.tag == "latest"
        with pytest.raises(rt.InvalidError, match=r"spec\.maxSurge: at most spec.replicas"):
            await client.merge_patch(module.WebApp, namespace, "a", {"spec": {"maxSurge": 2}})
        whole = rt.unstructured(rt.Deployment.RESOURCE)

        async def deployed():
            made = await found(client, whole, namespace, "a")
            return made and made.at("spec.template.spec.containers")[0]["image"] == "shop:latest"

        await eventually(deployed, WAIT_S)
    finally:
        for kind, name in (
            (MutatingConfiguration, "web-apps"),
            (ValidatingConfiguration, "web-apps"),
            (Definition, "webapps.example.com"),
        ):
            with contextlib.suppress(rt.NotFoundError):
                await client.delete(kind, "", name)


async def test_dev_installs_a_program_and_runs_it_again_when_its_file_changes(
    client, cluster, namespace, example, tmp_path
):
    """Nothing is applied by hand, a file is broken between, and no webhook stays registered."""
    module, port = example("websites"), free_port()
    program = tmp_path / "websites.py"
    text = (FOLDER / "websites.py").read_text()
    program.write_text(text)
    at = ("--dev", f"--webhook-bind-address=:{port}")
    log = tmp_path / "log"
    process = ProgramProcess(tmp_path, cluster.kubeconfig, log, "websites:setup", *at)

    async def port_of(name):
        """Return the port that the webhook fills in; ``None`` while it cannot be called."""
        body = {"metadata": {"name": name}, "spec": {"host": "a.example"}}
        try:
            made = await client.create(module.Website, namespace, body)
        except rt.ApiError:
            return None
        await client.delete(module.Website, namespace, name)
        return made.spec.port

    async def filled(port):
        return await port_of("a") == port

    try:
        await process.start(wait=False)
        await eventually(lambda: filled(443), WAIT_S)
        program.write_text("broken(")
        await eventually(
            lambda: asyncio.to_thread(lambda: "SyntaxError" in log.read_text()), WAIT_S
        )
        program.write_text(text.replace("443", "8443"))
        await eventually(lambda: filled(8443), WAIT_S)
        assert "websites.py has changed" in log.read_text()
    finally:
        await process.stop()
        left = [
            await found(client, kind, "", "websites")
            for kind in (MutatingConfiguration, ValidatingConfiguration)
        ]
        for kind in (*map(type, filter(None, left)), Definition):
            name = "websites.example.com" if kind is Definition else "websites"
            await client.delete(kind, "", name)
    assert left == [None, None], log.read_text()
