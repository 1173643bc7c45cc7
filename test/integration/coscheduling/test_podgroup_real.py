"""Backends of coscheduling on an API server and a scheduler with gang scheduling of their own.

One node without a kubelet has capacity for four pods.
"""

import contextlib

import pytest
import pytest_asyncio
import yaml

from hack.cluster import Cluster
from hack.cluster._versions import Release
from hack.generate.kustomize import render
from jobsetpy import admission
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.coordination import Lease
from jobsetpy.api.core import Node, Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.scheduling import NATIVE_APIS
from jobsetpy.app.backend import watch_backend
from jobsetpy.app.wiring import add_jobset_controllers
from jobsetpy.errors import ApiError, NotFoundError
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.reconcilers.coscheduling.gangs import gangs_of
from jobsetpy.reconcilers.rules.features import Features
from support.cluster import objects
from support.cluster.install import (
    CONFIG,
    ROOT,
    apply_manifest,
    apply_object,
    connected,
    create_namespace,
)
from support.cluster.json_api import StoredJobSet, exchange, send
from support.cluster.manager_process import free_port, own_manager
from support.cluster.racks import make_node
from support.cluster.webhooks import apply_webhooks, delete_webhooks
from support.coscheduling.coscheduler_process import ExtenderSite, coscheduler_process
from support.managers import started
from support.patience import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(180),
]

NATIVE = Release.wanted().gang_settings()
WITH_TOPOLOGY = Release.wanted().kubernetes.startswith("1.37.")
if WITH_TOPOLOGY:
    more = dict.fromkeys(("TopologyAwareWorkloadScheduling", "DRAWorkloadResourceClaims"), True)
    NATIVE = {**NATIVE, "feature_gates": {**NATIVE["feature_gates"], **more}}
(API,) = [
    api for api in NATIVE_APIS if api.pod_group.RESOURCE.api_version in NATIVE["runtime_config"]
]
LIMIT_S = 90.0  # the scheduler's own back-off goes up to 10 s; machines may be busy
ROOM = 4
DONE = keys.COSCHEDULING_COMPLETED_CONDITION
NOT_SERVED = keys.COSCHEDULING_NOT_SERVED_CONDITION
SYSTEM = "jobset-system"
VICTIM = f"{keys.JOBSET_NAME}=victim"


