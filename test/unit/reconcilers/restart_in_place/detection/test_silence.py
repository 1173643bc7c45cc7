"""Reports of agents about pods that send no heartbeats: which pods are silent."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api.agent_reports import READY
from jobsetpy.api.child_pod import (
    ChildPod,
    ChildPodAnnotations,
    ChildPodLabels,
    ChildPodMeta,
    ChildPodSpec,
    ChildPodStatus,
)
from jobsetpy.api.jobset import (
    InPlaceRestartStatus,
    JobSet,
    JobSetSpec,
    JobSetStatus,
    ReplicatedJob,
)
from jobsetpy.reconcilers.restart_in_place.detection.heartbeat_report import parse_report
from jobsetpy.reconcilers.restart_in_place.detection.silence import (
    MAX_OBSERVERS,
    NO_SILENCE,
    Silence,
    can_be_replaced,
    silence_of,
    silent_cause,
    unheard_events,
)
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.spares.assign_job import SeatedJob, SeatPod

EPOCH = 7


def pod(index: int, node: str = "", unheard: str | None = None, **fields: object) -> ChildPod:
    """Pod of one Job on a node of its own unless one is named, at the epoch."""
    epoch = fields.get("epoch", EPOCH)
    return ChildPod(
        metadata=ChildPodMeta(
            name=f"js-w-0-{index}-abcde",
            uid=f"u{index}",
            deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC) if fields.get("leaving") else None,
            labels=ChildPodLabels(replicated_job_name="w", job_index="0"),
            annotations=ChildPodAnnotations(
                epoch=str(epoch), completion_index=str(index), unheard=unheard
            ),
        ),
        spec=ChildPodSpec(node_name=node or f"n{index}"),
        status=ChildPodStatus(phase="Running"),
    )


def silence(*pods: ChildPod, epoch: int = EPOCH) -> Silence:
    """Evaluate the reports of these pods."""
    jobset = JobSet(
        spec=JobSetSpec(replicated_jobs=(ReplicatedJob(name="w"),)),
        status=JobSetStatus(synced_epoch=epoch),
    )
    reporters = [each for each in pods if each.metadata.annotations.unheard is not None]
    return silence_of(
        ObservedEpochs(jobset=jobset, reporters=reporters, members=lambda: ([], list(pods)))
    )


def says(word: str, *indexes: int, epoch: int = EPOCH) -> str:
    """Return the report of an agent."""
    return f"{epoch} {word} " + ",".join(f"w-0-{index}" for index in indexes)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("7 blocked", (7, "blocked", ())),
        ("7 stalled w-0-3", (7, "stalled", ("w-0-3",))),
        ("7 moving w-0-1,w-0-3", (7, "moving", ("w-0-1", "w-0-3"))),
        *[(text, None) for text in (None, "", "7", "0 blocked", "7 stalled", "7 stalled a,b,c")],
        *[(text, None) for text in ("7  stalled a", "7 asleep a", "7 stalled A", "7 stalled a\n")],
        *[(text, None) for text in ("99999999999 blocked", "7 blocked a")],
    ],
)
def test_reports_are_parsed_strictly(text, known):
    """Any client that may write a pod can write the annotation."""
    assert parse_report(text) == known


@given(st.text(max_size=40))
def test_parsing_a_report_never_raises(text):
    """Any text is a report or none."""
    parse_report(text)


def test_pod_is_silent_when_agents_on_two_other_nodes_report_it():
    """Both of its neighbours in the ring, with the progress of workers that they observe."""
    found = silence(pod(0, "", says("stalled", 3)), pod(1), pod(2, "", says("stalled", 3)), pod(3))

    assert found.uids == {"u3"}
    assert found.gone == {"u3"}
    assert (found.observers, found.motion) == (("n0", "n2"), "stalled")


@pytest.mark.parametrize(
    "pods",
    [
        [pod(0, "", says("stalled", 3)), pod(1), pod(2), pod(3)],
        [pod(0, "a", says("stalled", 3)), pod(1), pod(2, "a", says("stalled", 3)), pod(3)],
    ],
    ids=["one agent", "two agents of one node"],
)
def test_pod_is_doubted_when_agents_of_only_one_node_report_it(pods):
    """The observer's own link may be broken."""
    found = silence(*pods)

    assert found.uids == set()
    assert [each.metadata.uid for each in found.doubted] == ["u3"]


def test_one_observer_is_enough_in_a_group_of_two_nodes():
    """There is no second one."""
    found = silence(pod(0, "a", says("stalled", 2)), pod(1, "a"), pod(2, "b"), pod(3, "b"))

    assert found.uids == {"u2"}
    assert found.gone == {"u2", "u3"}


def test_neighbours_that_vanish_together_have_one_observer_each():
    """Two nodes of a rack: the agents that could confirm the reports are both gone."""
    found = silence(
        pod(0, "", says("stalled", 1)), pod(1), pod(2), pod(3, "", says("stalled", 2)), pod(4)
    )

    assert found.uids == {"u1", "u2"}
    assert found.observers == ("n0", "n3")


def test_pods_that_are_not_neighbours_are_not_counted_together():
    """Two agents that report one pod each make two pods doubted."""
    found = silence(
        pod(0, "", says("stalled", 1)), pod(1), pod(2), pod(3), pod(4, "", says("stalled", 5)),
        pod(5), pod(6),
    )  # fmt: skip

    assert found.uids == set()
    assert len(found.doubted) == 2


