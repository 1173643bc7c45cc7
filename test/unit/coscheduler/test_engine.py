"""The engine of coscheduling between a cluster in memory and a pretended scheduler."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest

from jobsetpy import aio
from jobsetpy.api import keys
from jobsetpy.coscheduler import metrics
from jobsetpy.coscheduler._backlog import Backlog
from jobsetpy.coscheduler._capacity import CapacityNode, NodeMeta, NodeStatus
from jobsetpy.coscheduler._engine import Engine
from jobsetpy.coscheduler._pods import QUEUED_CONDITION, SEEN_MARK, GroupPod, Preemptor
from jobsetpy.coscheduler._writes import BindRequest
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey
from jobsetpy.testing import RecordingClient, VirtualClock, World, make_pod
from support.managers import started

pytestmark = pytest.mark.looptime

FOREIGN = "example.test/other"


class Scheduler:
    """Tries pods that have no gate, reserves room, and asks for binds."""

    def __init__(self, world, room):
        self.world = world
        self.room = room
        self.engine = None
        self.reserved = set()
        self.not_before = {}
        self.asking = {}

    async def run(self):
        """Until cancelled."""
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
            if len(self.reserved) >= self.room:
                self.not_before[uid] = now + 2
                self.say(pod, "0/1 nodes are available")
                continue
            self.reserved.add(uid)
            asking = tasks.start(self.ask(uid, name), name=f"bind-{name}")
            self.asking[uid] = asking

    def say(self, pod, message):
        """The condition, unless it is there already."""
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                     "message": message}  # fmt: skip
        known = (pod.get("status") or {}).get("conditions") or []
        others = [each for each in known if each["type"] != "PodScheduled"]
        if known != [condition, *others]:
            self.world.set_status("pods", pod["metadata"]["name"], conditions=[condition, *others])

    async def ask(self, uid, name):
        """Ask for one bind."""
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
    """The cluster."""

    def __init__(self, room=100):
        self.world = World(clock=VirtualClock())
        self.scheduler = Scheduler(self.world, room)

    @asynccontextmanager
    async def engine(self):
        """A coscheduler, running; leaving the block kills it."""
        client = RecordingClient(self.world, qps=0)
        engine = self.scheduler.engine = Engine(client, clock=VirtualClock())
        manager = Manager(client, clock=VirtualClock())
        manager.informer(GroupPod, label_selector=keys.POD_GROUP_NAME).add_handler(engine)
        async with started(manager), aio.supervise() as tasks:
            writing = tasks.start(engine.run(), name="engine")
            scheduling = tasks.start(self.scheduler.run(), name="scheduler")
            yield engine
            scheduling.cancel()
            writing.cancel()

    def group(self, name, size, minimum=None):
        """Make a group's pods, behind their gate."""
        for index in range(size):
            pod = make_pod(f"{name}-{index}").labels(
                {
                    keys.POD_GROUP_NAME: name,
                    keys.POD_GROUP_MIN_AVAILABLE: str(minimum or size),
                }
            )
            gates = [{"name": keys.COSCHEDULING_GATE}]
            self.world.create("pods", pod.spec(schedulingGates=gates).phase("Pending").build())

    def bound(self, name):
        """How many of a group's pods have a node."""
        pods = [pod for pod in self.world.list("pods") if pod["spec"].get("nodeName")]
        return sum(pod["metadata"]["name"].startswith(f"{name}-") for pod in pods)

    def delete(self, name, size):
        """Delete a group's pods."""
        for index in range(size):
            self.world.delete("pods", f"{name}-{index}")


async def test_two_groups_that_do_not_fit_together():
    """One is bound as a whole, the other not at all; and soon, when there is room for it."""
    rig = Rig(room=12)
    async with rig.engine():
        rig.group("a", 10)
        rig.group("b", 10)
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert {rig.bound("a"), rig.bound("b")} <= {0, 10}
        assert sorted([rig.bound("a"), rig.bound("b")]) == [0, 10]
        first, second = ("a", "b") if rig.bound("a") else ("b", "a")

        rig.delete(first, 10)
        await asyncio.sleep(13)
        assert rig.bound(second) == 10


