"""Assignment of seats: tables of single decisions, and laws that hold for all of them."""

from __future__ import annotations

from random import Random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api.agent_reports import PARKED, READY, SAVING
from jobsetpy.api.jobset import TakenJob, TakenSeat
from jobsetpy.reconcilers.restart_in_place.spares.assign_job import (
    SeatedJob,
    SeatingRequest,
    SeatPod,
)
from jobsetpy.reconcilers.restart_in_place.spares.assign_jobs import (
    MAX_ENTRIES,
    assign_seats,
    taken_by_job,
)
from jobsetpy.reconcilers.rules.barrier_state import holds_seat
from jobsetpy.reconcilers.rules.status_draft import whole_json

LATE = SeatingRequest(2, waited_s=9.0, starting=False)
"""Assignment at epoch 2, long after the first sign of the restart."""


def pod(index, epoch=2, state="", uid="", **more):
    """Return a pod of the Job; its UID is its index with a letter for each successor."""
    uid = uid or f"{index}a"
    return SeatPod(f"pod-{uid}", uid, index, epoch, state, **more)


def entry(seat, holder):
    """Return an entry for a seat that another pod holds."""
    return TakenSeat(
        job="w", seat=seat, pod=holder.name, pod_uid=holder.uid, pod_index=holder.index,
        address=holder.address,
    )  # fmt: skip


def assigned(
    *pods, taken=(), seats=2, completed=(), waited_s=0.0, starting=False, job=None, **more
):
    """Return the seats of one Job at epoch 2; ``job`` has further fields of the Job."""
    job = SeatedJob("w", seats, pods, completed.__contains__, **(job or {}))
    return assign_seats([job], taken, SeatingRequest(2, waited_s, starting, **more))


def holders(seating):
    """Return UIDs of the holders in entries, by seat."""
    return taken_by_job(seating.taken).get("w", {})


def test_nothing_is_stored_when_all_holders_have_come():
    """The assignment is a list of exceptions, empty in the normal case."""
    seating = assigned(pod(0), pod(1), pod(2, state=READY))

    assert seating.complete
    assert seating.taken == ()
    assert seating.swaps == ()


def test_spare_takes_the_seat_of_a_pod_that_is_gone():
    """Immediately, and with its own UID, index and address."""
    spare = pod(2, state=READY, address="10.0.0.9")
    seating = assigned(pod(0), spare)

    assert seating.complete
    assert seating.taken == (entry(1, spare),)
    assert [(swap.seat, swap.pod.uid) for swap in seating.swaps] == [(1, "2a")]


@pytest.mark.parametrize(
    ("pods", "taken", "fields", "more", "expected"),
    [
        ((0, 2, 3), (), {}, {}, (3, {1: "3a"}, 30.0)),
        ((0, 1, 2), (), {}, {}, (3, {}, 30.0)),
        ((0, 1, 2), (), {"missing": 1}, {}, (3, {}, 0.0)),
        ((0, 1), (), {"missing": 1}, {}, (2, {}, 30.0)),
        ((0, 2, 3), (), {}, {"starting": True}, (3, {1: "3a"}, 60.0)),
        ((0, 1), (), {"least": 3}, {}, (None, {}, 0.0)),
        ((0, 2, 3), ((1, 3),), {"missing": 1}, {}, (3, {1: "3a"}, 0.0)),
        ((0, 1, 2, 3), ((1, 3),), {"missing": 1}, {}, (None, {1: "3a", 3: "1a"}, 0.0)),
        ((0, 1, 2, 3), (), {"missing": 1, "fixed": True}, {}, (3, {}, 0.0)),
    ],
    ids=[
        "the pod of the highest index moves",
        "the pod of the highest index is lost",
        "no other wait for one that was missing before",
        "one more is lost",
        "new pods have time to start",
        "the minimum is not undercut",
        "a pod keeps the seat that it has taken",
        "so it does when all are back",
        "the size stays once a pod has succeeded",
    ],
)
def test_job_with_a_minimum_has_as_many_seats_as_pods(pods, taken, fields, more, expected):
    """Number of seats if it is not that of the template, entries, and the wait before."""
    there = {index: pod(index) for index in pods}
    seating = assigned(
        *there.values(), seats=4, taken=[entry(seat, there[index]) for seat, index in taken],
        job={"least": 2, **fields}, fewer_after_s=30.0, **more,
    )  # fmt: skip
    size = next((one.seats for one in seating.sizes), None)

    assert (size, holders(seating), seating.wait_s) == expected
    assert bool(seating.unfilled) is (fields.get("least") == 3)


