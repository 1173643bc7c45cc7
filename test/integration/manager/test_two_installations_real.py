"""Two managers without knowledge of each other, each with rights in its own namespaces."""

from __future__ import annotations

import uuid

import attrs
import pytest
import yaml

from jobsetpy.api.batch import Job
from jobsetpy.api.coordination import Lease
from jobsetpy.api.jobset import JobSet
from support import patience
from support.cluster.account import account_kubeconfig
from support.cluster.install import CONFIG, create_namespace
from support.cluster.json_api import send
from support.cluster.manager_process import ManagerProcess, configured
from support.cluster.objects import in_place_jobset

pytestmark = pytest.mark.cluster
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}
NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}


@attrs.define
class Installation:
    """An account with rights in its own namespaces, and a manager that uses it."""

    client: object
    kubeconfig: object
    folder: object
    system: str
    tenants: list[str]
    manager: ManagerProcess | None = None

    async def install(self):
        """Install the objects that the documentation names for two installations, without webhooks."""
        await create_namespace(self.client, self.system)
        path = f"/api/v1/namespaces/{self.system}/serviceaccounts"
        await send(self.client, "POST", path, {"metadata": {"name": "manager"}})
        shipped = yaml.safe_load_all((CONFIG / "rbac/manager_role.yaml").read_text())
        rules = next(each["rules"] for each in shipped if each["kind"] == "ClusterRole")
        await self.allow("", "ClusterRole", f"{self.system}-nodes", [NODES])
        await self.allow(self.system, "Role", "leases", [LEASES])
        for tenant in self.tenants:
            await create_namespace(self.client, tenant)
            await self.allow(tenant, "Role", "manager", rules)

    async def allow(self, namespace, kind, name, rules):
        """Create a role that is bound to the account."""
        home = f"{RBAC}/namespaces/{namespace}/" if namespace else f"{RBAC}/"
        metadata = {"name": name}
        role = {"metadata": metadata, "rules": rules}
        await send(self.client, "POST", f"{home}{kind.lower()}s", role)
        binding = {
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "manager", "namespace": self.system}],
        }
        await send(self.client, "POST", f"{home}{kind.lower()}bindings", binding)

    async def start(self):
        own = await account_kubeconfig(
            self.client, self.kubeconfig, self.folder, self.system, "manager"
        )
        election = {"leaderElect": True, "resourceNamespace": self.system}
        config = configured(self.folder / f"{self.system}.yaml", leaderElection=election)
        log = self.folder / f"{self.system}.log"
        names = f"--namespaces={','.join(self.tenants)}"
        self.manager = ManagerProcess(own, log, names, *config)
        await self.manager.start()

    @property
    def log(self):
        return (self.folder / f"{self.system}.log").read_text()


@pytest.fixture
async def two(cluster, client, tmp_path):
    """Two running installations."""
    run = uuid.uuid4().hex[:6]
    made = []
    for name in "ab":
        tenants = [f"{name}1-{run}", f"{name}2-{run}"]
        system = f"sys-{name}-{run}"
        made.append(Installation(client, cluster.kubeconfig, tmp_path, system, tenants))
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


async def test_manager_serves_only_the_namespaces_of_its_installation(two, client, namespace):
    """Both lead; a JobSet gets Jobs only if the manager of its namespace runs."""
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
        # It looks for a coscheduler in the namespace of its pod, which it does not have here.
        assert not [line for line in forbidden if "coscheduler" not in line]

    await first.manager.stop()
    for each in two:
        await client.create(JobSet, each.tenants[0], in_place_jobset("later", jobs=1, pods=1))

    async def both():
        return await jobs(client, second.tenants[0]) == 2

    await patience.eventually(both, 30, poll_s=0.1)
    assert await jobs(client, first.tenants[0]) == 1
    assert await jobs(client, namespace) == 0
