"""Every pod is in its domain in the end, after any sequence of faults.

Random steps of users, scheduler and Job controller, with a webhook whose cache may be late, failing
requests, silent watches and managers that start and stop. Then the faults end, and the invariants
are checked.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.placement import reconciler as placement_reconciler
from jobsetpy.testing import RecordingClient, VirtualClock, World, make_job, make_jobset, make_pod
from support.managers import started

pytestmark = pytest.mark.looptime

RACK = "example.test/rack"
RACKS = {"a1": "a", "a2": "a", "b1": "b", "c1": "c"}
GATE = {"name": keys.PLACEMENT_GATE}
FOLLOWERS = 4
STEPS = 60


class Chaos:
    """Two Jobs on three racks; plays every component except the manager."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.world = World(clock=VirtualClock())
        self.world.register(JobSet)
        self.jobset = self.world.create(JobSet, make_jobset("js").replicated_job("w").build())
        self.jobs = {}
        self.numbers = iter(range(10**6))
        self.nodes = []
        self.stalled = None
        for name in ("js-w-0", "js-w-1"):
            self.restart(name)
        for name in RACKS:
            self.node(name)

    # -- the cluster --------------------------------------------------------------------------

    def node(self, name):
        """Create a node in its rack."""
        labels = {RACK: RACKS[name]}
        self.world.create("nodes", {"metadata": {"name": name, "labels": labels}})
        self.nodes.append(name)

    def restart(self, name):
        """Create a new incarnation of a Job; pods of the previous one are still terminating."""
        if name in self.jobs:
            self.world.delete("jobs", name)
        job = make_job(name).of(self.jobset, "w").build()
        self.jobs[name] = self.world.create("jobs", job)

    def live(self, name=None):
        """Yield Job and pod of each pod that has not ended and is of a current Job."""
        uids = {job["metadata"]["uid"]: key for key, job in self.jobs.items()}
        for pod in self.world.list("pods"):
            owner = uids.get(pod["metadata"]["ownerReferences"][0]["uid"])
            ended = pod.get("status", {}).get("phase") in {"Failed", "Succeeded"}
            if owner is not None and not ended and name in {None, owner}:
                yield owner, pod

    def leader(self, name):
        """Return the live leader of a Job, or ``None``."""
        leaders = [pod for _, pod in self.live(name) if index_of(pod) == 0]
        return leaders[0] if leaders else None

    def make_missing(self, name, *, late):
        """Act as Job controller and webhook, whose cache is late with probability ``late``."""
        there = {index_of(pod) for _, pod in self.live(name)}
        for index in set(range(FOLLOWERS + 1)) - there:
            pod = make_pod(f"{name}-{index}-{next(self.numbers)}").of(self.jobs[name], index)
            pod.labels({keys.JOB_KEY: name}).annotations({keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: RACK})
            if index:
                pod.spec(**self.placed_by_webhook(name, late=late))
            self.world.create("pods", pod.build())

    def placed_by_webhook(self, name, *, late):
        """Return the fields of a pod's spec that the webhook sets."""
        leader = self.leader(name)
        if self.random.random() < late:
            wrong = {"nodeSelector": {RACK: self.random.choice("abc")}}
            return self.random.choice([wrong, {}, {"schedulingGates": [GATE]}])
        node = leader and leader["spec"].get("nodeName")
        if not node or node not in self.nodes:
            return {"schedulingGates": [GATE]}
        return {"nodeSelector": {RACK: RACKS[node]}}

    def schedule(self, name):
        """Bind pods: leaders near their pods, followers by their selectors."""
        pods = [pod for _, pod in self.live(name)]
        racks = {RACKS[pod["spec"]["nodeName"]] for pod in pods if pod["spec"].get("nodeName")}
        for pod in pods:
            spec = pod["spec"]
            if spec.get("nodeName") or spec.get("schedulingGates"):
                continue
            domain = spec.get("nodeSelector", {}).get(RACK)
            possible = [
                node
                for node in self.nodes
                if (domain in {None, RACKS[node]})
                and (index_of(pod) != 0 or not racks or RACKS[node] in racks)
            ]
            if possible:
                node = self.random.choice(possible)
                racks.add(RACKS[node])
                self.world.patch("pods", pod["metadata"]["name"], {"spec": {"nodeName": node}})

    # -- faults -------------------------------------------------------------------------------

    def step(self):
        """Take one random step."""
        name = self.random.choice(list(self.jobs))
        pods = [pod["metadata"]["name"] for _, pod in self.live(name)]
        faults = self.world.faults
        match self.random.randrange(16):
            case 0 | 1 | 2 | 3:
                self.make_missing(name, late=0.3)
            case 4 | 5 | 6 | 7:
                self.schedule(name)
            case 8 | 9 if pods:
                self.world.delete("pods", self.random.choice(pods))
            case 10 if (leader := self.leader(name)) is not None:
                self.world.set_status("pods", leader["metadata"]["name"], phase="Failed")
            case 11 if self.random.random() < 0.3:
                self.restart(name)
            case 12 if len(self.nodes) > 2:
                node = self.nodes.pop(self.random.randrange(len(self.nodes)))
                self.world.delete("nodes", node)
                for _, pod in list(self.live()):
                    if pod["spec"].get("nodeName") == node:
                        self.world.delete("pods", pod["metadata"]["name"])
            case 13:
                for node in RACKS.keys() - set(self.nodes):
                    self.node(node)
            case 14:
                verb = self.random.choice(["patch", "merge_patch", "apply", "delete", "list"])
                faults.status(self.random.choice([409, 500, 503]), verb=verb, count=2)
            case 15:
                kind = self.random.choice(["pods", "nodes", "jobs"])
                if self.random.random() < 0.5:
                    faults.end_watches(resource=kind)
                else:
                    self.stalled = faults.stall(verb="watch", resource=kind)

    def end_faults(self):
        """End all faults."""
        if self.stalled is not None:
            self.stalled.lift()
        self.world.faults.clear()


