"""Labels and conditions of coscheduling on a real API server, Job controller and scheduler."""

import uuid

import pytest
import pytest_asyncio

from jobsetpy.api import keys
from jobsetpy.api.core import Node
from jobsetpy.api.jobset import JobSet
from jobsetpy.app.wiring import add_jobset_controllers
from jobsetpy.manager import Manager
from support.cluster import objects
from support.cluster.install import connected, create_namespace, install_crd
from support.cluster.json_api import StoredJobSet, exchange, send
from support.cluster.racks import make_node
from support.managers import started_for_fixture
from support.patience import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(90),
]

NAME, MIN = keys.POD_GROUP_NAME, keys.POD_GROUP_MIN_AVAILABLE
WAITING, DONE = keys.COSCHEDULING_IN_PROGRESS_CONDITION, keys.COSCHEDULING_COMPLETED_CONDITION
LIMIT_S = 40.0  # the scheduler's own back-off goes up to 10 s


class Site:
    """One namespace with a JobSet ``js``, and a node for its pods only."""

    def __init__(self, client, name):
        self.client = client
        self.name = name

    def replicated_job(self, name, replicas, pods):
        """A ReplicatedJob whose pods fit on this site's nodes only."""
        pod = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"pool": self.name},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "w", "image": "test.invalid/w:1"}],
        }
        job = {"completionMode": "Indexed"}
        return objects.replicated_job(pod, pods, name=name, replicas=replicas, **job)

    async def create(self, *jobs, **notes):
        """Create the JobSet."""
        annotations = {f"jobset.sigs.k8s.io/{name}": value for name, value in notes.items()}
        body = objects.jobset("js", *jobs, annotations=annotations)
        return await self.client.create(JobSet, self.name, body)

    async def pods(self):
        """Return the metadata of the pods that are not being deleted."""
        path = f"/api/v1/namespaces/{self.name}/pods"
        found = [pod["metadata"] for pod in (await send(self.client, "GET", path))["items"]]
        return [meta for meta in found if "deletionTimestamp" not in meta]

    async def has_pods(self, count, minimum):
        """Wait until this number of pods exists, all of one gang with that minimum; return its name."""

        async def there():
            labels = [pod["labels"] for pod in await self.pods()]
            groups = {(each.get(NAME), each.get(MIN)) for each in labels}
            if len(labels) != count or len(groups) != 1:
                return None
            name, found = groups.pop()
            return name if found == str(minimum) else None

        return await eventually(there, LIMIT_S)

    async def message(self, kind):
        """Wait until a condition is True; return its message."""
        stored = StoredJobSet(self.client, self.name, "js")
        return (await stored.reaches_condition(kind, seconds=LIMIT_S)).message

    async def patch_pod(self, name, body):
        """Change a pod, as a user might."""
        await exchange(self.client, "PATCH", f"/api/v1/namespaces/{self.name}/pods/{name}", body)

    async def delete_jobs(self):
        """Delete the Jobs with their pods."""
        path = f"/apis/batch/v1/namespaces/{self.name}/jobs"
        await exchange(self.client, "DELETE", path, propagationPolicy="Background")

    async def add_node(self):
        """Add a node without a kubelet for this site's pods only: others wait for a node, too.

        It gets its label last, so that the scheduler uses it once it has capacity.
        """
        taint = {"key": "pool", "value": self.name, "effect": "NoSchedule"}
        await make_node(self.client, self.name, 8, taints=[taint])
        label = {"metadata": {"labels": {"pool": self.name}}}
        await self.client.merge_patch(Node, "", self.name, label)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(cluster):
    """An administrator's client, with a manager running."""
    async with connected(cluster.kubeconfig, qps=0) as client:
        await install_crd(client)
        manager = Manager(client)
        add_jobset_controllers(manager)
        async with started_for_fixture(manager):
            yield client


@pytest_asyncio.fixture(loop_scope="module")
async def site(client):
    """A namespace of the test's own."""
    name = f"co-{uuid.uuid4().hex[:8]}"
    await create_namespace(client, name)
    yield Site(client, name)
    await exchange(client, "DELETE", f"/api/v1/nodes/{name}")


async def test_labels_and_conditions_follow_a_gang_until_it_is_bound(site):
    """Labels at creation, after an edit and after a resize; conditions before and after the bind."""
    jobs = site.replicated_job("a", 2, 1), site.replicated_job("b", 1, 2)
    await site.create(*jobs, coscheduling="JobSet")
    group = await site.has_pods(4, 4)
    waits = await site.message(WAITING)
    assert waits.startswith("the group: ")
    first, *_ = await site.pods()

    await site.patch_pod(first["name"], {"metadata": {"labels": {NAME: None, MIN: "1"}}})
    assert await site.has_pods(4, 4) == group

    resized = [site.replicated_job("a", 2, 1), site.replicated_job("b", 1, 3)]
    body = {"spec": {"replicatedJobs": resized}}
    await site.client.merge_patch(JobSet, site.name, "js", body)
    assert await site.has_pods(5, 5) == group

    await site.add_node()
    assert await site.message(DONE) == "the group has its pods bound"

    await site.client.delete(JobSet, site.name, "js")
    await site.delete_jobs()  # the garbage collector discovers new kinds only after a while
    await site.create(*jobs, coscheduling="JobSet")
    assert await site.has_pods(4, 4) != group
