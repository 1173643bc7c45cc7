"""What room nodes have left, as the coscheduler tells it, and which pods are made without gates."""

from __future__ import annotations

import pytest

from jobsetpy.domain.coscheduling.capacity import Shape
from jobsetpy.domain.coscheduling.node_rules import (
    NodeRoom,
    Placement,
    Requirement,
    Taint,
    Term,
    Toleration,
)
from jobsetpy.domain.coscheduling.queue_state import (
    HandOut,
    Openings,
    QueueState,
    closed_queue,
    queue_state,
    shape_of_template,
)
from jobsetpy.domain.coscheduling.vacancies import KINDS, LabelValues, Summary, Vacancies

ONE = Shape((("cpu", 1000), ("pods", 1000)))


def room(cpu, *, labels=None, taints=()):
    """A node with so many CPUs, and so much of it free."""
    return NodeRoom({"cpu": cpu * 1000, "pods": 110_000}, labels or {}, taints)


def told(*rooms):
    """What is told of nodes that are empty."""
    labels = LabelValues()
    for each in rooms:
        labels.add(each)
    summary = Summary(labels.told())
    for each in rooms:
        summary.add(each, each.allocatable)
    return summary.vacancies()


def spec(cpu="1", **fields):
    """A pod template's spec."""
    return {"containers": [{"resources": {"requests": {"cpu": cpu}}}], **fields}


def test_nodes_that_are_alike_are_one_entry():
    """However many there are, and with their number."""
    found = told(*(room(4, labels={"host": f"n{at}", "zone": "a"}) for at in range(1000)))
    assert [(each.number, dict(each.labels)) for each in found.nodes] == [(1000, {"zone": "a"})]
    assert found.labels == {"zone"}


@pytest.mark.parametrize(("pods", "fits"), [(0, True), (1, True), (7, True), (8, True), (9, False)])
def test_room_is_counted_node_by_node(pods, fits):
    """Two nodes of two CPUs and one of four hold eight; what one node cannot hold, none can."""
    vacancies = told(room(2), room(2), room(4))
    assert (vacancies.without(ONE, pods) is not None) == fits
    assert vacancies.without(Shape((("cpu", 5000),)), 1) is None


def test_what_is_taken_is_gone():
    """Step by step as at once."""
    vacancies = told(room(2), room(2), room(4))
    for left in range(8, 0, -1):
        assert vacancies.without(ONE, left) is not None
        assert vacancies.without(ONE, left + 1) is None
        vacancies = vacancies.without(ONE, 1)
    assert vacancies.without(ONE, 1) is None


def test_labels_and_taints_keep_pods_away():
    """As they do in the scheduler; of labels that are not told nothing is known."""
    gpu = Taint("gpu", "", "NoSchedule")
    vacancies = told(room(4, labels={"pool": "x"}, taints=(gpu,)), room(2, labels={"pool": "y"}))
    assert vacancies.without(ONE, 3) is None

    def fits(pods, **placement):
        return vacancies.without(Shape(ONE.requests, Placement(**placement)), pods) is not None

    assert fits(6, tolerations=(Toleration("gpu", "Exists"),))
    assert fits(2, selector=(("pool", "y"),))
    assert not fits(1, selector=(("pool", "z"),))
    assert not fits(1, selector=(("kind", "y"),))
    assert fits(2, terms=(Term((Requirement("pool", "In", ("y",)),)),))
    assert not fits(1, terms=(Term((Requirement("kind", "DoesNotExist"),)),))
    assert not fits(1, terms=(Term((), (Requirement("metadata.name", "In", ("n",)),)),))


def test_what_is_told_is_short():
    """Many different nodes are rounded down, then labels go, and at last nothing is told."""
    many = [room(1 + at, labels={"zone": f"z{at % 3}"}) for at in range(KINDS + 100)]
    found = told(*many)
    assert 0 < len(found.nodes) <= KINDS
    assert found.labels == {"zone"}
    assert sum(each.number for each in found.nodes) == len(many)
    assert found.without(Shape((("cpu", (KINDS + 100) * 1000),)), 1) is None  # never too much
    taints = [(Taint(f"t{at}", "", "NoSchedule"),) for at in range(KINDS + 1)]
    assert told(*(room(4, taints=each) for each in taints)) == Vacancies()


