"""The supervisor's decisions about its worker, by table and for every order of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.agent.supervisor.worker.rules import (
    DUMP_S,
    ArmGrace,
    End,
    JoinNext,
    KillAll,
    Phase,
    Rules,
    Signal,
    Start,
    Worker,
    WorkerAction,
)

RULES = Rules(grace_s=7.0, end_codes=frozenset({3, 137}))
LIFT = ("lifted", 1)
OVER = ("deprecated",)
UNKILLABLE = ("unkillable",)
UNFIT = ("unfit",)
EMPTY = ("emptied",)
GRACE = ("grace_over",)
TERM = ("signalled", 15)
USR1 = ("signalled", 10)
STOP = [Signal(15), ArmGrace(7.0)]
HUNG = ("hung",)
RAISED = ("raised",)
DUMP = [ArmGrace(DUMP_S), Signal(6), Signal(18)]


def exited(code: int) -> tuple[str, int]:
    """Return the event of a worker's end."""
    return ("exited", code)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([LIFT, exited(0)], [[Start(1)], [End(0)]], id="success"),
        pytest.param([LIFT, exited(3)], [[Start(1)], [End(3)]], id="a code that ends the pod"),
        pytest.param([LIFT, exited(137)], [[Start(1)], [End(137)]], id="a signal that ends it"),
        pytest.param(
            [LIFT, exited(1), EMPTY, ("lifted", 2)],
            [[Start(1)], [KillAll()], [JoinNext()], [Start(2)]],
            id="failure opens the next epoch",
        ),
        pytest.param(
            [LIFT, OVER, exited(0), EMPTY, EMPTY, ("lifted", 2)],
            [[Start(1)], STOP, [], [KillAll()], [JoinNext()], [Start(2)]],
            id="a group restart, with any exit code of the worker",
        ),
        pytest.param(
            [LIFT, OVER, GRACE, exited(137), EMPTY],
            [[Start(1)], STOP, [KillAll()], [], [JoinNext()]],
            id="a worker that does not stop",
        ),
        pytest.param(
            [LIFT, OVER, EMPTY, exited(0)],
            [[Start(1)], STOP, [], []],
            id="an empty group counts only after the worker's end",
        ),
        pytest.param([OVER], [[JoinNext()]], id="deprecated before it lifted"),
        pytest.param(
            [LIFT, HUNG, exited(134), EMPTY],
            [[Start(1)], DUMP, [KillAll()], [JoinNext()]],
            id="a hung worker that the signal ends",
        ),
        pytest.param(
            [LIFT, HUNG, exited(3), EMPTY],
            [[Start(1)], DUMP, [KillAll()], [JoinNext()]],
            id="a hung worker fails with any exit code",
        ),
        pytest.param(
            [LIFT, HUNG, exited(0), EMPTY],
            [[Start(1)], DUMP, [KillAll()], [JoinNext()]],
            id="a hung worker whose signal handler exits 0 has not succeeded",
        ),
        pytest.param(
            [LIFT, exited(0), HUNG],
            [[Start(1)], [End(0)], []],
            id="an exit 0 before the hang is noticed is a success",
        ),
        pytest.param(
            [LIFT, HUNG, HUNG, OVER, GRACE, exited(137), EMPTY],
            [[Start(1)], DUMP, [], [], [KillAll()], [], [JoinNext()]],
            id="a hung worker that catches the signal",
        ),
        pytest.param(
            [LIFT, HUNG, TERM, exited(134), EMPTY],
            [[Start(1)], DUMP, [Signal(15)], [ArmGrace(7.0)], [End(134)]],
            id="a pod that ends while its worker hangs",
        ),
        pytest.param(
            [LIFT, RAISED, RAISED, exited(1), GRACE, EMPTY],
            [[Start(1)], [ArmGrace(7.0)], [], [KillAll()], [], [JoinNext()]],
            id="a worker that reports an error and ends",
        ),
        pytest.param(
            [LIFT, RAISED, GRACE, exited(137), EMPTY, ("lifted", 2), GRACE],
            [[Start(1)], [ArmGrace(7.0)], [KillAll()], [], [JoinNext()], [Start(2)], []],
            id="a worker that reports an error and does not end",
        ),
        pytest.param([HUNG], [[]], id="no worker, no hang"),
        pytest.param([LIFT, OVER, HUNG], [[Start(1)], STOP, []], id="a worker that stops"),
        pytest.param(
            [LIFT, exited(1), OVER, EMPTY],
            [[Start(1)], [KillAll()], [], [JoinNext()]],
            id="a group restart after a failure of its own",
        ),
        pytest.param(
            [LIFT, TERM, exited(0), EMPTY],
            [[Start(1)], [Signal(15)], [ArmGrace(7.0)], [End(143)]],
            id="a worker that saves and exits 0 when the pod is stopped has not succeeded",
        ),
        pytest.param(
            [LIFT, TERM, exited(0), GRACE],
            [[Start(1)], [Signal(15)], [ArmGrace(7.0)], [End(143)]],
            id="the same with children that keep running",
        ),
        pytest.param(
            [LIFT, TERM, exited(9), EMPTY],
            [[Start(1)], [Signal(15)], [ArmGrace(7.0)], [End(9)]],
            id="the pod ends with the worker's code if that is a failure",
        ),
        pytest.param(
            [LIFT, exited(0), TERM],
            [[Start(1)], [End(0)], []],
            id="an exit 0 before the signal is a success",
        ),
        pytest.param(
            [LIFT, HUNG, TERM, exited(0), EMPTY],
            [[Start(1)], DUMP, [Signal(15)], [ArmGrace(7.0)], [End(143)]],
            id="a pod that is stopped while its worker hangs has not succeeded",
        ),
        pytest.param(
            [LIFT, TERM, OVER, exited(1), EMPTY],
            [[Start(1)], [Signal(15)], [], [ArmGrace(7.0)], [End(1)]],
            id="a pod that ends does not restart",
        ),
        pytest.param(
            [LIFT, TERM, exited(143), GRACE],
            [[Start(1)], [Signal(15)], [ArmGrace(7.0)], [End(143)]],
            id="children that keep running do not hold a pod that ends",
        ),
        pytest.param(
            [LIFT, OVER, TERM, GRACE, exited(0), EMPTY],
            [[Start(1)], STOP, [], [], [ArmGrace(7.0)], [End(143)]],
            id="the pod ends during a restart: one signal only, the kubelet's grace period",
        ),
        pytest.param([TERM], [[End(143)]], id="no worker, no success"),
        pytest.param([USR1, LIFT, USR1], [[], [Start(1)], [Signal(10)]], id="forwarded"),
        pytest.param(
            [LIFT, exited(1), UNKILLABLE, EMPTY],
            [[Start(1)], [KillAll()], [End(137)], []],
            id="a process that cannot be killed never runs next to the next worker",
        ),
        pytest.param([LIFT, UNKILLABLE], [[Start(1)], []], id="no process was killed"),
        pytest.param(
            [LIFT, exited(5), TERM], [[Start(1)], [KillAll()], [End(5)]], id="ends while clearing"
        ),
    ],
)
def test_events_give_actions(
    events: list[tuple[str, int]], expected: list[list[WorkerAction]]
) -> None:
    """Each event gives exactly the actions of the rules."""
    worker = Worker(RULES)

    assert expected == [getattr(worker, name)(*values) for name, *values in events]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([exited(0), exited(0)], [[], [End(0)]], id="all succeed"),
        pytest.param(
            [exited(0), exited(9), EMPTY], [[], [KillAll()], [JoinNext()]], id="one fails later"
        ),
        pytest.param(
            [exited(9), EMPTY, exited(137), EMPTY],
            [[KillAll()], [], [], [JoinNext()]],
            id="one fails, the other is killed with it",
        ),
        pytest.param([exited(3)], [[End(3)]], id="a code that ends the pod"),
        pytest.param(
            [TERM, exited(7), exited(0), EMPTY],
            [[Signal(15)], [], [ArmGrace(7.0)], [End(7)]],
            id="the pod ends with the first failure",
        ),
        pytest.param(
            [exited(0), TERM, exited(0), EMPTY],
            [[], [Signal(15)], [ArmGrace(7.0)], [End(143)]],
            id="one succeeded, the other was stopped",
        ),
        pytest.param(
            [OVER, exited(0), EMPTY, exited(143), EMPTY],
            [STOP, [], [], [], [KillAll()]],
            id="a group restart waits for all",
        ),
    ],
)
def test_events_of_several_processes_give_actions(
    events: list[tuple[str, int]], expected: list[list[WorkerAction]]
) -> None:
    """The worker fails with the first of them, and succeeds when all have."""
    worker = Worker(Rules(grace_s=7.0, end_codes=frozenset({3}), processes=2))
    worker.lifted(1)

    assert expected == [getattr(worker, name)(*values) for name, *values in events]


