"""Seats as an agent sees them: the work that its worker does, and the variables for it."""

from __future__ import annotations

import pytest

from jobsetpy.agent.protocol.settings import ConfigurationError
from jobsetpy.agent.protocol.wire_types import InPlaceRestart
from jobsetpy.agent.supervisor.ranks import Place, Seat, SeatEnvirons, load_place
from jobsetpy.api.structs import JobSize, TakenJob, TakenSeat

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
    """Return a pod of a Job with three seats."""
    return Place(uid=uid, job="js-w-1", index=index, seats=3)


def taken(seat: int, uid: str, job: str = "js-w-1", address: str = "") -> TakenSeat:
    """Return an entry of the assignment."""
    return TakenSeat(job, seat, uid, address)


def moved(**holders: str) -> tuple[TakenJob, ...]:
    """Return entries for Jobs, by index, that other Jobs hold."""
    return tuple(TakenJob(f"js-w-{job[1:]}", holder) for job, holder in holders.items())


NONE = InPlaceRestart()
SPARE_JOB = OWN | {
    "WORKER_JOB": "js-w-2",
    "WORKER_JOB_INDEX": "2",
    "WORKER_POD_INDEX": "0",
    "WORKER_SEAT_JOBS": "2",
    "WORKER_SEAT_JOB_VARIABLES": "SLICE,GLOBAL",
    "WORKER_HOSTS": "v=1x2x1,w=2x3x2",
    "WORKER_WORLD_SIZE": "14",
    "WORKER_FIRST_RANK": "2",
    "WORKER_MASTER_RANK": "2",
    "JOBSET_NAME": "js",
}


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
def test_pod_finds_its_seat_by_its_uid(
    index: int, entries: list[TakenSeat], seat: int | None
) -> None:
    """An entry comes first, then its completion index, if that is a seat and not taken."""
    found = place(index).seat(InPlaceRestart(tuple(entries)))
    assert found == (None if seat is None else Seat(0, seat))


@pytest.mark.parametrize(
    ("job", "holders", "seat"),
    [
        (1, {}, Seat(1, 0)),
        (2, {}, None),
        (2, {"_1": "js-w-2"}, Seat(1, 0)),
        (1, {"_1": "js-w-2"}, None),
        (1, {"_1": "js-w-2", "_0": "js-w-1"}, Seat(0, 0)),
        (2, {"_0": "js-w-3"}, None),
    ],
    ids=["its own", "a spare", "it takes over", "given up", "another one's", "another takes over"],
)
def test_pod_finds_the_seats_of_its_job(job: int, holders: dict[str, str], seat: Seat) -> None:
    """An entry with the Job's name comes first, then its index, if that Job has seats."""
    one = Place(uid="own", job=f"js-w-{job}", index=0, seats=3, job_index=job, jobs=2)

    assert one.seat(InPlaceRestart(taken_jobs=moved(**holders))) == seat


def test_ranks_and_indexes_of_the_job_follow_the_seats() -> None:
    """A spare Job has the ranks and the indexes of the Job that it replaces."""
    found = load_place(SPARE_JOB)
    common = {b"SLICE": b"2", b"GLOBAL": b"3", b"OTHER": b"2", **COMMON}
    seats = SeatEnvirons(found, common, SPARE_JOB, "f")
    taken_over = InPlaceRestart(taken_jobs=moved(_1="js-w-2"))
    seat = found.seat(taken_over)
    assert seat == Seat(1, 0)
    first, second = seats.of(seat, taken_over)

    assert (first[b"SLICE"], first[b"GLOBAL"], first[b"OTHER"]) == (b"1", b"2", b"2")
    assert (first[b"RANK"], second[b"RANK"]) == (b"6", b"7")
    assert first[b"JOB_COMPLETION_INDEX"] == b"0"
    assert all(b"RANK" not in each for each in seats.parked)


def test_address_of_the_first_rank_follows_its_job() -> None:
    """It is the host name of the index in the holding Job, or the address of another pod."""
    found = load_place(SPARE_JOB)
    own = moved(_0="js-w-2")
    other = (taken(0, "u9", job="js-w-2", address="10.0.0.9"),)

    assert found.master_address(NONE) == ""
    assert found.master_address(InPlaceRestart(taken_jobs=own)) == "js-w-2-0.js"
    assert found.master_address(InPlaceRestart(other, own)) == "10.0.0.9"
    assert found.master_address(InPlaceRestart(other)) == ""