class Site:
    """The cluster with the actions of its users and operator."""

    def __init__(self, client, folder, kubeconfig, extender):
        self.client = client
        self.folder = folder
        self.kubeconfig = kubeconfig
        self.extender = extender

    def manager_process(self, backend):
        """Run a deployed manager with its own rights within the block."""
        flags = ["--leader-elect=false", f"--coscheduling-backend={backend}"]
        return own_manager(self.client, self.kubeconfig, self.folder, *flags)

    @contextlib.asynccontextmanager
    async def manager(self, backend, *, member_resource=False, **webhooks):
        """Run a manager in this process; with settings for webhooks, it serves them too."""
        async with connected(self.kubeconfig, qps=0) as own:
            manager = Manager(own)
            marks = SchedulerFields(backend=backend, member_resource=member_resource)
            backend = await watch_backend(manager, marks, Features())
            add_jobset_controllers(manager, backend=backend)
            if webhooks:
                admission.setup(manager, admission.WebhookSettings(backend=backend, **webhooks))
            async with started(manager):
                yield

    async def create(self, name, *, pods, replicas=1, scope="JobSet", notes=None, **spec):
        """Create a JobSet with this number of Jobs and pods per Job, each of one CPU."""
        container = {"name": "w", "image": "test.invalid/w:1"}
        container["resources"] = {"requests": {"cpu": "1"}}
        pod = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            **spec.pop("pod", {}),
        }
        job = {"completionMode": "Indexed", "backoffLimit": spec.pop("backoff", 6)} | elastic(pods)
        by_field = {} if scope is None else {keys.COSCHEDULING_ANNOTATION: scope}
        notes = {**by_field, **(notes or {})}
        names = spec.pop("names", ("w",))
        items = [objects.replicated_job(pod, name=n, replicas=replicas, **job) for n in names]
        for item, depends_on in zip(items[1:], spec.pop("after", ()), strict=False):
            item["dependsOn"] = [{"name": depends_on, "status": "Ready"}]
        body = objects.jobset(name, *items, annotations=notes, **spec)
        return await self.client.create(JobSet, "default", body)

    async def resize(self, name, pods):
        """Set the number of pods of the first ReplicatedJob's Jobs."""
        path = "/spec/replicatedJobs/0/template/spec"
        patch = [
            {"op": "replace", "path": f"{path}/{field}", "value": value}
            for field, value in elastic(pods).items()
        ]
        await self.client.json_patch(JobSet, "default", name, patch)

    async def pods(self, jobset):
        """Return the JobSet's pods that are not being deleted, as JSON."""
        path, selector = "/api/v1/namespaces/default/pods", f"{keys.JOBSET_NAME}={jobset}"
        found = (await send(self.client, "GET", path, labelSelector=selector))["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    async def bound(self, jobset):
        """Return how many of its pods have a node, and how many there are."""
        pods = await self.pods(jobset)
        return sum("nodeName" in pod["spec"] for pod in pods), len(pods)

    async def has_bound(self, jobset, *wanted):
        """Wait until this number of pods have a node, of that number in total."""

        async def there():
            return await self.bound(jobset) == wanted

        await eventually(there, LIMIT_S, poll_s=0.1)

    async def is_unschedulable(self, jobset):
        """Wait until the scheduler has tried all of its pods without a node in vain."""

        async def there():
            reasons = [
                condition.get("reason")
                for pod in await self.pods(jobset)
                for condition in pod["status"].get("conditions", ())
                if condition["type"] == "PodScheduled" and "nodeName" not in pod["spec"]
            ]
            return reasons and set(reasons) == {"Unschedulable"}

        await eventually(there, LIMIT_S, poll_s=0.1)

    async def has_condition(self, jobset, *wanted):
        """Wait until a condition has this status and reason."""
        stored = StoredJobSet(self.client, "default", jobset)
        await stored.reaches(
            lambda status: wanted in {(c.type, c.status, c.reason) for c in status.conditions},
            LIMIT_S,
        )

    async def remove_lease(self):
        """Delete the Lease by which a coscheduler informs managers."""
        with contextlib.suppress(NotFoundError):
            await self.client.delete(Lease, SYSTEM, keys.COSCHEDULER_LEASE)

    async def minima(self, jobset):
        """Return the minimum of each of its PodGroups, by name."""
        selector = f"{keys.JOBSET_NAME}={jobset}"
        try:
            page = await self.client.list_page(API.pod_group, "default", label_selector=selector)
        except NotFoundError:  # not served
            return {}
        return {
            each.metadata.name: each.spec["schedulingPolicy"]["gang"]["minCount"]
            for each in page.items
        }

    async def has_minimum(self, jobset, wanted):
        """Wait until it has one PodGroup, with that minimum; its name."""

        async def there():
            found = await self.minima(jobset)
            return next(iter(found)) if list(found.values()) == [wanted] else None

        return await eventually(there, LIMIT_S, poll_s=0.1)

    async def has_no_group(self, jobset):
        """Wait until it has no PodGroup."""

        async def gone():
            return not await self.minima(jobset)

        await eventually(gone, LIMIT_S, poll_s=0.1)

    async def templates(self, jobset):
        """Return the names of templates in its Workload, which its Jobs name, too."""
        selector = f"{keys.JOBSET_NAME}={jobset}"
        workloads, jobs = [
            (await self.client.list_page(kind, "default", label_selector=selector)).items
            for kind in (API.workload, Job)
        ]
        (found,) = workloads
        named = {job.metadata.annotations[keys.GROUP_TEMPLATE_ANNOTATION] for job in jobs}
        assert named == {each["name"] for each in found.spec["podGroupTemplates"]}
        return named

    async def restart(self, jobset):
        """Let a pod fail, and with it its Job; wait until all pods are recreated."""
        before = await self.pods(jobset)
        old, name = {pod["metadata"]["uid"] for pod in before}, before[0]["metadata"]["name"]
        failed = {"status": {"phase": "Failed"}}
        await self.client.merge_patch(Pod, "default", name, failed, subresource="status")

        async def recreated():
            return old.isdisjoint({pod["metadata"]["uid"] for pod in await self.pods(jobset)})

        await eventually(recreated, LIMIT_S, poll_s=0.1)

    async def event(self, reason):
        """Wait for an event with this reason; return its message."""
        path, selector = "/api/v1/namespaces/default/events", f"reason={reason}"

        async def found():
            events = (await send(self.client, "GET", path, fieldSelector=selector))["items"]
            return [each["message"] for each in events]

        return (await eventually(found, LIMIT_S, poll_s=0.1))[0]

    async def set_ready(self, jobset):
        """Set its bound pods to ready."""
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
        for pod in await self.pods(jobset):
            name = pod["metadata"]["name"]
            await self.client.merge_patch(
                Pod, "default", name, {"status": ready}, subresource="status"
            )

    async def has_room(self, pods):
        """Give the node capacity for that many pods."""
        room = {"cpu": str(pods), "memory": "64Gi", "pods": "110"}
        body = {"status": {"capacity": room, "allocatable": room}}
        await self.client.merge_patch(Node, "", "n", body, subresource="status")

    async def delete(self, jobset):
        """Delete it, and wait until nothing is left of it."""
        await self.client.delete(JobSet, "default", jobset, propagation="Foreground")

        async def gone():
            with contextlib.suppress(NotFoundError):
                await self.client.get(JobSet, "default", jobset)
                return False
            if await self.minima(jobset) or await self.pods(jobset):
                return False
            selector = f"{keys.JOBSET_NAME}={jobset}"
            jobs = await self.client.list_page(Job, "default", label_selector=selector)
            return not jobs.items

        await eventually(gone, LIMIT_S, poll_s=0.1)


def elastic(pods):
    return {"parallelism": pods, "completions": pods}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory):
    """A cluster with the API for gangs and a node; its scheduler knows a coscheduler too."""
    async with site_of(tmp_path_factory.mktemp("podgroup"), NATIVE) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def older_site(tmp_path_factory):
    """The same without the API for gangs."""
    async with site_of(tmp_path_factory.mktemp("older"), {}) as made:
        yield made