async def test_a_group_waits_behind_its_gate_for_its_members():
    """The scheduler is not bothered; the last member sets it off."""
    rig = Rig()
    async with rig.engine():
        rig.group("a", 3, minimum=4)
        await asyncio.sleep(60)
        assert rig.world.requests.matching("patch", "pods") == []
        last = make_pod("a-3").labels({keys.POD_GROUP_NAME: "a", keys.POD_GROUP_MIN_AVAILABLE: "4"})
        gates = [{"name": FOREIGN}, {"name": keys.COSCHEDULING_GATE}]
        rig.world.create("pods", last.spec(schedulingGates=gates).phase("Pending").build())
        await asyncio.sleep(1)
        assert rig.world.get("pods", "a-3")["spec"]["schedulingGates"] == gates
        assert rig.bound("a") == 0  # three wait for the one that another controller holds back

        rig.world.patch("pods", "a-3", {"spec": {"schedulingGates": gates[1:]}})
        await asyncio.sleep(1)
        assert rig.bound("a") == 4


async def test_a_killed_coscheduler_loses_nothing():
    """What it held is asked for again, of the next one."""
    rig = Rig(room=8)
    async with rig.engine() as engine:
        rig.group("a", 10)
        await asyncio.sleep(0.5)
        assert rig.bound("a") == 0
    assert engine.held == 0
    rig.scheduler.room = 10
    rig.scheduler.reserved.clear()
    async with rig.engine():
        await asyncio.sleep(15)
        assert rig.bound("a") == 10


async def test_ordinary_pods_pass():
    """Those that the cache does not know are read; without a group they are bound at once."""
    rig = Rig()
    async with rig.engine() as engine:
        rig.world.create("pods", make_pod("plain").phase("Pending").build())
        await asyncio.sleep(1)
        assert rig.world.get("pods", "plain")["spec"]["nodeName"] == "n"
        request = BindRequest(namespace="default", name="plain", uid="other", node="n")
        assert await engine.bind(request) == "another pod has its name now"
        request = BindRequest(namespace="default", name="none", uid="x", node="n")
        assert "none" in await engine.bind(request)


async def test_the_schedulers_message_is_marked_so_that_it_is_written_again():
    """Each failure is seen, not only the first."""
    rig = Rig(room=1)
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


async def test_a_refused_bind_is_reported_and_tried_again():
    """The API server says no to one of the group."""
    rig = Rig()
    async with rig.engine():
        rule = rig.world.faults.status(409, resource="pods/binding", count=1)
        rig.group("a", 3)
        await asyncio.sleep(5)
        assert rule.hits == 1
        assert rig.bound("a") == 3


async def test_binds_do_not_wait_for_gates():
    """A complete group is bound while the gates of another one take their time."""
    rig = Rig()
    async with rig.engine():
        labels = {keys.POD_GROUP_NAME: "a", keys.POD_GROUP_MIN_AVAILABLE: "2"}
        for name, gates in (("a-0", []), ("a-1", [{"name": FOREIGN}])):
            pod = make_pod(name).labels(labels).spec(schedulingGates=gates).phase("Pending")
            rig.world.create("pods", pod.build())
        await asyncio.sleep(1)
        rig.world.faults.latency(30, verb="patch", resource="pods")
        rig.group("b", 80)
        await asyncio.sleep(1)
        rig.world.patch("pods", "a-1", {"spec": {"schedulingGates": None}})
        await asyncio.sleep(5)
        assert rig.bound("a") == 2