def slices(there, missing=(), **more):
    """Return the seats of four Jobs of two pods, of which two have to be there.

    Args:
        there: numbers of the pods, of all Jobs one after the other, at the epoch.
        missing: indexes of the Jobs without seats in the present epoch.
        more: fields of the request, and ``late``: numbers of pods that are at the epoch before.
    """
    late, fixed = more.pop("late", ()), more.pop("fixed", False)
    every = {number: pod(number % 2, uid=f"{number}a") for number in there}
    every |= {number: pod(number % 2, 1, uid=f"{number}a") for number in late}
    jobs = [
        SeatedJob(
            f"w-{job}", 2, [each for number, each in every.items() if number // 2 == job],
            replicated_job="w", index=job, least_jobs=2, missing=2 * (job in missing), fixed=fixed,
        )
        for job in range(4)
    ]  # fmt: skip
    return assign_seats(jobs, (), SeatingRequest(2, 0.0, more.pop("starting", False), **more))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"there": range(8)}, ([], 8, 0, 0.0)),
        ({"there": (0, 1, 3, 4, 5, 6, 7)}, ([1], 6, 0, 30.0)),
        ({"there": (0, 1, 3, 4, 5, 6, 7), "missing": (1,)}, ([1], 6, 0, 0.0)),
        ({"there": (0, 1, 3, 4, 5, 7), "missing": (1,)}, ([1, 3], 4, 0, 30.0)),
        ({"there": (0, 1, 2, 3, 5, 6, 7), "missing": (1,)}, ([2], 6, 0, 0.0)),
        ({"there": (0, 1, 2, 3, 5, 6, 7), "late": (4,), "missing": (1,)}, ([2], 6, 0, 30.0)),
        ({"there": (0, 1, 3, 5, 7)}, ([], 5, 3, 0.0)),
        ({"there": (0, 1, 3, 4, 5, 6, 7), "starting": True}, ([1], 6, 0, 60.0)),
        ({"there": range(8), "missing": (1,), "fixed": True}, ([1], 6, 0, 0.0)),
    ],
    ids=[
        "all are there",
        "a Job that misses a pod gives up both seats",
        "no other wait for one that was missing before",
        "one more is lost",
        "one comes back and another is lost",
        "one comes back and another is late",
        "the minimum is not undercut",
        "new pods have time to start",
        "the size stays once a pod has succeeded",
    ],
)
def test_jobs_of_a_minimum_have_all_seats_or_none(given, expected):
    """Jobs without a seat, seats that are filled and that are not, and the wait before."""
    seating = slices(**given, fewer_after_s=30.0)
    without = [int(one.job[2:]) for one in seating.sizes]

    assert (without, seating.filled, seating.unfilled, seating.wait_s) == expected
    assert {(one.seats, one.missing) for one in seating.sizes} <= {(0, 2)}
    assert seating.filled + seating.unfilled + seating.missing == 8


@pytest.mark.parametrize(("after_s", "wait_s"), [(0.0, 10.0), (30.0, 30.0)])
def test_slow_holder_is_waited_for_when_its_group_grows(after_s, wait_s):
    """Without it the group would have restarted for nothing: it would be as small as before."""
    slow, gone = pod(2, epoch=1), {"job": {"least": 2, "missing": 1}, "fewer_after_s": after_s}

    assert assigned(pod(0), pod(1), pod(3), slow, seats=4, **gone).wait_s == wait_s
    assert assigned(pod(0), pod(1), pod(3), seats=4, **gone).wait_s == 0.0


