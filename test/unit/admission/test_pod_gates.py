"""Followers with a scheduling gate: the pod handlers read their Job from real stores."""

import pytest

from jobsetpy.admission._handlers import PodHandlers
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import Node
from jobsetpy.api.jobset import ChildPod
from jobsetpy.serving.review import ALLOWED, ReviewRequest
from support.jobsets import decoded

GATES = [{"name": keys.PLACEMENT_GATE}]


def pod(index: str = "1", **spec) -> dict:
    annotations = {
        keys.JOBSET_NAME: "js",
        keys.COMPLETION_INDEX_ANNOTATION: index,
        keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: "zone",
    }
    labels = {keys.JOBSET_NAME: "js", keys.REPLICATED_JOB_NAME: "w", keys.JOB_INDEX: "0"}
    owner = {"uid": "u1", "name": "js-w-0", "controller": True}
    metadata = {"name": f"js-w-0-{index}-x", "namespace": "ns", "labels": labels}
    metadata |= {"annotations": annotations, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": spec}


def create(obj) -> ReviewRequest:
    return ReviewRequest("u", "CREATE", "ns", "", obj)


@pytest.fixture
def handlers(stores):
    pods, nodes, jobs = stores
    return PodHandlers(pods=pods.store, nodes=nodes.store, jobs=jobs.store)


def job(uid: str, **status) -> Job:
    return decoded(Job, {"metadata": {"name": "js-w-0", "namespace": "ns", "uid": uid}, "status": status})  # fmt: skip


async def test_follower_is_gated_until_its_leader_has_a_node(stores, handlers):
    """Once the node is known it gets a node selector instead."""
    pods, nodes, _ = stores
    (operation,) = (await handlers.mutate(create(pod()))).patch
    assert operation == {"op": "add", "path": "/spec/schedulingGates", "value": GATES}
    assert await handlers.validate(create(pod(schedulingGates=GATES))) is ALLOWED
    assert (await handlers.validate(create(pod()))).status["code"] == 403
    leader = {**pod("0", nodeName="n"), "status": {"phase": "Running"}}
    pods.apply(decoded(ChildPod, leader))
    (operation,) = (await handlers.mutate(create(pod()))).patch
    assert operation["path"] == "/spec/schedulingGates"
    nodes.apply(decoded(Node, {"metadata": {"name": "n", "labels": {"zone": "a"}}}))
    (operation,) = (await handlers.mutate(create(pod()))).patch
    assert operation["path"] == "/spec/nodeSelector"


@pytest.mark.parametrize(
    ("uid", "status", "path"),
    [
        ("u1", {"completedIndexes": "0"}, "/spec/affinity"),
        ("u1", {"failedIndexes": "0,4"}, "/spec/affinity"),
        ("u1", {"completedIndexes": "1-5"}, "/spec/schedulingGates"),
        ("u2", {"completedIndexes": "0"}, "/spec/schedulingGates"),
    ],
)
async def test_follower_is_not_gated_when_its_leader_has_ended(stores, handlers, uid, status, path):
    """Its own Job, not an earlier one of the same name, shows that no leader will follow."""
    stores[2].apply(job(uid, **status))
    (operation,) = (await handlers.mutate(create(pod()))).patch
    assert operation["path"] == path
