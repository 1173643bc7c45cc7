"""Capacity of nodes for gangs."""

from __future__ import annotations

import time

import pytest

from jobsetpy.api import keys
from jobsetpy.coscheduler.gang_scheduler.capacity.capacity import Capacity, Shape
from jobsetpy.coscheduler.gang_scheduler.capacity.node_rules import (
    MAX_REQUIREMENTS,
    MAX_TOLERATIONS,
    UNSCHEDULABLE_TAINT,
    NodeConstraints,
    NodeInfo,
    Requirement,
    Taint,
    Term,
    Toleration,
)
from jobsetpy.coscheduler.gang_scheduler.capacity.requests import amounts, milli, pod_requests
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey

KEY = PodGroupKey("ns", "g")
CPU = Shape((("cpu", 1000),))


def node_of(cpu, **more):
    """A node with this number of CPUs."""
    return NodeInfo({"cpu": cpu * 1000, "pods": 110_000}, **more)


def capacity(*nodes, waiting=(), group=KEY):
    """Capacity of nodes n0, n1 and so on, with waiting pods w0, w1 and so on of a gang."""
    made = Capacity()
    for at, node in enumerate(nodes):
        made.node(f"n{at}", node)
    for at, shape in enumerate(waiting):
        made.pod(f"w{at}", shape, node="", group=group)
    return made


def test_a_gang_fits_when_each_pod_fits_a_node():
    """Remainders on several nodes do not add up to capacity for a pod."""
    pod = Shape((("cpu", 2000),))
    assert not capacity(node_of(3), node_of(3), node_of(1), waiting=[pod] * 3).fits(KEY, 3)
    assert capacity(node_of(3), node_of(4), waiting=[pod] * 3).fits(KEY, 3)
    assert capacity(node_of(3), node_of(3), waiting=[pod] * 3).fits(KEY, 2)


@pytest.mark.parametrize(
    ("wanted", "known"), [(0, 3), (-1, 3), (4, 3), (1, 0)], ids=["none", "less", "unknown", "no"]
)
def test_a_gang_may_fit_when_its_pods_are_unknown(wanted, known):
    """No pods are wanted, or not all of them are known."""
    assert capacity(waiting=[CPU] * known).fits(KEY, wanted)


def test_bound_and_reserved_pods_take_capacity():
    """Their capacity is free again once the pod is gone or its reservation is released."""
    made = capacity(node_of(4), waiting=[CPU] * 3)
    made.pod("x", CPU, node="n0", group=None)
    assert made.fits(KEY, 3)
    made.pod("y", CPU, node="", group=None)
    assert made.fits(KEY, 3)
    made.reserve("y", "n0")
    assert not made.fits(KEY, 3)
    growth, released = made.growth, made.released
    made.reserve("y", "")
    assert made.fits(KEY, 3)
    assert (made.growth, made.released) == (growth, released + 1)
    made.reserve("y", "n0")
    made.pod("y", CPU, node="n0", group=None)  # bound to the reserved node
    assert made.growth == growth
    made.reserve("y", "")  # too late
    assert not made.fits(KEY, 3)
    made.gone("y")
    assert made.fits(KEY, 3)
    assert made.growth == growth + 1
    made.gone("y")
    assert made.growth == growth + 1
    assert "y" not in made
    assert "x" in made


def test_a_reserved_pod_no_longer_waits():
    """It does not count among the pods that its gang still wants."""
    made = capacity(node_of(2), waiting=[CPU] * 3)
    assert not made.fits(KEY, 3)
    made.reserve("w0", "n0")
    made.reserve("w0", "n0")
    assert not made.fits(KEY, 2)
    made.node("n1", node_of(1))
    assert made.fits(KEY, 2)
    made.reserve("stranger", "n0")
    assert made.fits(KEY, 2)


def test_capacity_grows_when_nodes_are_added_or_changed():
    """An equal report changes nothing; a removed node adds no capacity."""
    made = capacity(waiting=[CPU])
    assert not made.fits(KEY, 1)
    made.node("n", node_of(1))
    assert made.growth == 1
    assert made.fits(KEY, 1)
    made.node("n", node_of(1))
    assert made.growth == 1
    made.node("n", None)
    assert made.growth == 1
    assert not made.fits(KEY, 1)


