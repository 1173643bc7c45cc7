"""A manager that tests start and stop, and a namespace with nodes and JobSets for one test."""

import asyncio

from jobsetpy import admission
from jobsetpy.api import keys
from jobsetpy.api.core import Node, Pod
from jobsetpy.api.events import Event
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import ResourceInfo
from jobsetpy.app import wiring
from jobsetpy.app.config.settings import Configuration
from jobsetpy.manager import Manager
from support import patience
from support.cluster.install import create_usable_namespace
from support.cluster.json_api import StoredJobSet, send
from support.cluster.racks import exclusive_jobset, make_rack, webhook_rejections
from support.cluster.webhooks import apply_webhooks, delete_webhooks, webhook_settings
from support.patience import eventually
from support.requests_log import Requests

LIMIT_S = 30.0


class Site:
    """A control plane with its manager."""

    def __init__(self, admin, client, requests: Requests, port: int) -> None:
        self.admin = admin
        self.requests = requests
        self._client = client
        self._port = port
        self._stop = asyncio.Event()
        self._running = None

    async def install_webhooks(self) -> None:
        """Let the API server call the manager."""
        await apply_webhooks(self.admin, self._port)

    async def remove_webhooks(self) -> None:
        """Remove the webhooks."""
        await delete_webhooks(self.admin)

    async def start(self, *, webhooks: bool = True) -> None:
        """Start a manager, and wait until it is ready."""
        self._stop = asyncio.Event()
        manager = Manager(self._client)
        wiring.add_jobset_controllers(manager, Configuration(values={"--webhooks": webhooks}))
        settings = webhook_settings(self._port, check_period_s=0.2)
        served = admission.setup(manager, settings) if webhooks else None
        # Fixtures are entered and left by different tasks, so a task group cannot own this one.
        self._running = asyncio.create_task(manager.run(self._stop))
        async with patience.timeout(LIMIT_S):
            await manager.ready.wait()
        await eventually(lambda: served is None or not list(served.problems()), LIMIT_S, poll_s=0.1)

    async def stop(self) -> None:
        """Stop the manager."""
        self._stop.set()
        if self._running is not None:
            await self._running
            self._running = None

    async def rejections(self) -> float:
        """Return the number of pod creations that the webhooks refused or failed to answer."""
        return await webhook_rejections(self.admin, "mpod.kb.io", "vpod.kb.io")


class Place:
    """A namespace, and nodes that only its pods use."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        self.name = name
        self.key = f"example.test/{name}"

    @classmethod
    async def open(cls, site: Site, name: str) -> "Place":
        """Create the namespace, ready for pods."""
        await create_usable_namespace(site.admin, name)
        return cls(site, name)

    async def racks(self, *names: str, nodes: int = 2) -> None:
        """Create racks."""
        for name in names:
            await make_rack(
                self.site.admin, f"{self.name}-{name}", key=self.key, nodes=nodes, pool=self.name
            )

    async def account(self, name: str) -> None:
        """Create a service account."""
        path = f"/api/v1/namespaces/{self.name}/serviceaccounts"
        await send(self.site.admin, "POST", path, {"metadata": {"name": name}})

    async def capacity(self, node: str, *, cpu: str) -> None:
        """Change the CPUs that a node has for pods."""
        body = {"status": {"allocatable": {"cpu": cpu}}}
        await self.site.admin.merge_patch(Node, "", node, body, subresource="status")

    async def unschedulable(self, count: int) -> None:
        """Wait until the scheduler has found no node for some pods, and all others have one."""

        async def waiting() -> bool:
            pods = [pod for pod in await self.pods() if not pod["spec"].get("nodeName")]
            reasons = [
                each.get("reason")
                for pod in pods
                for each in pod["status"].get("conditions", ())
                if each["type"] == "PodScheduled"
            ]
            return reasons == ["Unschedulable"] * count and len(pods) == count

        await eventually(waiting, LIMIT_S, poll_s=0.1)

    async def create(self, name: str, jobs: int, pods: int, **more) -> None:
        """Create an exclusive JobSet."""
        body = exclusive_jobset(name, key=self.key, pool=self.name, jobs=jobs, pods=pods, **more)
        await self.site.admin.create(JobSet, self.name, body)

    async def delete(self, name: str) -> None:
        """Delete a JobSet with its Jobs and pods."""
        await self.site.admin.delete(JobSet, self.name, name)

    async def read(self, info: ResourceInfo, **query: str) -> list[dict]:
        """Return objects of the namespace as JSON."""
        path, selectors = info.path(self.name), tuple(query.items())
        return (await send(self.site.admin, "GET", path, query=selectors))["items"]

    async def pods(self, jobset: str = "") -> list[dict]:
        """Return pods that have not ended and are not being deleted."""
        selector = f"{keys.JOBSET_NAME}={jobset}" if jobset else keys.JOBSET_NAME
        return [
            pod
            for pod in await self.read(Pod.RESOURCE, labelSelector=selector)
            if "deletionTimestamp" not in pod["metadata"]
            and pod["status"].get("phase") not in {"Failed", "Succeeded"}
        ]

    async def domains(self, jobset: str = "", *, pods: int) -> dict[str, str]:
        """Return the rack of each Job; raise ``AssertionError`` until all its pods are bound to one."""
        nodes = {
            node["metadata"]["name"]: node["metadata"]["labels"].get(self.key)
            for node in await self.read(Node.RESOURCE)
        }
        found: dict[str, list[str | None]] = {}
        for pod in await self.pods(jobset):
            job = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
            node = pod["spec"].get("nodeName")
            assert node, f"{pod['metadata']['name']} is not bound"
            found.setdefault(job, []).append(nodes.get(node))
        for job, racks in found.items():
            assert len(racks) == pods, f"{job} has {len(racks)} pods"
            assert len(set(racks)) == 1, f"{job} is in {set(racks)}"
        return {job: str(racks[0]) for job, racks in found.items()}

    async def placed(self, jobset: str = "", *, jobs: int, pods: int) -> dict[str, str]:
        """Wait until all Jobs are bound, each to a rack of its own; return their racks."""

        async def all_placed() -> dict[str, str]:
            racks = await self.domains(jobset, pods=pods)
            assert len(racks) == jobs, f"pods of {sorted(racks)}"
            return racks

        racks = await eventually(all_placed, LIMIT_S, poll_s=0.1)
        assert len(set(racks.values())) == jobs, racks
        return racks

    async def held(self, jobset: str = "") -> int:
        """Return the number of pods with our scheduling gate."""
        gate = {"name": keys.PLACEMENT_GATE}
        pods = await self.pods(jobset)
        return sum(gate in (pod["spec"].get("schedulingGates") or []) for pod in pods)

    async def leaders(self, jobset: str = "") -> list[dict]:
        """Return the pods with index 0."""
        index = keys.COMPLETION_INDEX_ANNOTATION
        return [
            pod for pod in await self.pods(jobset) if pod["metadata"]["annotations"][index] == "0"
        ]

    async def events(self, reason: str) -> list[dict]:
        """Return the events of the namespace with a reason."""
        return [event for event in await self.read(Event.RESOURCE) if event["reason"] == reason]

    def stored(self, name: str) -> StoredJobSet:
        """Return a JobSet, to read and to wait for."""
        return StoredJobSet(self.site.admin, self.name, name)
