"""The ledger of pods with and without seats equals that of a new manager after any events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api import keys
from jobsetpy.api.agent_reports import READY
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSetStatus, JobSize, TakenJob, TakenSeat
from jobsetpy.reconcilers.restart_in_place.observed.ledger import EpochLedger
from support.restarts.epoch_plans import GROUP, job, pod

JOBS, INDEXES = ("a", "b", "w-0", "w-1", "w-2"), range(3)
"""Two plain Jobs, and three of a ReplicatedJob of which one is a spare."""


def make_job(name: str, spares: int) -> Job:
    """Return a Job of three pods."""
    group, _, index = name.partition("-")
    notes = {keys.IN_PLACE_SPARES_ANNOTATION: str(spares % 3)}
    if index:
        notes[keys.IN_PLACE_SPARE_JOBS_ANNOTATION] = "1"
    spec, status = {"parallelism": 3, "completions": 3}, {"succeeded": 1, "completedIndexes": "0"}
    place = {"of": group, "index": index or 0, "replicas": 3 if index else 0}
    return job(name, notes=notes, spec=spec, **place, **(status if spares > 2 else {}))


def make_pod(job: str, index: int, epoch: int, ready: bool, leaving: bool) -> ChildPod:
    """Return a pod of a Job."""
    notes = {
        keys.IN_PLACE_SPARES_ANNOTATION: "1",
        keys.AGENT_STATE_ANNOTATION: READY if ready else None,
    }
    more = {"job": job, "index": index, "notes": notes, "deleted": leaving}
    return pod(f"{job}-{index}", epoch or None, uid=f"{job}{index}", **more)


def status(taken: list[tuple[str, int, int]], jobs: list[int] = (), fewer: int = 0) -> JobSetStatus:
    """Return a status in which pods hold seats of a Job, and Jobs those of the first two.

    The first Job has some seats less.
    """
    entries = {
        (job, seat): TakenSeat(job=job, seat=seat, pod_uid=f"{job}{index}", pod_index=index)
        for job, seat, index in taken
    }
    moved = [TakenJob(job=f"w-{at}", holder=f"w-{one}") for at, one in enumerate(jobs) if at != one]
    return JobSetStatus(
        in_place_restart=InPlaceRestartStatus(
            taken_seats=tuple(entries.values()),
            taken_jobs=tuple(moved),
            job_sizes=(JobSize(job="a", seats=3 - fewer, missing=fewer),) if fewer else (),
        )
    )


def counted(ledger: EpochLedger) -> object:
    """Return all counts of the group."""
    found = ledger.histogram(GROUP)
    spares = found.spares
    if spares is None:
        return dict(found.epochs), found.leaving, found.succeeded
    return (
        dict(found.epochs), found.leaving, found.succeeded, dict(spares.parked), dict(spares.unprepared), spares.ready, spares.exhausted, spares.beyond,
        sorted((job.name, job.seats, job.missing, job.begun, sorted(pod.uid for pod in job.pods)) for job in spares.jobs()),
    )  # fmt: skip


pods = st.tuples(st.sampled_from(JOBS), st.sampled_from(INDEXES))
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("pod"), pods, st.none() | st.tuples(st.integers(0, 2), st.booleans(), st.booleans())
        ),
        st.tuples(st.just("job"), st.sampled_from(JOBS), st.none() | st.integers(0, 5)),
        st.tuples(
            st.just("status"),
            st.lists(
                st.tuples(st.sampled_from(JOBS), st.integers(0, 1), st.sampled_from(INDEXES)),
                max_size=2,
                unique_by=lambda entry: (entry[0], entry[2]),
            ),
            st.permutations(range(3)),
        ),
    ),
    max_size=25,
)  # fmt: skip


@given(steps)
def test_counts_depend_on_the_state_and_not_on_its_history(history):
    """Pods, Jobs and assignments change in any order; a new manager has the same counts."""
    ledger = EpochLedger()
    held: dict[str, dict] = {"pod": {}, "job": {}}
    latest = status([])
    for kind, what, state in history:
        if kind == "status":
            latest = status(what, state[:2], state[2])
            ledger.note_status(GROUP, latest, 0, 0.0)
            continue
        old, new = held[kind].pop(what, None), None
        if state is not None:
            new = make_job(what, state) if kind == "job" else make_pod(*what, *state)
            held[kind][what] = new
        (ledger.job_changed if kind == "job" else ledger.pod_changed)(old, new)
    ledger.note_status(GROUP, latest, 0, 0.0)
    fresh = EpochLedger()
    for each in held["pod"].values():
        fresh.pod_changed(None, each)
    for each in held["job"].values():
        fresh.job_changed(None, each)
    fresh.note_status(GROUP, latest, 0, 0.0)

    assert counted(ledger) == counted(fresh)
    for each in held["pod"].values():
        ledger.pod_changed(each, None)
    for each in held["job"].values():
        ledger.job_changed(each, None)
    assert len(ledger) == 0
