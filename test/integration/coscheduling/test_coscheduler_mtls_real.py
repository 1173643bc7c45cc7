"""The shipped coscheduler next to the real scheduler: rights, certificates, replicas.

Two processes with the account, the roles and the Secrets of ``config/coscheduler``, behind a
stand-in for the Service; the scheduler has the configurations that are shipped for it.
"""

import base64
import ssl

import aiohttp
import pytest

from hack.generate.kustomize import render
from jobsetpy.api.core import Node
from support import patience
from support.cluster.account import account_kubeconfig
from support.cluster.install import CONFIG, apply_object
from support.cluster.json_api import send
from support.cluster.manager_process import free_port
from support.coscheduling.coscheduler_process import CoschedulerProcess, ExtenderSite
from support.coscheduling.gangs import set_scheduler
from support.coscheduling.gangs_kit import Front
from support.patience import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

SYSTEM = "jobset-system"
MEMBER = "pod-group.scheduling.x-k8s.io/member"
POOL = "jobset.x-k8s.io/coscheduling"
LIMIT_S = 60.0
FILE = f"""
apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection:
  resourceNamespace: jobset-system
  leaseDuration: {patience.scaled(5):.0f}s # a busy replica must not lose it, which would end it
  renewDeadline: {patience.scaled(4):.0f}s
  retryPeriod: 500ms
coscheduler:
  memberResource: true # as in marked-pods: binds of other pods do not come to the coscheduler
"""


class Replica:
    """A process with its own port and the rights that are shipped for it."""

    def __init__(self, kubeconfig, folder, site, name):
        (folder / "configuration.yaml").write_text(FILE)
        self.port = free_port()
        self.folder = site.folder
        self.process = CoschedulerProcess(
            kubeconfig, folder / f"{name}.log", site,
            "--bind-address", f"127.0.0.1:{self.port}", "--cert-dir=",
            "--config", str(folder / "configuration.yaml"),
            metrics=True,
        )  # fmt: skip

    def metric(self, series):
        """Return the value of a series."""
        return self.process.scrape()[series]

    def problems(self):
        """Return the reasons why it is not ready."""
        return self.process.readiness()[1].splitlines()

    async def holds(self, number):
        """Wait until it holds this number of binds."""
        await eventually(
            lambda: self.metric("jobset_coscheduler_held_binds") == number, LIMIT_S, poll_s=0.2
        )

    async def bind_status(self, client):
        """Return the status of a bind with this client certificate; 0 if no connection is made."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        if client:
            context.load_cert_chain(self.folder / f"{client}.crt", self.folder / f"{client}.key")
        body = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n"}
        url = f"https://127.0.0.1:{self.port}/ext/bind"
        name = "jobset-coscheduler.jobset-system.svc"
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, json=body, ssl=context, server_hostname=name) as answer,
            ):
                return answer.status
        except aiohttp.ClientError:
            return 0


class Installation:
    """Two replicas, the scheduler that calls them, and a proxy to the ready replica."""

    def __init__(self, rig, folder):
        self.rig = rig
        self.client = rig.client
        self.site = ExtenderSite(folder / "tls")
        self.front = Front(free_port())
        self.site.port = self.front.port
        self.folder = folder
        self.replicas = []
        self._before = (rig.cluster.folder / "scheduler.json").read_text()

    async def install(self):
        """Install account, roles and Secrets."""
        for document in render(CONFIG / "coscheduler" / "base"):
            if document["kind"] not in {"Deployment", "Service"}:
                await apply_object(self.client, document)
        kubeconfig = await account_kubeconfig(
            self.client, self.rig.cluster.kubeconfig, self.folder, SYSTEM, "jobset-coscheduler"
        )
        self.replicas = [Replica(kubeconfig, self.folder, self.site, name) for name in "ab"]

    async def fetch_client_certificate(self, name):
        """Copy the certificate that the coscheduler issued to the scheduler's folder."""
        from cryptography import x509

        secret = f"/api/v1/namespaces/{SYSTEM}/secrets/jobset-coscheduler-client-cert"

        async def filled():
            data = (await send(self.client, "GET", secret)).get("data", {})
            found = {key: base64.b64decode(value) for key, value in data.items()}
            if "tls.crt" not in found:
                return None
            subject = x509.load_pem_x509_certificate(found["tls.crt"]).subject
            return found if subject.rfc4514_string() == f"CN={name}" else None

        found = await eventually(filled, LIMIT_S, poll_s=0.2)
        assert set(found) == {"ca.crt", "tls.crt", "tls.key"}
        for key, file in (("ca.crt", "ca.crt"), ("tls.crt", "client.crt"), ("tls.key", "client.key")):  # fmt: skip
            (self.site.folder / file).write_bytes(found[key])

    def configure(self, folder):
        """Restart the scheduler with a shipped configuration."""
        set_scheduler(self.rig.cluster, self.site.scheduler_config(folder))

    async def end(self):
        """End the processes and restore the scheduler."""
        for each in self.replicas:
            await each.process.stop()
        self.rig.cluster.stop_component("kube-scheduler")
        (self.rig.cluster.folder / "scheduler.json").write_text(self._before)
        self.rig.cluster.start_component("kube-scheduler")

    def members(self, group, size, **spec):
        """Pods of a gang with the marker resource."""
        bodies = self.rig.bodies(group, size, **spec)
        for body in bodies:
            resources = body["spec"]["containers"][0]["resources"]
            resources["limits"] = {MEMBER: "0"}
            resources["requests"] = {**resources["requests"], MEMBER: "0"}
        return bodies

    async def make_held(self, group):
        """Create two pods that find nodes and a third of a missing scheduler: binds are held."""
        bodies = self.members(group, 3)
        bodies[-1]["spec"]["schedulerName"] = "none"
        await self.rig.create(bodies)

    async def complete(self, group):
        """Create one more pod, which completes the gang."""
        *_, last = self.members(group, 4, minimum=3)
        await self.rig.create([last])
        await self.rig.bound(group)

    async def event(self, reason, pod):
        """Wait for an event about a pod."""
        path = "/apis/events.k8s.io/v1/namespaces/default/events"

        async def found():
            return any(
                (event["reason"], event["regarding"].get("name")) == (reason, pod)
                and event["reportingController"] == "jobset-coscheduler"
                for event in (await send(self.client, "GET", path))["items"]
            )

        await eventually(found, LIMIT_S, poll_s=0.2)


