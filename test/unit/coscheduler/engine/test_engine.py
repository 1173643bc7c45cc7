"""The engine of coscheduling, with a cluster in memory and a simulated kube-scheduler."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest

from jobsetpy import aio
from jobsetpy.api import keys
from jobsetpy.coscheduler import metrics
from jobsetpy.coscheduler.engine.backlog import Backlog
from jobsetpy.coscheduler.engine.engine import Engine
from jobsetpy.coscheduler.engine.nodes import NodeSlice
from jobsetpy.coscheduler.engine.pods import GroupLabels, GroupPod, Preemptor
from jobsetpy.coscheduler.engine.writes import BindRequest
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey
from jobsetpy.testing import RecordingClient, VirtualClock, World, make_pod
from support.coscheduling.scheduler_kit import member_pod
from support.managers import started

pytestmark = pytest.mark.looptime


class Scheduler:
    """A scheduler that tries pods without gates, reserves capacity, and requests binds."""

    def __init__(self, world, capacity):
        self.world = world
        self.capacity = capacity
        self.engine = None
        self.reserved = set()
        self.not_before = {}
        self.asking = {}

    async def run(self):
        """Schedule until cancelled."""
        async with aio.supervise() as tasks:
            while True:
                self.cycle(tasks)
                await asyncio.sleep(0.1)

    def cycle(self, tasks):
        """Try each pod once."""
        now = asyncio.get_running_loop().time()
        pods = {pod["metadata"]["uid"]: pod for pod in self.world.list("pods")}
        self.reserved &= set(pods)
        for uid, pod in pods.items():
            spec = pod["spec"]
            if spec.get("nodeName") or spec.get("schedulingGates") or uid in self.asking:
                continue
            if spec.get("schedulerName") == "none":
                continue
            if self.not_before.get(uid, 0) > now:
                continue
            name = pod["metadata"]["name"]
            if len(self.reserved) >= self.capacity:
                self.not_before[uid] = now + 2
                self.report(pod, "0/1 nodes are available")
                continue
            self.reserved.add(uid)
            asking = tasks.start(self.ask(uid, name), name=f"bind-{name}")
            self.asking[uid] = asking

    def report(self, pod, message):
        """Set the condition, unless it is set already."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                     "message": message}  # fmt: skip
        known = (pod.get("status") or {}).get("conditions") or []
        others = [each for each in known if each["type"] != "PodScheduled"]
        if known != [condition, *others]:
            self.world.set_status("pods", pod["metadata"]["name"], conditions=[condition, *others])

    async def ask(self, uid, name):
        """Request one bind."""
        request = BindRequest(namespace="default", name=name, uid=uid, node="n")
        answer = None
        try:
            answer = await self.engine.bind(request)
        finally:
            del self.asking[uid]
            if answer != "":
                self.reserved.discard(uid)
                self.not_before[uid] = asyncio.get_running_loop().time() + 1


class Rig:
    """A cluster in memory with a scheduler for this number of pods."""

    def __init__(self, capacity=100):
        self.world = World(clock=VirtualClock())
        self.scheduler = Scheduler(self.world, capacity)

    @asynccontextmanager
    async def engine(self):
        """A running coscheduler; leaving the block kills it."""
        client = RecordingClient(self.world, qps=0)
        engine = self.scheduler.engine = Engine(client, clock=VirtualClock())
        manager = Manager(client, clock=VirtualClock())
        immediately = Backlog()
        immediately.empty.set()
        pods = manager.informer(GroupPod, label_selector=keys.POD_GROUP_NAME)
        pods.add_handler(immediately.before(engine.see))
        async with started(manager), aio.supervise() as tasks:
            writing = tasks.start(engine.run(), name="engine")
            scheduling = tasks.start(self.scheduler.run(), name="scheduler")
            yield engine
            scheduling.cancel()
            writing.cancel()

    def group(self, name, size, minimum=None):
        """Create pods of a gang."""
        for index in range(size):
            self.world.create("pods", member_pod(f"{name}-{index}", minimum or size))

    def bound(self, name):
        """Number of a gang's pods that have a node."""
        pods = [pod for pod in self.world.list("pods") if pod["spec"].get("nodeName")]
        return sum(pod["metadata"]["name"].startswith(f"{name}-") for pod in pods)


async def test_two_gangs_are_bound_one_after_the_other_when_only_one_fits():
    """One is bound as a whole and the other not at all, until there is capacity for it."""
    rig = Rig(capacity=12)
    async with rig.engine():
        rig.group("a", 10)
        rig.group("b", 10)
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert {rig.bound("a"), rig.bound("b")} <= {0, 10}
        assert sorted([rig.bound("a"), rig.bound("b")]) == [0, 10]
        first, second = ("a", "b") if rig.bound("a") else ("b", "a")

        for index in range(10):
            rig.world.delete("pods", f"{first}-{index}")
        await asyncio.sleep(13)
        assert rig.bound(second) == 10