def test_configured_stop_signal_stops_the_worker_and_ends_the_pod() -> None:
    """The agent sends it to the worker, and receiving it means the end of the pod."""
    worker = Worker(Rules(stop_signal=3, grace_s=1.0))
    worker.lifted(1)

    assert worker.deprecated() == [Signal(3), ArmGrace(1.0)]
    assert worker.signalled(3) == []
    assert worker.phase is Phase.ENDING
    assert worker.exited(0) == [ArmGrace(1.0)]
    assert worker.emptied() == [End(131)]


def test_hung_worker_is_killed_when_all_its_processes_have_dumped() -> None:
    """Or when their time is over."""
    worker = Worker(Rules(grace_s=7.0, processes=2))
    worker.lifted(1)
    worker.hung()

    assert worker.exited(134) == []
    assert worker.exited(0) == [KillAll()]


def test_hung_worker_is_killed_when_another_pod_has_its_place() -> None:
    """It gets no time to dump its stacks: the other one runs already."""
    worker = Worker(RULES)
    worker.lifted(1)
    worker.hung()

    assert worker.deprecated(replaced=True) == [KillAll()]


EVENTS = st.one_of(
    st.just(HUNG),
    st.just(RAISED),
    st.just(LIFT),
    st.just(OVER),
    st.just(EMPTY),
    st.just(GRACE),
    st.just(UNKILLABLE),
    st.just(UNFIT),
    st.sampled_from([0, 1, 3, 143]).map(exited),
    st.sampled_from([2, 10, 15]).map(lambda number: ("signalled", number)),
)


