"""The ledger of started pods equals a recount after any events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api import keys
from jobsetpy.reconcilers.startup_groups.ledger import StartLedger
from support.restarts.epoch_plans import GROUP, job, pod

JOBS, PODS = ("job-a", "job-b"), ("p", "q", "r")


def make_job(uid, pods, attempt, restarts, succeeded):
    """Return a Job; without an attempt it belongs to no group."""
    notes = {} if attempt is None else {keys.GROUP_ATTEMPT: str(attempt)}
    spec = {"parallelism": pods, "completions": pods}
    return job(uid, attempt=str(restarts), notes=notes, spec=spec, succeeded=succeeded)


def make_pod(name, owner, attempt, started, deleted):
    """Return a pod of a Job."""
    state = {"running": {}} if started else {"waiting": {}}
    statuses = [{"name": keys.GROUP_INIT_CONTAINER, "state": state}]
    notes = {keys.GROUP_ATTEMPT: attempt}
    status = {"phase": "Pending", "initContainerStatuses": statuses}
    return pod(name, None, job=owner, notes=notes, deleted=deleted, **status)


job_states = st.one_of(
    st.none(),
    st.tuples(
        st.integers(0, 3), st.sampled_from([None, 1, 2]), st.integers(0, 1), st.integers(0, 2)
    ),
)
pod_states = st.one_of(
    st.none(), st.tuples(st.sampled_from(JOBS), st.integers(1, 2), st.booleans(), st.booleans())
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("job"), st.sampled_from(JOBS), job_states),
        st.tuples(st.just("pod"), st.sampled_from(PODS), pod_states),
    ),
    max_size=40,
)


def recount(jobs, pods, group):
    """Return the number of started pods of a group, counted from the objects."""
    total = 0
    for uid, (wanted, attempt, restarts, succeeded) in jobs.items():
        if attempt is None or restarts != group.attempt:
            continue
        started = sum(each == (uid, attempt, True, False) for each in pods.values())
        missing = max(0, max(0, wanted - succeeded) - started)
        total += wanted - missing
    return total


@given(steps)
def test_ledger_equals_a_recount(history):
    """Events come in any order; in the end nothing is left."""
    book = StartLedger()
    jobs, pods = {}, {}

    def apply(kind, name, state):
        held = jobs if kind == "job" else pods
        make = make_job if kind == "job" else make_pod
        old = make(name, *held.pop(name)) if name in held else None
        new = None if state is None else make(name, *state)
        if new is not None:
            held[name] = state
        (book.job_changed if kind == "job" else book.pod_changed)(old, new)
        for attempt in (0, 1):
            group = GROUP._replace(attempt=attempt)
            assert recount(jobs, pods, group) == book.started(group)

    for step in history:
        apply(*step)
    for name in list(jobs):
        apply("job", name, None)
    for name in list(pods):
        apply("pod", name, None)
    assert len(book) == 0