def test_hosts_are_listed_in_the_order_of_their_ranks(tmp_path) -> None:
    """The list starts at the coordinator; each host has its number of processes."""
    found = load_place(SPARE_JOB)
    file = tmp_path / "hosts"
    seats = SeatEnvirons(found, dict(COMMON), SPARE_JOB, str(file))
    seats.write_hosts(NONE)

    assert seats.of(Seat(1, 1), NONE)[0][b"JOBSET_HOSTFILE"] == str(file).encode()
    assert file.read_text().splitlines() == [
        *(f"js-w-{job}-{pod}.js slots=2" for job in (0, 1) for pod in (0, 1, 2)),
        *(f"js-v-0-{pod}.js slots=1" for pod in (0, 1)),
    ]

    later = InPlaceRestart((taken(2, "u9", "js-w-2", "10.0.0.9"),), moved(_1="js-w-2"))
    seats.write_hosts(later)
    lines = file.read_text().splitlines()
    assert lines[3:6] == ["js-w-2-0.js slots=2", "js-w-2-1.js slots=2", "10.0.0.9 slots=2"]
    assert lines[:3] == [f"js-w-0-{pod}.js slots=2" for pod in (0, 1, 2)]

    file.unlink()
    seats.write_hosts(later)
    assert not file.exists()


FEWER = OWN | {
    "JOBSET_NAME": "js",
    "WORKER_HOSTS": "v=1x2x1,w=2x3x2",
    "WORKER_WORLD_SIZE": "14",
    "WORKER_FIRST_RANK": "2",
    "WORKER_MASTER_RANK": "2",
}


def test_ranks_are_contiguous_when_jobs_have_fewer_seats(tmp_path) -> None:
    """World, ranks and hosts are those of the epoch; all seats together have each rank once."""
    file = tmp_path / "hosts"
    sizes = (JobSize("js-w-0", 2), JobSize("js-v-0", 1))
    fewer = InPlaceRestart((taken(1, "u9", "js-w-0", "10.0.0.9"),), (), sizes)
    seats = SeatEnvirons(load_place(FEWER), dict(COMMON), FEWER, str(file))
    other = FEWER | {"WORKER_JOB": "js-v-0", "WORKER_JOB_INDEX": "0", "WORKER_PROCESSES": "1"}
    driver = SeatEnvirons(load_place(other), dict(COMMON), other, "f")
    seats.write_hosts(fewer)
    w = [
        each
        for job, size in ((0, 2), (1, 3))
        for pod in range(size)
        for each in seats.of(Seat(job, pod), fewer)
    ]
    found = [*w, *driver.of(Seat(0, 0), fewer)]

    assert [each[b"RANK"] for each in found] == [str(rank).encode() for rank in range(11)]
    assert {each[b"WORLD_SIZE"] for each in found} == {b"11"}
    assert file.read_text().splitlines() == [
        "js-w-0-0.js slots=2", "10.0.0.9 slots=2",
        *(f"js-w-1-{pod}.js slots=2" for pod in (0, 1, 2)), "js-v-0-0.js slots=1",
    ]  # fmt: skip


def test_ranks_and_slices_are_contiguous_when_jobs_have_no_seats(tmp_path) -> None:
    """The first and the third of four Jobs are missing: the others are slices 0 and 1 of two."""
    sizes = InPlaceRestart(job_sizes=(JobSize("js-w-0", 0), JobSize("js-w-2", 0)))
    found, file = [], tmp_path / "hosts"
    for job in (1, 3):
        own = FEWER | {
            "WORKER_JOB": f"js-w-{job}", "WORKER_JOB_INDEX": str(job), "WORKER_HOSTS": "w=4x3x2",
            "WORKER_WORLD_SIZE": "24", "WORKER_FIRST_RANK": "0", "WORKER_MASTER_RANK": "0",
            "WORKER_SEAT_JOB_VARIABLES": "MEGASCALE_SLICE_ID",
            "WORKER_SEAT_COUNT_VARIABLES": "MEGASCALE_NUM_SLICES,COUNT",
            "WORKER_SEAT_ADDRESS_VARIABLES": "MEGASCALE_COORDINATOR_ADDRESS",
        }  # fmt: skip
        common = {
            b"MEGASCALE_SLICE_ID": str(job).encode(), b"MEGASCALE_NUM_SLICES": b"4",
            b"MEGASCALE_COORDINATOR_ADDRESS": b"js-w-0-0.js:8080", **COMMON,
        }  # fmt: skip
        seats = SeatEnvirons(load_place(own), common, own, str(file))
        found += [each for pod in range(3) for each in seats.of(Seat(job, pod), sizes)]
        seats.write_hosts(sizes)
        none = [
            InPlaceRestart(job_sizes=(JobSize(f"js-w-{job}", 0, done),)) for done in (False, True)
        ]
        assert [load_place(own).seat(each) for each in none] == [None, None]
        assert [load_place(own).is_done(each) for each in none] == [False, True]

    assert [each[b"RANK"] for each in found] == [str(rank).encode() for rank in range(12)]
    assert [each[b"MEGASCALE_SLICE_ID"] for each in found] == [b"0"] * 6 + [b"1"] * 6
    shared = (
        b"WORLD_SIZE",
        b"MASTER_ADDR",
        b"MEGASCALE_NUM_SLICES",
        b"MEGASCALE_COORDINATOR_ADDRESS",
    )
    assert {tuple(each[name] for name in shared) for each in found} == {
        (b"12", b"js-w-1-0.js", b"2", b"js-w-1-0.js:8080")
    }
    assert b"COUNT" not in found[0]
    assert file.read_text().splitlines() == [
        f"js-w-{job}-{pod}.js slots=2" for job in (1, 3) for pod in range(3)
    ]