async def test_held_binds_are_requested_again_when_the_coscheduler_is_killed():
    """The next coscheduler binds the gang."""
    rig = Rig(capacity=8)
    async with rig.engine() as engine:
        rig.group("a", 10)
        await asyncio.sleep(0.5)
        assert rig.bound("a") == 0
    assert engine.held == 0
    rig.scheduler.capacity = 10
    rig.scheduler.reserved.clear()
    async with rig.engine():
        await asyncio.sleep(15)
        assert rig.bound("a") == 10


async def test_pods_without_a_gang_are_bound_immediately():
    """Pods that are not in the cache are read from the API server."""
    rig = Rig()
    async with rig.engine() as engine:
        rig.world.create("pods", make_pod("plain").phase("Pending").build())
        await asyncio.sleep(1)
        assert rig.world.get("pods", "plain")["spec"]["nodeName"] == "n"
        request = BindRequest(namespace="default", name="plain", uid="other", node="n")
        assert await engine.bind(request) == "another pod has its name now"
        request = BindRequest(namespace="default", name="none", uid="x", node="n")
        assert "none" in await engine.bind(request)


async def test_a_bind_is_repeated_when_the_api_server_refuses_it():
    """The error is returned to kube-scheduler, which tries again."""
    rig = Rig()
    async with rig.engine():
        rule = rig.world.faults.status(409, resource="pods/binding", count=1)
        rig.group("a", 3)
        await asyncio.sleep(5)
        assert rule.hits == 1
        assert rig.bound("a") == 3


def alone(world, name):
    """Create a pod that is a gang; return its UID."""
    return world.create("pods", member_pod(name, 1, group=name))["metadata"]["uid"]


@asynccontextmanager
async def watching(world, *nodes):
    """An engine that watches nodes, and a supervisor for tasks of the test."""
    for name in nodes or ("n",):
        world.create("nodes", {"metadata": {"name": name}})
    client = RecordingClient(world, qps=0)
    engine = Engine(client, clock=VirtualClock(), ordinary_pods=False)
    manager = Manager(client, clock=VirtualClock())
    pods, nodes = manager.informer(GroupPod), manager.informer(NodeSlice)
    async with started(manager), aio.supervise() as tasks:
        engine.listen(pods, nodes)
        writing = tasks.start(engine.run(), name="engine")
        yield engine, tasks
        writing.cancel()


async def test_a_second_bind_request_is_refused_while_the_pod_is_being_bound():
    """The first request is answered when its bind is done."""
    world = World(clock=VirtualClock())
    rule = world.faults.latency(5, resource="pods/binding")
    async with watching(world) as (engine, tasks):
        uid = alone(world, "a")
        request = BindRequest(namespace="default", name="a", uid=uid, node="n")
        await asyncio.sleep(1)
        first = tasks.start(engine.bind(request), name="first")
        await asyncio.sleep(0.1)
        assert "binding" in await engine.bind(request)
        assert not first.done()
        rule.lift()
        assert await first == ""
        assert world.get("pods", "a")["spec"]["nodeName"] == "n"


async def test_preemption_releases_reserved_capacity_without_deleting():
    """The waiting gang is refused instead."""
    rig = Rig(capacity=2)
    async with rig.engine() as engine:
        rig.group("a", 2, minimum=3)
        rig.world.create("pods", member_pod("a-2", 3, schedulerName="none"))
        await asyncio.sleep(1)
        waiting = [pod["metadata"]["uid"] for pod in rig.world.list("pods")][:1]
        assert engine.held == 2
        assert await engine.preempt({"n": waiting}) == {}
        await asyncio.sleep(0)
        assert engine.held == 0


def outcomes():
    """Numbers of decisions about preemption."""
    name = "jobset_coscheduler_preemptions_total"
    outcomes = ("allowed", "refused", "spared")
    return {each: metrics.REGISTRY.get_sample_value(name, {"outcome": each}) for each in outcomes}


async def test_a_member_may_not_preempt_before_its_gang_is_known():
    """Nothing is deleted for a pod that kube-scheduler sees first, nor for one that is gone."""
    world = World(clock=VirtualClock())
    engine = Engine(RecordingClient(world, qps=0), clock=VirtualClock())
    victims = {"n": ["x"]}

    async def ask(uid, name, *, in_group=True):
        labels = GroupLabels(name="a" if in_group else "")
        preemptor = Preemptor(namespace="default", name=name, uid=uid, labels=labels)
        return await engine.preempt(victims, preemptor)

    made = [world.create("pods", member_pod(f"a-{at}", 2)) for at in range(2)]
    first, second = (pod["metadata"]["uid"] for pod in made)
    before = outcomes()
    assert await ask(first, "a-0") == {}
    assert await ask("of-an-earlier-pod", "a-1") == {}
    assert await ask(second, "a-9") == {}
    assert await ask(second, "a-1") == victims
    assert await ask("ordinary", "p", in_group=False) == victims
    assert await engine.preempt(victims) == victims
    counted = {key: value - before[key] for key, value in outcomes().items()}
    assert counted == {"allowed": 3, "refused": 3, "spared": 0}


