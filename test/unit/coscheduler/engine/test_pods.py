"""Fields of a pod that coscheduling reads."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobsetpy.api import keys
from jobsetpy.coscheduler.engine.pods import SEEN_MARK, GroupPod, new_failure, seen_pod
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
    gates = [{"name": "other"}, {"name": keys.COSCHEDULING_GATE}]
    spec = {"priority": 5, "schedulingGates": gates}
    seen = seen_pod(pod(labels=IN_GROUP, annotations=annotations, spec=spec))
    member = seen.member
    assert (str(seen.group), seen.gated, seen.ended) == ("ns/g", True, False)
    assert (member.min_available, member.priority, member.timeout_s) == (3, 5, 20.0)
    assert not member.bound
    group = pod_group_info(seen.group, [member])
    assert group.initial_timestamp == datetime(2026, 1, 1, 0, 0, 9, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("minimum", ["", "0", "-1", "x", "1e3"])
def test_an_invalid_minimum_counts_as_one(minimum):
    """The pod is scheduled alone."""
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
    """Gates of other controllers do not count."""
    seen = seen_pod(pod(labels=IN_GROUP, **changes))
    assert (seen.gated, seen.member.bound, seen.ended) == (gated, bound, ended)


def condition(kind="PodScheduled", status="False", reason="Unschedulable", message="no room"):
    """A condition of a pod."""
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
def test_each_scheduling_failure_is_reported_once(conditions, more, found):
    """Refused binds and pods with a nominated node do not count."""
    assert new_failure(pod(status={"conditions": conditions, **more})) == found
