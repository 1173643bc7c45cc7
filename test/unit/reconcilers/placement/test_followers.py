"""What becomes of the followers of one Job, by tables and for any mixture of pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api import keys
from jobsetpy.api.batch import JobStatus
from jobsetpy.reconcilers.placement.followers import (
    FollowersPlan,
    PlacedPod,
    UnknownTopology,
    is_misplaced,
    plan_followers,
)

RACK = "rack"
NODES = {"a1": {RACK: "a"}, "a2": {RACK: "a"}, "b1": {RACK: "b"}, "bare": {"x": "y"}}


def pod(name, **fields):
    return PlacedPod(name=name, uid=name, **{"topology": RACK, **fields})


def leader(node="a1", name="leader", **fields):
    return pod(name, is_leader=True, node=node, **fields)


def held(name="held", **fields):
    return pod(name, held=True, gates=(keys.PLACEMENT_GATE,), **fields)


GOOD = pod("good", domain="a")
WRONG = pod("wrong", domain="b")
BARE = pod("bare")


def plan(*pods, over=False):
    made = plan_followers(pods, NODES.get, over=over)
    return made.domain, [p.name for p in made.release], [p.name for p in made.evict]


WAITS = (None, [], [])


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([], WAITS),
        ([held()], WAITS),
        ([leader("")], WAITS),
        ([leader(""), held()], WAITS),
        ([leader("", held=True), held()], WAITS),
        ([leader(), held(), held("h2")], ("a", ["held", "h2"], [])),
        ([leader(), GOOD, held()], ("a", ["held"], [])),
        ([leader("b1"), held()], ("b", ["held"], [])),
        ([leader(live=False), held()], WAITS),
        ([leader(live=False), GOOD, WRONG], WAITS),
        ([leader(live=False), leader("b1", "next"), held()], ("b", ["held"], [])),
        ([leader(live=False), leader("", "next"), held(), WRONG], WAITS),
        ([leader(), leader("a2", "twin"), held()], ("a", ["held"], [])),
        ([leader(), leader("b1", "twin"), held(), WRONG], WAITS),
        ([leader(), leader("", "twin"), held()], WAITS),
        ([leader("bare"), held(), WRONG], WAITS),
        ([leader("gone"), held(), WRONG], WAITS),
        ([leader()], ("a", [], [])),
        ([leader("gone")], WAITS),
        ([leader(), GOOD], ("a", [], [])),
        ([leader(), BARE], ("a", [], ["bare"])),
        ([leader(), GOOD, WRONG, held()], ("a", ["held"], ["good", "wrong"])),
        ([leader(), pod("elsewhere", domain="a", topology="zone")], ("a", [], ["elsewhere"])),
        ([leader(), pod("ended", domain="b", live=False), GOOD], ("a", [], [])),
        ([leader(), pod("ended", live=False), WRONG], ("a", [], ["wrong"])),
        ([leader(), held(domain="a")], ("a", ["held"], [])),
        ([leader(), held(domain="b"), held("h2"), GOOD], ("a", ["h2"], ["held"])),
        ([leader(), held(live=False)], ("a", [], [])),
    ],
)
def test_the_leader_decides(pods, expected):
    """Every state of a leader against held, well placed, misplaced and ended followers."""
    assert plan(*pods) == expected


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([], WAITS),
        ([GOOD, WRONG], WAITS),
        ([leader(live=False), held()], ("a", ["held"], [])),
        ([leader(live=False), pod("loose", domain="b"), held()], ("b", ["held"], [])),
        ([leader(live=False), pod("self", node="b1"), held()], ("b", ["held"], [])),
        ([leader(live=False), pod("self"), held()], ("a", ["held"], [])),
        ([pod("self", node="b1"), held()], ("b", ["held"], [])),
        ([pod("ended", domain="b", live=False), held()], (None, [], ["held"])),
        ([leader("gone", live=False), held(), GOOD], ("a", ["held"], [])),
        ([leader("gone", live=False), held()], (None, [], ["held"])),
        ([GOOD, WRONG, held()], (None, [], ["held"])),
        ([leader(""), held()], WAITS),
    ],
)
def test_no_leader_will_come(pods, expected):
    """Held followers join the others, or go where the leader was, or start anew without a trace."""
    assert plan(*pods, over=True) == expected


@pytest.mark.parametrize(
    ("follower", "misplaced"),
    [
        (GOOD, False),
        (WRONG, True),
        (BARE, True),
        (pod("zone", domain="a", topology="zone"), True),
        (pod("moved", domain="a", node="b1"), False),
        (leader("b1", domain="b"), False),
        (pod("ended", domain="b", live=False), False),
        (held(domain="b"), False),
        (held(), False),
    ],
)
def test_who_is_misplaced(follower, misplaced):
    """By its selector, and only one that is loose: leaders, ended and held pods violate nothing."""
    assert is_misplaced(follower, RACK, "a") is misplaced


@pytest.mark.parametrize(
    ("node", "unknown"),
    [("bare", UnknownTopology("bare", RACK)), ("gone", UnknownTopology("gone"))],
)
def test_what_is_unknown(node, unknown):
    """The plan says what it waits for."""
    assert plan_followers([leader(node), WRONG], NODES.get, over=False).unknown == unknown


PODS = st.lists(
    st.builds(
        PlacedPod,
        name=st.uuids().map(str),
        uid=st.uuids().map(str),
        is_leader=st.booleans(),
        live=st.booleans(),
        topology=st.just(RACK),
        node=st.sampled_from(["", *NODES, "gone"]),
        domain=st.sampled_from([None, "a", "b"]),
        held=st.booleans(),
    ),
    max_size=8,
)


@given(PODS, st.booleans())
def test_any_mixture(pods, over):
    """Leaders and ended pods are left alone; nobody is both released and evicted, or sent nowhere."""  # fmt: skip
    made = plan_followers(pods, NODES.get, over=over)
    touched = [*made.release, *made.evict]
    assert len({p.uid for p in touched}) == len(touched)
    assert all(p.live and not p.is_leader for p in touched)
    assert all(p.held and p.domain in {None, made.domain} for p in made.release)
    assert made.release == () or made.domain is not None
    where = {(NODES.get(p.node) or {}).get(RACK) for p in pods if p.is_leader and p.live}
    if where and touched:
        assert where == {made.domain}
    after = [p for p in pods if p not in touched]
    after += [
        PlacedPod(name=p.name, uid=p.uid, topology=RACK, domain=made.domain, node=p.node)
        for p in made.release
    ]
    settled = plan_followers(after, NODES.get, over=over)
    assert (settled.release, settled.evict) == ((), ())
    assert isinstance(settled, FollowersPlan)


@pytest.mark.parametrize(
    ("completed", "failed", "over"),
    [
        ("", None, False),
        ("0", None, True),
        ("0,3", None, True),
        ("0-4", None, True),
        ("1-3", None, False),
        ("10", "20", False),
        ("", "0", True),
        ("1", "0,2", True),
    ],
)
def test_first_index(completed, failed, over):
    """The Job's own words on whether index 0 is over."""
    status = JobStatus(completed_indexes=completed, failed_indexes=failed)
    assert status.first_index_is_over is over
