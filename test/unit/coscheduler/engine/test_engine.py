"""The engine of coscheduling, with a cluster in memory and a simulated kube-scheduler."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest

from jobsetpy import aio
from jobsetpy.api import keys
from jobsetpy.api.core import LabelledMeta
from jobsetpy.coscheduler import metrics
from jobsetpy.coscheduler.engine.backlog import Backlog
from jobsetpy.coscheduler.engine.engine import Engine
from jobsetpy.coscheduler.engine.node_slices import CapacityNode, NodeStatus
from jobsetpy.coscheduler.engine.pods import (
    QUEUED_CONDITION,
    SEEN_MARK,
    GroupLabels,
    GroupPod,
    Preemptor,
)
from jobsetpy.coscheduler.engine.writes import BindRequest
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey
from jobsetpy.testing import RecordingClient, VirtualClock, World, make_pod
from support.coscheduling.scheduler_kit import member_pod
from support.managers import started

pytestmark = pytest.mark.looptime

FOREIGN = "example.test/other"
GATE = keys.COSCHEDULING_GATE


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
        """Create gated pods of a gang."""
        for index in range(size):
            self.world.create("pods", member_pod(f"{name}-{index}", minimum or size, GATE))

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


async def test_a_gang_stays_gated_until_its_last_member_is_created():
    """kube-scheduler does not try its pods before."""
    rig = Rig()
    async with rig.engine():
        rig.group("a", 3, minimum=4)
        await asyncio.sleep(60)
        assert rig.world.requests.matching("patch", "pods") == []
        rig.world.create("pods", member_pod("a-3", 4, FOREIGN, GATE))
        await asyncio.sleep(1)
        gates = [{"name": FOREIGN}, {"name": GATE}]
        assert rig.world.get("pods", "a-3")["spec"]["schedulingGates"] == gates
        assert rig.bound("a") == 0  # three pods wait for the one with another controller's gate

        rig.world.patch("pods", "a-3", {"spec": {"schedulingGates": gates[1:]}})
        await asyncio.sleep(1)
        assert rig.bound("a") == 4


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


async def test_the_message_of_a_failure_is_marked_so_that_it_is_written_again():
    """Each failure of kube-scheduler is observed, not only the first."""
    rig = Rig(capacity=1)
    async with rig.engine() as engine:
        rig.group("a", 2)
        await asyncio.sleep(0.5)
        (message,) = {
            condition["message"]
            for pod in rig.world.list("pods")
            for condition in pod["status"].get("conditions", ())
            if condition["reason"] == "Unschedulable"
        }
        assert message == f"{SEEN_MARK}0/1 nodes are available"
        await asyncio.sleep(60)
        assert rig.bound("a") == 0
        assert engine.held <= 1


async def test_a_bind_is_repeated_when_the_api_server_refuses_it():
    """The error is returned to kube-scheduler, which tries again."""
    rig = Rig()
    async with rig.engine():
        rule = rig.world.faults.status(409, resource="pods/binding", count=1)
        rig.group("a", 3)
        await asyncio.sleep(5)
        assert rule.hits == 1
        assert rig.bound("a") == 3


async def test_binds_do_not_wait_for_gates():
    """A complete gang is bound while the gates of another one are slowly removed."""
    rig = Rig()
    async with rig.engine():
        rig.world.create("pods", member_pod("a-0", 2))
        rig.world.create("pods", member_pod("a-1", 2, FOREIGN))
        await asyncio.sleep(1)
        rig.world.faults.latency(30, verb="patch", resource="pods")
        rig.group("b", 80)
        await asyncio.sleep(1)
        rig.world.patch("pods", "a-1", {"spec": {"schedulingGates": None}})
        await asyncio.sleep(5)
        assert rig.bound("a") == 2


def one_cpu(world, name, *, gated=True):
    """Create a pod of one CPU that is a gang; return its UID."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    gates = [GATE] if gated else []
    pod = member_pod(name, 1, *gates, group=name, containers=containers)
    return world.create("pods", pod)["metadata"]["uid"]


@asynccontextmanager
async def counting(world, *nodes, **amounts):
    """An engine that counts the capacity of nodes, and a supervisor for tasks of the test."""
    allocatable = amounts or {"cpu": "1", "pods": "10"}
    for name in nodes or ("n",):
        world.create("nodes", {"metadata": {"name": name}, "status": {"allocatable": allocatable}})
    client = RecordingClient(world, qps=0)
    engine = Engine(client, clock=VirtualClock(), capacity=True)
    manager = Manager(client, clock=VirtualClock())
    pods, nodes = manager.informer(GroupPod), manager.informer(CapacityNode)
    async with started(manager), aio.supervise() as tasks:
        engine.listen(pods, nodes)
        writing = tasks.start(engine.run(), name="engine")
        yield engine, tasks
        writing.cancel()