def test_a_pod_is_counted_again_when_it_changes():
    """It is resized on its node, or moved to another gang."""
    made = capacity(node_of(4), waiting=[CPU] * 2)
    made.pod("x", Shape((("cpu", 3000),)), node="n0", group=None)
    assert not made.fits(KEY, 2)
    made.pod("x", Shape((("cpu", 2000),)), node="n0", group=None)
    assert made.fits(KEY, 2)
    assert made.growth == 2
    other = PodGroupKey("ns", "other")
    made.pod("w0", CPU, node="", group=other)
    made.pod("w0", CPU, node="", group=other)
    assert made.fits(other, 1)
    made.pod("w1", CPU, node="n0", group=KEY)
    made.pod("x", Shape((("cpu", 4000),)), node="n0", group=None)
    assert not made.fits(other, 1)


@pytest.mark.parametrize(
    ("priority", "preempts", "fits"), [(0, True, False), (5, True, True), (5, False, False)]
)
def test_capacity_of_lower_priorities_counts_as_free(priority, preempts, fits):
    """It does not count for a pod that never preempts."""
    pod = Shape((("cpu", 1000),), priority=priority, preempts=preempts)
    made = capacity(node_of(2), waiting=[pod, pod])
    made.pod("x", CPU, node="n0", group=None)
    made.pod("z", Shape((("cpu", 1),), priority=9), node="n0", group=None)
    made.gone("z")
    assert made.fits(KEY, 2) is fits


@pytest.mark.parametrize(
    ("node", "placement", "fits"),
    [
        (node_of(1), NodeConstraints((("pool", "a"),)), False),
        (node_of(1, labels={"pool": "a"}), NodeConstraints((("pool", "a"),)), True),
        (node_of(1, taints=(Taint("t", "v", "NoSchedule"),)), NodeConstraints(), False),
        (node_of(1, taints=(Taint("t", "v", "PreferNoSchedule"),)), NodeConstraints(), True),
        (
            node_of(1, taints=(Taint(UNSCHEDULABLE_TAINT, "", "NoSchedule"),)),
            NodeConstraints(),
            False,
        ),
    ],
)
def test_labels_and_taints_exclude_nodes(node, placement, fits):
    """They have the effect of kube-scheduler's filters of the same names."""
    pod = Shape((("cpu", 1000),), placement)
    assert capacity(node, waiting=[pod]).fits(KEY, 1) is fits


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration("t", "Equal", "v", "NoSchedule"), True),
        (Toleration("t", "", "v"), True),
        (Toleration("t", "", "w"), False),
        (Toleration("t", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "", "v"), False),
        (Toleration("u", "Exists"), False),
        (Toleration("t", "Exists", effect="NoExecute"), False),
        (Toleration("t", "Lt", "7"), True),
    ],
)
def test_tolerations(toleration, tolerates):
    """A toleration with an unknown operator counts as tolerating."""
    pod = Shape((("cpu", 1000),), NodeConstraints(tolerations=(toleration,)))
    node = node_of(1, taints=(Taint("t", "v", "NoSchedule"),))
    assert capacity(node, waiting=[pod]).fits(KEY, 1) is tolerates


@pytest.mark.parametrize("others", [[], [CPU]], ids=["one kind", "two kinds"])
def test_marked_pods_wait_for_nodes_with_their_resources(others):
    """Ungated earlier, they would not be queued again by such a node: only the mark is ignored."""
    mark = (keys.POD_GROUP_MEMBER_RESOURCE, 1000)
    marked = Shape((("cpu", 1000), ("example.test/gpu", 1000), mark))
    waiting = [marked, *others]
    assert not capacity(node_of(2), waiting=waiting).fits(KEY, len(waiting))
    gpu = NodeInfo({"cpu": 2000, "example.test/gpu": 1000})
    assert capacity(gpu, waiting=waiting).fits(KEY, len(waiting))