async def test_deletions_in_a_gap_of_the_watch_are_seen():
    """A gang that has become too small in the gap releases its reservations."""
    rig = Rig()
    async with rig.engine() as engine:
        rig.group("a", 3, minimum=4)
        rig.world.create("pods", member_pod("a-3", 4, schedulerName="none"))
        await asyncio.sleep(1)
        assert engine.held == 3
        rig.world.faults.fail_watches(410)
        rig.world.delete("pods", "a-3")
        await asyncio.sleep(10)
        assert engine.held == 0
        assert rig.bound("a") == 0


async def test_initial_objects_are_forwarded_in_portions():
    """Other tasks run in between, and later events are forwarded after the initial objects."""
    backlog, numbers, counts = Backlog(), [], []
    handler = backlog.before(lambda old, new: numbers.append(-old if new is None else new))
    for number in range(100):
        handler.on_add(number, initial=True)
    async with aio.supervise() as tasks:
        forwarding = tasks.start(backlog.forward(), name="forwarding")
        while not backlog.empty.is_set():
            if len(numbers) == 40:
                handler.on_update(7, 107)
                handler.on_delete(8, final_state_known=True)
            counts.append(len(numbers))
            await asyncio.sleep(0)
        await forwarding
    assert max(after - before for before, after in itertools.pairwise(counts)) <= 20
    assert numbers == [*range(100), 107, -8]
    handler.on_add(101, initial=False)
    assert numbers[-1] == 101


async def test_binds_wait_until_all_existing_pods_are_known():
    """A bind that is requested earlier waits for its answer, also when the engine ends early."""
    world = World(clock=VirtualClock())
    uids = [alone(world, f"g{at}") for at in range(50)]
    async with watching(world) as (engine, tasks):
        assert not engine.gang_scheduler.states()
        request = BindRequest(namespace="default", name="g49", uid=uids[49], node="n")
        asking = tasks.start(engine.bind(request), name="asking")
        assert await asking == ""
        assert len(engine.gang_scheduler.states()) == 50
    assert world.get("pods", "g49")["spec"]["nodeName"] == "n"
    early = Engine(RecordingClient(world, qps=0), clock=VirtualClock())
    early.knows.clear()
    async with aio.supervise() as tasks:
        asking = tasks.start(early.bind(request), name="asking")
        await asyncio.sleep(1)
        early.close()
        assert "is ending" in await asking


@asynccontextmanager
async def with_nodes(world):
    """An engine with two nodes and a gang of three pods, and a function that requests a bind."""
    for at in range(3):
        world.create("pods", member_pod(f"a-{at}", 3))
    async with watching(world, "n", "m") as (engine, tasks):

        def ask(at, node):
            uid = world.get("pods", f"a-{at}")["metadata"]["uid"]
            request = BindRequest(namespace="default", name=f"a-{at}", uid=uid, node=node)
            return tasks.start(engine.bind(request), name="bind")

        yield engine, ask


def cordon(world):
    """Close the node for new pods."""
    world.patch("nodes", "n", {"spec": {"unschedulable": True}})


def taint(world):
    """Mark the node as unreachable."""
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    world.patch("nodes", "n", {"spec": {"taints": [taint]}})


def remove(world):
    """Delete the node."""
    world.delete("nodes", "n")


@pytest.mark.parametrize("lose", [cordon, taint, remove])
async def test_held_binds_are_refused_when_their_node_is_lost(lose):
    """Other binds stay held; the gang is complete once the pod has another node."""
    world = World(clock=VirtualClock())
    async with with_nodes(world) as (engine, ask):
        first, second = ask(0, "n"), ask(1, "m")
        await asyncio.sleep(0.2)
        assert engine.held == 2
        lose(world)
        await asyncio.sleep(0.2)
        assert await first == "node n has changed since it was chosen"
        assert engine.held == 1
        if lose is remove:
            assert await ask(0, "n") == "node n does not exist"
        again = [ask(0, "m"), ask(2, "m")]
        assert [await each for each in (second, *again)] == ["", "", ""]
        assert {pod["spec"]["nodeName"] for pod in world.list("pods")} == {"m"}


async def test_pods_do_not_run_when_their_node_is_deleted():
    """A replacement waits for a complete gang; the pods count again when their node is back."""
    world = World(clock=VirtualClock())
    async with with_nodes(world) as (engine, ask):
        key = PodGroupKey("default", "a")
        assert [await each for each in [ask(at, "n") for at in range(3)]] == ["", "", ""]
        await asyncio.sleep(0.2)
        assert engine.gang_scheduler.gang(key).running == 3
        world.delete("nodes", "n")
        await asyncio.sleep(0.2)
        assert engine.gang_scheduler.gang(key) is None
        world.create("nodes", {"metadata": {"name": "n"}})
        await asyncio.sleep(0.2)
        assert engine.gang_scheduler.gang(key).running == 3
