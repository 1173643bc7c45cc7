"""Gangs on a real node: the coscheduler in pods, the real scheduler, containers that start.

``config/coscheduler/marked-pods`` is installed, with certificates of its own. There is no
kube-proxy here, so the scheduler gets the address of the ready pod instead of the Service's.
"""

import base64
import contextlib

import pytest

from hack.generate.kustomize import render
from jobsetpy.api.core import Node
from jobsetpy.errors import NotFoundError
from support.cluster.install import CONFIG, MANAGER_IMAGE, SYSTEM, apply_object, path_of
from support.cluster.json_api import exchange, send
from support.coscheduling.coscheduler_process import shipped
from support.coscheduling.gangs import Binds, create_all, delete_all, pod_body, set_scheduler
from support.patience import eventually
from support.restarts.scenario import SHELL_IMAGE, pod_log_folders
from support.restarts.timeline import log_time

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(600)]

SLOT = "gangs.example/slot"
MEMBER = "pod-group.scheduling.x-k8s.io/member"
SIZE, SLOTS, WORK_S = 4, 5, 4
LIMIT_S = 90.0
SELECTOR = "control-plane=coscheduler"
SECRET = f"/api/v1/namespaces/{SYSTEM}/secrets/jobset-coscheduler-client-cert"


class Deployed:
    """The coscheduler in the cluster, and the scheduler that calls it."""

    def __init__(self, cluster, client, folder):
        self.cluster = cluster
        self.client = client
        self.folder = folder
        self._before = (cluster.folder / "scheduler.json").read_text()
        self._objects = render(CONFIG / "coscheduler" / "marked-pods")
        for item in self._objects:
            if item["kind"] == "Deployment":
                (container,) = item["spec"]["template"]["spec"]["containers"]
                container["image"] = MANAGER_IMAGE

    async def install(self):
        """Apply the manifests, wait for the leading replica, and give the scheduler its address."""
        for item in self._objects:
            await apply_object(self.client, item)
        address = await eventually(self._leader, LIMIT_S, poll_s=0.2)
        data = (await send(self.client, "GET", SECRET))["data"]
        for name in ("ca.crt", "tls.crt", "tls.key"):
            (self.folder / name).write_bytes(base64.b64decode(data[name]))
        (extender,) = shipped("marked-pods")["extenders"]
        extender["urlPrefix"] = f"https://{address}:9443/ext"
        extender["tlsConfig"] |= {
            "caFile": str(self.folder / "ca.crt"),
            "certFile": str(self.folder / "tls.crt"),
            "keyFile": str(self.folder / "tls.key"),
        }
        config = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 10}
        set_scheduler(self.cluster, config | {"extenders": [extender]})

    async def _leader(self):
        """Return the address of the only ready replica, once the other one is on standby."""
        path = f"/api/v1/namespaces/{SYSTEM}/pods"
        pods = (await send(self.client, "GET", path, labelSelector=SELECTOR))["items"]
        ready, running = [], 0
        for pod in pods:
            status = pod.get("status", {})
            running += any(
                "running" in each["state"] for each in status.get("containerStatuses", ())
            )
            conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
            if conditions.get("Ready") == "True":
                ready.append(status["podIP"])
        return ready[0] if len(ready) == 1 and running == len(pods) == 2 else None

    async def endpoints(self):
        """Return the ready addresses of the Service."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{SYSTEM}/endpointslices"
        query = {"labelSelector": "kubernetes.io/service-name=jobset-coscheduler"}
        slices = (await send(self.client, "GET", path, **query))["items"]
        return [
            address
            for each in slices
            for end in each["endpoints"] or ()
            if end["conditions"]["ready"]
            for address in end["addresses"]
        ]

    async def remove(self):
        """Restore the scheduler's configuration and delete the coscheduler."""
        self.cluster.stop_component("kube-scheduler")
        (self.cluster.folder / "scheduler.json").write_text(self._before)
        self.cluster.start_component("kube-scheduler")
        for item in reversed(self._objects):
            with contextlib.suppress(NotFoundError):
                await exchange(self.client, "DELETE", path_of(item))


def gang(name):
    """Pods that each log their start and run for some seconds."""
    script = f"echo {name} started; sleep {WORK_S}"
    bodies = []
    for at in range(SIZE):
        body = pod_body(f"{name}-{at}", group=name, minimum=SIZE, cpu="1m", restartPolicy="Never")
        (container,) = body["spec"]["containers"]
        container |= {"image": SHELL_IMAGE, "command": ["sh", "-c", script]}
        marks = {SLOT: "1", MEMBER: "0"}
        container["resources"] = {"requests": {"cpu": "1m", **marks}, "limits": marks}
        bodies.append(body)
    return bodies


async def set_slots(client, number):
    """Set the number of gang pods that the node has capacity for; ``None`` removes it."""
    (node,) = (await client.list_page(Node, "")).items
    capacity = {"status": {"capacity": {SLOT: number and str(number)}}}
    await client.merge_patch(Node, "", node.metadata.name, capacity, subresource="status")


async def started(cluster, name, uids):
    """Return when each container of a gang has logged its start, by the node's log (Unix time)."""

    def starts():
        moments = []
        for folder in pod_log_folders(cluster):
            for pod, uid in uids.items():
                for path in folder.glob(f"default_{pod}_{uid}/w/*.log"):
                    for line in path.read_text().splitlines():
                        if line.endswith(f"stdout F {name} started"):
                            moments.append(log_time(line))
        return sorted(moments) if len(moments) == SIZE else None

    return await eventually(starts, LIMIT_S, poll_s=0.2)


async def test_gangs_start_one_after_the_other(node_cluster, node_client, tmp_path):
    """All pods of one gang run, and none of the other one until the first gang has ended."""
    client = node_client
    deployed = Deployed(node_cluster, client, tmp_path)
    await set_slots(client, SLOTS)
    try:
        async with Binds().watching(client) as binds:
            await deployed.install()
            assert len(await eventually(deployed.endpoints, LIMIT_S, poll_s=0.2)) == 1
            pairs = zip(gang("a"), gang("b"), strict=True)
            await create_all(client, [body for pair in pairs for body in pair])
            await binds.wait(lambda: SIZE in binds.counts("a", "b"), LIMIT_S)
            first, second = ("a", "b") if binds.counts("a") == [SIZE] else ("b", "a")
            uids = {name: uid for name, uid in binds.there.items() if name[0] == first}
            starts = {first: await started(node_cluster, first, uids)}
            uids = {name: uid for name, uid in binds.there.items() if name[0] == second}
            await binds.wait(lambda: binds.counts(second) == [SIZE], LIMIT_S)
            starts[second] = await started(node_cluster, second, uids)
            # No pod of the second gang starts before the first gang has released the capacity.
            assert starts[second][0] - starts[first][0] > WORK_S
            for name in (first, second):
                bound = binds.of(name)
                spread = max(bound) - min(bound), starts[name][-1] - starts[name][0]
                print(
                    f"gang {name}: bound within {spread[0]:.3f} s, started within {spread[1]:.3f} s"
                )
                assert max(spread) < WORK_S  # the whole gang ran at the same time
            await delete_all(client)
            await binds.wait(lambda: not binds.there, LIMIT_S)
    finally:
        await deployed.remove()
        await set_slots(client, None)
