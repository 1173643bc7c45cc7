"""Plan for the followers of one Job, by tables and for random pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api import keys
from jobsetpy.api.batch import JobStatus
from jobsetpy.api.jobset import ChildPod
from jobsetpy.reconcilers.placement.plan import (
    FollowersPlan,
    UnknownTopology,
    is_leader,
    is_misplaced,
    plan_followers,
    selected_domain,
)
from support.jobsets import decoded

RACK = "rack"
NODES = {"a1": {RACK: "a"}, "a2": {RACK: "a"}, "b1": {RACK: "b"}, "bare": {"x": "y"}}


def pod(name, index="1", *, live=True, topology=RACK, node="", domain=None, held=False):
    """Return a pod, by default a follower."""
    notes = {
        keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: topology,
        keys.COMPLETION_INDEX_ANNOTATION: index,
    }
    spec = {"nodeName": node, "schedulingGates": [{"name": keys.PLACEMENT_GATE}] if held else []}
    if domain is not None:
        spec["nodeSelector"] = {topology: domain}
    metadata = {"name": name, "uid": name, "annotations": notes}
    status = {"phase": "Running" if live else "Succeeded"}
    return decoded(ChildPod, {"metadata": metadata, "spec": spec, "status": status})


def leader(node="a1", name="leader", **fields):
    """Return a leader on a node."""
    return pod(name, "0", node=node, **fields)


def held(name="held", **fields):
    """Return a follower that is held by the placement gate."""
    return pod(name, held=True, **fields)


GOOD = pod("good", domain="a")
WRONG = pod("wrong", domain="b")
BARE = pod("bare")


def plan(*pods, over=False):
    """Return domain, released and evicted pods of the plan."""
    made = plan_followers(pods, NODES.get, over=over)
    return (
        made.domain,
        [p.metadata.name for p in made.release],
        [p.metadata.name for p in made.evict],
    )


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
def test_followers_go_to_the_domain_of_their_leader(pods, expected):
    """For each state of leaders and of held, correct, misplaced and ended followers."""
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
def test_followers_are_placed_without_a_leader_when_none_will_come(pods, expected):
    """In the domain of others or of the last leader; without any trace held pods are recreated."""
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
def test_follower_is_misplaced_by_its_selector(follower, misplaced):
    """Leaders, held pods and ended pods are never misplaced."""
    assert is_misplaced(follower, RACK, "a") is misplaced


@pytest.mark.parametrize(
    ("node", "unknown"),
    [("bare", UnknownTopology("bare", RACK)), ("gone", UnknownTopology("gone"))],
)
def test_plan_names_the_unknown_topology(node, unknown):
    """A node without the label, or an unknown node."""
    assert plan_followers([leader(node), WRONG], NODES.get, over=False).unknown == unknown


PODS = st.lists(
    st.builds(
        pod,
        name=st.uuids().map(str),
        index=st.sampled_from(["0", "1"]),
        live=st.booleans(),
        node=st.sampled_from(["", *NODES, "gone"]),
        domain=st.sampled_from([None, "a", "b"]),
        held=st.booleans(),
    ),
    max_size=8,
)


@given(PODS, st.booleans())
def test_plan_is_safe_and_settles_for_any_pods(pods, over):
    """Leaders and ended pods stay, and no pod is both released and evicted."""
    made = plan_followers(pods, NODES.get, over=over)
    touched = [*made.release, *made.evict]
    assert len({p.metadata.uid for p in touched}) == len(touched)
    assert all(p.live and not is_leader(p) for p in touched)
    assert all(p.spec.held and selected_domain(p) in {None, made.domain} for p in made.release)
    assert made.release == () or made.domain is not None
    leaders = [p for p in pods if is_leader(p) and p.live]
    where = {(NODES.get(p.spec.node_name) or {}).get(RACK) for p in leaders}
    if where and touched:
        assert where == {made.domain}
    after = [p for p in pods if p not in touched]
    after += [pod(p.metadata.name, domain=made.domain, node=p.spec.node_name) for p in made.release]
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
def test_status_of_the_job_says_when_the_first_index_has_ended(completed, failed, over):
    """As completed or failed index."""
    status = JobStatus(completed_indexes=completed, failed_indexes=failed)
    assert status.first_index_is_over is over
