"""The pod webhook adds the group's barrier, beside what it does about places."""

from __future__ import annotations

from jobsetpy.admission._handlers import LEADERS, PodHandlers
from jobsetpy.api import keys
from jobsetpy.api.core import Node
from jobsetpy.api.jobset import ChildPod
from jobsetpy.informers import StoreWriter
from jobsetpy.reconcilers.startup_groups.injection import GroupBarrier
from jobsetpy.serving.review import ReviewRequest
from jobsetpy.testing import json_patch


def handlers(barrier=None):
    """Handlers on empty caches."""
    pods, nodes = StoreWriter(ChildPod, indexes=[LEADERS]), StoreWriter(Node)
    for writer in (pods, nodes):
        writer.replace([], "1")
        writer.mark_synced("1")
    return PodHandlers(pods=pods.store, nodes=nodes.store, barrier=barrier)


def pod(**annotations):
    """The first pod of a Job."""
    labels = {keys.JOBSET_NAME: "js", keys.JOB_KEY: "k"}
    meta = {"name": "js-w-0-0-x", "labels": labels, "annotations": {**labels, **annotations}}
    return {"metadata": meta, "spec": {"priority": 0, "containers": [{"name": "c"}]}}


async def mutated(body, barrier=None):
    """The pod as the API server stores it."""
    answer = await handlers(barrier).mutate(ReviewRequest("u", "CREATE", "ns", "", body))
    assert answer.status is None
    return json_patch(body, answer.patch)


async def test_a_leader_gets_its_place_and_the_barrier():
    """Both patches fit together, on a pod that has neither labels of its own nor volumes."""
    annotations = {
        keys.GROUP_ATTEMPT: "1",
        keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: "rack",
        keys.COMPLETION_INDEX_ANNOTATION: "0",
    }
    made = await mutated(pod(**annotations), GroupBarrier(shell_image="s"))

    assert made["spec"]["affinity"]
    assert [each["image"] for each in made["spec"]["initContainers"]] == ["s"]
    assert [each["name"] for each in made["spec"]["volumes"]] == [keys.GROUP_VOLUME]


async def test_pods_of_no_group_get_no_barrier():
    """Whatever else is done to them."""
    assert "initContainers" not in (await mutated(pod()))["spec"]


async def test_an_update_gets_none():
    """Init containers of a pod cannot be changed."""
    request = ReviewRequest("u", "UPDATE", "ns", "", pod(**{keys.GROUP_ATTEMPT: "1"}))

    assert not (await handlers().mutate(request)).patch