def index_of(pod):
    """Return the completion index of a pod."""
    return int(pod["metadata"]["annotations"][keys.COMPLETION_INDEX_ANNOTATION])


def manager(chaos):
    """Run a manager until the block ends."""
    made = Manager(RecordingClient(chaos.world, qps=0), clock=VirtualClock())
    placement_reconciler.setup(made)
    return started(made)


async def run(chaos, steps):
    """Take random steps at a random pace."""
    for _ in range(steps):
        chaos.step()
        await asyncio.sleep(chaos.random.choice([0, 0, 0.001, 0.01, 1]))


@pytest.mark.parametrize("seed", range(4))
async def test_every_pod_is_in_its_domain_in_the_end(seed):
    """No follower is held once its leader is bound, and all are in their leader's domain."""
    chaos = Chaos(seed)
    for _ in range(2):
        async with manager(chaos):
            await run(chaos, STEPS)
            chaos.end_faults()
        await run(chaos, 5)  # without a manager
        chaos.end_faults()
    async with manager(chaos):
        await run(chaos, STEPS)
        chaos.end_faults()
        for node in RACKS.keys() - set(chaos.nodes):
            chaos.node(node)
        for _ in range(8):
            for name in chaos.jobs:
                chaos.make_missing(name, late=0.0)
                chaos.schedule(name)
            await asyncio.sleep(20)
        before = len(chaos.world.requests.writes)
        await asyncio.sleep(100)
        assert len(chaos.world.requests.writes) == before
    for name in chaos.jobs:
        pods = [pod for _, pod in chaos.live(name)]
        assert len(pods) == FOLLOWERS + 1
        assert not [pod for pod in pods if pod["spec"].get("schedulingGates")]
        assert len({RACKS[pod["spec"]["nodeName"]] for pod in pods}) == 1
        (rack,) = {RACKS[pod["spec"]["nodeName"]] for pod in pods}
        selectors = [pod["spec"].get("nodeSelector", {}).get(RACK) for pod in pods if index_of(pod)]
        assert selectors == [rack] * FOLLOWERS
