"""The coscheduler inside a manager: leadership, held binds at its end, and reports of gangs."""

from __future__ import annotations

import asyncio
import resource
from contextlib import asynccontextmanager

import pytest
import structlog

from jobsetpy import aio
from jobsetpy.api import keys
from jobsetpy.coscheduler import Coscheduler, CoschedulerSettings
from jobsetpy.coscheduler._setup import LOST
from jobsetpy.coscheduler.engine.engine import ENDING
from jobsetpy.coscheduler.engine.report import (
    SCHEDULED_REASON,
    TIMED_OUT_REASON,
)
from jobsetpy.coscheduler.engine.writes import BindRequest
from jobsetpy.coscheduler.extender import open_files as _open_files
from jobsetpy.coscheduler.gang_scheduler.state import Limits
from jobsetpy.coscheduler.metrics import REGISTRY
from jobsetpy.errors import LeadershipLostError, NotLeadingError
from jobsetpy.manager import LeaderElectionSettings, Manager, ManagerSettings
from jobsetpy.testing import RecordingClient, VirtualClock, World
from support.coscheduling.scheduler_kit import member_pod

pytestmark = pytest.mark.looptime

LEASE = "coscheduler.jobset.x-k8s.io"


class Replica:
    """A process with its manager and coscheduler, and the error that ended it."""

    def __init__(self, world, identity, *, limits=None, elected=True):
        self.client = RecordingClient(world, qps=0)
        election = LeaderElectionSettings(namespace="default", name=LEASE, identity=identity)
        self.manager = Manager(
            self.client,
            settings=ManagerSettings(leader_election=election if elected else None),
            clock=VirtualClock(),
        )
        settings = CoschedulerSettings(namespace="default", limits=limits or Limits())
        self.coscheduler = Coscheduler(self.manager, settings)
        self.manager.add(self.coscheduler)
        self.stop = asyncio.Event()
        self.lost = None

    async def run(self):
        """Run until stopped, or until leadership is lost."""
        try:
            await self.manager.run(self.stop)
        except LeadershipLostError as lost:
            self.lost = lost

    @asynccontextmanager
    async def leading(self):
        """Run and lead until the end of the block; a supervisor for more tasks, and the own task."""
        async with aio.supervise() as tasks:
            running = tasks.start(self.run(), name="replica")
            await self.manager.leading.wait()
            yield tasks, running
            self.stop.set()
            await running

    def bind(self, world, name):
        """Request a bind, as kube-scheduler does."""
        uid = world.get("pods", name)["metadata"]["uid"]
        request = BindRequest(namespace="default", name=name, uid=uid, node="n")
        return self.coscheduler.leading().bind(request)


def new_world():
    """A cluster in memory, in the loop's time."""
    world = World(clock=VirtualClock())
    world.create("nodes", {"metadata": {"name": "n"}})
    return world


def make_group(world, name, size, *, members=None):
    """Create pods of a gang, of which some may be missing."""
    for index in range(members or size):
        world.create("pods", member_pod(f"{name}-{index}", size))


def bound(world):
    """Names of pods that have a node."""
    return {pod["metadata"]["name"] for pod in world.list("pods") if pod["spec"].get("nodeName")}


async def test_only_the_leader_answers():
    """The other replica refuses and is not ready, and leads when the first ends."""
    world = new_world()
    first, second = Replica(world, "a"), Replica(world, "b")
    make_group(world, "g", 2)
    async with first.leading() as (tasks, running):
        tasks.start(second.run(), name="b")
        await second.manager.ready.wait()
        assert list(first.coscheduler.problems()) == []
        assert list(second.coscheduler.problems()) == ["stands by: this replica does not lead"]
        with pytest.raises(NotLeadingError):
            second.bind(world, "g-0")

        first.stop.set()
        await running
        await second.manager.leading.wait()
        binds = [tasks.start(second.bind(world, f"g-{i}"), name="bind") for i in range(2)]
        assert [await each for each in binds] == ["", ""]
        assert bound(world) == {"g-0", "g-1"}
        second.stop.set()


