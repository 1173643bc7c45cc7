"""Seats as an agent sees them: whose work its worker does, and with which variables."""

from __future__ import annotations

import pytest

from jobsetpy.agent.protocol.settings import ConfigurationError
from jobsetpy.agent.protocol.wire_types import TakenSeat
from jobsetpy.agent.supervisor.seat import Place, SeatEnvirons, load_place

OWN = {
    "POD_UID": "u3",
    "WORKER_JOB": "js-w-1",
    "WORKER_SEATS": "3",
    "WORKER_POD_INDEX": "3",
    "WORKER_JOB_INDEX": "1",
    "WORKER_SEAT_VARIABLES": "JOB_COMPLETION_INDEX,NODE_RANK",
    "WORKER_MASTER_JOB": "js-w-0",
    "WORKER_MASTER_SEAT": "0",
    "WORKER_PROCESSES": "2",
    "WORKER_WORLD_SIZE": "12",
    "WORKER_JOB_PODS": "3",
    "MASTER_ADDR": "js-w-0-0.js",
}
COMMON = {b"JOB_COMPLETION_INDEX": b"3", b"A": b"b"}


def place(index: int, uid: str = "own") -> Place:
    """A pod of a Job with three seats."""
    return Place(uid=uid, job="js-w-1", index=index, seats=3)


def taken(seat: int, uid: str, job: str = "js-w-1", address: str = "") -> TakenSeat:
    """An entry of the assignment."""
    return TakenSeat(job, seat, uid, address)


@pytest.mark.parametrize(
    ("index", "entries", "seat"),
    [
        (1, [], 1),
        (3, [], None),
        (3, [taken(1, "own")], 1),
        (1, [taken(1, "other")], None),
        (1, [taken(1, "other", job="js-w-0")], 1),
        (1, [taken(1, "other"), taken(2, "own")], 2),
        (3, [taken(1, "other")], None),
    ],
    ids=[
        "its own",
        "a spare",
        "a spare that takes over",
        "its own is taken",
        "that of another Job is taken",
        "it has another one",
        "another spare takes over",
    ],
)
def test_a_pod_finds_its_seat_by_its_uid(
    index: int, entries: list[TakenSeat], seat: int | None
) -> None:
    """An entry first, then its completion index, if that is a seat and not taken."""
    assert place(index).seat(entries) == seat


def test_without_the_variable_there_are_no_seats() -> None:
    """In a JobSet without spares nothing is different."""
    assert load_place({}) is None


def test_ranks_and_indexes_follow_the_seat() -> None:
    """Variables with the pod's index have that of the seat, whose ranks the processes have."""
    found = load_place(OWN)
    assert found is not None
    seats = SeatEnvirons(found, dict(COMMON), OWN, 2)
    first, second = seats.of(1, [taken(1, "u3")])

    assert first[b"JOB_COMPLETION_INDEX"] == b"1"
    assert b"NODE_RANK" not in first
    assert (first[b"RANK"], first[b"LOCAL_RANK"], second[b"RANK"]) == (b"8", b"0", b"9")
    assert (first[b"WORLD_SIZE"], first[b"MASTER_ADDR"]) == (b"12", b"js-w-0-0.js")


def test_the_address_of_the_first_rank_follows_its_seat() -> None:
    """The pod's IP address of its holder, as the name belongs to the pod with the index."""
    found = load_place(OWN)
    assert found is not None
    seats = SeatEnvirons(found, dict(COMMON), OWN, 2)
    entries = [taken(0, "u9", job="js-w-0", address="10.0.0.9"), taken(1, "u3")]

    assert {each[b"MASTER_ADDR"] for each in seats.of(1, entries)} == {b"10.0.0.9"}


def test_a_parked_pod_prepares_without_a_rank() -> None:
    """It has none yet; what all ranks share is there."""
    found = load_place(OWN)
    assert found is not None
    parked = SeatEnvirons(found, dict(COMMON), OWN, 2).parked

    assert len(parked) == 2
    assert all(b"RANK" not in each and each[b"WORLD_SIZE"] == b"12" for each in parked)


def test_inconsistent_numbers_end_the_agent_before_it_waits() -> None:
    """And not only once it has got a seat."""
    wrong = {**OWN, "WORKER_WORLD_SIZE": "6"}
    found = load_place(wrong)
    assert found is not None
    with pytest.raises(ConfigurationError, match="has no ranks"):
        SeatEnvirons(found, dict(COMMON), wrong, 2)
