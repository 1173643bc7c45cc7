"""Restarts in place under random schedules: whatever happens when, workers never mix epochs.

``JOBSETPY_SCHEDULES=20000`` tries so many instead of some hundreds.
"""

import os
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobsetpy.agent.protocol.barrier import Barrier
from jobsetpy.reconcilers.rules.backoff import Pace
from jobsetpy.reconcilers.rules.conditions import finished
from support.restarts.epoch_steps import by_the_wall_clock
from support.restarts.epoch_world import World

SCHEDULES = int(os.environ.get("JOBSETPY_SCHEDULES", "1200"))
SHAPES = [
    ("sidecar", 2, 2),
    ("sidecar", 1, 3),
    ("supervisor", 2, 2),
    ("supervisor", 1, 3),
    ("attempts", 2, 2),
]


def play(world, seed, steps, share, faults=World.faults):
    """A schedule: one of the possible next events each time, and now and then a fault."""
    rand = random.Random(seed)
    try:
        for _ in range(steps):
            moves = world.moves()
            if not moves or (world.made > 1 and rand.random() < share):
                moves = faults(world)
            world.do(rand.choice(moves))
        world.trace.append("--- no more faults")
        world.settle()
        world.check_rest()
    except AssertionError as error:
        raise AssertionError(f"{error}\n" + "\n".join(world.trace)) from error


@pytest.mark.parametrize(("mode", "jobs", "pods"), SHAPES)
@settings(max_examples=SCHEDULES // len(SHAPES))
@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(20, 180),
    share=st.sampled_from([0.02, 0.06, 0.15]),
)
@example(seed=14, steps=119, share=0.02)  # a worker starts while its Job goes, of the old attempt
def test_any_schedule_is_safe_and_ends_well(mode, jobs, pods, seed, steps, share):
    """No worker runs ahead or stays behind; without further faults all run, and paid fairly."""
    play(World(mode, jobs=jobs, pods=pods), seed, steps, share)


def without_success(world):
    """Faults of a world in which no worker is ever done."""
    return [move for move in world.faults() if "SUCCEEDS" not in move[0]]


@settings(max_examples=SCHEDULES // 20)
@given(seed=st.integers(0, 2**32), mode=st.sampled_from(["sidecar", "supervisor"]))
def test_a_small_budget_ends_the_jobset(seed, mode):
    """With one restart allowed, a JobSet with many failures fails, and stays failed."""
    world = World(mode, jobs=1, pods=2, max_restarts=1)
    play(world, seed, 150, 0.2, faults=without_success)

    ended = finished(world.jobset.status.conditions)
    assert ended is None or ended.type == "Failed"
    # Who resumes or resizes opens an epoch as well, which costs nothing.
    epochs = 2 + world.failures + world.changes
    assert ended is not None or world.jobset.status.synced_epoch <= epochs


@pytest.mark.parametrize(
    ("method", "broken"),
    [
        ("_join", lambda barrier: barrier.observe("js-uid", barrier._synced, 0)),
        ("next_round", lambda barrier: []),
    ],
    ids=["an agent that joins nothing", "a supervisor that does not go on"],
)
def test_a_broken_agent_is_found(monkeypatch, method, broken):
    """The checks are not blind: each of these agents is found out."""
    monkeypatch.setattr(Barrier, method, broken)

    with pytest.raises((AssertionError, RecursionError)):
        for seed in range(60):
            play(World("supervisor", jobs=1, pods=2), seed, 60, 0.05)


def test_a_manager_that_counts_wrongly_is_found(monkeypatch):
    """So is a manager that lifts the barrier when one pod has not come."""
    monkeypatch.setattr(
        "jobsetpy.reconcilers.restart_in_place.barrier.expected_pods", lambda _jobset: 1
    )

    world = World("supervisor", jobs=1, pods=2)
    with pytest.raises(AssertionError, match="never came to 1"):
        while moves := [move for move in world.moves() if not _starts_pod_1(move[0])]:
            world.do(moves[-1])


def test_a_manager_that_ignores_doubles_is_found(monkeypatch):
    """So is a manager that takes two pods of one index for two of the group."""
    monkeypatch.setattr(
        "jobsetpy.reconcilers.restart_in_place.pod_counts.JobCounts.doubled", lambda *_: 0
    )

    with pytest.raises(AssertionError, match=r"both run|never came to"):
        for seed in range(300):
            play(World("supervisor", jobs=1, pods=2), seed, 120, 0.15)


def _starts_pod_1(name):
    return "w-0-1-" in name and name.endswith("agent starts")


@settings(max_examples=SCHEDULES // 10)
@given(
    seed=st.integers(0, 2**32),
    mode=st.sampled_from(["sidecar", "supervisor"]),
    max_restarts=st.integers(0, 2),
)
def test_strangers_end_no_connection(seed, mode, max_restarts):
    """A group in which nobody but strangers crashed is never failed, nor does it restart."""
    world = World(mode, jobs=1, pods=3, max_restarts=max_restarts)
    play(world, seed, 150, 0.3, faults=World.harmless)

    status = world.jobset.status
    ended = finished(status.conditions)
    assert ended is None or ended.type == "Completed"
    assert status.synced_epoch <= 1


@settings(max_examples=SCHEDULES // 10)
@given(seed=st.integers(0, 2**32), max_restarts=st.integers(0, 2))
def test_agents_that_their_probes_end_are_not_charged(seed, max_restarts):
    """However often they start again, and even if the barrier lifts while one is away."""
    world = World("sidecar", jobs=1, pods=3, max_restarts=max_restarts)
    play(world, seed, 150, 0.5, faults=World.probes)

    status = world.jobset.status
    ended = finished(status.conditions)
    assert ended is None or ended.type == "Completed"
    assert status.synced_epoch <= 1


@settings(max_examples=SCHEDULES // 10)
@given(seed=st.integers(0, 2**32), mode=st.sampled_from(["sidecar", "supervisor"]))
def test_strangers_are_not_charged_for_with_others_failures(seed, mode):
    """With some restarts allowed, only as many failures end the JobSet."""
    play(World(mode, jobs=1, pods=3, max_restarts=4), seed, 150, 0.3)


@pytest.mark.parametrize("moves", [World.harmless, World.probes], ids=["strangers", "probes"])
def test_a_manager_that_charges_everybody_is_found(monkeypatch, moves):
    """The checks see a manager that charges strangers, or restarts that ended with 0."""
    if moves is World.harmless:
        everybody = frozenset({"worker", "agent", "mesh"})
        monkeypatch.setattr(
            "jobsetpy.reconcilers.restart_in_place.crashes.charged_containers",
            lambda *_: everybody,
        )
    else:
        monkeypatch.setattr(
            "jobsetpy.reconcilers.restart_in_place.ledger.failed_since",
            lambda old, new: new.status.restarts,
        )

    with pytest.raises(AssertionError, match="failed after 0 failures"):
        for seed in range(40):
            play(World("sidecar", jobs=1, pods=3, max_restarts=0), seed, 150, 0.5, moves)


def test_a_manager_that_waits_by_its_wall_clock_is_found(monkeypatch):
    """The checks see a pause that lasts until a clock that was set back comes there again."""
    monkeypatch.setattr(Pace, "wait_s", by_the_wall_clock)

    with pytest.raises(AssertionError, match="nothing but waits happens for"):
        for seed in range(60):
            play(World("supervisor", jobs=1, pods=2), seed, 150, 0.15)
