"""Two managers that know nothing of each other, each with rights in namespaces of its own."""

from __future__ import annotations

import json
import uuid

import attrs
import pytest
import yaml

from jobsetpy.api.batch import Job
from jobsetpy.api.coordination import Lease
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import HttpRequest
from support import patience
from support.cluster.account import account_kubeconfig
from support.cluster.install import CONFIG, create_namespace
from support.cluster.manager_process import ManagerProcess
from support.cluster.objects import in_place_jobset

pytestmark = pytest.mark.cluster
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}
NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}


async def post(client, path, **body):
    await client.raw(HttpRequest(method="POST", path=path, body=json.dumps(body).encode()))


@attrs.define
class Installation:
    """An account with rights in the namespaces that are its own, and a manager with that."""

    client: object
    kubeconfig: object
    folder: object
    system: str
    tenants: list[str]
    manager: ManagerProcess | None = None

    async def install(self):
        """What the documentation says of two installations, without webhooks."""
        await create_namespace(self.client, self.system)
        path = f"/api/v1/namespaces/{self.system}/serviceaccounts"
        await post(self.client, path, metadata={"name": "manager"})
        shipped = yaml.safe_load_all((CONFIG / "rbac/manager_role.yaml").read_text())
        rules = next(each["rules"] for each in shipped if each["kind"] == "ClusterRole")
        await self.allow("", "ClusterRole", f"{self.system}-nodes", [NODES])
        await self.allow(self.system, "Role", "leases", [LEASES])
        for tenant in self.tenants:
            await create_namespace(self.client, tenant)
            await self.allow(tenant, "Role", "manager", rules)

    async def allow(self, namespace, kind, name, rules):
        """A role, bound to the account."""
        home = f"{RBAC}/namespaces/{namespace}/" if namespace else f"{RBAC}/"
        await post(self.client, f"{home}{kind.lower()}s", metadata={"name": name}, rules=rules)
        await post(
            self.client,
            f"{home}{kind.lower()}bindings",
            metadata={"name": name},
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            subjects=[{"kind": "ServiceAccount", "name": "manager", "namespace": self.system}],
        )

    async def start(self):
        own = await account_kubeconfig(
            self.client, self.kubeconfig, self.folder, self.system, "manager"
        )
        config = self.folder / f"{self.system}.yaml"
        config.write_text(
            "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"
            f"leaderElection: {{leaderElect: true, resourceNamespace: {self.system}}}\n"
        )
        log = self.folder / f"{self.system}.log"
        names = f"--namespaces={','.join(self.tenants)}"
        self.manager = ManagerProcess(own, log, names, f"--config={config}")
        await self.manager.start()

    @property
    def log(self):
        return (self.folder / f"{self.system}.log").read_text()


@pytest.fixture
async def two(cluster, client, tmp_path):
    """Two installations, which run."""
    run = uuid.uuid4().hex[:6]
    made = [
        Installation(
            client,
            cluster.kubeconfig,
            tmp_path,
            f"sys-{name}-{run}",
            [f"{name}1-{run}", f"{name}2-{run}"],
        )
        for name in "ab"
    ]
    for each in made:
        await each.install()
    try:
        for each in made:
            await each.start()
        yield made
    finally:
        for each in made:
            if each.manager is not None and each.manager.process is not None:
                await each.manager.stop()


async def jobs(client, namespace):
    return len((await client.list_page(Job, namespace)).items)


async def test_each_looks_after_its_own_namespaces(two, client, namespace):
    """Both lead; a JobSet gets Jobs where its namespace is of one that runs, and else does not."""
    first, second = two
    for tenant in (*first.tenants, *second.tenants):
        await client.create(JobSet, tenant, in_place_jobset("life", jobs=1, pods=1))
    await client.create(JobSet, namespace, in_place_jobset("life", jobs=1, pods=1))

    for each in two:
        for tenant in each.tenants:
            await patience.eventually(lambda where=tenant: jobs(client, where), 30, poll_s=0.1)
        leases = (await client.list_page(Lease, each.system)).items
        assert "6d4f6a47.jobset.x-k8s.io" in [lease.metadata.name for lease in leases]
        forbidden = [line for line in each.log.splitlines() if "orbidden" in line]
        # It looks for a coscheduler in the pod's namespace, and this is no pod.
        assert not [line for line in forbidden if "coscheduler" not in line]

    await first.manager.stop()
    for each in two:
        await client.create(JobSet, each.tenants[0], in_place_jobset("later", jobs=1, pods=1))

    async def both():
        return await jobs(client, second.tenants[0]) == 2

    await patience.eventually(both, 30, poll_s=0.1)
    assert await jobs(client, first.tenants[0]) == 1
    assert await jobs(client, namespace) == 0
