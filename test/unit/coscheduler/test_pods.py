"""What coscheduling reads of a pod."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobsetpy.api import keys
from jobsetpy.coscheduler._pods import SEEN_MARK, GroupPod, new_failure, seen_pod
from jobsetpy.reconcilers.coscheduling.plugin import pod_group_info
from jobsetpy.testing.jobsets import decoded


def pod(*, labels=None, notes=None, spec=None, status=None, **meta):
    """A pod."""
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:09Z"}  # fmt: skip
    metadata |= {"labels": labels or {}, "annotations": notes or {}, **meta}
    return decoded(GroupPod, {"metadata": metadata, "spec": spec or {}, "status": status or {}})


IN_GROUP = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "3"}


def test_a_pod_without_the_label_is_of_no_group():
    """Whatever else it has."""
    assert seen_pod(pod(labels={keys.POD_GROUP_MIN_AVAILABLE: "3"})) is None


def test_what_a_pod_says_of_its_group():
    """Its age is what the API server says, not what whoever made it can write."""
    notes = {
        "jobset.sigs.k8s.io/coscheduling-created": "1970-01-01T00:00:00Z",
        keys.COSCHEDULING_TIMEOUT_ANNOTATION: "20",
    }
    gates = [{"name": "other"}, {"name": keys.COSCHEDULING_GATE}]
    seen = seen_pod(pod(labels=IN_GROUP, notes=notes, spec={"priority": 5, "schedulingGates": gates}))  # fmt: skip
    member = seen.member
    assert (str(seen.group), seen.gated, seen.ended) == ("ns/g", True, False)
    assert (member.min_available, member.priority, member.timeout_s) == (3, 5, 20.0)
    assert not member.bound
    group = pod_group_info(seen.group, [member])
    assert group.initial_timestamp == datetime(2026, 1, 1, 0, 0, 9, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("minimum", ["", "0", "-1", "x", "1e3"])
def test_a_minimum_that_is_no_number_is_one(minimum):
    """The pod is scheduled by itself."""
    labels = {**IN_GROUP, keys.POD_GROUP_MIN_AVAILABLE: minimum}
    assert seen_pod(pod(labels=labels)).member.min_available == 1


@pytest.mark.parametrize(
    ("changes", "gated", "bound", "ended"),
    [
        ({}, False, False, False),
        ({"spec": {"nodeName": "n"}}, False, True, False),
        ({"status": {"phase": "Failed"}}, False, False, True),
        ({"status": {"phase": "Succeeded"}}, False, False, True),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, False, False, True),
        ({"spec": {"schedulingGates": [{"name": "other"}]}}, False, False, False),
    ],
)
def test_states(changes, gated, bound, ended):
    """Gates of others are not ours."""
    seen = seen_pod(pod(labels=IN_GROUP, **changes))
    assert (seen.gated, seen.member.bound, seen.ended) == (gated, bound, ended)


def condition(kind="PodScheduled", status="False", reason="Unschedulable", message="no room"):
    """One of a pod's conditions."""
    return {"type": kind, "status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("conditions", "more", "found"),
    [
        ([condition()], {}, (0, "no room")),
        ([condition("Other"), condition()], {}, (1, "no room")),
        ([condition(message=f"{SEEN_MARK}no room")], {}, None),
        ([condition(reason="SchedulerError")], {}, None),
        ([condition(status="True", reason="")], {}, None),
        ([condition()], {"nominatedNodeName": "n"}, None),
        ([], {}, None),
    ],
)
def test_failures_to_find_a_node(conditions, more, found):
    """Each once; not what we refused, nor a pod that is promised the room of others."""
    assert new_failure(pod(status={"conditions": conditions, **more})) == found
