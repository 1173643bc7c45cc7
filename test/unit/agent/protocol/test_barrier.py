"""Decisions of the agent, by table and for every order of states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.agent.protocol.barrier import Action, Barrier, Foreign, Lift, PatchEpoch, Restart

OURS = "uid-a"
THEIRS = "uid-b"


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param([(OURS, 0, 0)], [[PatchEpoch(1)]], id="first run"),
        pytest.param([(OURS, 3, 3)], [[PatchEpoch(4)]], id="deprecated at start joins the next"),
        pytest.param([(OURS, 3, 2)], [[PatchEpoch(4)]], id="late pod of a running group"),
        pytest.param([(OURS, 3, 7)], [[PatchEpoch(8)]], id="wrong status does not loop for ever"),
        pytest.param(
            [(OURS, 0, 0), (OURS, 0, 0), (OURS, 1, 0), (OURS, 1, 0)],
            [[PatchEpoch(1)], [], [Lift(1)], []],
            id="lifts once",
        ),
        pytest.param(
            [(OURS, 0, 0), (OURS, 1, 0), (OURS, 1, 1), (OURS, 1, 1)],
            [[PatchEpoch(1)], [Lift(1)], [Restart(1, 1)], []],
            id="restarts once",
        ),
        pytest.param(
            [(OURS, 0, 0), (OURS, 1, 1)],
            [[PatchEpoch(1)], [Restart(1, 1)]],
            id="synced and deprecated in one state does not lift",
        ),
        pytest.param(
            [(OURS, 1, 1), (OURS, 1, 2)],
            [[PatchEpoch(2)], [Restart(2, 2)]],
            id="deprecated before it was synced",
        ),
        pytest.param(
            [(OURS, 0, 0), (OURS, 1, 0), (OURS, 0, 0), (OURS, 1, 0)],
            [[PatchEpoch(1)], [Lift(1)], [], []],
            id="the barrier never closes again",
        ),
        pytest.param(
            [(OURS, 0, 0), (OURS, 1, 0), (OURS, 2, 0), (OURS, 3, 2)],
            [[PatchEpoch(1)], [Lift(1)], [Restart(1, 0, replaced=True)], []],
            id="the group runs at a later epoch without this pod",
        ),
        pytest.param(
            [(OURS, 0, 0), (OURS, 1, 0), (OURS, 2, 1)],
            [[PatchEpoch(1)], [Lift(1)], [Restart(1, 1, replaced=True)]],
            id="an agent that was cut off sees the end of the restart only",
        ),
        pytest.param(
            [(OURS, 0, 0), (THEIRS, 1, 0), (THEIRS, 1, 1), (OURS, 1, 0)],
            [[PatchEpoch(1)], [Foreign(THEIRS)], [], [Lift(1)]],
            id="a recreated JobSet is ignored",
        ),
    ],
)
def test_states_give_actions(
    states: list[tuple[str, int, int]], expected: list[list[Action]]
) -> None:
    """Each state of the JobSet gives exactly the actions of the rules."""
    barrier = Barrier()

    assert expected == [barrier.observe(*state) for state in states]


@pytest.mark.parametrize(
    ("arrived", "state", "action"),
    [
        pytest.param((OURS, 3), (OURS, 3, 2), Lift(3), id="the others run, our worker does not"),
        pytest.param((OURS, 3), (OURS, 2, 2), PatchEpoch(3), id="no worker runs yet"),
        pytest.param((OURS, 3), (OURS, 3, 3), PatchEpoch(4), id="the epoch is over"),
        pytest.param((OURS, 2), (OURS, 3, 2), PatchEpoch(4), id="an older one"),
        pytest.param((THEIRS, 3), (OURS, 3, 2), PatchEpoch(4), id="another JobSet's"),
    ],
)
def test_next_run_stays_at_its_epoch_when_its_worker_has_not_started_there(
    arrived: tuple[str, int], state: tuple[str, int, int], action: Action
) -> None:
    """Otherwise it joins the next one."""
    barrier = Barrier(arrived=arrived)

    assert [action] == barrier.observe(*state)
    assert barrier.observe(*state) == []


def test_given_uid_is_waited_for() -> None:
    """Another JobSet is ignored even if it is seen first."""
    barrier = Barrier(uid=OURS)

    assert [Foreign(THEIRS)] == barrier.observe(THEIRS, 5, 5)
    assert [PatchEpoch(1)] == barrier.observe(OURS, 0, 0)
    assert barrier.uid == OURS


def test_barrier_is_not_lifted_by_another_jobset() -> None:
    """The epoch of a recreated JobSet may be the same."""
    barrier = Barrier()
    barrier.observe(OURS, 0, 0)
    barrier.observe(THEIRS, 1, 0)

    assert not barrier.lifted


def test_next_round_closes_the_barrier_at_a_higher_epoch() -> None:
    """A supervisor continues with it, and lifts again."""
    barrier = Barrier()
    barrier.observe(OURS, 0, 0)
    barrier.observe(OURS, 1, 0)
    barrier.observe(OURS, 1, 1)

    assert [PatchEpoch(2)] == barrier.next_round()
    assert not barrier.lifted
    assert barrier.observe(OURS, 1, 1) == []
    assert [Lift(2)] == barrier.observe(OURS, 2, 1)


def test_next_round_opens_an_epoch_when_the_worker_has_failed() -> None:
    """This epoch is not deprecated yet."""
    barrier = Barrier()
    barrier.observe(OURS, 0, 0)
    barrier.observe(OURS, 1, 0)

    assert [PatchEpoch(2)] == barrier.next_round()
    assert barrier.observe(OURS, 1, 1) == []
    assert [Lift(2)] == barrier.observe(OURS, 2, 1)


def test_pod_that_is_replaced_while_it_stops_is_restarted_again() -> None:
    """Its worker, which may be saving, must end as soon as another one has its rank."""
    barrier = Barrier()
    barrier.observe(OURS, 0, 0)
    barrier.observe(OURS, 1, 0)

    assert barrier.observe(OURS, 1, 1) == [Restart(1, 1)]
    assert barrier.observe(OURS, 2, 1) == [Restart(1, 1, replaced=True)]
    assert barrier.observe(OURS, 2, 1) == []


EPOCHS = st.integers(0, 6)
STATES = st.lists(st.tuples(st.sampled_from([OURS, THEIRS]), EPOCHS, EPOCHS), max_size=30)


@given(states=STATES, uid=st.sampled_from(["", OURS]))
def test_laws_hold_for_every_sequence(states: list[tuple[str, int, int]], uid: str) -> None:
    """At most one patch; a lift only at the synced epoch; a restart only if it is over or replaced."""
    barrier = Barrier(uid=uid)
    patched: list[int] = []
    lifted = over = gone = False
    for state in states:
        state_uid, synced, deprecated = state
        had_joined = bool(patched)
        actions = barrier.observe(*state)
        ours = state_uid == barrier.uid
        for action in actions:
            match action:
                case PatchEpoch(epoch):
                    assert ours
                    assert synced < epoch > deprecated
                    patched.append(epoch)
                case Lift(epoch):
                    assert ours
                    assert not lifted
                    assert not over
                    assert [epoch] == patched
                    assert epoch == synced
                    lifted = True
                case Restart(epoch, by, replaced):
                    assert ours
                    assert not over or (replaced and not gone)
                    assert replaced is (epoch < synced)
                    assert replaced or epoch <= deprecated
                    assert by == deprecated
                    over, gone = True, replaced
                case Foreign(other):
                    assert not ours
                    assert other == state_uid
        if ours and had_joined and patched[0] <= max(deprecated, synced - 1):
            assert over
        if ours and had_joined and patched[0] == synced:
            assert lifted or over
    assert len(patched) <= 1
    assert lifted == barrier.lifted


@given(rounds=st.lists(st.lists(st.tuples(EPOCHS, EPOCHS), max_size=6), max_size=6))
def test_epochs_only_grow_over_rounds(rounds: list[list[tuple[int, int]]]) -> None:
    """In any order of rounds, each epoch is above all earlier ones."""
    barrier = Barrier()
    barrier.observe(OURS, 0, 0)
    held = [barrier.epoch]
    for states in rounds:
        over = False
        for synced, deprecated in states:
            actions = barrier.observe(OURS, synced, deprecated)
            over = over or any(isinstance(action, Restart) for action in actions)
        if over or barrier.lifted:
            barrier.next_round()
            held.append(barrier.epoch)

    assert sorted(set(held)) == held