def one_cpu(world, name, *, gated=True):
    """Create a pod of one CPU that is a group; its UID."""
    pod = make_pod(name).labels({keys.POD_GROUP_NAME: name, keys.POD_GROUP_MIN_AVAILABLE: "1"})
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    gates = [{"name": keys.COSCHEDULING_GATE}] if gated else []
    spec = pod.spec(schedulingGates=gates, containers=containers).phase("Pending").build()
    return world.create("pods", spec)["metadata"]["uid"]


@asynccontextmanager
async def counting(world, client):
    """An engine that counts room, beside one node of one CPU; and the tasks of the test."""
    amounts = {"cpu": "1", "pods": "10"}
    world.create("nodes", {"metadata": {"name": "n"}, "status": {"allocatable": amounts}})
    engine = Engine(client, clock=VirtualClock(), capacity=True)
    manager = Manager(client, clock=VirtualClock())
    pods, nodes = manager.informer(GroupPod), manager.informer(CapacityNode)
    async with started(manager), aio.supervise() as tasks:
        engine.listen(pods, nodes)
        writing = tasks.start(engine.run(), name="engine")
        yield engine, tasks
        writing.cancel()


async def test_a_second_request_for_a_pod_that_is_being_bound():
    """It is refused, and the room of the first stays taken: no other group is let in for it."""
    world = World(clock=VirtualClock())
    rule = world.faults.latency(5, resource="pods/binding")
    async with counting(world, RecordingClient(world, qps=0)) as (engine, tasks):
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


async def test_a_pod_that_the_scheduler_has_seen_first_is_waited_for():
    """Its watch event is on its way, so nothing is read; a pod that never comes is."""
    world = World(clock=VirtualClock())
    async with counting(world, RecordingClient(world, qps=0)) as (engine, tasks):
        for number in range(2):
            uid = one_cpu(world, "a", gated=False)
            # Asked before the loop has had a turn, so before the event has come.
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


async def test_preemption_frees_reserved_room_without_deleting():
    """The waiting group is refused."""
    rig = Rig(room=2)
    async with rig.engine() as engine:
        rig.group("a", 2, minimum=3)
        rig.world.create(
            "pods",
            make_pod("a-2")
            .labels({keys.POD_GROUP_NAME: "a", keys.POD_GROUP_MIN_AVAILABLE: "3"})
            .spec(schedulerName="none")
            .phase("Pending")
            .build(),
        )
        await asyncio.sleep(1)
        waiting = [pod["metadata"]["uid"] for pod in rig.world.list("pods")][:1]
        assert engine.held == 2
        assert await engine.preempt({"n": waiting}) == {}
        await asyncio.sleep(0)
        assert engine.held == 0


def outcomes():
    """Questions about preemption so far."""
    name = "jobset_coscheduler_preemptions_total"
    told = ("allowed", "refused", "spared")
    return {each: metrics.REGISTRY.get_sample_value(name, {"outcome": each}) for each in told}


async def test_a_member_that_the_scheduler_sees_first_is_no_ordinary_pod():
    """Nothing is deleted for it before all of its group are known, nor for one that is gone."""
    world = World(clock=VirtualClock())
    engine = Engine(RecordingClient(world, qps=0), clock=VirtualClock())
    labels = {keys.POD_GROUP_NAME: "a", keys.POD_GROUP_MIN_AVAILABLE: "2"}
    victims = {"n": ["x"]}

    async def ask(uid, name, *, in_group=True):
        who = Preemptor(namespace="default", name=name, uid=uid, in_group=in_group)
        return await engine.preempt(victims, who)

    made = [world.create("pods", make_pod(f"a-{at}").labels(labels).build()) for at in range(2)]
    first, second = (pod["metadata"]["uid"] for pod in made)
    before = outcomes()
    assert await ask(first, "a-0") == {}
    assert await ask("of-an-earlier-pod", "a-1") == {}
    assert await ask(second, "a-9") == {}
    assert await ask(second, "a-1") == victims
    assert await ask("ordinary", "p", in_group=False) == victims
    assert await engine.preempt(victims) == victims
    told = {key: value - before[key] for key, value in outcomes().items()}
    assert told == {"allowed": 3, "refused": 3, "spared": 0}


