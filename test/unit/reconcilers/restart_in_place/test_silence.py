"""Reports of agents about pods that send no heartbeats: which pods are silent."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api.child_pod import (
    ChildPod,
    ChildPodAnnotations,
    ChildPodLabels,
    ChildPodMeta,
    ChildPodSpec,
    ChildPodStatus,
)
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet, JobSetStatus
from jobsetpy.reconcilers.restart_in_place.decision import EpochDecision
from jobsetpy.reconcilers.restart_in_place.heartbeat_report import parse_report
from jobsetpy.reconcilers.restart_in_place.job_seats import READY, SeatedJob, SeatPod
from jobsetpy.reconcilers.restart_in_place.observed import Histogram, ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.silence import (
    MAX_OBSERVERS,
    NO_SILENCE,
    Silence,
    can_be_replaced,
    find_silence,
    silence_of,
    silent_cause,
    unheard_events,
)

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
    return find_silence(epoch, ["w"], pods)


def says(word: str, *indexes: int, epoch: int = EPOCH) -> str:
    """The report of an agent."""
    return f"{epoch} {word} " + ",".join(f"w-0-{index}" for index in indexes)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("7 blocked", (7, "blocked", ())),
        ("7 stalled w-0-3", (7, "stalled", ("w-0-3",))),
        ("7 moving w-0-1,w-0-3", (7, "moving", ("w-0-1", "w-0-3"))),
    ]
    + [
        (text, None)
        for text in (
            *(None, "", "7", "0 blocked", "7 stalled", "7 stalled a,b,c", "7  stalled a"),
            *("7 asleep a", "7 stalled A", "7 stalled a\n", "99999999999 blocked", "7 blocked a"),
        )
    ],
)
def test_reports_are_parsed_strictly(text, known):
    """Any client that may write a pod can write the annotation."""
    assert parse_report(text) == known


@given(st.text(max_size=40))
def test_any_text_is_a_report_or_none(text):
    """Nothing raises."""
    parse_report(text)


def test_a_pod_is_silent_if_agents_on_two_other_nodes_report_it():
    """Both of its neighbours in the ring, with the progress that they see."""
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
def test_a_pod_that_one_node_reports_is_doubted(pods):
    """The observer's own link may be broken."""
    found = silence(*pods)

    assert found.uids == set()
    assert [each.metadata.uid for each in found.doubted] == ["u3"]


def test_one_observer_is_enough_in_a_group_of_two_nodes():
    """There is no other."""
    found = silence(pod(0, "a", says("stalled", 2)), pod(1, "a"), pod(2, "b"), pod(3, "b"))

    assert found.uids == {"u2"}
    assert found.gone == {"u2", "u3"}


def test_neighbours_that_vanish_together_have_one_observer_each():
    """Two nodes of a rack: those that could confirm each other are both gone."""
    found = silence(
        pod(0, "", says("stalled", 1)), pod(1), pod(2), pod(3, "", says("stalled", 2)), pod(4)
    )

    assert found.uids == {"u1", "u2"}
    assert found.observers == ("n0", "n3")


def test_pods_that_are_not_neighbours_are_not_counted_together():
    """Two agents that report one pod each are two doubts."""
    found = silence(
        pod(0, "", says("stalled", 1)), pod(1), pod(2), pod(3), pod(4, "", says("stalled", 5)),
        pod(5), pod(6),
    )  # fmt: skip

    assert found.uids == set()
    assert len(found.doubted) == 2


def test_two_nodes_that_report_each_other_are_both_doubted():
    """The link between them is broken; which of them works is not known."""
    found = silence(pod(0, "", says("stalled", 1)), pod(1, "", says("stalled", 0)), pod(2), pod(3))

    assert found.uids == set()


def test_pods_with_an_interrupted_node_in_turn_count_by_node():
    """Pods that alternate between nodes: the observers of any of them observe the node."""
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
def test_workers_stall_if_no_observer_sees_progress(one, other, motion):
    """A spare that observes knows of no worker, perhaps."""
    found = silence(pod(0, "", says(one, 1)), pod(1), pod(2, "", says(other, 1)), pod(3))

    assert found.motion == motion


@pytest.mark.parametrize(
    "silent",
    [
        pod(3, epoch=EPOCH + 2),
        pod(3, epoch=EPOCH - 1),
        pod(3, leaving=True),
        pod(4),
    ],
    ids=["it restarts again", "it never came", "it is being deleted", "it is another one"],
)
def test_reports_about_pods_that_do_not_work_are_ignored(silent):
    """What happens to them is known by other signs."""
    found = silence(pod(0, "", says("stalled", 3)), pod(1), pod(2, "", says("stalled", 3)), silent)

    assert (found.uids, found.doubted) == (set(), ())


def test_reports_about_earlier_epochs_are_ignored():
    """They stay in annotations until the next epoch."""
    old = says("stalled", 3, epoch=EPOCH - 1)

    assert silence(pod(0, "", old), pod(1), pod(2, "", old), pod(3)) == Silence()


def test_more_reports_than_a_lost_node_causes_are_an_outage():
    """The network has failed: a restart would not help, and none follows."""
    many = [pod(index, "", says("stalled", index + 1)) for index in range(MAX_OBSERVERS + 1)]
    old = [pod(index, "", says("stalled", 0, epoch=EPOCH - 1)) for index in range(200)]
    jobset = JobSet(status=JobSetStatus(synced_epoch=EPOCH))

    def members():
        raise AssertionError("the pods are not all looked at")

    for reporters, expected in ((many, Silence(outage=True)), (old, NO_SILENCE)):
        observed = ObservedEpochs(jobset=jobset, unheard=reporters, members=members)
        assert silence_of(observed) == expected


def test_an_outage_is_reported_and_restarts_nothing():
    """By an event with another reason than that of a silent pod."""
    jobset = JobSet(status=JobSetStatus(synced_epoch=EPOCH))
    outage = Silence(outage=True)
    (event,) = unheard_events(jobset, Histogram(), outage, EpochDecision())

    assert event.reason == "HeartbeatsMissing"
    assert "no restart follows" in event.message
    assert silent_cause(jobset, Histogram(), outage) is None


def test_pods_that_never_heard_a_beat_are_named():
    """Datagrams are blocked, by a NetworkPolicy in most cases."""
    found = silence(pod(0, "", "7 blocked"), pod(1, "", "7 blocked"), pod(2))

    assert found == Silence(blocked=("js-w-0-0-abcde", "js-w-0-1-abcde"))


def seat_pod(index: int, epoch: int = EPOCH) -> SeatPod:
    """Pod of a Job with two seats and a spare, which is at the next epoch."""
    return SeatPod(f"p{index}", f"u{index}", index, epoch, READY if index >= 2 else "")


@pytest.mark.parametrize(
    ("gone", "possible"), [({"u1"}, True), ({"u0"}, True), ({"u1", "u2"}, False), (set(), True)]
)
def test_seats_can_be_filled_without_pods_that_are_gone(gone, possible):
    """Wherever the pods are in their epochs; a spare on a silent node is none."""
    pods = [seat_pod(0), seat_pod(1), seat_pod(2, EPOCH + 1)]

    assert (
        can_be_replaced([SeatedJob("w", 2, pods)], InPlaceRestartStatus(), frozenset(gone))
        is possible
    )


@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=8),
)
def test_a_silent_pod_is_always_reported_from_other_nodes(nodes, reports):
    """For any placement and any reports: never by its own node, nor by one that is reported."""
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
