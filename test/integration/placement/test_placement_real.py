"""Exclusive placement with the real scheduler, Job controller and webhooks, and the shipped rights.

Nodes have no kubelets: pods are bound and stay. The test sets the phases of pods.
"""

import pytest

from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from support.cluster.racks import kill, set_phase
from support.patience import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="module"),
]

LIMIT_S = 30.0
DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
IGNORE_DISRUPTIONS = {
    "backoffLimit": 0,
    "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [DISRUPTED]}]},
}


async def test_each_job_is_alone_in_a_rack_and_no_creation_is_refused(place):
    """Six Jobs of two JobSets on six racks; a seventh is held until a rack is free."""
    site = place.site
    refused = await site.rejections()
    before = dict(site.requests)
    await place.racks(*"abcdef")
    await place.create("one", 3, 5)
    await place.create("two", 3, 5)
    racks = await place.placed(jobs=6, pods=5)
    assert await site.rejections() == refused
    assert await place.events("FailedCreate") == []
    assert await place.held() == 0
    released = site.requests["patch pods"] - before.get("patch pods", 0)
    assert released <= 6 * 4  # one patch for each held follower
    for pod in await place.pods():
        follower = pod["metadata"]["annotations"][keys.COMPLETION_INDEX_ANNOTATION] != "0"
        assert (place.key in pod["spec"]["nodeSelector"]) == follower
        assert ("affinity" in pod["spec"]) == (not follower)

    await place.create("late", 1, 3)
    await eventually(lambda: _is(place.held("late"), 2), LIMIT_S, poll_s=0.1)
    assert not (await place.leaders("late"))[0]["spec"].get("nodeName")
    await place.delete("one")
    (rack,) = (await place.placed("late", jobs=1, pods=3)).values()
    assert rack in {racks[f"one-w-{index}"] for index in range(3)}
    assert await site.rejections() == refused
    assert site.requests["delete pods"] == before.get("delete pods", 0)


async def _is(awaitable, value) -> bool:
    return await awaitable == value


async def end(admin, namespace: str, name: str) -> None:
    """Fail a pod and delete it without delay, as the Job controller notices it."""
    await set_phase(admin, namespace, name, "Failed")
    await kill(admin, namespace, name)


async def test_next_leader_takes_the_place_of_a_deleted_one(place):
    """If the leader was waiting, the next one chooses a rack; if it ran, it joins its followers."""
    admin = place.site.admin
    await place.create("js", 1, 4)
    await eventually(lambda: _is(place.held(), 3), LIMIT_S, poll_s=0.1)
    (first,) = await place.leaders()
    await end(admin, place.name, first["metadata"]["name"])

    async def another(than: dict) -> bool:
        leaders = await place.leaders()
        uids = [leader["metadata"]["uid"] for leader in leaders]
        return len(uids) == 1 and uids != [than["metadata"]["uid"]]

    await eventually(lambda: another(first), LIMIT_S, poll_s=0.1)
    assert await place.held() == 3
    await place.racks("a", "b")
    racks = await place.placed(jobs=1, pods=4)
    followers = {pod["metadata"]["uid"] for pod in await place.pods()}

    (second,) = await place.leaders()
    followers.discard(second["metadata"]["uid"])
    await end(admin, place.name, second["metadata"]["name"])
    await eventually(lambda: another(second), LIMIT_S, poll_s=0.1)
    assert await place.placed(jobs=1, pods=4) == racks
    assert followers < {pod["metadata"]["uid"] for pod in await place.pods()}


