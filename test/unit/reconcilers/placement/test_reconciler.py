"""The placement reconciler in a manager, on a cluster in memory and in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.execution import metrics as execution_metrics
from jobsetpy.reconcilers.placement import reconciler as placement_reconciler
from jobsetpy.testing import RecordingClient, VirtualClock, World, make_job, make_jobset, make_pod
from support.managers import started

pytestmark = pytest.mark.looptime

RACK = "example.test/rack"
JOB = "js-w-0"


class Rack:
    """Two domains and one Job; a test plays webhook, scheduler, Job controller and user."""

    def __init__(self):
        self.world = World(clock=VirtualClock())
        self.world.register(JobSet)
        self.jobset = self.world.create(JobSet, make_jobset("js").replicated_job("w").build())
        self.job = self.make_job()
        self.node("a1", "a")
        self.node("b1", "b")

    @asynccontextmanager
    async def manager(self, **settings):
        """Run a manager until the block ends."""
        manager = Manager(RecordingClient(self.world, qps=0), clock=VirtualClock())
        self.controller = placement_reconciler.setup(manager, **settings)
        async with started(manager):
            yield manager

    @staticmethod
    async def settle(seconds=1.0):
        """Let the manager act for a while."""
        await asyncio.sleep(seconds)

    def make_job(self):
        """Create the Job or its next incarnation."""
        job = make_job(JOB).of(self.jobset, "w")
        job.annotations({keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: RACK})
        return self.world.create("jobs", job.build())

    def node(self, name, domain=""):
        """Create a node, in a domain or without its label."""
        labels = {RACK: domain} if domain else {}
        return self.world.create("nodes", {"metadata": {"name": name, "labels": labels}})

    def pod(self, name, index=1, *, job=None, notes=(), **spec):
        """Create a pod of the Job."""
        annotations = {keys.JOBSET_NAME: "js", keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: RACK}
        pod = make_pod(name).of(job or self.job, index).labels({keys.JOB_KEY: "key"})
        pod.annotations({**annotations, **dict(notes)}).spec(**spec)
        return self.world.create("pods", pod.build())

    def held(self, name, index=1, *, others=(), **more):
        """Create a follower as the webhook does before its leader is bound."""
        gates = [*others, {"name": keys.PLACEMENT_GATE}]
        return self.pod(name, index, schedulingGates=gates, **more)

    def placed(self, name, domain, **more):
        """Create a follower as the webhook does once its leader is bound."""
        return self.pod(name, nodeSelector={RACK: domain}, **more)

    def bind(self, name, node):
        """Bind a pod as the scheduler does."""
        self.world.patch("pods", name, {"spec": {"nodeName": node}})

    def get(self, name):
        """Return a pod's spec, ``None`` if it is gone."""
        pod = self.world.get("pods", name)
        return None if pod is None else pod["spec"]

    def where(self, *names):
        """Return domain and gates of pods, ``None`` for a pod that is gone."""
        out = []
        for name in names:
            spec = self.get(name)
            gates = [] if spec is None else [g["name"] for g in spec.get("schedulingGates") or ()]
            out.append(spec and (spec.get("nodeSelector", {}).get(RACK), gates))
        return out

    def writes(self):
        """Return the manager's writes, except events."""
        requests = self.world.requests.writes
        return [(r.verb, r.resource, r.name) for r in requests if r.resource != "events"]

    def events(self):
        """Return the reasons of the events."""
        return [event["reason"] for event in self.world.list("events.events.k8s.io")]


@pytest.fixture
async def rack():
    """Return nodes and a Job without pods."""
    return Rack()


def counted(action):
    """Return the metric's number of released or evicted followers."""
    name = "jobset_exclusive_placement_followers_total"
    return execution_metrics.REGISTRY.get_sample_value(name, {"action": action})


HELD = (None, [keys.PLACEMENT_GATE])


async def test_followers_are_released_when_their_leader_is_bound(rack):
    """With one patch each, and no other write."""
    async with rack.manager():
        rack.held("f1", 1)
        rack.pod("leader", 0)
        rack.held("f2", 2)
        await rack.settle()
        assert rack.where("f1", "f2") == [HELD, HELD]
        assert rack.writes() == []

        rack.bind("leader", "b1")
        await rack.settle()
        assert rack.where("f1", "f2") == [("b", []), ("b", [])]
        rack.bind("f1", "b1")
        rack.world.set_status("pods", "leader", phase="Running")
        await rack.settle(100)
        assert sorted(rack.writes()) == [("patch", "pods", "f1"), ("patch", "pods", "f2")]
        assert rack.events() == []
        assert rack.world.requests.count("list", "pods") == 1


async def test_followers_are_released_by_the_next_manager(rack):
    """No manager ran when they were created."""
    rack.pod("leader", 0, nodeName="a1")
    rack.held("f1")
    async with rack.manager():
        await rack.settle()
        assert rack.where("f1") == [("a", [])]
    rack.held("f2")
    async with rack.manager():
        await rack.settle()
        assert rack.where("f2") == [("a", [])]


