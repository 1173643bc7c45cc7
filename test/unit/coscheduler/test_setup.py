"""The coscheduler inside a manager: who answers, and what becomes of held binds when it ends."""

from __future__ import annotations

import asyncio
import resource

import pytest
import structlog

from jobsetpy import aio
from jobsetpy.api import keys
from jobsetpy.coscheduler import Coscheduler, CoschedulerSettings, _open_files
from jobsetpy.coscheduler._engine import ENDING
from jobsetpy.coscheduler._report import (
    DISAGREE_REASON,
    INCOMPLETE_REASON,
    MINIMUM_REASON,
    NO_ROOM_REASON,
    SCHEDULED_REASON,
    TIMED_OUT_REASON,
    Reporter,
)
from jobsetpy.coscheduler._setup import LOST
from jobsetpy.coscheduler._writes import BindRequest
from jobsetpy.coscheduler.gang_scheduler.state import Counts, GangStatus, Limits
from jobsetpy.coscheduler.metrics import REGISTRY
from jobsetpy.errors import LeadershipLostError, NotLeadingError
from jobsetpy.manager import LeaderElectionSettings, Manager, ManagerSettings
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupInfo, PodGroupKey
from jobsetpy.testing import RecordingClient, VirtualClock, World, make_pod

LEASE = "coscheduler.jobset.x-k8s.io"


class Replica:
    """One process: its manager, its coscheduler, and how it ended."""

    def __init__(self, world, identity, *, limits=None, elected=True, capacity=False):
        self.client = RecordingClient(world, qps=0)
        election = LeaderElectionSettings(namespace="default", name=LEASE, identity=identity)
        self.manager = Manager(
            self.client,
            settings=ManagerSettings(leader_election=election if elected else None),
            clock=VirtualClock(),
        )
        settings = CoschedulerSettings(
            namespace="default", limits=limits or Limits(), capacity_check=capacity
        )
        self.coscheduler = Coscheduler(self.manager, settings)
        self.manager.add(self.coscheduler)
        self.stop = asyncio.Event()
        self.lost = None

    async def run(self):
        """Until stopped, or until leadership is lost."""
        try:
            await self.manager.run(self.stop)
        except LeadershipLostError as lost:
            self.lost = lost

    def bind(self, world, name):
        """Ask for a bind, as the scheduler does."""
        uid = world.get("pods", name)["metadata"]["uid"]
        return self.coscheduler.bind(BindRequest(namespace="default", name=name, uid=uid, node="n"))


def new_world():
    """A cluster in memory, in the loop's time."""
    world = World(clock=VirtualClock())
    room = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    world.create("nodes", {"metadata": {"name": "n"}, "status": {"allocatable": room}})
    return world


def make_group(world, name, size, *, gated=False, members=None, **annotations):
    """Pods of a group; some of them may be missing."""
    gates = [{"name": keys.COSCHEDULING_GATE}] if gated else []
    for index in range(members or size):
        labels = {keys.POD_GROUP_NAME: name, keys.POD_GROUP_MIN_AVAILABLE: str(size)}
        pod = make_pod(f"{name}-{index}").labels(labels).annotations(annotations)
        world.create("pods", pod.spec(schedulingGates=gates).phase("Pending").build())


def bound(world):
    """Names of pods that have a node."""
    return {p["metadata"]["name"] for p in world.list("pods") if p["spec"].get("nodeName")}


@pytest.mark.looptime
async def test_only_the_leader_answers():
    """The other one says that it does not lead, and is not ready; it leads when the first ends."""
    world = new_world()
    first, second = Replica(world, "a"), Replica(world, "b")
    make_group(world, "g", 2)
    async with aio.supervise() as tasks:
        running = tasks.start(first.run(), name="a")
        await first.manager.leading.wait()
        tasks.start(second.run(), name="b")
        await second.manager.ready.wait()
        assert list(first.coscheduler.problems()) == []
        assert list(second.coscheduler.problems()) == ["stands by: this replica does not lead"]
        with pytest.raises(NotLeadingError):
            await second.bind(world, "g-0")
        with pytest.raises(NotLeadingError):
            await second.coscheduler.preempt({})

        first.stop.set()
        await running
        await second.manager.leading.wait()
        asked = [tasks.start(second.bind(world, f"g-{i}"), name="bind") for i in range(2)]
        assert [await each for each in asked] == ["", ""]
        assert bound(world) == {"g-0", "g-1"}
        second.stop.set()