@pytest.mark.parametrize(
    ("missing", "wait_s"),
    [
        (pod(1, epoch=1), 1.0),
        (pod(1, epoch=1, leaving=True), 0.5),
        (pod(1, epoch=2, leaving=True), 0.5),
        (pod(1, epoch=1, state=f"{SAVING}30"), 35.0),
        (pod(1, epoch=1, state=f"{SAVING}x"), 1.0),
    ],
    ids=["late", "leaving", "leaving at the epoch", "saving", "an unusable state"],
)
def test_missing_holder_is_awaited_until_its_last_call(missing, wait_s):
    """Longer if its worker saves its work."""
    pods = pod(0), missing, pod(2, state=READY)

    early = assigned(*pods, waited_s=wait_s - 0.25)
    assert (early.wait_s, early.complete) == (0.25, False)
    assert holders(assigned(*pods, waited_s=wait_s)) == {1: "2a"}


def test_missing_pods_are_awaited_longer_at_the_first_start():
    """Images are pulled then; a missing pod has not been lost."""
    pods = pod(0), pod(2, state=READY)

    assert assigned(*pods, starting=True, waited_s=59.0).wait_s == 1.0
    assert holders(assigned(*pods, starting=True, waited_s=60.0)) == {1: "2a"}


def test_pod_is_a_spare_when_it_returns():
    """Its seat has another holder, although it has the seat's index."""
    spare = pod(2)
    seating = assigned(pod(0), pod(1, uid="1b", state=READY), spare, taken=[entry(1, spare)])

    assert seating.complete
    assert seating.taken == (entry(1, spare),)


def test_replacement_takes_the_seat_of_its_own_index_without_an_entry():
    """If no spare is better prepared."""
    spare = pod(2, epoch=1)
    seating = assigned(pod(0), pod(1, uid="1b"), spare, taken=[entry(1, spare)], waited_s=1.0)

    assert seating.complete
    assert seating.taken == ()
    assert [swap.pod.uid for swap in seating.swaps] == ["1b"]


def test_prepared_spares_come_first():
    """A pod with a standby process before one that is still preparing."""
    seating = assigned(pod(0), pod(2, state=PARKED), pod(3, state=READY))

    assert holders(seating) == {1: "3a"}


def test_seat_stays_open_without_a_spare():
    """As without spares, the group waits for the replacement."""
    seating = assigned(pod(0), pod(2, epoch=1, state=READY))

    assert not seating.complete
    assert (seating.filled, seating.unfilled) == (1, 1)


def test_spare_never_takes_a_seat_of_another_job():
    """Seats belong to a Job: so do its pods."""
    jobs = [
        SeatedJob("a", 1, [], lambda _: False),
        SeatedJob("b", 1, [pod(0), pod(1, state=READY)], lambda _: False),
    ]
    assert assign_seats(jobs, [], LATE).unfilled == 1


UNFIT = "unfit: exit code 3: row remap failed"


def test_unfit_holder_loses_its_seat_immediately():
    """Before its pod has ended; at the first start as well."""
    pods = pod(0), pod(1, epoch=1, state=UNFIT), pod(2, state=READY)

    assert (holders(assigned(*pods)), assigned(*pods).complete) == ({1: "2a"}, True)
    assert assigned(*pods, starting=True).complete


def test_unfit_spare_gets_no_seat():
    """It has come to the epoch, and is about to end."""
    assert assigned(pod(0), pod(2, state=UNFIT)).unfilled == 1
    assert holders(assigned(pod(0), pod(2, state=UNFIT), pod(3, state=PARKED))) == {1: "3a"}


@pytest.mark.parametrize(
    ("missing", "taker"),
    [
        (pod(1, epoch=1, node="n1"), "3a"),
        (pod(1, node="n1", uid="silent"), "3a"),
        (pod(1, epoch=1, node="n1", leaving=True), "2a"),
        (pod(1, epoch=1, node="n2"), "2a"),
        (pod(1, epoch=1), "2a"),
    ],
    ids=["late", "silent", "leaving", "late elsewhere", "no node"],
)
def test_spare_on_the_node_of_a_missing_pod_comes_last(missing, taker):
    """A dead node loses its spares, too, which appear ready until Kubernetes notices it."""
    spares = pod(2, state=READY, node="n1"), pod(3, state=PARKED, node="n2")
    late = {"waited_s": 1.0, "silent": {"silent"}}
    seating = assigned(pod(0, node="n0"), missing, *spares, **late)

    assert holders(seating) == {1: taker}
    assert assigned(pod(0), missing, spares[0], **late).complete