async def test_followers_wait_for_the_node_of_their_leader(rack):
    """Or for its label; only a missing label is reported, once."""
    async with rack.manager():
        rack.pod("leader", 0, nodeName="new")
        rack.held("f1")
        rack.placed("f2", "a")
        await rack.settle(1000)
        assert rack.where("f1", "f2") == [HELD, ("a", [])]
        assert rack.writes() == []
        rack.node("new")
        await rack.settle(1000)
        assert rack.where("f1", "f2") == [HELD, ("a", [])]
        assert rack.events() == [keys.TOPOLOGY_UNKNOWN_REASON]
        rack.world.patch("nodes", "new", {"metadata": {"labels": {RACK: "a"}}})
        await rack.settle()
        assert rack.where("f1", "f2") == [("a", []), ("a", [])]
        assert rack.events() == [keys.TOPOLOGY_UNKNOWN_REASON]


async def test_relabelled_nodes_move_no_pod(rack):
    """Running pods are not evicted when the domain of their node changes."""
    async with rack.manager():
        rack.pod("leader", 0, nodeName="a1")
        rack.placed("f1", "a")
        await rack.settle()
        rack.world.patch("nodes", "a1", {"metadata": {"labels": {RACK: "z"}}})
        await rack.settle()
        assert rack.where("f1") == [("a", [])]


async def test_misplaced_followers_are_evicted(rack):
    """Each gets the condition first and is deleted then; held followers are released."""
    before = {action: counted(action) for action in ("released", "evicted")}
    async with rack.manager():
        rack.pod("leader", 0)
        rack.placed("right", "a")
        rack.placed("wrong", "b")
        rack.held("held")
        ended = rack.placed("ended", "b")
        rack.world.set_status("pods", "ended", phase="Succeeded")
        rack.world.patch("pods", "wrong", {"metadata": {"finalizers": ["example.test/keep"]}})
        other = [{"type": "DisruptionTarget", "status": "True", "reason": "Other"}]
        rack.world.set_status("pods", "right", conditions=other)
        rack.bind("leader", "a1")
        await rack.settle()
        assert rack.where("right", "held") == [None, ("a", [])]
        assert rack.world.get("pods", "ended")["metadata"]["uid"] == ended["metadata"]["uid"]
        wrong = rack.world.get("pods", "wrong")
        assert wrong["metadata"]["deletionTimestamp"]
        (condition,) = wrong["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("DisruptionTarget", "True")
        assert condition["reason"] == "ExclusivePlacementViolation"
        assert condition["message"] == "Pod violated JobSet exclusive placement policy"
        assert condition["lastTransitionTime"]
        assert rack.events() == ["ExclusivePlacementViolation"]
        assert counted("released") == before["released"] + 1
        assert counted("evicted") == before["evicted"] + 2
        order = [write[:2] for write in rack.writes() if write[2] == "wrong"]
        assert order == [("apply", "pods/status"), ("delete", "pods")]
        assert ("apply", "pods/status", "right") not in rack.writes()


async def test_late_misplaced_follower_is_repaired_by_its_own_event(rack):
    """It was created by hand or while the webhook was unreachable."""
    async with rack.manager():
        rack.pod("leader", 0, nodeName="a1")
        rack.placed("good", "a")
        await rack.settle()
        rack.pod("bare")
        await rack.settle()
        assert rack.where("good", "bare") == [None, None]


async def test_no_pod_is_evicted_when_the_cache_is_late(rack):
    """Pods are listed before an eviction, and the list has the next leader."""
    async with rack.manager():
        rack.pod("leader", 0, nodeName="new")
        rack.placed("f1", "b")
        await rack.settle()
        rule = rack.world.faults.stall(verb="watch", resource="pods")
        rack.world.delete("pods", "leader")
        rack.pod("next", 0, nodeName="b1")
        rack.node("new", "a")
        await rack.settle()
        assert (
            rack.world.requests.count("list", "pods") == 2
        )  # of the cache, and before an eviction
        assert rack.writes() == []
        rule.lift()
        await rack.settle()
        assert rack.where("f1") == [("b", [])]


async def test_failed_eviction_is_repeated_and_delays_no_other(rack):
    """The pod stays until the condition in its status has been written."""
    async with rack.manager():
        rack.placed("f1", "b")
        rack.placed("f2", "b")
        rule = rack.world.faults.status(500, verb="apply", resource="pods/status", name="f1")
        rack.pod("leader", 0, nodeName="a1")
        await rack.settle()
        assert rack.where("f1", "f2") == [("b", []), None]
        rule.lift()
        await rack.settle(60)
        assert rack.where("f1") == [None]


async def test_events_of_many_followers_cause_one_pass(rack):
    """The leader's event queues it, those of followers queue none."""
    async with rack.manager():
        for index in range(1, 100):
            rack.held(f"f{index}", index)
        rack.pod("leader", 0)
        await rack.settle()
        before = len(rack.world.requests)
        rack.bind("leader", "a1")
        await rack.settle()
        for index in range(1, 100):
            rack.bind(f"f{index}", "a1")
            rack.world.set_status("pods", f"f{index}", phase="Running")
        await rack.settle()
        assert len(rack.world.requests) - before == 99
        assert len(rack.controller.queue) == 0
