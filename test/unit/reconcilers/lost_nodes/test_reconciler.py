"""The lost nodes reconciler in a manager, on a cluster in memory and in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.execution import metrics as execution_metrics
from jobsetpy.reconcilers.lost_nodes import reconciler as lost_nodes_reconciler
from jobsetpy.reconcilers.placement import reconciler as placement_reconciler
from jobsetpy.testing import RecordingClient, VirtualClock, World, make_job, make_jobset, make_pod
from support.managers import started

pytestmark = pytest.mark.looptime

TRACKING = "batch.kubernetes.io/job-tracking"


class Nodes:
    """Two nodes and a JobSet; a test plays node controller, Job controller and user."""

    def __init__(self):
        self.world = World(clock=VirtualClock())
        self.world.register(JobSet)
        self.world.graceful_pods = True
        for name in ("n1", "n2"):
            self.world.create("nodes", {"metadata": {"name": name}})
            self.recover(name)

    def jobset(self, name="js", deadline="30s"):
        """Create a JobSet and its Job."""
        builder = make_jobset(name).replicated_job("w")
        if deadline is not None:
            builder.annotations({keys.LOST_NODE_DEADLINE_ANNOTATION: deadline})
        jobset = self.world.create(JobSet, builder.build())
        self.world.create("jobs", make_job(f"{name}-w-0").of(jobset, "w").build())

    def pod(self, name, node="n1", job="js-w-0"):
        """Create a running pod with the Job controller's finalizer."""
        owner = self.world.get("jobs", job)
        body = make_pod(name).of(owner).node(node).build()
        body["metadata"]["finalizers"] = [TRACKING]
        uid = owner["metadata"]["labels"][keys.JOBSET_UID]
        body["metadata"]["annotations"][keys.JOBSET_UID] = uid
        self.world.create("pods", body)
        self.world.set_status("pods", name, phase="Running")

    def recover(self, node):
        """Set the node to ready."""
        self._write(node, "True", lambda at: None)

    def lose(self, node):
        """Set the node to unreachable, as the node controller does."""
        taint = {"key": keys.NODE_UNREACHABLE_TAINT, "effect": "NoExecute"}
        self._write(node, "Unknown", lambda at: [{**taint, "timeAdded": at}])

    def _write(self, node, ready, taints):
        at = VirtualClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")
        self.world.patch("nodes", node, {"spec": {"taints": taints(at)}})
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": at}
        self.world.set_status("nodes", node, conditions=[condition])

    @asynccontextmanager
    async def manager(self, **settings):
        """Run a manager until the block ends."""
        manager = Manager(RecordingClient(self.world, qps=0), clock=VirtualClock())
        lost_nodes_reconciler.setup(manager, lost_nodes_reconciler.LostNodesSettings(**settings))
        async with started(manager):
            yield manager

    def state(self, name):
        """Return the phase of a pod and True if it was deleted by force."""
        pod = self.world.get("pods", name)
        return pod["status"]["phase"], pod["metadata"].get("deletionGracePeriodSeconds") == 0

    def writes(self):
        """Return the manager's writes, except events."""
        requests = self.world.requests.writes
        return [(r.verb, r.resource, r.name) for r in requests if r.resource != "events"]

    def event_notes(self):
        """Return the texts of the events."""
        return [event["note"] for event in self.world.list("events.events.k8s.io")]


@pytest.fixture
async def nodes():
    """Return two ready nodes and a JobSet."""
    made = Nodes()
    made.jobset()
    return made


RUNNING, LOST = ("Running", False), ("Failed", True)


async def test_pods_of_a_lost_node_are_given_up(nodes):
    """They are marked as failed, deleted by force, reported and counted; other pods stay."""
    nodes.jobset("other", deadline=None)
    before = execution_metrics.REGISTRY.get_sample_value("jobset_lost_node_pods_deleted_total")
    async with nodes.manager():
        nodes.pod("a")
        nodes.pod("b", node="n2")
        nodes.pod("c", job="other-w-0")
        for name in ("a", "b", "c"):
            nodes.world.delete("pods", name)
        await asyncio.sleep(100)
        assert nodes.writes() == []  # kubelets may be slow

        nodes.lose("n1")
        await asyncio.sleep(29)
        assert nodes.writes() == []
        await asyncio.sleep(2)
        assert [nodes.state(name) for name in ("a", "b", "c")] == [LOST, RUNNING, RUNNING]
        await asyncio.sleep(100)
        assert nodes.writes() == [("apply", "pods/status", "a"), ("delete", "pods", "a")]
    conditions = nodes.world.get("pods", "a")["status"]["conditions"]
    assert ("DisruptionTarget", "NodeLost") in [(c["type"], c["reason"]) for c in conditions]
    (note,) = nodes.event_notes()
    assert note == (
        "pod was deleted by force, since nothing was heard of node 'n1' since "
        "2026-01-01T00:01:40Z, longer than the deadline of 30 s: 'a'"
    )
    after = execution_metrics.REGISTRY.get_sample_value("jobset_lost_node_pods_deleted_total")
    assert after == before + 1