async def test_preemption_waits_until_room_is_counted():
    """With nodes by the thousand that takes more than one round of the loop."""
    world = World(clock=VirtualClock())
    engine = Engine(RecordingClient(world, qps=0), clock=VirtualClock(), capacity=True)
    engine.capacity.free._steps = 1
    for at in range(5):
        status = NodeStatus(allocatable={"cpu": "1", "pods": "9"})
        node = CapacityNode(metadata=NodeMeta(name=f"n{at}"), status=status)
        engine.capacity.on_add(node, initial=True)
    labels = {keys.POD_GROUP_NAME: "a", keys.POD_GROUP_MIN_AVAILABLE: "3"}
    container = {"name": "w", "image": "w", "resources": {"requests": {"cpu": "2"}}}
    uids = []
    for at in range(3):
        pod = make_pod(f"a-{at}").labels(labels).spec(containers=[container]).build()
        uids.append(world.create("pods", pod)["metadata"]["uid"])
    for at, uid in enumerate(uids):
        who = Preemptor(namespace="default", name=f"a-{at}", uid=uid, in_group=True)
        assert await engine.preempt({"n0": ["x"]}, who) == {}


async def test_deletions_in_a_gap_of_the_watch_are_seen():
    """A group that has become too small meanwhile gives its reservations back."""
    rig = Rig()
    async with rig.engine() as engine:
        rig.group("a", 3, minimum=4)
        last = make_pod("a-3").labels({keys.POD_GROUP_NAME: "a", keys.POD_GROUP_MIN_AVAILABLE: "4"})
        rig.world.create("pods", last.spec(schedulerName="none").phase("Pending").build())
        await asyncio.sleep(1)
        assert engine.held == 3
        rig.world.faults.fail_watches(410)
        rig.world.delete("pods", "a-3")
        await asyncio.sleep(10)
        assert engine.held == 0
        assert rig.bound("a") == 0


async def test_groups_of_one_name_in_two_namespaces_are_two():
    """Members of the one do not count for the other."""
    rig = Rig()
    rig.world.add_namespace("other")
    async with rig.engine():
        rig.group("a", 2, minimum=3)
        labels = {keys.POD_GROUP_NAME: "a", keys.POD_GROUP_MIN_AVAILABLE: "1"}
        gates = [{"name": keys.COSCHEDULING_GATE}]
        pod = make_pod("a-9").labels(labels).spec(schedulingGates=gates).phase("Pending").build()
        pod["metadata"]["namespace"] = "other"
        rig.world.create("pods", pod)
        await asyncio.sleep(3)
        assert not rig.world.get("pods", "a-9", namespace="other")["spec"].get("schedulingGates")
        assert rig.world.get("pods", "a-0")["spec"]["schedulingGates"] == gates


class Hears:
    """A handler that writes down what it is told."""

    def __init__(self):
        self.told = []

    def on_add(self, obj, *, initial):
        """New."""
        self.told.append(obj)

    def on_update(self, old, new):
        """Another state."""
        self.told.append(new)

    def on_delete(self, obj, *, final_state_known):
        """Gone."""
        self.told.append(-obj)


async def test_what_is_there_at_the_beginning_is_reported_some_at_a_time():
    """Others have their turn in between, and what comes meanwhile waits behind it."""
    backlog, hears, counts = Backlog(), Hears(), []
    handler = backlog.before(hears)
    for number in range(100):
        handler.on_add(number, initial=True)
    async with aio.supervise() as tasks:
        telling = tasks.start(backlog.forward(), name="forwarding")
        while not backlog.empty.is_set():
            if len(hears.told) == 40:
                handler.on_update(7, 107)
                handler.on_delete(8, final_state_known=True)
            counts.append(len(hears.told))
            await asyncio.sleep(0)
        await telling
    assert max(after - before for before, after in itertools.pairwise(counts)) <= 20
    assert hears.told == [*range(100), 107, -8]
    handler.on_add(101, initial=False)
    assert hears.told[-1] == 101


