"""Rules for the nodes that admit a pod."""

from __future__ import annotations

import time

import pytest

from jobsetpy.coscheduler.engine.node_rules import (
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


@pytest.mark.parametrize(
    ("node", "wanted", "admits"),
    [
        (NodeInfo(), NodeConstraints((("pool", "a"),)), False),
        (NodeInfo({"pool": "a"}), NodeConstraints((("pool", "a"),)), True),
        (NodeInfo(taints=(Taint("t", "v", "NoSchedule"),)), NodeConstraints(), False),
        (NodeInfo(taints=(Taint("t", "v", "PreferNoSchedule"),)), NodeConstraints(), True),
        (
            NodeInfo(taints=(Taint(UNSCHEDULABLE_TAINT, "", "NoSchedule"),)),
            NodeConstraints(),
            False,
        ),
    ],
)
def test_labels_and_taints_exclude_nodes(node, wanted, admits):
    """They have the effect of kube-scheduler's filters of the same names."""
    assert node.admits(wanted) is admits


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
    node = NodeInfo(taints=(Taint("t", "v", "NoSchedule"),))
    assert node.admits(NodeConstraints(tolerations=(toleration,))) is tolerates


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
    node = NodeInfo({ZONE: "a", "gen": "7"}, (), "n0")
    assert node.admits(NodeConstraints(terms=terms)) is admits


def test_a_pod_with_too_many_requirements_counts_as_admitted():
    """kube-scheduler decides then: checking 20,000 terms for each node would block the loop."""
    nowhere = tuple(Term(labels=(Requirement("pool", "In", (f"p{at}",)),)) for at in range(20_000))
    wanted = NodeConstraints(terms=nowhere)
    nodes = [NodeInfo({"pool": "a"}, name=f"n{at}") for at in range(500)]
    began = time.thread_time()

    assert {node.admits(wanted) for node in nodes} == {True}
    assert time.thread_time() - began < 0.1
    assert not nodes[0].admits(NodeConstraints(terms=nowhere[: MAX_REQUIREMENTS // 2]))


def test_a_pod_with_too_many_tolerations_counts_as_tolerating():
    """The limit protects the loop, as that of requirements does."""
    others = tuple(Toleration(f"t{at}", "Exists") for at in range(20_000))
    wanted = NodeConstraints(tolerations=others)
    nodes = [NodeInfo({}, (Taint("t", "v", "NoSchedule"),))] * 500
    began = time.thread_time()

    assert {node.admits(wanted) for node in nodes} == {True}
    assert time.thread_time() - began < 0.1
    assert not nodes[0].admits(NodeConstraints(tolerations=others[:MAX_TOLERATIONS]))


def test_a_requirement_with_many_values_is_checked():
    """A list of hosts of any length is checked, since users write such lists."""
    hosts = tuple(f"h{at}" for at in range(50_000))
    wanted = NodeConstraints(terms=(Term(labels=(Requirement("host", "In", hosts),)),))
    nodes = [NodeInfo({"host": f"h{at * 200}"}) for at in range(251)]
    began = time.thread_time()

    assert [node.admits(wanted) for node in nodes] == [True] * 250 + [False]
    assert time.thread_time() - began < 0.1
