"""The pod webhook adds the barrier of a startup group, in addition to placement."""

from __future__ import annotations

import pytest

from jobsetpy.admission import WebhookSettings
from jobsetpy.admission._handlers import PodHandlers
from jobsetpy.api import keys
from jobsetpy.reconcilers.startup_groups.injection import GroupBarrier
from jobsetpy.serving.review import ReviewRequest
from jobsetpy.testing import json_patch


@pytest.fixture
def handlers(stores):
    """Handlers with empty caches and a barrier."""
    pods, nodes, jobs = stores
    settings = WebhookSettings(barrier=GroupBarrier(shell_image="s"))
    return PodHandlers(settings, pods=pods.store, nodes=nodes.store, jobs=jobs.store)


def pod(**annotations):
    """Return the first pod of a Job."""
    labels = {keys.JOBSET_NAME: "js", keys.JOB_KEY: "k"}
    meta = {"name": "js-w-0-0-x", "labels": labels, "annotations": {**labels, **annotations}}
    return {"metadata": meta, "spec": {"priority": 0, "containers": [{"name": "c"}]}}


async def mutated(handlers, body):
    """Return the pod as the API server stores it."""
    answer = await handlers.mutate(ReviewRequest("u", "CREATE", "ns", "", body))
    assert answer.status is None
    return json_patch(body, answer.patch)


async def test_leader_gets_its_placement_and_the_barrier(handlers):
    """Both patches apply to a pod that has neither labels of its own nor volumes."""
    annotations = {
        keys.GROUP_ATTEMPT: "1",
        keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: "rack",
        keys.COMPLETION_INDEX_ANNOTATION: "0",
    }
    made = await mutated(handlers, pod(**annotations))

    assert made["spec"]["affinity"]
    assert [each["image"] for each in made["spec"]["initContainers"]] == ["s"]
    assert [each["name"] for each in made["spec"]["volumes"]] == [keys.GROUP_VOLUME]


async def test_pod_without_a_startup_group_gets_no_barrier(handlers):
    """Other changes do not depend on it."""
    assert "initContainers" not in (await mutated(handlers, pod()))["spec"]


async def test_update_of_a_pod_gets_no_barrier(handlers):
    """Init containers of a pod are immutable."""
    request = ReviewRequest("u", "UPDATE", "ns", "", pod(**{keys.GROUP_ATTEMPT: "1"}))

    assert not (await handlers.mutate(request)).patch