@pytest.mark.parametrize(
    ("index", "entries", "seat"), [(1, [], 1), (2, [], None), (2, [taken(1, "own")], 1)]
)
def test_pod_above_the_size_of_its_job_has_no_seat(index, entries, seat) -> None:
    """Unless it has taken a seat below; once all seats have succeeded, it is not needed."""
    fewer = InPlaceRestart(tuple(entries), (), (JobSize("js-w-1", 2),))
    done = InPlaceRestart(tuple(entries), (), (JobSize("js-w-1", 2, done=True),))

    assert place(index).seat(fewer) == (None if seat is None else Seat(0, seat))
    assert not place(index).is_done(fewer)
    assert place(index).is_done(done) is (seat is None)


def test_unreadable_hosts_end_the_agent() -> None:
    """Admission writes them, but a manifest made by hand may be wrong."""
    found = load_place(SPARE_JOB)
    with pytest.raises(ConfigurationError, match="WORKER_HOSTS must be"):
        SeatEnvirons(found, dict(COMMON), SPARE_JOB | {"WORKER_HOSTS": "w=2x3"}, "f")


def test_hosts_are_not_written_when_there_are_no_ranks(tmp_path) -> None:
    """Nor do the processes have a variable with the file's path."""
    found = load_place(OWN)
    file = tmp_path / "hosts"
    seats = SeatEnvirons(found, dict(COMMON), OWN, str(file))
    seats.write_hosts(NONE)

    assert not file.exists()
    assert b"JOBSET_HOSTFILE" not in seats.parked[0]


def test_ranks_and_indexes_follow_the_seat() -> None:
    """Variables with the pod's index get that of the seat, and the processes get its ranks."""
    found = load_place(OWN)
    seats = SeatEnvirons(found, dict(COMMON), OWN, "f")
    first, second = seats.of(Seat(1, 1), InPlaceRestart((taken(1, "u3"),)))

    assert first[b"JOB_COMPLETION_INDEX"] == b"1"
    assert b"NODE_RANK" not in first
    assert (first[b"RANK"], first[b"LOCAL_RANK"], second[b"RANK"]) == (b"8", b"0", b"9")
    assert (first[b"WORLD_SIZE"], first[b"MASTER_ADDR"]) == (b"12", b"js-w-0-0.js")


def test_address_of_the_first_rank_follows_its_seat() -> None:
    """It is the IP address of the holder, since the name belongs to the pod with the index."""
    found = load_place(OWN)
    seats = SeatEnvirons(found, dict(COMMON), OWN, "f")
    entries = (taken(0, "u9", job="js-w-0", address="10.0.0.9"), taken(1, "u3"))
    found_by = seats.of(Seat(1, 1), InPlaceRestart(entries))

    assert {each[b"MASTER_ADDR"] for each in found_by} == {b"10.0.0.9"}


def test_parked_pod_prepares_without_a_rank() -> None:
    """Its processes have the variables that all ranks share."""
    found = load_place(OWN)
    parked = SeatEnvirons(found, dict(COMMON), OWN, "f").parked

    assert len(parked) == 2
    assert all(b"RANK" not in each and each[b"WORLD_SIZE"] == b"12" for each in parked)


def test_inconsistent_numbers_end_the_agent_before_it_waits() -> None:
    """They are checked before it takes a seat."""
    wrong = {**OWN, "WORKER_WORLD_SIZE": "6"}
    found = load_place(wrong)
    with pytest.raises(ConfigurationError, match="has no ranks"):
        SeatEnvirons(found, dict(COMMON), wrong, "f")
