"""Two seats and a spare pod or Job: every order of events, with lost, cut off and returning pods.

``JOBSETPY_EXHAUSTIVE=1`` explores two faults in one order, which takes minutes. Larger groups have
random schedules.
"""

import gc
import os
from collections.abc import Iterator

import pytest
from attrs import evolve

from jobsetpy.reconcilers.restart_in_place.epochs import resizing
from jobsetpy.reconcilers.restart_in_place.spares import assign_jobs
from jobsetpy.reconcilers.restart_in_place.spares.assign_job import SeatPod
from support.restarts import seat_explorer
from support.restarts.seat_explorer import Explorer, Shape, Violation, walk

LARGE = bool(os.environ.get("JOBSETPY_EXHAUSTIVE"))
JOB = Shape(jobs=3, working=2, seats=1, pods=1)
"""Two Jobs with a pod, and a spare one."""
PAIR = Shape(seats=1, pods=2)
"""One seat and a spare."""
ELASTIC = Shape(seats=2, pods=2, least=1)
"""Two seats without a spare, of which one may be missing."""
SLICES = Shape(jobs=2, working=2, seats=1, pods=1, least_jobs=1)
"""Two Jobs with a pod, of which one may be missing."""
CASES = {
    "a pod is lost": (1, ("lost", "takeover")),
    "a pod is deleted": (1, ("delete",)),
    "a Job is lost": (1, ("lost", "takeover"), JOB),
    "a Job is deleted": (1, ("delete",), JOB),
    "a pod is unfit": (1, ("unfit",)),
    "a pod is lost, and one is unfit": (2, ("lost", "unfit"), PAIR),
    "one of two pods goes missing": (1, ("lost", "delete", "cut", "fail", "takeover"), ELASTIC),
    "one of two Jobs goes missing": (1, ("lost", "delete", "cut", "fail", "takeover"), SLICES),
}
LARGE_CASES = {
    "both pods of two are lost": (2, ("lost", "takeover"), ELASTIC),
    "both Jobs of two are lost": (2, ("lost", "takeover"), SLICES),
    "a pod of two Jobs with two goes missing": (1, ("lost",), Shape(2, 2, 2, 2, 0, 1)),
    "a pod is cut off, given up, and heals": (1, ("cut",)),
    "a worker fails": (2, ("fail", "takeover")),
    "two pods are lost": (2, ("lost", "takeover")),
    "a pod is cut off, and another one fails": (2, ("cut", "fail")),
    "a Job is cut off, given up, and heals": (1, ("cut",), JOB),
    "a worker fails, and a pod is unfit": (2, ("fail", "unfit")),
    "a Job is lost, and one is unfit": (2, ("lost", "unfit"), JOB),
    "two Jobs are lost": (2, ("lost", "takeover"), JOB),
    "a pod of a Job with two is lost": (1, ("lost",), Shape(2, 1, 2, 2)),
    "a pod of a Job with two is cut off": (1, ("cut",), Shape(2, 1, 2, 2)),
}