@pytest.mark.looptime
async def test_what_is_held_is_answered_when_it_ends():
    """At once, so that the scheduler asks the next leader; a complete group is bound to its end."""
    world = new_world()
    replica = Replica(world, "a")
    make_group(world, "g", 3)
    make_group(world, "h", 3)
    async with aio.supervise() as tasks:
        running = tasks.start(replica.run(), name="a")
        await replica.manager.leading.wait()
        held = [tasks.start(replica.bind(world, f"g-{i}"), name="bind") for i in range(2)]
        world.faults.latency(1.0, resource="pods/binding")
        complete = [tasks.start(replica.bind(world, f"h-{i}"), name="bind") for i in range(3)]
        await asyncio.sleep(0.2)
        stopped_at = asyncio.get_running_loop().time()
        replica.stop.set()
        assert [await each for each in held] == [ENDING, ENDING]
        assert asyncio.get_running_loop().time() - stopped_at < 0.1
        assert [await each for each in complete] == ["", "", ""]
        await running
    assert bound(world) == {"h-0", "h-1", "h-2"}
    assert list(replica.coscheduler.problems()) != []


@pytest.mark.looptime
async def test_who_has_lost_the_lease_answers_all_and_writes_nothing():
    """Another one may lead by now, and would decide otherwise."""
    world = new_world()
    replica = Replica(world, "a")
    make_group(world, "g", 3)
    async with aio.supervise() as tasks:
        running = tasks.start(replica.run(), name="a")
        await replica.manager.leading.wait()
        held = [tasks.start(replica.bind(world, f"g-{i}"), name="bind") for i in range(2)]
        await asyncio.sleep(0.2)
        world.patch("leases.coordination.k8s.io", LEASE, {"spec": {"holderIdentity": "b"}})
        assert [await each for each in held] == [LOST, LOST]
        await running
    assert isinstance(replica.lost, LeadershipLostError)
    assert world.requests.matching("create", "pods/binding") == []
    make_group(world, "late", 1, gated=True)
    await asyncio.sleep(10)
    assert world.requests.matching("patch", "pods") == []


@pytest.mark.looptime
async def test_a_new_leader_looks_at_all_groups_before_it_lifts_one():
    """The older group goes first, whatever the order in which pods are listed."""
    world = new_world()
    make_group(world, "b", 2, gated=True)
    await asyncio.sleep(8)
    make_group(world, "a", 2, gated=True)
    replica = Replica(world, "a", limits=Limits(in_flight=1))
    async with aio.supervise() as tasks:
        tasks.start(replica.run(), name="a")
        await asyncio.sleep(1)
        lifted = [
            pod["metadata"]["name"]
            for pod in world.list("pods")
            if not pod["spec"].get("schedulingGates")
        ]
        assert lifted == ["b-0", "b-1"]
        replica.stop.set()


def events(world):
    """Reason, what it is about, and how often."""
    return {
        (event["reason"], event["regarding"]["kind"], event["regarding"]["name"]): (
            event.get("series") or {"count": 1}
        )["count"]
        for event in world.list("events.events.k8s.io")
    }