async def test_held_binds_are_answered_when_the_coscheduler_ends():
    """They are answered immediately, for kube-scheduler to try again; a complete gang is bound."""
    world = new_world()
    replica = Replica(world, "a")
    make_group(world, "g", 3)
    make_group(world, "h", 3)
    async with replica.leading() as (tasks, _):
        held = [tasks.start(replica.bind(world, f"g-{i}"), name="bind") for i in range(2)]
        world.faults.latency(1.0, resource="pods/binding")
        complete = [tasks.start(replica.bind(world, f"h-{i}"), name="bind") for i in range(3)]
        await asyncio.sleep(0.2)
        stopped_at = asyncio.get_running_loop().time()
        replica.stop.set()
        assert [await each for each in held] == [ENDING, ENDING]
        assert asyncio.get_running_loop().time() - stopped_at < 0.1
        assert [await each for each in complete] == ["", "", ""]
    assert bound(world) == {"h-0", "h-1", "h-2"}
    assert list(replica.coscheduler.problems()) != []


async def test_a_coscheduler_writes_nothing_after_it_has_lost_its_lease():
    """It answers all held binds; another one may lead by now, and decide differently."""
    world = new_world()
    replica = Replica(world, "a")
    make_group(world, "g", 3)
    async with replica.leading() as (tasks, _):
        held = [tasks.start(replica.bind(world, f"g-{i}"), name="bind") for i in range(2)]
        await asyncio.sleep(0.2)
        world.patch("leases.coordination.k8s.io", LEASE, {"spec": {"holderIdentity": "b"}})
        assert [await each for each in held] == [LOST, LOST]
    assert isinstance(replica.lost, LeadershipLostError)
    assert world.requests.matching("create", "pods/binding") == []
    await asyncio.sleep(10)
    assert world.requests.matching("create", "pods/binding") == []


def events(world):
    """Number of Events by reason, kind and name of their object."""
    return {
        (event["reason"], event["regarding"]["kind"], event["regarding"]["name"]): (
            event.get("series") or {"count": 1}
        )["count"]
        for event in world.list("events.events.k8s.io")
    }


def metric(name, **labels):
    """Current value of a metric; 0 if it has none yet."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_decisions_about_a_gang_are_reported():
    """Each decision has a log line and a count; Events are about the JobSet if there is one."""
    world = new_world()
    for index in range(2):
        pod = member_pod(f"j-{index}", 2)
        pod["metadata"]["labels"] |= {keys.JOBSET_NAME: "train", keys.JOBSET_UID: "u-1"}
        world.create("pods", pod)
    replica = Replica(world, "a", limits=Limits(permit_s=5, permit_per_pod_s=0))
    timeouts = metric("jobset_coscheduler_group_rejections_total", cause="timeout")
    bound_groups = metric("jobset_coscheduler_group_spread_seconds_count")
    with structlog.testing.capture_logs() as lines:
        async with replica.leading() as (tasks, _):
            for _ in range(2):  # two timeouts, reported in one Event
                answer = await replica.bind(world, "j-0")
                assert answer == "default/j: 1 of 2 pods in time"
                await asyncio.sleep(3)
            make_group(world, "g", 2)
            await asyncio.sleep(1)
            both = [tasks.start(replica.bind(world, f"g-{i}"), name="bind") for i in range(2)]
            assert [await each for each in both] == ["", ""]
            await asyncio.sleep(10)
    assert events(world) == {
        (TIMED_OUT_REASON, "JobSet", "train"): 2,
        (SCHEDULED_REASON, "Pod", "g-0"): 1,
    }
    assert metric("jobset_coscheduler_group_rejections_total", cause="timeout") == timeouts + 2
    assert metric("jobset_coscheduler_group_spread_seconds_count") == bound_groups + 1
    reported = [
        (line["event"], line["group"], line.get("cause"))
        for line in lines
        if line.get("event", "").startswith("group ")
    ]
    assert reported == [
        ("group begun", "default/j", None),
        ("group rejected", "default/j", "timeout"),
        ("group rejected", "default/j", "timeout"),
        ("group begun", "default/g", None),
        ("group released", "default/g", None),
    ]


@pytest.mark.parametrize(
    ("wanted", "limit", "number"), [(8000, 20000, 8000), (8000, 1024, 792), (8000, 100, 1)]
)
def test_the_number_of_held_binds_is_limited_by_open_files(wanted, limit, number):
    """Each held bind is a connection; other files of the process need some as well."""
    assert _open_files.holdable(wanted, limit, 32) == number


def test_the_limit_of_open_files_is_raised_to_the_hard_limit():
    """If it is still too low, the possible number of held binds is logged."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
        with structlog.testing.capture_logs() as lines:
            number = _open_files.check(10**9, 32)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
        assert number == hard - _open_files.OTHERS - 32
        (line,) = lines
        assert line["event"].startswith("fewer binds can be held than configured")
        assert line["held_at_most"] == number
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