async def test_misplaced_followers_are_repaired(place):
    """Pods that were created without webhooks are recreated in their rack without failing a Job."""
    site = place.site
    await place.racks("a", "b", "c")
    await site.stop()
    await site.remove_webhooks()
    await site.start(webhooks=False)
    try:
        await place.create("js", 2, 4, job_spec=IGNORE_DISRUPTIONS)

        async def bound() -> bool:
            pods = await place.pods()
            return len(pods) == 8 and all(pod["spec"].get("nodeName") for pod in pods)

        await eventually(bound, LIMIT_S, poll_s=0.1)
        before = {pod["metadata"]["uid"] for pod in await place.pods()}
        leaders = {pod["metadata"]["uid"] for pod in await place.leaders()}
        assert await place.events(keys.PLACEMENT_VIOLATION_REASON) == []
    finally:
        await site.stop()
        await site.install_webhooks()
        await site.start()

    async def repaired() -> bool:
        racks = await place.domains(pods=4)
        return len(racks) == 2

    await eventually(repaired, LIMIT_S, poll_s=0.1)
    now = {pod["metadata"]["uid"] for pod in await place.pods()}
    assert now & before == leaders
    assert len(await place.events(keys.PLACEMENT_VIOLATION_REASON)) >= 2
    assert (await place.stored("js").status())["restarts"] == 0
    assert site.requests["apply pods/status"] + site.requests["patch pods/status"] >= 6


async def test_follower_is_placed_when_its_leader_has_succeeded(place):
    """The Job completes, although no pod with index 0 will run again."""
    admin = place.site.admin
    await place.racks("a", "b")
    await place.create("js", 1, 3, job_spec={"backoffLimit": 5})
    racks = await place.placed(jobs=1, pods=3)
    (leader,) = await place.leaders()
    await set_phase(admin, place.name, leader["metadata"]["name"], "Succeeded")
    follower = (await place.pods())[0]
    await set_phase(admin, place.name, follower["metadata"]["name"], "Failed")

    async def replaced() -> bool:
        return await place.domains(pods=2) == racks

    await eventually(replaced, LIMIT_S, poll_s=0.1)
    for pod in await place.pods():
        await set_phase(admin, place.name, pod["metadata"]["name"], "Succeeded")
    await place.stored("js").reaches_condition("Completed")


class Spares:
    """A JobSet of two Jobs with two seats and a spare each; the test simulates its agents.

    Args:
        place: namespace with three racks, each with as many nodes as a Job has pods.
    """

    def __init__(self, place):
        self.place = place

    async def create(self, *, jobs=2, pods=3, spares=keys.IN_PLACE_SPARES_ANNOTATION):
        """Create the JobSet and run its pods at epoch 1; return their racks."""
        place = self.place
        await place.account(keys.AGENT_NAME)
        await place.racks("a", "b", "c", nodes=pods)
        container = {"name": "c", "image": "test.invalid/c:1", "command": ["work"]}
        container["resources"] = {"requests": {"cpu": "60"}}
        notes = {
            keys.IN_PLACE_AGENT_ANNOTATION: "supervisor",
            keys.IN_PLACE_PROCESSES_ANNOTATION: "1",
            spares: "1",
        }
        policy = {"maxRestarts": 9, "restartStrategy": "InPlaceRestart"}
        spec = {"containers": [container]}
        whole = spares == keys.IN_PLACE_SPARE_JOBS_ANNOTATION
        working = (jobs - 1, pods) if whole else (jobs, pods - 1)
        await place.create("js", *working, annotations=notes, pod_spec=spec, failurePolicy=policy)
        racks = await place.placed(jobs=jobs, pods=pods)
        for pod in await place.pods():
            await set_phase(place.site.admin, place.name, pod["metadata"]["name"], "Running")
        await self.lift(1)
        return racks

    async def lift(self, epoch):
        """Report an epoch for all pods with a node, and wait until its barrier lifts."""
        for pod in await self.place.pods():
            body = {"metadata": {"annotations": {keys.EPOCH_ANNOTATION: str(epoch)}}}
            if pod["spec"].get("nodeName"):
                await self.place.site.admin.merge_patch(
                    Pod, self.place.name, pod["metadata"]["name"], body
                )
        await self.place.stored("js").reaches_epoch(epoch)

    async def pod(self, job, index):
        """Return the pod of an index of a Job; ``None`` while there is none."""
        for pod in await self.place.pods():
            meta = pod["metadata"]
            found = meta["labels"][keys.JOB_INDEX], meta["labels"][keys.COMPLETION_INDEX_LABEL]
            if found == (str(job), str(index)):
                return pod
        return None

    async def fail(self, job, index):
        """Fail a pod; return its successor."""
        old = (await self.pod(job, index))["metadata"]
        await set_phase(self.place.site.admin, self.place.name, old["name"], "Failed")

        async def replaced():
            new = await self.pod(job, index)
            return new if new and new["metadata"]["uid"] != old["uid"] else None

        return await eventually(replaced, LIMIT_S, poll_s=0.1)

    async def bound(self, job, index):
        """Wait until a pod has a node; return the node's name."""

        async def node():
            pod = await self.pod(job, index)
            return pod and pod["spec"].get("nodeName")

        return await eventually(node, LIMIT_S, poll_s=0.1)


