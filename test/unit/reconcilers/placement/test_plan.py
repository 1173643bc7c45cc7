"""Plan of a reconcile of an exclusively placed Job."""

from __future__ import annotations

from datetime import timedelta

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.api.child_pod import ChildPod, ChildPodStatus
from jobsetpy.api.meta import ObjectKey
from jobsetpy.reconcilers.placement.plan import (
    Incarnation,
    ObservedPlacement,
    PlacementMemory,
    is_due,
    plan_placement,
)
from jobsetpy.reconcilers.rules.times import Now
from support.jobsets import EPOCH_START, decoded

RACK = "rack"
NODES = {"a1": {RACK: "a"}, "b1": {RACK: "b"}, "bare": {"x": "y"}}
NOW = Now(EPOCH_START, 100.0)
AGAIN = timedelta(seconds=30)


def pod(name, index="1", *, node="", domain=None, held=False, job="job", version="1"):
    """Return a cached pod of a Job under exclusive placement."""
    meta = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "resourceVersion": version,
        "annotations": {
            keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: RACK,
            keys.COMPLETION_INDEX_ANNOTATION: index,
        },
        "ownerReferences": [{"kind": "Job", "name": "js-w-0", "uid": job, "controller": True}],
    }
    spec = {"nodeName": node}
    if domain is not None:
        spec["nodeSelector"] = {RACK: domain}
    if held:
        spec["schedulingGates"] = [{"name": keys.PLACEMENT_GATE}]
    return decoded(ChildPod, {"metadata": meta, "spec": spec})


def incarnation(*pods, over=False, listed=None):
    """Return pods of one Job UID; ``listed`` are the pods that the API server has."""
    return Incarnation(over=over, pods=pods, listed=listed)


def plan(*incarnations, memory=None, **settings):
    """Return the plan for a Job."""
    observed = ObservedPlacement(
        job=ObjectKey("default", "js-w-0"), incarnations=incarnations, nodes=NODES.get, **settings
    )
    return plan_placement(observed, memory or PlacementMemory(), NOW)


def writes(made):
    """Return the names of the released and of the evicted pods."""
    return tuple(
        [pod.metadata.name for each in made.placements for pod in getattr(each.followers, what)]
        for what in ("release", "evict")
    )


LEADER = pod("leader", "0", node="a1")
HELD, GOOD, WRONG = pod("held", held=True), pod("good", domain="a"), pod("wrong", domain="b")


def test_release_is_not_repeated_until_the_cache_shows_it():
    """A later reconcile checks it; another version of the pod may be released again."""
    first = plan(incarnation(LEADER, HELD))
    assert writes(first) == (["held"], [])
    assert first.memory.acted == {"held": "1"}
    assert (first.result.delay, first.result.summary) == (AGAIN, "released 1, evicted 0")

    late = plan(incarnation(LEADER, HELD), memory=first.memory)
    assert writes(late) == ([], [])
    assert (late.result.delay, late.result.summary) == (AGAIN, "")

    changed = pod("held", held=True, version="2")
    assert writes(plan(incarnation(LEADER, changed), memory=late.memory)) == (["held"], [])
    shown = pod("held", domain="a", version="2")
    settled = plan(incarnation(LEADER, shown), memory=late.memory)
    assert (settled.memory, settled.result.delay) == (None, None)


def test_evictions_are_confirmed_by_a_list():
    """The list decides; the cache alone evicts no pod."""
    first = plan(incarnation(LEADER, WRONG))
    (unconfirmed,) = first.unconfirmed
    assert unconfirmed.uid == "job"

    confirmed = plan(incarnation(LEADER, WRONG, listed=[LEADER, WRONG]))
    assert (confirmed.unconfirmed, writes(confirmed)) == ((), ([], ["wrong"]))
    assert confirmed.at == NOW.wall
    moved = pod("next", "0", node="b1")
    right = plan(incarnation(LEADER, WRONG, listed=[moved, WRONG]))
    assert (right.unconfirmed, writes(right), right.result.delay) == ((), ([], []), None)


@pytest.mark.parametrize(
    ("pods", "over", "expected"),
    [
        ((LEADER, WRONG, HELD), False, (["held"], [])),
        # A held pod that cannot be released is recreated in any case.
        ((LEADER, pod("held", held=True, domain="b")), False, ([], ["held"])),
        ((HELD,), True, ([], ["held"])),
    ],
)
def test_only_held_pods_are_changed_when_repair_is_disabled(pods, over, expected):
    """Without the webhook every follower is misplaced, and none is evicted."""
    assert writes(plan(incarnation(*pods, over=over, listed=pods), repair=False)) == expected


def test_leader_of_another_incarnation_does_not_count():
    """Pods have the UID of their Job."""
    old = pod("old", "0", node="a1", job="before")
    made = plan(incarnation(old), incarnation(HELD))
    assert writes(made) == ([], [])
    assert [each.of.uid for each in made.placements] == ["before", "job"]


def test_unknown_topology_is_reported_once():
    """Until it changes; an unknown node causes no report, since it will appear."""
    lost = incarnation(pod("leader", "0", node="bare"), HELD)
    first = plan(lost)
    (placement,) = first.placements
    (notice,) = placement.notices
    assert notice.reason == keys.TOPOLOGY_UNKNOWN_REASON
    assert notice.message == (
        "the leader of pod 'leader' is on node 'bare', which does not have the label 'rack': "
        "its followers wait"
    )
    assert not plan(lost, memory=first.memory).placements[0].notices
    assert not plan(incarnation(pod("leader", "0", node="new"), HELD)).placements[0].notices
    assert plan(memory=first.memory).memory is None


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        ((LEADER, WRONG), "they have to be where rack is 'a'"),
        ((HELD,), "no pod is left that shows where they belong"),
    ],
)
def test_event_says_how_many_pods_are_evicted_and_where_they_belong(pods, text):
    """The domain is unknown if no pod shows it."""
    (placement,) = plan(incarnation(*pods, over=True, listed=pods)).placements
    event = placement.evicted("js-w-0", 7)
    assert event.reason == keys.PLACEMENT_VIOLATION_REASON
    assert event.message == f"7 pods of Job 'js-w-0' start again: {text}"


@pytest.mark.parametrize(
    ("follower", "leaders", "due"),
    [
        (HELD, [LEADER], True),
        (GOOD, [LEADER], False),
        (WRONG, [LEADER], True),
        (WRONG, [], False),
        (HELD, [pod("leader", "0")], False),
        (HELD, [LEADER, pod("second", "0", node="b1")], False),
        (HELD, [pod("leader", "0", node="bare")], True),
        (WRONG, [pod("leader", "0", node="bare")], False),
    ],
)
def test_follower_requests_a_reconcile_when_it_can_be_placed(follower, leaders, due):
    """By the state of its leaders."""
    assert is_due(follower, leaders, NODES.get) is due
    ended = [attrs.evolve(each, status=ChildPodStatus(phase="Failed")) for each in leaders]
    assert not is_due(follower, ended, NODES.get)
