"""Assignment of seats: tables of single decisions, and the laws of all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api.jobset import TakenSeat
from jobsetpy.reconcilers.restart_in_place.barrier_state import holds_seat
from jobsetpy.reconcilers.restart_in_place.seats import (
    PARKED,
    READY,
    SAVING,
    SeatedJob,
    SeatPod,
    assign_seats,
    taken_by_job,
)


def pod(index, epoch=2, state="", uid="", **more):
    """A pod of the Job; its UID is its index with a letter for each successor."""
    uid = uid or f"{index}a"
    return SeatPod(f"pod-{uid}", uid, index, epoch, state, **more)


def entry(seat, holder):
    """An entry for a seat that another pod holds."""
    return TakenSeat(
        job="w", seat=seat, pod=holder.name, pod_uid=holder.uid, pod_index=holder.index,
        address=holder.address,
    )  # fmt: skip


def assigned(*pods, taken=(), seats=2, completed=(), waited_s=0.0, starting=False):
    """The seats of one Job at epoch 2."""
    job = SeatedJob("w", seats, pods, completed.__contains__)
    return assign_seats([job], taken, 2, waited_s=waited_s, starting=starting)


def holders(seating):
    """UIDs of the holders in entries, by seat."""
    return taken_by_job(seating.taken).get("w", {})


def test_nothing_is_stored_when_all_holders_have_come():
    """The assignment is a list of exceptions, empty in the normal case."""
    seating = assigned(pod(0), pod(1), pod(2, state=READY))

    assert seating.complete
    assert seating.taken == ()
    assert seating.swaps == ()


def test_a_spare_takes_the_seat_of_a_pod_that_is_gone():
    """At once, and with its own UID, index and address."""
    spare = pod(2, state=READY, address="10.0.0.9")
    seating = assigned(pod(0), spare)

    assert seating.complete
    assert seating.taken == (entry(1, spare),)
    assert [(swap.seat, swap.pod.uid) for swap in seating.swaps] == [(1, "2a")]


@pytest.mark.parametrize(
    ("missing", "call_s"),
    [
        (pod(1, epoch=1), 1.0),
        (pod(1, epoch=1, leaving=True), 0.5),
        (pod(1, epoch=2, leaving=True), 0.5),
        (pod(1, epoch=1, state=f"{SAVING}30"), 35.0),
        (pod(1, epoch=1, state=f"{SAVING}x"), 1.0),
    ],
    ids=["late", "leaving", "leaving at the epoch", "saving", "an unusable state"],
)
def test_a_missing_holder_is_waited_for_until_its_last_call(missing, call_s):
    """A worker that saves its work is waited for longer than one that says nothing."""
    pods = pod(0), missing, pod(2, state=READY)

    early = assigned(*pods, waited_s=call_s - 0.25)
    assert (early.wait_s, early.complete) == (0.25, False)
    assert holders(assigned(*pods, waited_s=call_s)) == {1: "2a"}


def test_pods_that_start_are_waited_for_longer():
    """Images are pulled at the first start; a missing pod has not been lost."""
    pods = pod(0), pod(2, state=READY)

    assert assigned(*pods, starting=True, waited_s=59.0).wait_s == 1.0
    assert holders(assigned(*pods, starting=True, waited_s=60.0)) == {1: "2a"}


def test_a_pod_that_returns_is_a_spare():
    """Its seat has another holder, whatever its index."""
    spare = pod(2)
    seating = assigned(pod(0), pod(1, uid="1b", state=READY), spare, taken=[entry(1, spare)])

    assert seating.complete
    assert seating.taken == (entry(1, spare),)


def test_a_replacement_takes_the_seat_of_its_own_index_without_an_entry():
    """Where no spare is better prepared."""
    spare = pod(2, epoch=1)
    seating = assigned(pod(0), pod(1, uid="1b"), spare, taken=[entry(1, spare)], waited_s=1.0)

    assert seating.complete
    assert seating.taken == ()
    assert [swap.pod.uid for swap in seating.swaps] == ["1b"]


def test_prepared_spares_come_first():
    """A pod with a standby process before one that still prepares."""
    seating = assigned(pod(0), pod(2, state=PARKED), pod(3, state=READY))

    assert holders(seating) == {1: "3a"}


def test_without_a_spare_the_seat_stays_open():
    """As without spares, the group waits for the replacement."""
    seating = assigned(pod(0), pod(2, epoch=1, state=READY))

    assert not seating.complete
    assert (seating.filled, seating.unfilled) == (1, 1)


def test_a_spare_never_helps_another_job():
    """Seats belong to a Job: so do its pods."""
    jobs = [
        SeatedJob("a", 1, [], lambda _: False),
        SeatedJob("b", 1, [pod(0), pod(1, state=READY)], lambda _: False),
    ]
    assert assign_seats(jobs, [], 2, waited_s=9.0, starting=False).unfilled == 1


def test_a_seat_whose_holder_has_succeeded_needs_no_other():
    """Also when a spare holds it: the index that succeeded is the spare's."""
    spare = pod(2)
    seating = assigned(pod(0), taken=[entry(1, spare)], completed={2})

    assert seating.complete
    assert (seating.filled, seating.taken) == (1, (entry(1, spare),))