def test_seat_needs_no_pod_when_its_holder_has_succeeded():
    """Also when a spare holds it: the index that succeeded is the spare's."""
    spare = pod(2)
    seating = assigned(pod(0), taken=[entry(1, spare)], completed={2})

    assert seating.complete
    assert (seating.filled, seating.taken) == (1, (entry(1, spare),))


def test_entries_of_lost_pods_are_removed_by_a_new_start():
    """After a suspension all pods are new, and have the seats of their own indexes."""
    seating = assigned(pod(0), pod(1), pod(2), taken=[entry(1, pod(7, uid="gone"))], starting=True)

    assert seating.complete
    assert seating.taken == ()


def test_entries_of_succeeded_indexes_are_kept_when_a_job_is_resumed():
    """Index 1 has succeeded in seat 0: its own seat still needs a pod, and has another entry."""
    other = pod(3, uid="gone")
    seating = assigned(
        pod(2),
        taken=[entry(0, pod(1, uid="over")), entry(1, other)],
        completed={1},
        starting=True,
        waited_s=60.0,
    )

    assert seating.complete
    assert holders(seating) == {0: "over", 1: "2a"}


# ---- whole Jobs as spares ------------------------------------------------------------------------


def job(index, *pods, seats=2, working=2, completed=()):
    """Return a Job of a ReplicatedJob; UIDs of its pods differ from those of other Jobs."""
    named = [attrs.evolve(each, uid=f"{index}.{each.uid}") for each in pods]
    return SeatedJob(
        f"js-w-{index}", seats, named, completed.__contains__, "w", index, working,
        begun=bool(completed),
    )  # fmt: skip


def seated(*jobs, taken=(), held=(), waited_s=0.0, starting=False):
    """Return the seats of all Jobs at epoch 2."""
    entries = [TakenJob(job=f"js-w-{one}", holder=f"js-w-{other}") for one, other in held]
    return assign_seats(jobs, taken, SeatingRequest(2, waited_s, starting), entries)


def held(seating):
    """Return Job and holder of each entry, by index."""
    return {(one.job[-1], one.holder[-1]) for one in seating.taken_jobs}


FULL = pod(0, state=READY), pod(1, state=READY)


def test_nothing_is_stored_when_all_jobs_are_complete():
    """The spare Job stays parked."""
    seating = seated(job(0, pod(0), pod(1)), job(1, pod(0), pod(1)), job(2, *FULL))

    assert seating.complete
    assert (seating.taken, seating.taken_jobs, seating.job_swaps) == ((), (), ())
    assert seating.filled == 4


def test_spare_job_takes_all_seats_of_a_job_that_has_lost_a_pod():
    """The other pod of that Job is parked: a Job's pods work together or not at all."""
    seating = seated(job(0, pod(0), pod(1)), job(1, pod(0)), job(2, *FULL))

    assert seating.complete
    assert held(seating) == {("1", "2")}
    assert (seating.filled, seating.ready, seating.seats_taken) == (4, 2, 2)
    assert list(seating.changes()) == ["job 'js-w-2' takes all seats of job 'js-w-1'"]


def test_spare_job_takes_the_seats_of_a_job_that_does_not_exist():
    """Its Job may be deleted, and is not created yet."""
    seating = seated(job(0, pod(0), pod(1)), job(2, *FULL))

    assert seating.complete
    assert held(seating) == {("1", "2")}


def test_job_uses_its_own_spares_first():
    """It gives up its seats only once it has lost more pods than it has spares."""
    own = job(1, pod(0), pod(2, state=READY))
    seating = seated(job(0, pod(0), pod(1)), own, job(2, *FULL))

    assert seating.complete
    assert seating.taken_jobs == ()
    assert [(swap.job, swap.seat) for swap in seating.swaps] == [("js-w-1", 1)]


