"""The capacity account: it never refuses pods that fit, and equals a recount."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jobsetpy.coscheduler.gang_scheduler.capacity.capacity import Capacity, Shape
from jobsetpy.coscheduler.gang_scheduler.capacity.node_rules import (
    NodeConstraints,
    NodeInfo,
    Requirement,
    Taint,
    Term,
    Toleration,
)
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey

KEY = PodGroupKey("ns", "g")

taints = st.sampled_from([(), (Taint("t", "", "NoSchedule"),)])
nodes = st.builds(
    lambda cpu, memory, labels, kept: NodeInfo({"cpu": cpu, "memory": memory}, labels, kept),
    st.integers(0, 6),
    st.integers(0, 6),
    st.sampled_from([{}, {"pool": "a"}, {"pool": "b"}]),
    taints,
)
shapes = st.builds(
    lambda cpu, memory, selector, tolerations, terms, priority, preempts: Shape(
        tuple((name, n) for name, n in (("cpu", cpu), ("memory", memory)) if n),
        NodeConstraints(selector, tolerations, terms),
        priority,
        preempts,
    ),
    st.integers(1, 3),
    st.integers(0, 3),
    st.sampled_from([(), (("pool", "a"),), (("pool", "b"),)]),
    st.sampled_from([(), (Toleration("t", "Exists"),)]),
    st.sampled_from(
        [None, None, (Term(labels=(Requirement("pool", "NotIn", ("a",)),)),), (Term(),)]
    ),
    st.integers(0, 1),
    st.booleans(),
)


def place(spaces, pods):
    """Return whether the pods can be placed, by trying everything."""
    if not pods:
        return True
    pod, *rest = pods
    for node, free in spaces:
        if node.admits(pod.placement) and all(free.get(name, 0) >= n for name, n in pod.requests):
            for name, n in pod.requests:
                free[name] -= n
            if place(spaces, rest):
                return True
            for name, n in pod.requests:
                free[name] += n
    return False


@settings(max_examples=150)
@given(st.lists(nodes, max_size=3), st.lists(shapes, min_size=1, max_size=4))
def test_pods_that_can_be_placed_are_never_refused(infos, pods):
    """The check is a necessary condition; for equal pods in empty nodes it is exact."""
    capacity = Capacity()
    for at, node in enumerate(infos):
        capacity.node(f"n{at}", node)
    for at, pod in enumerate(pods):
        capacity.pod(f"p{at}", pod, node="", group=KEY)
    fits = capacity.fits(KEY, len(pods))
    placed = place([(node, dict(node.allocatable)) for node in infos], pods)
    assert fits or not placed
    if len(set(pods)) == 1 and infos:
        assert fits == placed


events = st.lists(
    st.tuples(
        st.sampled_from(["pod", "bind", "gone", "reserve", "release", "node", "lost"]),
        st.integers(0, 3),
        st.integers(0, 1),
        shapes,
        nodes,
    ),
    max_size=25,
)


@settings(max_examples=100)
@given(events, st.integers(1, 3))
def test_account_equals_a_recount_after_any_events(happened, wanted):
    """It does not depend on their order."""
    capacity = Capacity()
    pods, reserved, known = {}, {}, {}
    for what, pod, node, shape, info in happened:
        uid, name = f"p{pod}", f"n{node}"
        match what:
            case "pod" if not pods.get(uid, (None, ""))[1]:
                pods[uid] = (shape, "")
                capacity.pod(uid, shape, node="", group=KEY)
            case "bind" if uid in pods:
                pods[uid] = (pods[uid][0], name)
                capacity.pod(uid, pods[uid][0], node=name, group=KEY)
            case "gone":
                pods.pop(uid, None)
                reserved.pop(uid, None)
                capacity.gone(uid)
            case "reserve" if uid in pods:
                reserved[uid] = name
                capacity.reserve(uid, name)
            case "release":
                reserved.pop(uid, None)
                capacity.reserve(uid, "")
            case "node":
                known[name] = info
                capacity.node(name, info)
            case "lost" if name in known:
                del known[name]
                capacity.node(name, None)
        capacity.fits(KEY, wanted)  # cached results must not survive the next event
    recount = Capacity()
    for name, info in known.items():
        recount.node(name, info)
    for uid, (shape, name) in pods.items():
        recount.pod(uid, shape, node=name or reserved.get(uid, ""), group=KEY)
    for count in range(5):
        assert capacity.fits(KEY, count) == recount.fits(KEY, count)