def test_a_new_start_forgets_lost_pods():
    """After a suspension all pods are new, and have the seats of their own indexes."""
    seating = assigned(pod(0), pod(1), pod(2), taken=[entry(1, pod(7, uid="gone"))], starting=True)

    assert seating.complete
    assert seating.taken == ()


PODS = st.lists(
    st.builds(
        SeatPod,
        name=st.just("p"),
        uid=st.just(""),
        index=st.integers(0, 4),
        epoch=st.integers(1, 2),
        state=st.sampled_from(["", READY, PARKED, f"{SAVING}9"]),
        leaving=st.booleans(),
    ),
    max_size=7,
)


def _unlike(pods):
    """The same pods with UIDs; of those with an index only one is not leaving."""
    seen, out = set(), []
    for at, each in enumerate(pods):
        leaving = each.leaving or each.index in seen
        seen |= set() if leaving else {each.index}
        out.append(SeatPod(f"pod-{at}", f"u{at}", each.index, each.epoch, each.state, leaving))
    return out


@given(rounds=st.lists(PODS, min_size=1, max_size=4), keep=st.lists(st.booleans(), max_size=28))
def test_each_seat_has_one_holder_and_survivors_keep_theirs(rounds, keep):
    """Laws of every assignment, over several restarts in which pods are lost and return."""
    taken, before = (), {}
    for at, pods in enumerate(rounds):
        named = [
            SeatPod(p.name, f"{p.uid}-{at if at < len(keep) and keep[at] else 0}", *list_of(p)[2:])
            for p in _unlike(pods)
        ]
        seating = assigned(*named, taken=taken, seats=3, waited_s=1e9)
        if not seating.complete:
            continue
        entries = taken_by_job(seating.taken).get("w", {})
        there = {p.uid: p for p in named if p.epoch == 2 and not p.leaving}
        found = {}
        for each in there.values():
            if holds_seat(each.uid, each.index, 3, entries):
                seat = next((s for s, uid in entries.items() if uid == each.uid), each.index)
                assert seat not in found
                found[seat] = each.uid
        assert sorted(found) == [0, 1, 2]
        assert all(found[s] == uid for s, uid in before.items() if uid in there)
        assert len(entries) <= max(0, len(there) - 3) + sum(
            i > 2 for i in map(index, there.values())
        )
        taken, before = seating.taken, found


def list_of(each):
    """Fields of a pod."""
    return [each.name, each.uid, each.index, each.epoch, each.state, each.leaving, each.address]


def index(each):
    """Completion index of a pod."""
    return each.index