@pytest.mark.parametrize(
    ("other", "wait_s"),
    [
        (pod(1, epoch=1), 1.0),
        (pod(1, epoch=1, leaving=True), 0.5),
        (pod(1, epoch=1, state=f"{SAVING}30"), 35.0),
    ],
    ids=["late", "leaving", "saving"],
)
def test_surviving_pods_of_a_job_are_awaited_before_it_gives_up_its_seats(other, wait_s):
    """Index 0 is gone, and the other worker may still save its work."""
    jobs = job(0, pod(0), pod(1)), job(1, other), job(2, *FULL)

    assert not seated(*jobs, waited_s=wait_s - 0.25).complete
    assert held(seated(*jobs, waited_s=wait_s)) == {("1", "2")}


def test_job_is_no_spare_when_it_is_incomplete():
    """Nor do some of its pods help another Job."""
    seating = seated(job(0, pod(0), pod(1)), job(1, pod(0)), job(2, pod(0, state=READY)))

    assert not seating.complete
    assert (seating.filled, seating.unfilled, seating.taken_jobs) == (3, 1, ())


def test_prepared_spare_jobs_come_first():
    """Those whose pods all have a standby process before those that are still preparing."""
    seating = seated(
        job(0, pod(0)), job(2, pod(0), pod(1, state=READY), working=2), job(3, *FULL),
        job(1, pod(0), pod(1)),
    )  # fmt: skip

    assert held(seating) == {("0", "3")}


def test_spare_jobs_with_a_pod_on_the_node_of_a_missing_pod_come_last():
    """The pod is probably lost as well."""
    prepared = job(2, pod(0, state=READY, node="n1"), pod(1, state=READY, node="n2"))
    seating = seated(
        job(0, pod(0), pod(1)), job(1, pod(0), pod(1, epoch=1, node="n1")), prepared,
        job(3, pod(0, node="n2"), pod(1, node="n3")), waited_s=1.0,
    )  # fmt: skip

    assert held(seating) == {("1", "3")}


def test_job_is_a_spare_when_it_is_complete_again():
    """It is parked, and takes the seats of the next Job that is lost."""
    jobs = job(0, pod(0), pod(1)), job(1, *FULL), job(2, pod(0))

    assert held(seated(*jobs, held=[(1, 2)])) == set()
    assert list(seated(*jobs, held=[(1, 2)]).changes()) == [
        "job 'js-w-1' takes all its seats back from job 'js-w-2'"
    ]
    kept = seated(job(0, pod(0)), job(1, *FULL), job(2, pod(0), pod(1)), held=[(1, 2)])
    assert held(kept) == {("0", "1"), ("1", "2")}


def test_job_keeps_its_seats_when_a_pod_has_succeeded():
    """Its Job has counted that work; nor does such a Job take over seats of others."""
    begun = job(1, completed={0})
    seating = seated(job(0, pod(0), pod(1)), begun, job(2, *FULL))
    assert (seating.complete, seating.taken_jobs) == (False, ())

    used = job(2, *FULL, completed={0})
    assert not seated(job(0, pod(0)), job(1, pod(0), pod(1)), used).complete


def test_pods_of_a_spare_job_have_entries_within_it():
    """If it has spares of its own and pods are missing there, too."""
    other = job(2, pod(0, state=READY), pod(2, state=READY, address="10.0.0.2"))
    seating = seated(job(0, pod(0), pod(1)), job(1, pod(0)), other)

    assert held(seating) == {("1", "2")}
    assert [(one.job, one.seat, one.pod_uid) for one in seating.taken] == [
        ("js-w-2", 1, "2.2a")
    ]  # fmt: skip


# ---- size of the lists ---------------------------------------------------------------------------


def test_lists_stay_short_over_2000_swaps():
    """Each lost pod comes back as a spare of another seat; all agents receive the lists."""
    seats, spare = 300, 1
    pods = [pod(index) for index in range(seats + spare)]
    taken, most, chance = (), 0, Random(1)
    for number in range(2000):
        holders_of = taken_by_job(taken).get("w", {})
        seat = chance.randrange(seats)
        uid = holders_of.get(seat)
        lost = next(each for each in pods if (each.uid == uid if uid else each.index == seat))
        others = [each for each in pods if each is not lost]
        seating = assigned(*others, taken=taken, seats=seats, waited_s=9.0)
        assert seating.complete
        taken = seating.taken
        pods = [*others, pod(lost.index, uid=f"{lost.index}-{number}")]
        most = max(most, len(taken))

    assert 32 < most <= MAX_ENTRIES
    assert len(str(whole_json(taken))) < 20_000