async def test_a_second_bind_request_is_refused_while_the_pod_is_being_bound():
    """The capacity of the first request stays taken: no other gang is ungated for it."""
    world = World(clock=VirtualClock())
    rule = world.faults.latency(5, resource="pods/binding")
    async with counting(world) as (engine, tasks):
        uid = one_cpu(world, "a")
        request = BindRequest(namespace="default", name="a", uid=uid, node="n")
        await asyncio.sleep(1)
        first = tasks.start(engine.bind(request), name="first")
        await asyncio.sleep(0.1)
        assert "binding" in await engine.bind(request)
        one_cpu(world, "b")
        await asyncio.sleep(2)

        assert not first.done()
        assert world.get("pods", "b")["spec"].get("schedulingGates")
        rule.lift()
        assert await first == ""
        assert world.get("pods", "a")["spec"]["nodeName"] == "n"


async def test_a_bind_waits_for_the_event_of_its_pod():
    """The event will arrive, so nothing is read; only a pod without an event is read."""
    world = World(clock=VirtualClock())
    async with counting(world) as (engine, tasks):
        for number in range(2):
            uid = one_cpu(world, "a", gated=False)
            # Requested before the loop runs again, so before the event has arrived.
            request = BindRequest(namespace="default", name="a", uid=uid, node="n")
            asking = [tasks.start(engine.bind(request), name=f"{each}") for each in range(2)]
            answers = [await each for each in asking]
            assert answers.count("") == 1, number
            world.delete("pods", "a")
            await asyncio.sleep(1)
        assert world.requests.count("get", "pods") == 0
        gone = BindRequest(namespace="default", name="gone", uid="x", node="n")
        assert "gone" in await engine.bind(gone)
        assert world.requests.count("get", "pods") == 1


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


async def test_preemption_waits_until_capacity_is_counted():
    """With thousands of nodes this takes more than one turn of the loop."""
    world = World(clock=VirtualClock())
    engine = Engine(RecordingClient(world, qps=0), clock=VirtualClock(), capacity=True)
    engine.nodes.free._steps = 1
    for at in range(5):
        status = NodeStatus(allocatable={"cpu": "1", "pods": "9"})
        node = CapacityNode(metadata=LabelledMeta(name=f"n{at}"), status=status)
        engine.nodes.see(None, node)
    container = {"name": "w", "image": "w", "resources": {"requests": {"cpu": "2"}}}
    pods = [member_pod(f"a-{at}", 3, containers=[container]) for at in range(3)]
    uids = [world.create("pods", pod)["metadata"]["uid"] for pod in pods]
    for at, uid in enumerate(uids):
        labels = GroupLabels(name="a")
        preemptor = Preemptor(namespace="default", name=f"a-{at}", uid=uid, labels=labels)
        assert await engine.preempt({"n0": ["x"]}, preemptor) == {}


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


async def test_gangs_of_two_namespaces_may_have_the_same_name():
    """Members of one gang do not count for the other."""
    rig = Rig()
    rig.world.add_namespace("other")
    async with rig.engine():
        rig.group("a", 2, minimum=3)
        rig.world.create("pods", member_pod("a-9", 1, GATE, namespace="other"))
        await asyncio.sleep(3)
        assert not rig.world.get("pods", "a-9", namespace="other")["spec"].get("schedulingGates")
        assert rig.world.get("pods", "a-0")["spec"]["schedulingGates"] == [{"name": GATE}]


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
    uids = [one_cpu(world, f"g{at}", gated=False) for at in range(50)]
    async with counting(world) as (engine, tasks):
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
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    async with counting(world, "n", "m", **amounts) as (engine, tasks):

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
        assert "node n does not" in await first
        assert engine.held == 1
        assert "node n does not" in await ask(0, "n")
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
        node = world.get("nodes", "n")
        world.delete("nodes", "n")
        await asyncio.sleep(0.2)
        assert engine.gang_scheduler.gang(key) is None
        world.create("nodes", {"metadata": {"name": "n"}, "status": node["status"]})
        await asyncio.sleep(0.2)
        assert engine.gang_scheduler.gang(key).running == 3


async def test_time_of_a_gang_is_kept_in_the_status_when_its_oldest_pod_is_replaced():
    """A coscheduler that starts later knows the age of the gang; the time is written once."""
    rig = Rig(capacity=0)
    async with rig.engine():
        rig.group("a", 1, minimum=1)
        await asyncio.sleep(30)
        for index in (1, 2):
            body = member_pod(f"a-{index}", 1, GATE)
            body["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:3{index}Z"
            rig.world.create("pods", body)
        await asyncio.sleep(30)
        created = rig.world.get("pods", "a-0")["metadata"]["creationTimestamp"]
        rig.world.delete("pods", "a-0")
        await asyncio.sleep(30)
        kept = [
            (pod["metadata"]["name"], condition["lastTransitionTime"])
            for pod in rig.world.list("pods")
            for condition in pod["status"].get("conditions", ())
            if condition["type"] == QUEUED_CONDITION
        ]
        assert kept == [("a-1", created)]