def test_a_resource_is_ignored_when_no_node_has_it():
    """kube-scheduler may be configured to ignore it, or it may be served by claims of devices."""
    marked = Shape((("cpu", 1000), ("example.test/mark", 1000)))
    assert capacity(node_of(1), waiting=[marked]).fits(KEY, 1)
    offers = NodeInfo({"cpu": 1000, "example.test/mark": 0})
    assert not capacity(node_of(1), offers, waiting=[marked]).fits(KEY, 1)
    two = [marked, Shape((("cpu", 1000), ("example.test/other", 1)))]
    assert capacity(node_of(2), waiting=two).fits(KEY, 2)
    assert not capacity(NodeInfo({}), waiting=[Shape(())]).fits(KEY, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1000), ("250m", 250), ("1Ki", 1_024_000), (2, 2000), ("1e3", 1_000_000), ("odd", 0)],
)
def test_quantities(text, value):
    """Quantities are integers in thousandths; an invalid one is 0."""
    assert milli(text) == value
    assert amounts({"cpu": text}) == {"cpu": value}


@pytest.mark.parametrize(
    ("arguments", "cpu"),
    [
        (([{"cpu": "1"}, {"cpu": "500m"}],), 1500),
        (([{"cpu": "1"}], [({"cpu": "3"}, False)]), 3000),
        (([{"cpu": "1"}], [({"cpu": "3"}, True)]), 4000),
        (([{"cpu": "1"}], [({"cpu": "2"}, True), ({"cpu": "3"}, False)]), 5000),
        (([{"cpu": "1"}], [({"cpu": "3"}, False), ({"cpu": "1"}, True)]), 3000),
        (([],), None),
    ],
)
def test_requests_of_containers(arguments, cpu):
    """Init containers run before the other containers, sidecars next to them."""
    found = dict(pod_requests(*arguments))
    assert found.pop("pods") == 1000
    assert found == ({} if cpu is None else {"cpu": cpu})


def test_requests_of_the_pod_itself():
    """They replace the sum of its containers; overhead is added."""
    found = pod_requests(
        [{"cpu": "1", "memory": "1"}], pod_level={"cpu": "3"}, overhead={"cpu": "1", "memory": "2"}
    )
    assert found == (("cpu", 4000), ("memory", 3000), ("pods", 1000))


@pytest.mark.parametrize(
    ("mine", "others", "expected"),
    [
        ({}, {}, True),
        ({"pool": "a"}, {}, True),
        ({"pool": "a"}, {"zone": "z"}, True),
        ({"pool": "a"}, {"pool": "b"}, False),
        ({"pool": "a"}, {"pool": "a", "zone": "z"}, True),
    ],
)
def test_gangs_compete_unless_their_node_selectors_differ(mine, others, expected):
    """Pods with and without a node count; a gang without pods competes with none."""
    other = PodGroupKey("ns", "other")
    first, second = (
        Shape(CPU.requests, NodeConstraints(tuple(each.items()))) for each in (mine, others)
    )
    made = capacity(node_of(4), waiting=[first])
    made.pod("x", second, node="n0", group=other)

    assert made.compete(KEY, other) is expected
    made.gone("x")
    assert not made.compete(KEY, other)


def test_pods_of_two_pools_need_capacity_in_both():
    """Free capacity in one pool does not help pods of the other."""
    a, b = (node_of(2, labels={"pool": pool}) for pool in "ab")
    kinds = [Shape(CPU.requests, NodeConstraints((("pool", pool),))) for pool in "aabb"]

    assert not capacity(a, waiting=kinds).fits(KEY, 3)
    assert capacity(a, b, waiting=kinds).fits(KEY, 4)


def test_a_kind_of_pod_is_scanned_again_when_it_was_forgotten():
    """Only a number of kinds are remembered; the answer does not depend on it."""
    made = capacity(node_of(2), waiting=[CPU] * 2)
    for at in range(120):
        made.pod(f"x{at}", Shape((("cpu", at + 1),)), node="", group=PodGroupKey("ns", f"o{at}"))
        assert made.fits(PodGroupKey("ns", f"o{at}"), 1)
    scans = made.scans

    assert made.fits(KEY, 2)
    assert made.fits(KEY, 2)
    assert made.scans == scans + 1


def test_ever_fits_ignores_running_pods():
    """A gang that does not fit now may fit the nodes when they are empty."""
    made = capacity(node_of(2), waiting=[CPU] * 3)
    made.pod("x", CPU, node="n0", group=None)
    assert not made.fits(KEY, 2)
    assert made.ever_fits(KEY, 2)
    assert not made.ever_fits(KEY, 3)


ZONE = "topology.kubernetes.io/zone"


