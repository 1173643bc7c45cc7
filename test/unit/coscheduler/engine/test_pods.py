"""Fields of a pod that coscheduling reads."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobsetpy.api import keys
from jobsetpy.coscheduler.engine.pods import GroupPod, found_no_node, seen_pod
from jobsetpy.reconcilers.coscheduling.plugin import pod_group_info
from support.jobsets import decoded


def pod(*, labels=None, annotations=None, spec=None, status=None, **meta):
    """A pod."""
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:09Z"}  # fmt: skip
    metadata |= {"labels": labels or {}, "annotations": annotations or {}, **meta}
    return decoded(GroupPod, {"metadata": metadata, "spec": spec or {}, "status": status or {}})


IN_GROUP = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "3"}


def test_fields_of_a_member_are_read():
    """Its age is the API server's creation time, not a value that its creator can write."""
    annotations = {
        "jobset.sigs.k8s.io/coscheduling-created": "1970-01-01T00:00:00Z",
        keys.COSCHEDULING_TIMEOUT_ANNOTATION: "20",
    }
    spec = {"priority": 5, "schedulingGates": [{"name": "other"}]}
    seen = seen_pod(pod(labels=IN_GROUP, annotations=annotations, spec=spec))
    member = seen.member
    assert (str(seen.group), seen.ended) == ("ns/g", False)
    assert (member.min_available, member.priority, member.timeout_s) == (3, 5, 20.0)
    assert (member.bound, member.blocked) == (False, True)
    group = pod_group_info(seen.group, [member])
    assert group.initial_timestamp == datetime(2026, 1, 1, 0, 0, 9, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("minimum", ["", "0", "-1", "x", "1e3"])
def test_an_invalid_minimum_counts_as_one(minimum):
    """The pod is scheduled alone."""
    labels = {**IN_GROUP, keys.POD_GROUP_MIN_AVAILABLE: minimum}
    assert seen_pod(pod(labels=labels)).member.min_available == 1


@pytest.mark.parametrize(
    ("changes", "bound", "ended"),
    [
        ({}, False, False),
        ({"spec": {"nodeName": "n"}}, True, False),
        ({"status": {"phase": "Failed"}}, False, True),
        ({"status": {"phase": "Succeeded"}}, False, True),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, False, True),
    ],
)
def test_states(changes, bound, ended):
    """A pod is bound, has ended, or waits."""
    seen = seen_pod(pod(labels=IN_GROUP, **changes))
    assert (seen.member.bound, seen.ended) == (bound, ended)


def condition(kind="PodScheduled", status="False", reason="Unschedulable"):
    """A condition of a pod."""
    return {"type": kind, "status": status, "reason": reason}


@pytest.mark.parametrize(
    ("conditions", "more", "found"),
    [
        ([condition("Other"), condition()], {}, True),
        ([condition(reason="SchedulerError")], {}, False),
        ([condition(status="True", reason="")], {}, False),
        ([condition()], {"nominatedNodeName": "n"}, False),
        ([], {}, False),
    ],
)
def test_pod_without_a_node_is_recognized(conditions, more, found):
    """Refused binds and pods with a nominated node do not count."""
    assert found_no_node(pod(status={"conditions": conditions, **more})) is found
