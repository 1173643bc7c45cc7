"""A startup group on a real control plane; the test plays the kubelets."""

from jobsetpy.api import keys
from jobsetpy.api.core import ConfigMap
from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import NotFoundError
from support.cluster import objects, pod_status
from support.cluster.json_api import StoredJobSet, send
from support.patience import eventually

NAME = "js"
MAP = "js-group-scheduling"
LIMIT_S = 15.0


def replicated_job(name, replicas=1, pods=1, **spec):
    """Return a ReplicatedJob whose pods satisfy the restricted profile."""
    security = {
        **objects.RESTRICTED_CONTAINER,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "w", "image": "test.invalid/w:1", "securityContext": security}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    job = {"completionMode": "Indexed", "backoffLimit": 0, **spec}
    return objects.replicated_job(pod, pods, name=name, replicas=replicas, **job)


class Place(StoredJobSet):
    """One JobSet in its own namespace."""

    def __init__(self, client, namespace):
        super().__init__(client, namespace, NAME)

    limit_s = LIMIT_S

    async def account(self, name):
        """Create a service account."""
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        await send(self.client, "POST", path, {"metadata": {"name": name}})

    async def create(self, *jobs, config=None, name=NAME, notes=None, **spec):
        """Create the JobSet."""
        spec["groupSchedulingConfig"] = {"timeoutAfterSeconds": 300} if config is None else config
        body = objects.jobset(name, *jobs, annotations=notes, **spec)
        return await self.client.create(JobSet, self.namespace, body)

    async def get(self, path):
        """Return the objects at a path as JSON."""
        return await send(self.client, "GET", path)

    async def pods(self):
        """Return the pods that have not ended, by name without random characters."""
        items = (await self.get(f"/api/v1/namespaces/{self.namespace}/pods"))["items"]
        return {
            item["metadata"]["name"].rpartition("-")[0].removeprefix(f"{NAME}-"): item
            for item in items
            if "deletionTimestamp" not in item["metadata"]
            and item["status"]["phase"] in {"Pending", "Running"}
        }

    async def has_pods(self, *names, attempt=None):
        """Wait for exactly these pods, of an attempt if one is given; return them."""

        async def there():
            pods = await self.pods()
            attempts = {
                pod["metadata"]["annotations"].get(keys.GROUP_ATTEMPT) for pod in pods.values()
            }
            if set(pods) == set(names) and (attempt is None or attempts == {str(attempt)}):
                return pods or True
            return None

        return await eventually(there, LIMIT_S)

    async def start(self, *pods):
        """Run the barrier of pods, as the kubelet does."""
        running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        status = pod_status.container(running, keys.GROUP_INIT_CONTAINER) | {"ready": False}
        for pod in pods:
            await self._set_status(pod, initContainerStatuses=[status])

    async def fail(self, pod):
        """Fail a pod."""
        await self._set_status(pod, phase="Failed")

    async def _set_status(self, pod, **status):
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        await send(self.client, "PATCH", path, {"status": status})

    async def config_map(self):
        """Return the ConfigMap, or ``None``."""
        try:
            return await self.client.get(ConfigMap, self.namespace, MAP)
        except NotFoundError:
            return None

    async def value(self):
        """Return the released attempt in the ConfigMap, or ``None``."""
        found = await self.config_map()
        text = (found.data or {}).get("started") if found is not None else None
        return None if text is None else int(text.split()[1])

    async def is_released(self, attempt):
        """Wait until an attempt is released."""
        await self.until_equal(self.value, attempt)