async def test_shipped_installations_bind_gangs(gangs, tmp_path):
    """Marked pods, failover of replicas, and a second scheduler, all over mutual TLS."""
    async with gangs(start=False) as rig:
        installation = Installation(rig, tmp_path)
        async with installation.front.serving():
            try:
                await installation.install()
                await rig.node("n", 6)
                await _marked_pods(installation)
                await _succession(installation)
                await _second_scheduler(installation)
            except BaseException as error:
                for each in installation.replicas:
                    log = each.process.log
                    error.add_note(log.read_text()[-3000:] if log.exists() else "")
                raise
            finally:
                await installation.end()


async def _marked_pods(installation):
    """One replica leads and accepts only the scheduler; ordinary pods do not reach it."""
    rig, (leader, standby) = installation.rig, installation.replicas
    await leader.process.start()
    installation.front.target = leader.port
    await installation.fetch_client_certificate("system:kube-scheduler")
    installation.configure("marked-pods")
    await standby.process.start(wait=False)
    installation.site.write_client("system:node:n", file="stranger")
    standby_problems = ["coscheduler: stands by: this replica does not lead"]
    await eventually(lambda: standby.problems() == standby_problems, LIMIT_S, poll_s=0.2)
    assert await standby.bind_status("client") == 503
    # A certificate of another authority, no certificate, and the right one.
    assert [await leader.bind_status(each) for each in ("stranger", "", "client")] == [0, 0, 200]

    requests = 'jobset_coscheduler_requests_total{code="200",verb="bind"}'
    before = leader.metric(requests)
    await rig.create(rig.bodies("plain", 2))  # a gang without the marker resource
    await rig.bound("plain")
    assert leader.metric(requests) == before
    await rig.delete("plain")

    await rig.create(installation.members("a", 5), installation.members("b", 5))
    await rig.binds.wait(lambda: rig.some_group("ab") is not None)
    first = rig.some_group("ab")
    second = "b" if first == "a" else "a"
    await leader.holds(1)  # of the pods that fit; it is held until its timeout
    assert rig.binds.counts(second) == [0]
    await rig.delete(first)
    await rig.bound(second)
    await installation.event("PodGroupScheduled", f"{second}-0")
    await rig.delete(second)


async def _succession(installation):
    """One replica is killed and one is stopped, each with binds held: the other one binds."""
    rig, (leader, standby) = installation.rig, installation.replicas
    await installation.make_held("c")
    await leader.holds(2)
    await leader.process.kill()
    await standby.process.wait_ready()
    installation.front.target = standby.port
    await standby.holds(2)
    assert rig.binds.counts("c") == [0]
    await installation.complete("c")

    await leader.process.start(wait=False)
    await rig.delete("c")
    await standby.holds(0)
    await installation.make_held("d")
    await standby.holds(2)
    assert await standby.process.stop() == 0
    await leader.process.wait_ready()
    installation.front.target = leader.port
    await installation.complete("d")
    await rig.delete("d")


async def _second_scheduler(installation):
    """The second scheduler schedules its own pods only, to its own nodes only."""
    rig, (first, _) = installation.rig, installation.replicas
    name = "jobset-coscheduler-scheduler"
    first.process.arguments = (*first.process.arguments, "--client-name", name)
    assert await first.process.stop() == 0
    await first.process.start()
    await installation.fetch_client_certificate(name)
    installation.configure("second-scheduler")
    await rig.node("own", 6, **{POOL: "true"})
    taint = {"key": POOL, "value": "true", "effect": "NoSchedule"}
    await installation.client.merge_patch(Node, "", "own", {"spec": {"taints": [taint]}})
    toleration = {"key": POOL, "operator": "Exists"}
    await rig.create(
        rig.bodies("e", 5, schedulerName="jobset-coscheduler", tolerations=[toleration])
    )
    await rig.bound("e")
    assert {rig.binds.nodes[f"e-{at}"] for at in range(5)} == {"own"}