def test_pods_are_doubted_when_two_nodes_report_each_other():
    """The link between them is broken; which of them works is not known."""
    found = silence(pod(0, "", says("stalled", 1)), pod(1, "", says("stalled", 0)), pod(2), pod(3))

    assert found.uids == set()


def test_observers_are_counted_by_node_when_pods_alternate_between_nodes():
    """The observers of any pod observe its node."""
    found = silence(
        pod(0, "a", says("stalled", 1)), pod(1, "b"), pod(2, "a"), pod(3, "b"),
        pod(4, "c", says("stalled", 3)), pod(5, "d"),
    )  # fmt: skip

    assert found.uids == {"u1", "u3"}


@pytest.mark.parametrize(
    ("one", "other", "motion"),
    [
        ("stalled", "stalled", "stalled"),
        ("stalled", "moving", "moving"),
        ("stalled", "unknown", "stalled"),
        ("unknown", "unknown", "unknown"),
    ],
)
def test_workers_stall_when_no_observer_reports_progress(one, other, motion):
    """An observer may be a spare, which has no worker."""
    found = silence(pod(0, "", says(one, 1)), pod(1), pod(2, "", says(other, 1)), pod(3))

    assert found.motion == motion


@pytest.mark.parametrize(
    "silent",
    [pod(3, epoch=EPOCH + 2), pod(3, epoch=EPOCH - 1), pod(3, leaving=True), pod(4)],
    ids=["it restarts again", "it never came", "it is being deleted", "it is another one"],
)
def test_report_is_ignored_when_the_pod_does_not_work_since(silent):
    """Other signs show the state of such a pod."""
    found = silence(pod(0, "", says("stalled", 3)), pod(1), pod(2, "", says("stalled", 3)), silent)

    assert (found.uids, found.doubted) == (set(), ())


def test_reports_of_earlier_epochs_are_ignored():
    """They stay in annotations until the next epoch."""
    old = says("stalled", 3, epoch=EPOCH - 1)

    assert silence(pod(0, "", old), pod(1), pod(2, "", old), pod(3)) == Silence()


def test_outage_is_assumed_when_more_agents_report_than_a_lost_node_causes():
    """The network has failed: a restart would not help, and none follows."""
    many = [pod(index, "", says("stalled", index + 1)) for index in range(MAX_OBSERVERS + 1)]
    old = [pod(index, "", says("stalled", 0, epoch=EPOCH - 1)) for index in range(200)]
    jobset = JobSet(status=JobSetStatus(synced_epoch=EPOCH))

    def members():
        raise AssertionError("all pods are read")

    for reporters, expected in ((many, Silence(outage=True)), (old, NO_SILENCE)):
        observed = ObservedEpochs(jobset=jobset, reporters=reporters, members=members)
        assert silence_of(observed) == expected


def test_outage_is_reported_and_restarts_nothing():
    """The event has another reason than that of a silent pod."""
    jobset = JobSet(status=JobSetStatus(synced_epoch=EPOCH))
    outage = Silence(outage=True)
    (event,) = unheard_events(jobset, outage, restarts=False)

    assert event.reason == "HeartbeatsMissing"
    assert "no restart follows" in event.message
    assert silent_cause(jobset, outage) is None


def test_pods_are_named_when_they_have_never_received_a_heartbeat():
    """Datagrams are blocked, by a NetworkPolicy in most cases."""
    found = silence(pod(0, "", "7 blocked"), pod(1, "", "7 blocked"), pod(2))

    assert found == Silence(blocked=("js-w-0-0-abcde", "js-w-0-1-abcde"))


def seat_pod(index: int, epoch: int = EPOCH) -> SeatPod:
    """Pod of a Job with two seats and a spare, which is at the next epoch."""
    return SeatPod(f"p{index}", f"u{index}", index, epoch, READY if index >= 2 else "")


@pytest.mark.parametrize(
    ("gone", "possible"), [({"u1"}, True), ({"u0"}, True), ({"u1", "u2"}, False), (set(), True)]
)
def test_seats_can_be_filled_or_not_without_pods_that_are_gone(gone, possible):
    """Independently of the pods' epochs; a spare on a silent node does not count."""
    pods = [seat_pod(0), seat_pod(1), seat_pod(2, EPOCH + 1)]

    assert (
        can_be_replaced([SeatedJob("w", 2, pods)], InPlaceRestartStatus(), frozenset(gone))
        is possible
    )


@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=8),
)
def test_silent_pods_are_reported_from_other_nodes_for_any_placement(nodes, reports):
    """Never by their own node, nor by a node that is reported itself."""
    by_observer: dict[int, list[int]] = {}
    for observer, other in reports:
        if observer < len(nodes) and other < len(nodes):
            by_observer.setdefault(observer, []).append(other)
    pods = [
        pod(
            index,
            f"n{node}",
            says("stalled", *by_observer[index][:2]) if index in by_observer else None,
        )
        for index, node in enumerate(nodes)
    ]
    found = silence(*pods)
    silent_nodes = {each.spec.node_name for each in found.pods}

    assert not silent_nodes & set(found.observers)
    assert not found.uids & {each.metadata.uid for each in found.doubted}
    assert found.uids <= found.gone
    for each in found.pods:
        assert any(
            int(each.metadata.uid[1:]) in others[:2]
            and nodes[observer] != nodes[int(each.metadata.uid[1:])]
            for observer, others in by_observer.items()
        )