async def test_deadline_is_kept_when_another_manager_takes_over(nodes):
    """It begins when the node is lost; pods whose deletion is requested later are given up, too."""
    nodes.pod("a")
    nodes.pod("late")
    async with nodes.manager():
        nodes.lose("n1")
        nodes.world.delete("pods", "a")
        await asyncio.sleep(20)
    async with nodes.manager():
        await asyncio.sleep(9)
        assert nodes.state("a") == RUNNING
        await asyncio.sleep(2)
        assert nodes.state("a") == LOST
        nodes.world.delete("pods", "late")
        await asyncio.sleep(29)
        assert nodes.state("late") == RUNNING
        await asyncio.sleep(2)
        assert nodes.state("late") == LOST


async def test_failed_pod_is_deleted_by_the_next_manager(nodes):
    """The previous manager had marked it as failed and ended."""
    nodes.pod("a")
    nodes.lose("n1")
    nodes.world.delete("pods", "a")
    nodes.world.set_status("pods", "a", phase="Failed")
    async with nodes.manager():
        await asyncio.sleep(31)
        assert nodes.writes() == [("delete", "pods", "a")]


async def test_pods_stay_when_their_node_recovers(nodes):
    """Even if the cache is late: the node is read before a pod is deleted."""
    nodes.pod("a")
    async with nodes.manager():
        nodes.lose("n1")
        nodes.world.delete("pods", "a")
        await asyncio.sleep(10)
        nodes.world.faults.stall(verb="watch", resource="nodes")
        nodes.recover("n1")
        await asyncio.sleep(25)
        assert nodes.writes() == []
        assert len(nodes.world.requests.matching("list", "nodes")) == 2


async def test_pod_that_its_kubelet_changes_meanwhile_is_left_alone(nodes):
    """Writes name the version that was observed; after a conflict the pod is observed again."""
    nodes.pod("a")
    async with nodes.manager():
        nodes.lose("n1")
        nodes.world.delete("pods", "a")
        await asyncio.sleep(10)
        nodes.world.faults.stall(verb="watch", resource="pods")
        nodes.world.set_status("pods", "a", phase="Succeeded")
        await asyncio.sleep(25)
        assert nodes.world.get("pods", "a")["status"]["phase"] == "Succeeded"


async def test_back_off_of_the_job_controller_counts_from_the_loss_of_the_node(nodes):
    """It uses the time of the pod's ready condition, which the manager sets."""
    nodes.pod("a")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    nodes.world.set_status("pods", "a", conditions=[ready])
    async with nodes.manager():
        await asyncio.sleep(60)
        nodes.lose("n1")
        nodes.world.delete("pods", "a")
        await asyncio.sleep(40)
        conditions = nodes.world.get("pods", "a")["status"]["conditions"]
        found = {c["type"]: (c["status"], c["lastTransitionTime"]) for c in conditions}
        assert found["Ready"] == ("False", "2026-01-01T00:01:00Z")


async def test_pod_whose_job_is_gone_is_given_up_as_well(nodes):
    """Its Job was deleted alone; the UID in the pod's annotation names an existing JobSet.

    A label that names a JobSet with a deadline is not enough.
    """
    for name in ("a", "older", "free"):
        nodes.pod(name)
    uid = {"metadata": {"annotations": {keys.JOBSET_UID: "of-another-js"}}}
    nodes.world.patch("pods", "older", uid)
    nodes.world.patch("pods", "free", {"metadata": {"ownerReferences": None}})
    async with nodes.manager():
        nodes.lose("n1")
        for name in ("a", "older", "free"):
            nodes.world.delete("pods", name)
        nodes.world.delete("jobs", "js-w-0")
        await asyncio.sleep(31)
        assert [nodes.state(name) for name in ("a", "older", "free")] == [LOST, RUNNING, RUNNING]


async def test_deadline_that_is_set_after_the_node_was_lost_applies_immediately(nodes):
    """An annotation needs no new pods."""
    nodes.jobset("other", deadline=None)
    nodes.pod("c", job="other-w-0")
    async with nodes.manager():
        nodes.lose("n1")
        nodes.world.delete("pods", "c")
        await asyncio.sleep(300)
        assert nodes.writes() == []
        notes = {keys.LOST_NODE_DEADLINE_ANNOTATION: "1m"}
        nodes.world.patch(JobSet, "other", {"metadata": {"annotations": notes}})
        await asyncio.sleep(1)
        assert nodes.state("c") == LOST


async def test_pods_of_a_deleted_node_are_left_alone(nodes):
    """The pod garbage collector deletes them."""
    nodes.pod("a")
    async with nodes.manager():
        nodes.lose("n1")
        nodes.world.delete("pods", "a")
        await asyncio.sleep(5)
        nodes.world.delete("nodes", "n1")
        await asyncio.sleep(100)
        assert nodes.writes() == []


async def test_nodes_are_watched_once(nodes):
    """Placement shares the cache, and heartbeats of nodes cause no reconcile."""
    manager = Manager(RecordingClient(nodes.world, qps=0), clock=VirtualClock())
    placement_reconciler.setup(manager)
    controller = lost_nodes_reconciler.setup(manager)
    async with started(manager):
        for _ in range(5):
            nodes.recover("n1")
            await asyncio.sleep(1)
        assert len(controller.queue) == 0
        assert len(nodes.world.requests.matching("watch", "nodes")) == 1
