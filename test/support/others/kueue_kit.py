"""A namespace with a queue of Kueue, and its JobSets."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client
from jobsetpy.errors import ApiTimeoutError
from support.cluster import objects
from support.cluster.install import create_usable_namespace
from support.cluster.json_api import send
from support.cluster.played_nodes import PlayedNodes
from support.patience import eventually

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
QUEUE = "queue"
LIMIT_S = 60.0
POLL_S = 0.1
Json = dict[str, Any]


class Tenant:
    """One test's namespace, queue, flavors and nodes.

    Args:
        client: an administrator's.
        nodes: where its played nodes are made.
    """

    def __init__(self, client: Client, nodes: PlayedNodes) -> None:
        self.client = client
        self.nodes = nodes
        self.id = uuid.uuid4().hex[:6]
        self.namespace = f"q-{self.id}"
        self._made: list[str] = []
        self._nodes: list[str] = []

    async def open(self) -> None:
        """Create its namespace."""
        await create_usable_namespace(self.client, self.namespace)

    async def close(self) -> None:
        """Delete objects that would disturb other tests; the rest ends with the cluster."""
        await self.until(self._delete_jobsets, "JobSets to be deleted")
        await self.until(self._empty, "JobSets to go")
        for path in reversed(self._made):
            await self.send("DELETE", path)
        await self.nodes.remove(*self._nodes)

    async def _delete_jobsets(self) -> bool:
        """Delete all; return False if that takes longer than a request may: delete the rest."""
        options = {"propagationPolicy": "Background"}
        try:
            await self.send("DELETE", JobSet.RESOURCE.path(self.namespace), options)
        except ApiTimeoutError:
            return False
        return True

    async def _names(self, cls: type[Any]) -> list[str]:
        page = await self.client.list_page(cls, self.namespace)
        return [each.metadata.name for each in page.items]

    async def _empty(self) -> bool:
        return not await self._names(JobSet)

    async def send(self, method: str, path: str, body: Json | None = None) -> Any:
        """Send a request; return the answer as JSON data."""
        return await send(self.client, method, path, body)

    async def until(self, look: Any, what: str, limit_s: float = LIMIT_S) -> Any:
        """Wait until ``look`` returns a true value; return it."""
        try:
            return await eventually(look, limit_s, poll_s=POLL_S)
        except AssertionError as error:
            error.add_note(f"waited for {what}; these exist:\n{await self.shown()}")
            raise

    # -- queues -------------------------------------------------------------------------------

    async def _make(self, kind: str, plural: str, name: str, spec: Json | None, **more: Any) -> str:
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}}
        body |= {"spec": spec, **more} if spec is not None else more
        await self.send("POST", f"{KUEUE}/{plural}", body)
        self._made.append(f"{KUEUE}/{plural}/{name}")
        return name

    async def node(self, name: str, **more: Any) -> str:
        """Create a played node for this tenant; return its name."""
        made = await self.nodes.make(f"{name}-{self.id}", **more)
        self._nodes.append(made)
        return made

    def label(self, name: str) -> str:
        """Return a key for labels and taints that no other test uses."""
        return f"{name}.test.example/{self.id}"

    async def flavor(self, name: str, key: str = "", *, tainted: bool = False, **spec: Any) -> str:
        """Create a flavor of nodes with the label ``key``, and its taint; return its name."""
        key = key or self.label(name)
        taint = {"key": key, "value": "yes", "effect": "NoSchedule"}
        spec.setdefault("nodeLabels", {key: "yes"})
        if tainted:
            spec.setdefault("tolerations", [{**taint, "operator": "Equal"}])
        return await self._make("ResourceFlavor", "resourceflavors", f"{name}-{self.id}", spec)

    async def pool(self, name: str, *, cpu: int = 8) -> str:
        """Create a played node and a flavor for it, with a label and a taint of their own."""
        key = self.label(name)
        taints = [{"key": key, "value": "yes", "effect": "NoSchedule"}]
        await self.node(name, cpu=cpu, labels={key: "yes"}, taints=taints)
        return await self.flavor(name, tainted=True)

    async def topology(self, *levels: str) -> str:
        """Create a topology of nodes with these labels."""
        spec = {"levels": [{"nodeLabel": level} for level in levels]}
        return await self._make("Topology", "topologies", f"topology-{self.id}", spec)

    async def priority(self, name: str, value: int) -> str:
        """Create a priority class of workloads; return its name."""
        name = f"{name}-{self.id}"
        return await self._make(
            "WorkloadPriorityClass", "workloadpriorityclasses", name, None, value=value
        )

    async def queue(self, *quotas: tuple[str, Mapping[str, Any]], **spec: Any) -> None:
        """Create a ClusterQueue with quotas by flavor, and the namespace's queue for it."""
        await self._make("ClusterQueue", "clusterqueues", self.id, self.queue_spec(*quotas, **spec))
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": QUEUE},
            "spec": {"clusterQueue": self.id},
        }
        await self.send("POST", f"{KUEUE}/namespaces/{self.namespace}/localqueues", body)

    @staticmethod
    def queue_spec(*quotas: tuple[str, Mapping[str, Any]], **spec: Any) -> Json:
        """Return the spec of a ClusterQueue."""
        (_, first), *_ = quotas
        flavors = [
            {
                "name": flavor,
                "resources": [{"name": r, "nominalQuota": q} for r, q in quota.items()],
            }
            for flavor, quota in quotas
        ]
        groups = [{"coveredResources": list(first), "flavors": flavors}]
        return {"namespaceSelector": {}, "resourceGroups": groups, **spec}

    async def change_queue(self, **spec: Any) -> None:
        """Change the ClusterQueue."""
        await self.send("PATCH", f"{KUEUE}/clusterqueues/{self.id}", {"spec": spec})

    async def used(self) -> dict[str, str]:
        """Return the used quota of the ClusterQueue by resource, without zeros."""
        status = (await self.send("GET", f"{KUEUE}/clusterqueues/{self.id}")).get("status", {})
        return {
            resource["name"]: resource["total"]
            for flavor in status.get("flavorsUsage", ())
            for resource in flavor["resources"]
            if resource["total"] != "0"
        }

    async def until_used(self, **amounts: str) -> None:
        """Wait until exactly these amounts of the ClusterQueue's quota are used."""

        async def counted() -> bool:
            return await self.used() == amounts

        await self.until(counted, f"{amounts} to be used")

    # -- JobSets ------------------------------------------------------------------------------

    async def create(self, jobset: Json) -> Json:
        """Create a JobSet in the queue; return it as stored."""
        jobset["metadata"].setdefault("labels", {}).setdefault(QUEUE_LABEL, QUEUE)
        return await self.send("POST", JobSet.RESOURCE.path(self.namespace), jobset)

    async def jobset(self, name: str) -> Json:
        """Return a JobSet."""
        return await self.send("GET", JobSet.RESOURCE.path(self.namespace, name))

    async def change(self, name: str, body: Json) -> None:
        """Merge a patch into a JobSet, as its user."""
        await self.client.merge_patch(JobSet, self.namespace, name, body)

    async def resize(self, name: str, pods: int) -> None:
        """Change the number of pods of the first ReplicatedJob's Jobs, as its user."""
        jobs = (await self.jobset(name))["spec"]["replicatedJobs"]
        jobs[0]["template"]["spec"] |= {"parallelism": pods, "completions": pods}
        await self.change(name, {"spec": {"replicatedJobs": jobs}})

    async def templates(self, name: str) -> list[Json]:
        """Return the pod specs of a JobSet, one for each ReplicatedJob."""
        jobs = (await self.jobset(name))["spec"]["replicatedJobs"]
        return [each["template"]["spec"]["template"]["spec"] for each in jobs]

    async def suspended(self) -> list[str]:
        """Return the names of suspended JobSets."""
        items = (await self.send("GET", JobSet.RESOURCE.path(self.namespace)))["items"]
        return [each["metadata"]["name"] for each in items if each["spec"].get("suspend")]

    async def delete(self, name: str) -> None:
        """Delete a JobSet, as its user."""
        await self.client.delete(JobSet, self.namespace, name)

    async def _items(self, cls: type[Any], name: str) -> list[Json]:
        path = cls.RESOURCE.path(self.namespace)
        items = (await self.send("GET", path))["items"]
        return [
            each
            for each in items
            if each["metadata"].get("labels", {}).get(keys.JOBSET_NAME) == name
            and "deletionTimestamp" not in each["metadata"]
        ]

    async def jobs(self, name: str) -> list[Json]:
        """Return the Jobs of a JobSet."""
        return await self._items(Job, name)

    async def pods(self, name: str, *phases: str) -> list[Json]:
        """Return the pods of a JobSet in one of these phases, by default those that have not ended."""
        wanted = phases or ("Pending", "Running")
        return [p for p in await self._items(Pod, name) if p["status"]["phase"] in wanted]

    async def workload(self, name: str) -> Json | None:
        """Return Kueue's workload of a JobSet."""
        path = f"{KUEUE}/namespaces/{self.namespace}/workloads"
        for each in (await self.send("GET", path))["items"]:
            owners = each["metadata"].get("ownerReferences", ())
            if any(owner["name"] == name and owner["kind"] == "JobSet" for owner in owners):
                return dict(each)
        return None

    async def activate(self, name: str, *, on: bool) -> None:
        """Let Kueue evict a JobSet, or queue it again."""
        workload = await self.workload(name)
        assert workload is not None
        path = f"{KUEUE}/namespaces/{self.namespace}/workloads/{workload['metadata']['name']}"
        await self.send("PATCH", path, {"spec": {"active": on}})

    # -- waiting ------------------------------------------------------------------------------

    async def until_runs(self, name: str, pods: int, *, old: Sequence[Json] = ()) -> list[Json]:
        """Wait until a number of pods run and none of ``old`` is left; return them."""
        before = {pod["metadata"]["uid"] for pod in old}

        async def look() -> list[Json] | None:
            found = await self.pods(name)
            running = all(pod["status"]["phase"] == "Running" for pod in found)
            new = not before & {pod["metadata"]["uid"] for pod in found}
            return found if len(found) == pods and running and new else None

        return list(await self.until(look, f"{pods} pods of {name} to run"))

    async def until_suspended(self, name: str) -> None:
        """Wait until a JobSet and its Jobs are suspended and its pods are gone."""

        async def look() -> bool:
            jobset = await self.jobset(name)
            jobs = await self.jobs(name)
            suspended = condition(jobset, "Suspended") == "True"
            return (
                bool(jobset["spec"].get("suspend"))
                and suspended
                and all(job["spec"]["suspend"] for job in jobs)
                and not await self.pods(name)
            )

        await self.until(look, f"{name} to be suspended")

    async def until_condition(self, name: str, kind: str, status: str = "True") -> None:
        """Wait for a condition of a JobSet."""

        async def look() -> bool:
            return condition(await self.jobset(name), kind) == status

        await self.until(look, f"{kind} of {name} to be {status}")

    async def until_workload(self, name: str, kind: str, status: str = "True") -> Json:
        """Wait for a condition of the workload of a JobSet; return the workload."""

        async def look() -> Json | None:
            found = await self.workload(name)
            return found if found and condition(found, kind) == status else None

        return dict(await self.until(look, f"Kueue to say {kind} {status} of {name}"))

    async def shown(self) -> str:
        """Return a text of all objects, for a failure."""
        lines = []
        for name in await self._names(JobSet):
            jobset, workload = await self.jobset(name), await self.workload(name)
            lines += [
                f"JobSet {name}: {json.dumps(jobset.get('status'))}",
                f"  workload: {json.dumps(workload and workload.get('status'))}",
            ]
            lines += [
                f"  pod {pod['metadata']['name']} on {pod['spec'].get('nodeName')}: "
                f"{json.dumps(pod['status'].get('conditions'))[:400]}"
                for pod in await self.pods(name)
            ]
        path = f"/api/v1/namespaces/{self.namespace}/events"
        events = (await self.send("GET", path))["items"]
        lines += [
            f"{e['involvedObject']['kind']} {e['involvedObject']['name']}: {e['reason']}: {e['message']}"
            for e in events[-40:]
        ]
        return "\n".join(lines)