@pytest.mark.parametrize(
    "state",
    [
        QueueState(),
        QueueState(waiting=False, vacancies=None, holds=3),
        QueueState(
            waiting=False,
            vacancies=told(room(4, labels={"a": "b"}, taints=(Taint("k", "v", "NoExecute"),))),
            scheduler_name="gangs",
            member_resource=True,
        ),
    ],
)
def test_what_is_told_arrives(state):
    """As it was meant."""
    assert queue_state(state.encoded()) == state


def test_whether_there_is_room_for_as_many_again():
    """Besides what was handed out; never where nothing is counted or known."""
    openings = Openings(QueueState(waiting=False, vacancies=told(room(4), room(4))))
    assert openings.opens(spec(), 4)
    assert openings.leaves_as_much(spec(), 4)
    assert not openings.leaves_as_much(spec(), 5)
    assert openings.opens(spec(), 1)
    assert not openings.leaves_as_much(spec(), 4)
    for state in (None, QueueState(), QueueState(waiting=False, vacancies=None)):
        assert not Openings(state).leaves_as_much(spec(), 1)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"waiting": false}', "null", "[" * 100_000])
def test_what_is_no_state_is_none(text):
    """Then nothing is known, and pods are gated."""
    assert queue_state(text) is None


def test_pods_are_made_without_gates_while_there_is_room_for_all():
    """Each group takes its room from what the next one may have."""
    openings = Openings(QueueState(waiting=False, vacancies=told(room(4), room(4))))
    assert openings.opens(spec(), 5)
    assert not openings.opens(spec(), 4)
    assert openings.opens(spec(), 3)
    assert openings.handed_out == [HandOut(shape_of_template(spec()), n) for n in (5, 3)]


@pytest.mark.parametrize(
    "state",
    [
        None,
        QueueState(vacancies=told(room(4))),  # some group waits
        QueueState(waiting=False, vacancies=told(room(1))),
        QueueState(waiting=False, vacancies=Vacancies()),
        QueueState(waiting=False, vacancies=None, holds=1),
    ],
)
def test_otherwise_they_are_gated(state):
    """Nothing is known, somebody waits, or they would not fit, or not be held."""
    assert not Openings(state).opens(spec(), 2)


def test_without_a_capacity_check_only_the_queue_counts():
    """An autoscaler is to make room; it sees pods without gates."""
    assert Openings(QueueState(waiting=False, vacancies=None)).opens(spec("1000"), 100)
    assert not closed_queue().opens(spec(), 1)


def test_what_was_handed_out_is_taken():
    """The coscheduler may not have seen those pods yet."""
    state = QueueState(waiting=False, vacancies=told(room(4)))
    before = [HandOut(shape_of_template(spec()), 3)]
    assert Openings(state, before).opens(spec(), 1)
    assert not Openings(state, before).opens(spec(), 2)


@pytest.mark.parametrize(
    "fields",
    [
        {"affinity": {"podAntiAffinity": {}}},
        {"topologySpreadConstraints": [{}]},
        {"resourceClaims": [{}]},
        {"schedulingGates": [{"name": "example.com/mine"}]},
        {"volumes": [{"persistentVolumeClaim": {}}]},
        {"volumes": [{"ephemeral": {}}]},
    ],
)
def test_pods_that_are_placed_by_more_than_is_counted_are_gated(fields):
    """Affinity, spreading, devices, volumes; and gates of others, which go nobody knows when."""
    openings = Openings(QueueState(waiting=False, vacancies=None))
    assert not openings.opens(spec(**fields), 1)


def test_the_shape_of_a_template_is_that_of_its_pods():
    """Limits stand for requests that are missing; sidecars stay, other init containers do not."""
    shape = shape_of_template(
        {
            "containers": [{"resources": {"limits": {"cpu": "2", "memory": "1Ki"}}}, {}],
            "initContainers": [
                {"resources": {"requests": {"cpu": "5"}}},
                {"resources": {"requests": {"cpu": "1"}}, "restartPolicy": "Always"},
            ],
            "nodeSelector": {"b": "2", "a": "1"},
            "tolerations": [{"key": "k", "operator": "Exists"}],
        }
    )
    assert dict(shape.requests) == {"cpu": 5000, "memory": 1024 * 1000, "pods": 1000}
    assert shape.placement.selector == (("a", "1"), ("b", "2"))
    assert shape.placement.tolerations == (Toleration("k", "Exists"),)