@pytest.fixture(autouse=True)
def no_cycles() -> Iterator[None]:
    """Disable garbage collection, which takes long with many live states and finds no cycles."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.timeout(3600 if LARGE else 300)
@pytest.mark.parametrize("case", {**CASES, **LARGE_CASES} if LARGE else CASES)
def test_each_seat_has_one_worker_and_every_order_leads_to_a_running_group(case, record_property):
    """No two workers have a seat in an epoch, each seat has a pod, and the status never decreases."""
    explorer = Explorer(*CASES.get(case, LARGE_CASES.get(case)))
    explorer.run()
    record_property("events until all work", explorer.check_liveness(every_order=True))
    record_property("states", len(explorer.states))

    assert len(explorer.states) > 2000
    assert any(state.versions[-1].synced == 2 for state in explorer.states)


@pytest.mark.parametrize("shape", [Shape(), JOB], ids=["pod", "Job"])
def test_lost_spare_causes_no_restart(shape):
    """It may be lost, return, be deleted or turn unfit at any time: no epoch is opened."""
    explorer = Explorer(1, ("lost", "delete", "unfit", "takeover"), shape, spares_only=True)
    explorer.run()
    explorer.check_liveness(every_order=True)

    seen = {(s.synced, s.deprecated) for state in explorer.states for s in state.versions}
    assert seen == {(0, 0), (1, 0)}


@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 1, 4, 6),
        Shape(3, 2, 2, 2),
        Shape(4, 2, 2, 3),
        Shape(2, 2, 3, 3, 1),
        Shape(1, 1, 3, 4, 2),
        Shape(3, 3, 2, 2, 0, 2),
        Shape(3, 3, 2, 3, 0, 1),
    ],
    ids=[
        "spare pods",
        "a spare Job",
        "both",
        "fewer pods",
        "fewer pods, and a spare",
        "fewer Jobs",
        "fewer Jobs, and spares",
    ],
)
@pytest.mark.parametrize("seed", range(200 if LARGE else 8))
def test_each_seat_has_one_worker_in_random_schedules(shape, seed):
    """Pods are lost, cut off, deleted and fail, managers take over; in the end all seats work."""
    state = walk(shape, seed, steps=250, faults=0.05)

    newest = state.versions[-1]
    assert newest.synced > newest.deprecated
    assert len(newest.taken) <= len(shape.places)


def _keeps_its_index(shape, status, pod):
    """Return the seat of an agent that ignores the status."""
    return (0, pod.index) if pod.index < shape.seats else None


def test_agents_that_keep_their_index_are_found(monkeypatch):
    """A seat that was given away would have two workers."""
    monkeypatch.setattr(seat_explorer, "holds", _keeps_its_index)

    with pytest.raises(Violation, match=r"not each seat has a pod"):
        Explorer(1, ("lost",)).run()


def _ignores_other_jobs(shape, status, pod):
    """Return the seat of an agent that ignores seats that its Job has taken over."""
    job, index = divmod(pod.index, shape.pods)
    return (job, index) if job < shape.working else None


def test_agents_that_keep_the_seats_of_their_job_are_found(monkeypatch):
    """The seats of a Job that has given them up would have two workers each."""
    monkeypatch.setattr(seat_explorer, "holds", _ignores_other_jobs)

    with pytest.raises(Violation, match=r"not each seat has a pod"):
        Explorer(1, ("lost",), JOB).run()


@pytest.fixture
def fresh_decisions() -> Iterator[None]:
    """Keep decisions of a manager or agent that a test breaks apart from those of others."""
    for known in (seat_explorer.reconcile, seat_explorer._seat_of):
        known.cache_clear()
    yield
    for known in (seat_explorer.reconcile, seat_explorer._seat_of):
        known.cache_clear()


@pytest.mark.usefixtures("fresh_decisions")
def test_agents_that_ignore_the_size_of_the_group_are_found(monkeypatch):
    """A pod that comes too late would work at a seat that does not exist in the epoch."""
    monkeypatch.setattr(
        "jobsetpy.agent.protocol.wire_types.InPlaceRestart.size", lambda *_: ELASTIC.seats
    )

    with pytest.raises(Violation, match=r"a seat that does not exist|not each seat has a pod"):
        Explorer(1, ("lost",), ELASTIC).run()


@pytest.mark.usefixtures("fresh_decisions")
def test_job_that_is_seated_in_part_is_found(monkeypatch):
    """A Job of two pods that has lost one would work with the other."""
    real = assign_jobs.with_fewer
    monkeypatch.setattr(
        assign_jobs,
        "with_fewer",
        lambda job, taken, _, *more, **kw: real(job, taken, 1, *more, **kw),
    )

    with pytest.raises(Violation, match="a Job with a part"):
        walk(Shape(3, 3, 2, 2, 0, 2), 0, steps=250, faults=0.05)


@pytest.mark.usefixtures("fresh_decisions")
@pytest.mark.parametrize("broken", ["waits for ever", "restarts for nothing"])
def test_manager_that_never_grows_is_found(monkeypatch, broken):
    """Pods are back, and stay: all of the group has to work again, whatever comes first."""
    if broken == "waits for ever":
        monkeypatch.setattr(resizing, "_can_grow", lambda *_: False)
    else:  # the Job keeps its size
        real = assign_jobs.assign_job
        monkeypatch.setattr(
            assign_jobs,
            "assign_job",
            lambda job, *more: real(evolve(job, fixed=job.missing > 0), *more),
        )
    explorer = Explorer(1, ("lost",), ELASTIC)
    explorer.run()

    with pytest.raises(Violation, match="no way on"):
        explorer.check_liveness(every_order=True)


@pytest.mark.usefixtures("fresh_decisions")
def test_manager_that_counts_parked_pods_is_found(monkeypatch):
    """A pod without a seat would open the next epoch."""
    monkeypatch.setattr(
        "jobsetpy.reconcilers.restart_in_place.observed.spare_counts.JobSeats.parks",
        lambda *_: False,
    )

    with pytest.raises(Violation, match="a restart without a fault"):
        Explorer(0, ()).run()


@pytest.mark.usefixtures("fresh_decisions")
def test_manager_that_gives_seats_to_unfit_pods_is_found(monkeypatch):
    """A spare whose health command has failed would take the seat of a lost pod."""
    monkeypatch.setattr(SeatPod, "is_unfit", property(lambda _: False))

    with pytest.raises(Violation, match="is unfit, and gets a seat"):
        Explorer(2, ("lost", "unfit"), PAIR).run()
