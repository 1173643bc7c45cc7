"""From admission requests to answers, over the fake API server and real stores."""

import pytest

from jobsetpy.admission._handlers import LEADERS, JobSetHandlers, PodHandlers, routes
from jobsetpy.admission._kinds import StoredClaim
from jobsetpy.admission._review import ALLOWED, ReviewRequest
from jobsetpy.api import keys
from jobsetpy.api.core import Namespace, Node
from jobsetpy.api.jobset import ChildPod
from jobsetpy.domain.features import Features
from jobsetpy.informers import StoreWriter
from jobsetpy.testing import FakeApiServer
from jobsetpy.testing.jobsets import decoded

ZONE = "zone"
SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def pod(name: str, index: str, **more) -> dict:
    notes = {
        keys.JOBSET_NAME: "js",
        keys.COMPLETION_INDEX_ANNOTATION: index,
        keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: ZONE,
    }
    labels = {keys.JOBSET_NAME: "js", keys.REPLICATED_JOB_NAME: "w", keys.JOB_INDEX: "0"}
    owner = {"uid": "u1", "controller": True}
    metadata = {"name": name, "namespace": "ns", "labels": labels, "annotations": notes}
    return {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": {}, **more}


@pytest.fixture
def stores():
    pods = StoreWriter(ChildPod, indexes=[LEADERS])
    nodes = StoreWriter(Node)
    for writer in (pods, nodes):
        writer.replace([], "1")
        writer.mark_synced("1")
    return pods, nodes


@pytest.fixture
def handlers(stores):
    pods, nodes = stores
    return PodHandlers(pods=pods.store, nodes=nodes.store)


def create(obj, **more) -> ReviewRequest:
    return ReviewRequest("u", "CREATE", "ns", "", obj, **more)


async def test_followers_through_the_caches(stores, handlers):
    """A follower is refused, then sent to where the cached leader and its node are."""
    pods, nodes = stores
    follower = create(pod("js-w-0-1-x", "1"))
    assert (await handlers.mutate(follower)).patch == []
    assert (await handlers.validate(follower)).status["code"] == 403
    leader = pod("js-w-0-0-x", "0", spec={"nodeName": "n"}, status={"phase": "Running"})
    pods.apply(decoded(ChildPod, leader))
    missing = (await handlers.mutate(follower)).status
    assert (missing["code"], missing["details"]) == (404, {"kind": "nodes", "name": "n"})
    nodes.apply(decoded(Node, {"metadata": {"name": "n"}}))
    assert (await handlers.mutate(follower)).status["code"] == 403
    nodes.apply(decoded(Node, {"metadata": {"name": "n", "labels": {ZONE: "a"}}}))
    (operation,) = (await handlers.mutate(follower)).patch
    assert operation == {"op": "add", "path": "/spec/nodeSelector", "value": {ZONE: "a"}}
    placed = pod("js-w-0-1-x", "1", spec={"nodeSelector": {ZONE: "a"}})
    assert await handlers.validate(create(placed)) is ALLOWED
    other = ReviewRequest("u", "CREATE", "other", "", placed)
    assert (await handlers.validate(other)).status["code"] == 403  # leaders are per namespace


async def test_only_exclusive_leaders_are_indexed():
    """Followers, other pods and foreign names are not looked for."""
    plain = pod("js-w-0-0-x", "0")
    del plain["metadata"]["annotations"][keys.EXCLUSIVE_TOPOLOGY_ANNOTATION]
    given = [pod("js-w-0-0-x", "0"), pod("js-w-0-1-x", "1"), pod("short-0", "0"), plain]
    keys_of = [list(LEADERS.func(decoded(ChildPod, obj))) for obj in given]
    assert keys_of == [["ns/js-w-0-0"], [], [], []]


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "CONNECT"])
async def test_other_operations_are_allowed(handlers, operation):
    """Only what the configurations ask for is judged."""
    request = ReviewRequest("u", operation, "ns", "", {})
    assert await handlers.mutate(request) is ALLOWED
    assert await handlers.validate(request) is ALLOWED


async def test_jobsets_over_an_api_server(handlers):
    """Defaults, refusals, changes, claims that are looked up, and what is no JobSet at all."""
    async with FakeApiServer() as server:
        client = server.client()
        jobsets = JobSetHandlers(client, features=Features())
        paths = routes(jobsets, handlers)
        assert all(path.startswith("/") for path in paths)
        good = {"metadata": {"name": "js"}, "spec": {}}
        assert len((await jobsets.mutate(create(good))).patch) == 3
        assert await jobsets.validate(create(good)) is ALLOWED
        bad = {"metadata": {"name": "js"}, "spec": {"managedBy": "x"}}
        assert (await jobsets.validate(create(bad))).status["code"] == 422
        change = ReviewRequest("u", "UPDATE", "ns", "js", bad, good)
        (cause,) = (await jobsets.validate(change)).status["details"]["causes"]
        assert cause["field"] == "spec.managedBy"
        assert await jobsets.validate(ReviewRequest("u", "DELETE", "ns")) is ALLOWED
        for wrong in (None, 3, [], {"spec": []}, {"spec": {"replicatedJobs": [{"replicas": "x"}]}}):
            assert (await jobsets.validate(create(wrong))).status["code"] == 400
        for wrong in (None, 3):
            assert (await jobsets.mutate(create(wrong))).status["code"] == 400
        await client.aclose()


async def test_claims_are_looked_up():
    """A claim of the same name has to be one that is to be kept."""
    async with FakeApiServer() as server:
        server.register(StoredClaim)
        client = server.client()
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
        await client.create(Namespace, "", namespace)
        mounts = [{"name": "c", "volumeMounts": [{"name": "d"}]}]
        job = {"name": "w", "template": {"spec": {"template": {"spec": {"containers": mounts}}}}}
        policy = {
            "templates": [{"metadata": {"name": "d"}, "spec": SPEC}],
            "retentionPolicy": {"whenDeleted": "Delete"},
        }
        spec = {"replicatedJobs": [job], "volumeClaimPolicies": [policy]}
        body = {"metadata": {"name": "js"}, "spec": spec}
        jobsets = JobSetHandlers(client)
        assert await jobsets.validate(create(body)) is ALLOWED  # not found: there is none
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": SPEC}
        await client.create(StoredClaim, "ns", {**claim, "metadata": {"name": "d-js"}})
        (cause,) = (await jobsets.validate(create(body))).status["details"]["causes"]
        assert cause["field"].endswith("retentionPolicy.whenDeleted")
        await client.aclose()