def term(*labels, fields=()):
    """A term of a node affinity."""
    made = (tuple(Requirement(*each) for each in group) for group in (labels, fields))
    return Term(**dict(zip(("labels", "fields"), made, strict=True)))


@pytest.mark.parametrize(
    ("terms", "admits"),
    [
        ((term((ZONE, "In", ("a", "b"))),), True),
        ((term((ZONE, "In", ("b",))),), False),
        ((term(("none", "In", ("a",))),), False),
        ((term((ZONE, "NotIn", ("b",))),), True),
        ((term((ZONE, "NotIn", ("a",))),), False),
        ((term(("none", "NotIn", ("a",))),), True),
        ((term((ZONE, "Exists", ())),), True),
        ((term(("none", "Exists", ())),), False),
        ((term(("none", "DoesNotExist", ())),), True),
        ((term((ZONE, "DoesNotExist", ())),), False),
        ((term(("gen", "Gt", ("6",))),), True),
        ((term(("gen", "Gt", ("7",))),), False),
        ((term(("gen", "Lt", ("8",))),), True),
        ((term(("gen", "Lt", ("7",))),), False),
        ((term(("none", "Gt", ("1",))),), False),
        ((term((ZONE, "Gt", ("1",))),), False),
        ((term(("gen", "Gt", ("x",))),), False),
        ((term(("gen", "Gt", ("1", "2"))),), False),
        ((term(("gen", "Gt", (str(2**63),))),), False),
        ((term((ZONE, "In", ("a",)), ("gen", "Lt", ("7",))),), False),
        ((term((ZONE, "In", ("b",))), term(("gen", "Exists", ()))), True),
        ((), False),
        ((term(),), False),
        ((term(fields=(("metadata.name", "In", ("n0",)),)),), True),
        ((term(fields=(("metadata.name", "NotIn", ("n0",)),)),), False),
        ((term(fields=(("spec.x", "Exists", ()),)),), False),
        ((term((ZONE, "In", ("b",)), fields=(("metadata.name", "In", ("n0",)),)),), False),
        ((term((ZONE, "Unheard", ())),), True),
    ],
)
def test_required_node_affinity(terms, admits):
    """As in kube-scheduler's filter, all requirements of one of the terms have to be met."""
    node = NodeInfo({"cpu": 1000}, {ZONE: "a", "gen": "7"}, (), "n0")
    pod = Shape((("cpu", 1000),), NodeConstraints(terms=terms))
    assert capacity(node, waiting=[pod]).fits(KEY, 1) is admits


def test_a_pod_with_too_many_requirements_counts_as_admitted():
    """kube-scheduler decides then: checking 20,000 terms for each node would block the loop."""
    nowhere = tuple(Term(labels=(Requirement("pool", "In", (f"p{at}",)),)) for at in range(20_000))
    wanted = NodeConstraints(terms=nowhere)
    nodes = [NodeInfo({}, {"pool": "a"}, name=f"n{at}") for at in range(500)]
    began = time.thread_time()

    assert {node.admits(wanted) for node in nodes} == {True}
    assert time.thread_time() - began < 0.1
    assert not nodes[0].admits(NodeConstraints(terms=nowhere[: MAX_REQUIREMENTS // 2]))


def test_a_pod_with_too_many_tolerations_counts_as_tolerating():
    """The limit protects the loop, as that of requirements does."""
    others = tuple(Toleration(f"t{at}", "Exists") for at in range(20_000))
    wanted = NodeConstraints(tolerations=others)
    nodes = [NodeInfo({}, {}, (Taint("t", "v", "NoSchedule"),))] * 500
    began = time.thread_time()

    assert {node.admits(wanted) for node in nodes} == {True}
    assert time.thread_time() - began < 0.1
    assert not nodes[0].admits(NodeConstraints(tolerations=others[:MAX_TOLERATIONS]))


def test_a_requirement_with_many_values_is_checked():
    """A list of hosts of any length is checked, since users write such lists."""
    hosts = tuple(f"h{at}" for at in range(50_000))
    wanted = NodeConstraints(terms=(Term(labels=(Requirement("host", "In", hosts),)),))
    nodes = [NodeInfo({}, {"host": f"h{at * 200}"}) for at in range(251)]
    began = time.thread_time()

    assert [node.admits(wanted) for node in nodes] == [True] * 250 + [False]
    assert time.thread_time() - began < 0.1