def metric(name, **labels):
    """A figure now; 0 if there is none yet."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.mark.looptime
async def test_report_of_a_group():
    """A log line and a count for each decision; an event that is about the JobSet if there is one."""
    world = new_world()
    labels = {keys.JOBSET_NAME: "train", keys.JOBSET_UID: "u-1", keys.POD_GROUP_NAME: "j",
              keys.POD_GROUP_MIN_AVAILABLE: "2"}  # fmt: skip
    for index in range(2):
        pod = make_pod(f"j-{index}").labels(labels)
        world.create("pods", pod.phase("Pending").build())
    replica = Replica(world, "a", limits=Limits(permit_s=5, permit_per_pod_s=0))
    timeouts = metric("jobset_coscheduler_group_rejections_total", cause="timeout")
    bound_groups = metric("jobset_coscheduler_group_spread_seconds_count")
    with structlog.testing.capture_logs() as lines:
        async with aio.supervise() as tasks:
            running = tasks.start(replica.run(), name="a")
            await replica.manager.leading.wait()
            for _ in range(2):  # twice too late, told in one event
                answer = await replica.bind(world, "j-0")
                assert answer == "default/j: 1 of 2 pods in time"
                await asyncio.sleep(3)
            make_group(world, "g", 2, gated=True)
            await asyncio.sleep(1)
            both = [tasks.start(replica.bind(world, f"g-{i}"), name="bind") for i in range(2)]
            assert [await each for each in both] == ["", ""]
            await asyncio.sleep(10)
            replica.stop.set()
            await running
    assert events(world) == {
        (TIMED_OUT_REASON, "JobSet", "train"): 2,
        (SCHEDULED_REASON, "Pod", "g-0"): 1,
    }
    assert metric("jobset_coscheduler_group_rejections_total", cause="timeout") == timeouts + 2
    assert metric("jobset_coscheduler_group_spread_seconds_count") == bound_groups + 1
    told = [
        (line["event"], line["group"], line.get("cause"))
        for line in lines
        if line.get("event", "").startswith("group ")
    ]
    assert told == [
        ("group came without gates", "default/j", None),
        ("group rejected", "default/j", "timeout"),
        ("group rejected", "default/j", "timeout"),
        ("group ungated", "default/g", None),
        ("group released", "default/g", None),
    ]


@pytest.mark.looptime
async def test_groups_that_cannot_be_right_are_reported():
    """Too few pods for a while, once; and pods that do not agree, when they are lifted."""
    world = new_world()
    make_group(world, "few", 3, gated=True, members=2)
    make_group(world, "odd", 2, gated=True, members=1)
    no_minimum = make_pod("none-0").labels({keys.POD_GROUP_NAME: "none"}).phase("Pending")
    world.create("pods", no_minimum.build())
    other = make_pod("odd-1").labels(
        {keys.POD_GROUP_NAME: "odd", keys.POD_GROUP_MIN_AVAILABLE: "1"}
    )
    gates = [{"name": keys.COSCHEDULING_GATE}]
    world.create("pods", other.spec(priority=7, schedulingGates=gates).phase("Pending").build())
    replica = Replica(world, "a")
    async with aio.supervise() as tasks:
        running = tasks.start(replica.run(), name="a")
        await asyncio.sleep(25)
        assert events(world) == {
            (DISAGREE_REASON, "Pod", "odd-0"): 2,
            (MINIMUM_REASON, "Pod", "none-0"): 1,
        }
        await asyncio.sleep(100)
        replica.stop.set()
        await running
    assert events(world) == {
        (DISAGREE_REASON, "Pod", "odd-0"): 2,
        (INCOMPLETE_REASON, "Pod", "few-0"): 1,
        (MINIMUM_REASON, "Pod", "none-0"): 1,
    }


@pytest.mark.looptime
async def test_groups_that_wait_for_room_are_reported():
    """Once, after a while: an autoscaler sees none of them. Others are tried for its sake."""
    world = new_world()
    world.delete("nodes", "n")
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "1"}}}
    world.create("nodes", node)
    make_group(world, "large", 2, gated=True)
    make_group(world, "tried", 2, gated=True, **{keys.COSCHEDULING_CAPACITY_ANNOTATION: "false"})
    replica = Replica(world, "a", capacity=True)
    async with aio.supervise() as tasks:
        running = tasks.start(replica.run(), name="a")
        await replica.manager.leading.wait()
        await asyncio.sleep(100)
        replica.stop.set()
        await running
    assert events(world) == {(NO_ROOM_REASON, "Pod", "large-0"): 1}
    gated = {p["metadata"]["name"] for p in world.list("pods") if p["spec"].get("schedulingGates")}
    assert gated == {"large-0", "large-1"}


@pytest.mark.parametrize("lacking", [True, False])
def test_some_groups_at_a_time_are_asked_about_room(lacking):
    """However many wait, no census holds up the loop for long; each has its turn."""
    asked = []

    def lacks_capacity(key):
        asked.append(key)
        return lacking

    clock = aio.ManualClock()
    keys_ = [PodGroupKey("ns", f"g{number}") for number in range(1000)]
    infos = [PodGroupInfo(key=k, initial_timestamp=0, uid="", min_available=2) for k in keys_]
    standings = {
        info.key: GangStatus(info, 2, 2, 0, 0, in_flight=False, failures=0) for info in infos
    }
    reporter = Reporter(
        clock,
        lambda *_: None,
        lambda _: [],
        lacks_capacity=lacks_capacity,
        gang_status=standings.get,
    )
    for key in keys_:
        reporter.staged(key, "queued")
    census = Counts({}, {})
    reporter.counts(census)
    assert not asked
    clock.advance(31)
    counts = []
    while len(asked) < 1000 and len(counts) < 100:
        before = len(asked)
        reporter.counts(census)
        counts.append(len(asked) - before)
    assert max(counts) <= 100
    assert sorted(asked) == sorted(keys_)


@pytest.mark.parametrize(
    ("wanted", "limit", "number"), [(8000, 20000, 8000), (8000, 1024, 792), (8000, 100, 1)]
)
def test_as_much_is_held_as_files_may_be_open(wanted, limit, number):
    """Each request is a connection; some files are needed for the rest."""
    assert _open_files.holdable(wanted, limit, 32) == number


def test_the_limit_on_open_files_is_raised_as_far_as_may_be():
    """Up to the hard limit; what that is too low for is told."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
        with structlog.testing.capture_logs() as lines:
            number = _open_files.check(10**9, 32, 1)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
        assert number == hard - _open_files.OTHERS - 32
        (line,) = lines
        assert line["event"].startswith("fewer binds can be held than configured")
        assert line["held_at_most"] == number
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