def test_list_of_jobs_stays_short_over_400_swaps():
    """As that of seats; a Job that returns is a spare."""
    working = 100
    count = working + 1
    entries, most, chance = (), 0, Random(1)
    for _ in range(400):
        held_by = {one.job: one.holder for one in entries}
        name = f"js-w-{chance.randrange(working)}"
        lost = held_by.get(name, name)
        jobs = [
            job(at, *(() if f"js-w-{at}" == lost else [pod(0)]), seats=1, working=working)
            for at in range(count)
        ]
        seating = assign_seats(jobs, (), LATE, entries)
        assert seating.complete
        entries = seating.taken_jobs
        most = max(most, len(entries))

    assert 32 < most <= MAX_ENTRIES


def test_as_many_entries_remain_as_pods_are_lost():
    """Where more pods are lost than the limit, only their seats have entries."""
    lost = MAX_ENTRIES + 10
    pods = [pod(index) for index in range(lost, 2 * lost)]
    pods += [pod(2 * lost + index, state=READY) for index in range(lost)]
    shuffled = [entry(seat, pods[(seat - lost - 1) % lost]) for seat in range(lost, 2 * lost)]
    seating = assigned(*pods, taken=shuffled, seats=2 * lost, waited_s=9.0)

    assert seating.complete
    assert {one.seat for one in seating.taken} == set(range(lost))


def test_seats_of_a_job_with_a_success_stay_as_they_are():
    """An entry shows which seat's work a succeeded index has done."""
    count = MAX_ENTRIES + 10
    pods = [pod(index) for index in range(count)]
    turned = [entry(seat, pods[(seat + 1) % count]) for seat in range(count)]
    done = {1}
    jobs = [SeatedJob("w", count, pods[:1] + pods[2:], done.__contains__, begun=True)]
    seating = assign_seats(jobs, turned, LATE)

    assert seating.complete
    assert seating.taken == tuple(turned)


PODS = st.lists(
    st.builds(
        SeatPod,
        name=st.just("p"),
        uid=st.just(""),
        index=st.integers(0, 4),
        epoch=st.integers(1, 2),
        state=st.sampled_from(["", READY, PARKED, f"{SAVING}9", UNFIT]),
        leaving=st.booleans(),
    ),
    max_size=7,
)


def _unlike(pods):
    """Return the same pods with UIDs; for each index at most one is not leaving."""
    seen, out = set(), []
    for at, each in enumerate(pods):
        leaving = each.leaving or each.index in seen
        seen |= set() if leaving else {each.index}
        out.append(attrs.evolve(each, name=f"pod-{at}", uid=f"{each.index}u{at}", leaving=leaving))
    return out


@given(rounds=st.lists(PODS, min_size=1, max_size=4), keep=st.lists(st.booleans(), max_size=28))
def test_each_seat_has_one_holder_and_survivors_keep_theirs(rounds, keep):
    """In every assignment, over several restarts in which pods are lost and return."""
    taken, before = (), {}
    for at, pods in enumerate(rounds):
        named = [
            attrs.evolve(p, uid=f"{p.uid}-{at if at < len(keep) and keep[at] else 0}")
            for p in _unlike(pods)
        ]
        seating = assigned(*named, taken=taken, seats=3, waited_s=1e9)
        if not seating.complete:
            continue
        entries = taken_by_job(seating.taken).get("w", {})
        there = {p.uid: p for p in named if SeatingRequest(2, 0.0, starting=False).has(p)}
        found = {}
        for each in there.values():
            if holds_seat(each.uid, each.index, 3, entries):
                seat = next((s for s, uid in entries.items() if uid == each.uid), each.index)
                assert seat not in found
                found[seat] = each.uid
        assert sorted(found) == [0, 1, 2]
        assert all(found[s] == uid for s, uid in before.items() if uid in there)
        assert len(entries) <= 3
        taken, before = seating.taken, found