@contextlib.asynccontextmanager
async def site_of(folder, settings):
    """Run a cluster with these settings."""
    extender = ExtenderSite(folder / "extender", plain=True)
    with Cluster(
        scheduler_config=extender.scheduler_config("marked-pods"),
        crds=[ROOT / "config/crd/jobset.x-k8s.io_jobsets.yaml"],
        controller_manager_args=["--controllers=*,-node-lifecycle-controller"],
        **settings,
    ) as running:
        if running.is_existing:
            pytest.skip("needs feature gates that the existing cluster may not have")
        async with connected(running.kubeconfig, qps=0) as client:
            await make_node(client, "n", ROOM)
            yield Site(client, folder, running.kubeconfig, extender)


async def test_gangs_of_the_api_server_are_bound_as_a_whole(site):
    """A gang that does not fit is pending, one that fits runs; resizes reach the scheduler."""
    async with site.manager_process("podgroup"):
        await site.create("large", pods=3, replicas=2)
        await site.is_unschedulable("large")
        assert await site.bound("large") == (0, 6)
        large = await site.has_minimum("large", 6)
        spec = (await site.pods("large"))[0]["spec"]
        assert spec["schedulingGroup"] == {"podGroupName": large}
        assert "schedulingGates" not in spec

        # Another gang fits next to the one that waits.
        await site.create("small", pods=1, replicas=3, scope="ReplicatedJob")
        await site.has_bound("small", 3, 3)
        assert await site.bound("large") == (0, 6)
        await site.delete("small")

        # With a lower minimum it fits: its PodGroup has it, too.
        note = {keys.COSCHEDULING_MIN_ANNOTATION: "4"}
        body = {"metadata": {"annotations": note}}
        await site.client.merge_patch(JobSet, "default", "large", body)
        assert await site.has_minimum("large", 4) == large
        await site.has_bound("large", 4, 6)

        await site.resize("large", 2)
        assert await site.has_minimum("large", 4) == large
        await site.has_bound("large", 4, 4)

        # It shrinks and grows again while its pods run.
        await site.resize("large", 1)
        await site.has_minimum("large", 2)
        await site.has_bound("large", 2, 2)
        await site.resize("large", 2)
        await site.has_minimum("large", 4)
        await site.has_bound("large", 4, 4)
        await site.delete("large")