@given(events=st.lists(EVENTS, max_size=40))
def test_laws_hold_for_every_order(events: list[tuple[str, int]]) -> None:
    """One worker at a time, none at the next epoch's start, no success on request, one end."""
    worker = Worker(RULES)
    alive = left = ended = killed = stopping = False
    for name, *values in events:
        if name == "exited":
            if not alive:
                continue  # only a worker that runs can end
            alive = False
        if name == "emptied":
            if alive:
                continue  # a group with its first process in it is not empty
            left = left and not killed and worker.phase is not Phase.STOPPING
        for action in getattr(worker, name)(*values):
            assert not ended
            match action:
                case Start():
                    assert not alive
                    assert not left
                    alive = left = True
                    killed = stopping = False
                case KillAll():
                    killed = True
                case JoinNext():
                    assert not alive
                    assert not left
                case End(code):
                    ended = True
                    assert 0 <= code <= 255
                    # An unfit machine ends no running worker.
                    assert name != "unfit" or not (alive or left)
                    # No 0 after a signal that the worker could have followed by exiting with 0.
                    assert code or not stopping
                case Signal(number):
                    stopping = stopping or number in {6, 15}
                    assert worker.phase in {Phase.RUNNING, Phase.HUNG, Phase.STOPPING, Phase.ENDING}
                case ArmGrace(seconds):
                    assert seconds in {7.0, DUMP_S}
        assert ended == (worker.phase is Phase.ENDED)
