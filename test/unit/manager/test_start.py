"""Start of a manager in virtual time: guarantees for handlers, and reports of failures."""

import asyncio

import pytest
import structlog

from jobsetpy import aio
from jobsetpy import runtime as rt
from jobsetpy.api._wire import wire
from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap, Pod
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource
from jobsetpy.informers import SharedInformer
from jobsetpy.manager import Manager, ManagerSettings
from jobsetpy.testing import RecordingClient, World, make_job

pytestmark = pytest.mark.looptime


@resource("example.com", "v1beta1", "Widget", "widgets")
@wire
class Widget:
    """A kind that the API server does not know."""

    metadata: ObjectMeta = ObjectMeta()


class Reconciler:
    """A reconciler that records its requests."""

    def __init__(self):
        self.keys = []

    async def reconcile(self, request):
        self.keys.append(str(request))
        return rt.Result.done()


async def stopped_after(manager, seconds=60.0):
    """Run a manager for some virtual seconds."""
    stop = asyncio.Event()
    async with aio.supervise() as tasks:
        running = tasks.start(manager.run(stop), name="manager")
        await asyncio.sleep(seconds)
        stop.set()
        await running


@pytest.mark.parametrize("slow", ["jobs", "configmaps"])
async def test_handlers_may_read_any_cache_of_the_manager(slow):
    """No handler is called before all first lists are complete."""
    world = World()
    for number in range(20):
        world.create("configmaps", {"metadata": {"name": f"c{number}"}})
        world.create("jobs", make_job(f"j{number}").build())
    world.faults.latency(5, verb="list", resource=slow)
    manager = Manager(RecordingClient(world, qps=0))
    maps, jobs = manager.informer(ConfigMap), manager.informer(Job)
    reconciler = Reconciler()

    def jobs_of(_):
        return [job.metadata.key for job in jobs.store.list()]

    watch = rt.Watch(maps, rt.enqueue_mapped(jobs_of))
    manager.add(rt.Controller(name="mapped", reconciler=reconciler, watches=[watch]))
    await stopped_after(manager)

    assert sorted(reconciler.keys) == sorted(f"default/j{number}" for number in range(20))


async def test_events_are_not_lost_when_an_informer_of_the_user_syncs_later():
    """A handler that reads a store too early is called again when the controller starts."""
    world = World()
    for number in range(20):
        world.create("configmaps", {"metadata": {"name": f"c{number}"}})
    world.create("jobs", make_job("a").build())
    client = RecordingClient(world, qps=0)
    manager = Manager(client)
    maps, jobs = manager.informer(ConfigMap), SharedInformer(client, Job)
    reconciler = Reconciler()

    def with_jobs(config_map):
        return [config_map.metadata.key] if jobs.store.list() else []

    watches = [rt.Watch(maps, rt.enqueue_mapped(with_jobs)), rt.Watch(jobs, rt.enqueue_self)]
    manager.add(rt.Controller(name="by-hand", reconciler=reconciler, watches=watches))
    async with aio.supervise() as tasks:
        running = tasks.start(stopped_after(manager), name="manager")
        await asyncio.sleep(10)
        informer = tasks.start(jobs.run(), name="informer")
        await running
        informer.cancel()

    assert len(reconciler.keys) == 21


async def test_a_stop_ends_the_wait_for_an_informer_that_does_not_run():
    """SIGTERM takes effect while a controller waits for a cache that never syncs."""
    world = World()
    client = RecordingClient(world, qps=0)
    manager = Manager(client)
    watch = rt.Watch(SharedInformer(client, Pod), rt.enqueue_self)
    manager.add(rt.Controller(name="stuck", reconciler=Reconciler(), watches=[watch]))
    began = asyncio.get_running_loop().time()
    await stopped_after(manager, 20)

    assert asyncio.get_running_loop().time() - began < 21


async def test_the_wait_for_an_informer_that_does_not_run_is_bounded():
    """After ``sync_timeout_s`` the manager ends; the error names the controller and the informer."""
    client = RecordingClient(World(), qps=0)
    manager = Manager(client, settings=ManagerSettings(sync_timeout_s=30))
    watch = rt.Watch(SharedInformer(client, Pod), rt.enqueue_self)
    manager.add(rt.Controller(name="stuck", reconciler=Reconciler(), watches=[watch]))

    with pytest.raises(
        TimeoutError,
        match=r"'stuck' did not start within 30 s: the "
        r"informer of Pod is not running: take informers from manager",
    ):
        await stopped_after(manager, 100)


async def test_an_unknown_kind_is_reported():
    """The log and the error name group, version and the missing CRD."""
    manager = Manager(RecordingClient(World(), qps=0), settings=ManagerSettings(sync_timeout_s=30))
    manager.informer(Widget)

    with (
        structlog.testing.capture_logs() as lines,
        pytest.raises(TimeoutError, match=r"widgets in example.com/v1beta1 .*widgets.example.com"),
    ):
        await stopped_after(manager, 100)
    advised = [line["advice"] for line in lines if "advice" in line]
    assert len(advised) == 1, "logged once, not at every attempt"
    assert "is the CustomResourceDefinition widgets.example.com installed" in advised[0]


@pytest.mark.parametrize(
    ("namespace", "role"), [("", "ClusterRole"), ("team", "Role in namespace team")]
)
async def test_a_list_that_is_forbidden_gets_the_missing_rule(namespace, role):
    """The error for 403 has the missing rule, as YAML that can be copied."""
    world = World()
    world.faults.status(403, verb="list", resource="jobs")
    manager = Manager(RecordingClient(world, qps=0), settings=ManagerSettings(sync_timeout_s=30))
    manager.informer(Job, namespace=namespace)

    with pytest.raises(TimeoutError) as raised:
        await stopped_after(manager, 100)
    text = str(raised.value)
    assert f"the {role} bound to them needs" in text
    rule = '- apiGroups: ["batch"]\n  resources: ["jobs"]\n  verbs: ["get", "list", "watch"]'
    assert rule in text


@pytest.mark.parametrize("wrong", [Reconciler(), Reconciler, None])
async def test_only_runnables_can_be_added(wrong):
    """The error says that a Runnable is expected."""
    with pytest.raises(TypeError, match="a manager runs Controllers and other Runnables, not"):
        Manager(RecordingClient(qps=0)).add(wrong)


def test_advice_for_kinds_of_kubernetes_names_no_crd():
    """A kind of Kubernetes itself is missing for another reason than a custom one."""
    from jobsetpy.errors import NotFoundError
    from jobsetpy.informers._error_hints import advice

    info = ResourceInfo("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
    assert "another release of Kubernetes" in advice(NotFoundError(404), info)
    assert advice(ValueError("x"), info) == ""