async def test_gangs_that_compete_are_bound_one_after_the_other(site):
    """With the default backend: neither is bound in part, and the conditions say why and by whom."""
    async with site.manager_process("auto"):
        await site.create("first", pods=3, failurePolicy={"maxRestarts": 3})
        await site.has_bound("first", 3, 3)
        await site.create("second", pods=3)
        await site.is_unschedulable("second")
        assert await site.bound("second") == (0, 3)
        await site.has_condition("first", DONE, "True", keys.POD_GROUPS_BOUND_REASON)
        jobset = await site.client.get(JobSet, "default", "first")
        messages = [each.message for each in jobset.status.conditions if each.type == DONE]
        assert messages == [
            f"the group has its pods bound (by kube-scheduler, {API.pod_group.RESOURCE.api_version})"
        ]
        stored = StoredJobSet(site.client, "default", "second")
        await stored.reaches_condition(
            keys.COSCHEDULING_IN_PROGRESS_CONDITION, "the scheduler found no nodes", LIMIT_S
        )
        await site.delete("first")
        await site.has_bound("second", 3, 3)
        await site.delete("second")


async def test_gang_of_the_field_waits_restarts_and_is_suspended_as_a_whole(site):
    """A restart keeps the PodGroup, a suspension deletes it, and a resize patches its minimum."""
    async with site.manager_process("auto"):
        policy = {"failurePolicy": {"maxRestarts": 1}, "backoff": 0}
        await site.create("field", pods=3, replicas=2, scope=None, scheduling={}, **policy)
        await site.is_unschedulable("field")
        assert await site.bound("field") == (0, 6)
        group = await site.has_minimum("field", 6)
        await site.resize("field", 2)
        await site.has_bound("field", 4, 4)
        assert await site.has_minimum("field", 4) == group
        assert await site.templates("field") == {"field"}

        await site.restart("field")
        await site.has_bound("field", 4, 4)
        assert await site.has_minimum("field", 4) == group

        await site.create("other", pods=1, scope=None, scheduling={})
        await site.is_unschedulable("other")
        for suspend in (True, False):
            body = {"spec": {"suspend": suspend}}
            await site.client.merge_patch(JobSet, "default", "field", body)
            if suspend:
                await site.has_bound("other", 1, 1)
                await site.has_no_group("field")
                await site.delete("other")
        await site.has_bound("field", 4, 4)
        assert await site.has_minimum("field", 4) == group
        await site.delete("field")


async def test_entries_of_the_field_have_groups_of_their_own(site):
    """One for each Job, one with a minimum, and one for each step of a startup order."""
    async with site.manager_process("auto"):
        job = {"targetReplicatedJobs": ["w"], "job": {}}
        least = {"schedulingPolicy": {"gang": {"minCount": 1}}}
        entries = [job, {"targetReplicatedJobs": ["v"], **least}]
        spec = {"names": ("w", "v"), "scope": None}
        await site.create("each", pods=2, scheduling={"replicatedJobs": entries}, **spec)
        await site.has_bound("each", 4, 4)
        assert sorted((await site.minima("each")).values()) == [1, 2]
        assert await site.templates("each") == {"w-0", "v"}
        await site.delete("each")

        await site.create("steps", pods=2, scheduling={}, after=("w",), **spec)
        await site.has_bound("steps", 2, 2)
        assert sorted((await site.minima("steps")).values()) == [2, 2]
        await site.set_ready("steps")
        await site.has_bound("steps", 4, 4)
        await site.delete("steps")


@pytest.mark.parametrize("mode", ["all", "single"])
async def test_gang_is_preempted_as_its_disruption_mode_says(site, mode):
    """As a whole, or only as many pods as are needed."""
    for name, value in (("low", 1), ("high", 100)):
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        path, meta = "/apis/scheduling.k8s.io/v1/priorityclasses", {"name": f"{mode}-{name}"}
        await send(site.client, "POST", path, {**body, "metadata": meta})
    async with site.manager_process("auto"):
        fields = {"scope": None, "scheduling": {"disruptionMode": {mode: {}}}}
        await site.create("victim", pods=ROOM, pod={"priorityClassName": f"{mode}-low"}, **fields)
        await site.has_bound("victim", ROOM, ROOM)
        await site.create("winner", pods=2, pod={"priorityClassName": f"{mode}-high"}, **fields)
        await site.has_bound("winner", 2, 2)
        await site.has_bound("victim", 0 if mode == "all" else 2, ROOM)
        (group,) = (
            await site.client.list_page(API.pod_group, "default", label_selector=VICTIM)
        ).items
        # Kubernetes 1.37 defines DisruptionTarget for groups, and its scheduler sets it on pods only.
        assert [each.type for each in group.status.conditions] == ["PodGroupInitiallyScheduled"]
        await site.delete("winner")
        await site.has_bound("victim", ROOM, ROOM)
        await site.delete("victim")