@pytest.mark.parametrize("index", [0, 1, 2], ids=["leader", "follower", "spare"])
async def test_successor_stays_with_its_job_when_a_pod_of_a_job_with_spares_fails(place, index):
    """Another rack is free; the living pods stay where they are."""
    spares = Spares(place)
    racks = await spares.create()
    before = {pod["metadata"]["uid"] for pod in await place.pods()}
    await spares.fail(0, index)

    assert await place.placed(jobs=2, pods=3) == racks
    after = {pod["metadata"]["uid"] for pod in await place.pods()}
    assert (len(before - after), len(after - before)) == (1, 1)
    if index < 2:  # the spare has the seat, or gets it with this lift
        await spares.lift(2)
        record = (await place.stored("js").status())["inPlaceRestart"]
        taken = [(one["job"], one["seat"], one["podIndex"]) for one in record.get("takenSeats", ())]
        assert taken in ([], [("js-w-0", index, 2)])


async def test_leader_waits_for_its_rack_when_its_node_is_lost(place):
    """It is not placed in a free rack, evicts no pod, and gets the next free node first."""
    spares = Spares(place)
    racks = await spares.create()
    leader = await spares.pod(0, 0)
    lost = leader["spec"]["nodeName"]
    await place.capacity(lost, cpu="0")
    await spares.fail(0, 0)
    live = {(await spares.pod(0, index))["metadata"]["uid"] for index in (1, 2)}
    await place.unschedulable(1)
    await spares.lift(2)
    (taken,) = (await place.stored("js").status())["inPlaceRestart"]["takenSeats"]
    assert (taken["seat"], taken["podIndex"]) == (0, 2)
    assert live == {(await spares.pod(0, index))["metadata"]["uid"] for index in (1, 2)}

    # A follower fails, too: the leader gets its node, and its successor waits.
    node = (await spares.pod(0, 1))["spec"]["nodeName"]
    await spares.fail(0, 1)
    assert await spares.bound(0, 0) == node
    await place.unschedulable(1)
    await place.capacity(lost, cpu="64")
    assert await spares.bound(0, 1) == lost
    assert await place.placed(jobs=2, pods=3) == racks


async def test_spare_job_works_in_its_own_rack_when_another_job_loses_a_pod(place):
    """Whole Jobs exchange their work, not their racks; the successor is placed in its Job's rack."""

    spares = Spares(place)
    racks = await spares.create(jobs=3, pods=2, spares=keys.IN_PLACE_SPARE_JOBS_ANNOTATION)
    lost = (await spares.pod(0, 1))["spec"]["nodeName"]
    await place.capacity(lost, cpu="0")
    await spares.fail(0, 1)
    await place.unschedulable(1)
    await spares.lift(2)
    record = (await place.stored("js").status())["inPlaceRestart"]
    assert record["takenJobs"] == [{"job": "js-w-0", "holder": "js-w-2"}]

    await place.capacity(lost, cpu="64")
    assert await place.placed(jobs=3, pods=2) == racks