def condition(obj: Json, kind: str) -> str:
    """Return the status of a condition; empty if there is none."""
    for each in obj.get("status", {}).get("conditions", ()):
        if each["type"] == kind:
            return str(each["status"])
    return ""


def replicated_job(
    name: str = "w",
    replicas: int = 1,
    pods: int = 1,
    *,
    requests: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    command: Sequence[str] = ("sleep", "3600"),
    **pod_spec: Any,
) -> Json:
    """Return a ReplicatedJob whose pods request one CPU."""
    container = {
        "name": "worker",
        "image": "localhost/shell:1",
        "command": list(command),
        "resources": {"requests": dict(requests or {"cpu": "1"})},
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        **pod_spec,
    }
    item = objects.replicated_job(pod, pods, name=name, replicas=replicas, backoffLimit=0)
    item["template"]["spec"]["template"]["metadata"] = {"annotations": dict(annotations or {})}
    return item


def jobset(name: str, *jobs: Json, priority: str = "", **spec: Any) -> Json:
    """Return a JobSet for the queue."""
    labels = {PRIORITY_LABEL: priority} if priority else {}
    return objects.jobset(name, *(jobs or [replicated_job()]), labels=labels, **spec)


def pod_spec(job: Json) -> Json:
    """Return the pod spec of a Job's template."""
    return dict(job["spec"]["template"]["spec"])