async def test_nothing_is_decided_before_all_that_is_there_is_known():
    """A bind that is asked for meanwhile waits, and is answered as ever; so it is at an early end."""
    world = World(clock=VirtualClock())
    uids = [one_cpu(world, f"g{at}", gated=False) for at in range(50)]
    async with counting(world, RecordingClient(world, qps=0)) as (engine, tasks):
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
    """An engine that follows pods and nodes, and a group of three of which two are held on n."""
    room = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    for name in ("n", "m"):
        world.create("nodes", {"metadata": {"name": name}, "status": {"allocatable": room}})
    labels = {keys.POD_GROUP_NAME: "a", keys.POD_GROUP_MIN_AVAILABLE: "3"}
    for at in range(3):
        world.create("pods", make_pod(f"a-{at}").labels(labels).phase("Pending").build())
    client = RecordingClient(world, qps=0)
    engine = Engine(client, clock=VirtualClock(), capacity=True)
    manager = Manager(client, clock=VirtualClock())
    pods, nodes = manager.informer(GroupPod), manager.informer(CapacityNode)
    async with started(manager), aio.supervise() as tasks:
        engine.listen(pods, nodes)
        writing = tasks.start(engine.run(), name="engine")

        def ask(at, node):
            uid = world.get("pods", f"a-{at}")["metadata"]["uid"]
            request = BindRequest(namespace="default", name=f"a-{at}", uid=uid, node=node)
            return tasks.start(engine.bind(request), name="bind")

        yield engine, ask
        writing.cancel()


def cordon(world):
    """The node is closed for new pods."""
    world.patch("nodes", "n", {"spec": {"unschedulable": True}})


def taint(world):
    """The node does not answer."""
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    world.patch("nodes", "n", {"spec": {"taints": [taint]}})


def remove(world):
    """The node is deleted."""
    world.delete("nodes", "n")


@pytest.mark.parametrize("lose", [cordon, taint, remove])
async def test_held_binds_are_refused_when_their_node_is_lost(lose):
    """The others stay held; the gang is complete when the pod has found another node."""
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
    """A replacement waits for as many others as it takes; the pods count again with their node."""
    world = World(clock=VirtualClock())
    async with with_nodes(world) as (engine, ask):
        key = PodGroupKey("default", "a")
        assert [await each for each in [ask(at, "n") for at in range(3)]] == ["", "", ""]
        await asyncio.sleep(0.2)
        assert engine.gang_scheduler.gang_status(key).bound == 3
        node = world.get("nodes", "n")
        world.delete("nodes", "n")
        await asyncio.sleep(0.2)
        assert engine.gang_scheduler.gang_status(key) is None
        world.create("nodes", {"metadata": {"name": "n"}, "status": node["status"]})
        await asyncio.sleep(0.2)
        assert engine.gang_scheduler.gang_status(key).bound == 3


async def test_time_of_a_gang_is_kept_in_the_status_when_its_oldest_pod_is_replaced():
    """A coscheduler that starts later sees the gang as old as it is; the time is written once."""
    rig = Rig(room=0)
    async with rig.engine():
        rig.group("a", 1, minimum=1)
        await asyncio.sleep(30)
        for index in (1, 2):
            labels = {keys.POD_GROUP_NAME: "a", keys.POD_GROUP_MIN_AVAILABLE: "1"}
            gates = [{"name": keys.COSCHEDULING_GATE}]
            pod = make_pod(f"a-{index}").labels(labels).spec(schedulingGates=gates)
            body = pod.phase("Pending").build()
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