@pytest.mark.skipif(not WITH_TOPOLOGY, reason="1.36 has no gates for topology and claims")
async def test_example_of_native_gangs_gets_one_rack_and_one_claim(site):
    """Its pods have nodes of the only rack with capacity for all, and share a device."""
    rack, name = "topology.kubernetes.io/rack", "fabric.example.com"
    slices = "/apis/resource.k8s.io/v1"
    for node, size in (("a0", 3), ("b0", 2), ("b1", 2)):
        await make_node(site.client, node, size, **{rack: node[0]})
    body = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": name}}
    selector = {"cel": {"expression": f"device.driver == '{name}'"}}
    device = {"kind": "DeviceClass", "spec": {"selectors": [selector]}, **body}
    pool = {"name": "all", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": name, "allNodes": True, "pool": pool, "devices": [{"name": "channel-0"}]}
    await send(site.client, "POST", f"{slices}/deviceclasses", device)
    await send(
        site.client,
        "POST",
        f"{slices}/resourceslices",
        {"kind": "ResourceSlice", "spec": spec, **body},
    )
    path = ROOT / "examples/coscheduling/native.yaml"
    template, jobset = yaml.safe_load_all(path.read_text())
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    # No kubelet reports readiness, or the end of a grace period.
    pod |= {"tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 0}
    pod["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    async with site.manager_process("auto"):
        await apply_object(site.client, template)
        await site.client.create(JobSet, "default", jobset)
        await site.has_bound("native", 4, 4)
        assert {each["spec"]["nodeName"] for each in await site.pods("native")} == {"b0", "b1"}
        claims = await send(site.client, "GET", f"{slices}/namespaces/default/resourceclaims")
        (claim,) = claims["items"]
        assert claim["metadata"]["ownerReferences"][0]["kind"] == "PodGroup"
        await site.delete("native")
    for node in ("a0", "b0", "b1"):
        await send(site.client, "DELETE", f"/api/v1/nodes/{node}")


async def test_pod_group_of_another_owner_is_not_adopted(site):
    """An event names it; the JobSet continues when it is gone."""
    async with site.manager_process("auto"):
        jobset = await site.create("mine", pods=1, scope=None, scheduling={}, suspend=True)
        (gang,) = gangs_of(jobset)
        body = {
            "apiVersion": API.pod_group.RESOURCE.api_version,
            "kind": "PodGroup",
            "metadata": {"name": gang.pod_group},
            "spec": {"schedulingPolicy": {"basic": {}}},
        }
        await site.client.create(API.pod_group, "default", body)
        await site.client.merge_patch(JobSet, "default", "mine", {"spec": {"suspend": False}})
        message = await site.event(keys.POD_GROUP_REFUSED_REASON)
        assert gang.pod_group in message
        stored = await site.client.get(API.pod_group, "default", gang.pod_group)
        assert stored.metadata.controller is None
        await site.client.delete(API.pod_group, "default", gang.pod_group)
        await site.delete("mine")


SPARES = {keys.IN_PLACE_SPARES_ANNOTATION: "1"}
IN_PLACE = {"failurePolicy": {"maxRestarts": 9, "restartStrategy": "InPlaceRestart"}}


async def check_spares(site, **spec):
    """Five pods with a spare among them, on nodes for four."""
    spec |= IN_PLACE
    await site.create("patient", pods=ROOM + 1, notes=SPARES, **spec)
    notes = {**SPARES, keys.START_WITHOUT_SPARES_ANNOTATION: "true"}
    await site.create("early", pods=ROOM + 1, notes=notes, **spec)
    await site.has_bound("early", ROOM, ROOM + 1)
    await site.has_condition("early", DONE, "True", keys.POD_GROUPS_BOUND_REASON)
    assert await site.bound("patient") == (0, ROOM + 1)
    labels = [pod["metadata"]["labels"] for pod in await site.pods("early")]
    assert {each[keys.POD_GROUP_MIN_AVAILABLE] for each in labels} == {str(ROOM)}

    # A lost pod is replaced although its Job still has no node for the spare.
    lost = next(pod for pod in await site.pods("early") if "nodeName" in pod["spec"])
    await site.client.delete(Pod, "default", lost["metadata"]["name"])

    async def replaced():
        uids = [pod["metadata"]["uid"] for pod in await site.pods("early")]
        return lost["metadata"]["uid"] not in uids

    await eventually(replaced, LIMIT_S, poll_s=0.1)
    await site.has_bound("early", ROOM, ROOM + 1)
    assert await site.bound("patient") == (0, ROOM + 1)
    for name in ("patient", "early"):
        await site.delete(name)


async def check_lost_pods(site, **spec):
    """Four pods with two spares lose two when there is a node for one, and then for both."""
    spec |= IN_PLACE
    await site.create("lost", pods=ROOM, notes={keys.IN_PLACE_SPARES_ANNOTATION: "2"}, **spec)
    await site.has_bound("lost", ROOM, ROOM)
    names = [pod["metadata"]["name"] for pod in await site.pods("lost")]
    reported = {"metadata": {"annotations": {keys.EPOCH_ANNOTATION: "1"}}}
    for name in names:
        await site.client.merge_patch(Pod, "default", name, reported)
    await StoredJobSet(site.client, "default", "lost").reaches_epoch(1, LIMIT_S)
    await site.has_room(ROOM - 1)
    try:
        for name in names[:2]:
            await site.client.delete(Pod, "default", name)
        await site.has_bound("lost", ROOM - 1, ROOM)
        await site.is_unschedulable("lost")
        await site.has_room(ROOM)
        await site.has_bound("lost", ROOM, ROOM)
        groups = [pod["spec"].get("schedulingGroup") for pod in await site.pods("lost")]
        assert groups == groups[:1] * ROOM  # successors join the group of the others
    finally:
        await site.has_room(ROOM)
        await site.delete("lost")


async def test_gang_of_the_api_server_starts_without_spares_when_annotated(site):
    """Its minimum is the number of seats; without the annotation it is so once workers have run."""
    async with site.manager_process("podgroup"):
        await check_spares(site)
        await check_lost_pods(site)
        await check_spares(site, scope=None, scheduling={})
        await check_lost_pods(site, scope=None, scheduling={})


async def test_gang_of_the_coscheduler_starts_without_spares_when_annotated(site):
    """As with the API server's."""
    log = site.folder / "coscheduler-spares.log"
    async with (
        coscheduler_process(site.kubeconfig, log, site.extender, "--leader-elect=false"),
        site.manager("coscheduler", member_resource=True),
    ):
        await check_spares(site)
        await check_lost_pods(site)


async def test_gangs_of_the_coscheduler_are_bound_as_a_whole(site):
    """Marked by the manager; held and bound by the coscheduler."""
    log = site.folder / "coscheduler.log"
    async with (
        coscheduler_process(site.kubeconfig, log, site.extender, "--leader-elect=false"),
        site.manager("coscheduler", member_resource=True),
    ):
        await site.create("wide", pods=3, replicas=2)
        await site.has_bound("wide", 0, 6)
        await site.create("narrow", pods=3)
        await site.has_bound("narrow", 3, 3)
        wide = await site.pods("wide")
        assert [pod["spec"].get("schedulingGates") for pod in wide] == [None] * 6
        requests = wide[0]["spec"]["containers"][0]["resources"]["requests"]
        assert requests == {"cpu": "1", keys.POD_GROUP_MEMBER_RESOURCE: "0"}
        await site.delete("narrow")
        await site.resize("wide", 2)
        await site.has_bound("wide", 4, 4)
        await site.delete("wide")


async def test_backend_follows_the_coscheduler(older_site):
    """With the default backend and the manager's own rights: installed, and removed."""
    await create_namespace(older_site.client, SYSTEM)
    await older_site.remove_lease()
    log = older_site.folder / "coscheduler.log"
    flags = ["--leader-elect=false", "--member-resource"]
    async with older_site.manager_process("auto"):
        # Without a coscheduler pods are labelled and scheduled one by one, and a condition says so.
        await older_site.create("alone", pods=1)
        await older_site.has_condition("alone", NOT_SERVED, "True", keys.NO_COSCHEDULER_REASON)
        await older_site.has_bound("alone", 1, 1)

        async with coscheduler_process(older_site.kubeconfig, log, older_site.extender, *flags):
            await older_site.has_condition(
                "alone", NOT_SERVED, "False", keys.COSCHEDULING_SERVED_REASON
            )
            await older_site.delete("alone")

            # They have the marker, as the coscheduler has published. It holds their binds.
            await older_site.create("wide", pods=3, replicas=2)
            await older_site.has_bound("wide", 0, 6)
            pod, *_ = await older_site.pods("wide")
            requests = pod["spec"]["containers"][0]["resources"]["requests"]
            assert requests[keys.POD_GROUP_MEMBER_RESOURCE] == "0"
            await older_site.resize("wide", 1)
            await older_site.has_bound("wide", 2, 2)
            await older_site.delete("wide")
            await older_site.create("open", pods=3)
            await older_site.has_bound("open", 3, 3)

        # As an uninstallation does.
        await older_site.remove_lease()
        await older_site.has_condition("open", NOT_SERVED, "True", keys.NO_COSCHEDULER_REASON)
        await older_site.delete("open")


class Others:
    """Pods of gangs without a JobSet."""

    def __init__(self, client):
        self.client = client

    @staticmethod
    def pod(minimum="2", **spec):
        """A pod with this minimum; without a minimum it belongs to no gang."""
        labels = {keys.POD_GROUP_NAME: "theirs", keys.POD_GROUP_MIN_AVAILABLE: minimum}
        labels = {"app": "a"} if minimum is None else {"app": "a", **labels}
        container = {"name": "w", "image": "test.invalid/w:1"}
        spec = {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}
        return {"metadata": {"labels": labels}, "spec": spec}

    async def try_pod(self, *args, **spec):
        """Create a bare pod in a dry run."""
        body = {"apiVersion": "v1", "kind": "Pod", **self.pod(*args, **spec)}
        body["metadata"]["generateName"] = "bare-"
        path = "/api/v1/namespaces/default/pods"
        await send(self.client, "POST", path, body, dryRun="All")

    async def run(self, name, **pod):
        """Create a Deployment of two such pods."""
        template = self.pod(**pod)
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}}
        path = "/apis/apps/v1/namespaces/default/deployments"
        await send(self.client, "POST", path, {**body, "spec": spec})

    async def end(self, name):
        """Delete the Deployment and its pods."""
        path = f"/apis/apps/v1/namespaces/default/deployments/{name}"
        await exchange(self.client, "DELETE", path, propagationPolicy="Background")

    async def events(self, reason):
        """Return the messages of events with this reason."""
        path, selector = "/api/v1/namespaces/default/events", f"reason={reason}"
        events = (await send(self.client, "GET", path, fieldSelector=selector))["items"]
        return [each["message"] for each in events]

    async def check(self):
        """Check all guarantees for pods of others."""

        async def refused():
            try:
                await self.try_pod("0")
            except ApiError:
                return True
            return False

        await eventually(refused, LIMIT_S, poll_s=0.1)
        await self.try_pod()
        for minimum in ("0", "two", "99999999999"):
            with pytest.raises(ApiError, match="must be a number from 1"):
                await self.try_pod(minimum)


async def test_pods_of_others_are_checked_by_the_webhook(site):
    """Bare pods and pods of Deployments; a meaningless minimum is refused, with an event."""
    port, others = free_port(), Others(site.client)
    await create_namespace(site.client, "jobset-system")
    await apply_manifest(site.client, CONFIG / "webhook/secret.yaml")
    documents = render(CONFIG / "default", CONFIG / "coscheduler-admission/webhook")
    webhooks = [each for each in documents if each["kind"].endswith("WebhookConfiguration")]
    await apply_webhooks(site.client, port, documents=webhooks)
    served = {
        "bind_address": f"127.0.0.1:{port}",
        "namespace": "jobset-system",
        "extra_dns_names": ("127.0.0.1",),
        "check_period_s": 0.5,
    }
    try:
        async with site.manager("coscheduler", **served):
            await others.check()
            await others.run("broken", minimum="many")

            async def reported():
                return [each for each in await others.events("FailedCreate") if "many" in each]

            await eventually(reported, LIMIT_S, poll_s=0.1)
            await others.end("broken")
    finally:
        await delete_webhooks(site.client)


async def test_pods_of_others_are_checked_by_the_policy(site):
    """The same without webhooks and without a manager."""
    for document in render(CONFIG / "coscheduler-admission/policy"):
        await apply_object(site.client, document)
    await Others(site.client).check()
