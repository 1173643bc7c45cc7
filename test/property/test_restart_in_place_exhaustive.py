"""Restarts in place of two and three pods: every order of events, with a bounded number of faults.

``JOBSETPY_EXHAUSTIVE=1`` explores much larger bounds, which takes minutes.
"""

import gc
import os
from collections.abc import Iterator

import pytest

from jobsetpy.reconcilers.rules.backoff import Pace
from support.restarts import epoch_steps
from support.restarts.epoch_explorer import BUDGET, Explorer, Violation

HARMLESS = ("stranger", "succeed", "takeover")
PROBES = ("quit", *HARMLESS)
MISSED = ("delete", "takeover", "succeed", "late")
NEW = ("ask", "hang", "leave")
ALL = ("fail", "crash", "delete", "write", "takeover")
LARGE = bool(os.environ.get("JOBSETPY_EXHAUSTIVE"))

# Mode, pods, number of faults, their kinds, number of pod changes that the manager's watch may hold
# back, maxRestarts where restarts of single containers might use it up, and processes of each worker.
CASES = {
    "supervisor, two pods, two faults": ("supervisor", 2, 2, ("fail", "delete", "takeover"), 2),
    "supervisor, three pods, any fault": ("supervisor", 3, 1, ALL, 2),
    "standby, two pods, two failures": ("standby", 2, 2, ("fail",), 1),
    "standby, two pods, any fault": ("standby", 2, 1, ALL, 1),
    "standby, two pods, requests and hangs": ("standby", 2, 1, NEW, 1),
    "standby, two processes, two failures": ("standby", 1, 2, ("fail", "hang"), 1, BUDGET, 2),
    "standby, two pods of two processes": ("standby", 2, 1, ("fail",), 1, BUDGET, 2),
    "supervisor, one is asked to leave, no budget": ("supervisor", 2, 1, ("leave", "late"), 1, 0),
    "sidecar, two pods, any fault": ("sidecar", 2, 1, ALL, 2),
    "sidecar, two pods, two failures": ("sidecar", 2, 2, ("fail", "crash"), 1),
    "sidecar, strangers and probes, no budget": ("sidecar", 2, 1, PROBES, 1, 0),
    "sidecar, its kubelet forgets, no budget": ("sidecar", 1, 2, ("forget", "takeover"), 1, 0),
    "sidecar, two pods, a kubelet forgets, no budget": ("sidecar", 2, 1, ("forget",), 1, 0),
    "supervisor, strangers, no budget": ("supervisor", 2, 1, HARMLESS, 2, 0),
    "supervisor, two pods, a member is missed": ("supervisor", 2, 1, MISSED, 2, 1),
    "supervisor, two pods, asked for": ("supervisor", 2, 2, ("ask", "fail"), 1),
    "supervisor, asked for, no budget": ("supervisor", 2, 1, ("ask", "takeover"), 1, 0),
    "sidecar, two pods, drains and a failure": ("sidecar", 2, 2, ("drain", "fail"), 1),
    "supervisor, two pods, drains and a takeover": ("supervisor", 2, 2, ("drain", "takeover"), 2),
    "sidecar, two pods, ended by its kubelet": ("sidecar", 2, 1, ("kubelet",), 1),
    "supervisor, ended by its kubelet, no budget": ("supervisor", 2, 1, ("kubelet", "takeover"), 1, 0),
    "sidecar, one pod, suspensions": ("sidecar", 1, 1, ("suspend",), 1),
    "supervisor, one pod, suspensions and a failure": ("supervisor", 1, 2, ("suspend", "fail"), 1, 1),
    "supervisor, one pod, failures, clocks that are set and a takeover":
        ("supervisor", 1, 4, ("fail", "clock", "takeover"), 1),
    "supervisor, two pods, failures and clocks that are set": ("supervisor", 2, 3, ("fail", "clock"), 1),
    "sidecar, one pod, a suspension, drains and clocks that are set":
        ("sidecar", 1, 2, ("suspend", "drain", "clock"), 1),
    "supervisor, one pod, suspensions and drains": ("supervisor", 1, 2, ("suspend", "drain"), 1),
    "sidecar, two pods, a member is missed": ("sidecar", 2, 1, MISSED, 2),
    "sidecar, one pod, failures and probes": ("sidecar", 1, 2, ("quit", "fail", "takeover"), 1, 1),
}  # fmt: skip
LARGE_CASES = {
    "supervisor, two pods, two of any": ("supervisor", 2, 2, ALL, 3),
    "supervisor, three pods, two failures": ("supervisor", 3, 2, ("fail", "crash", "delete"), 2),
    "standby, two pods, two of any": ("standby", 2, 2, ALL, 1),
    "standby, requests, hangs, failures": ("standby", 2, 2, (*NEW, "fail"), 1),
    "standby, two pods of two, any": ("standby", 2, 1, (*NEW, *ALL), 1, BUDGET, 2),
    "supervisor, two asked to leave, and any": ("supervisor", 2, 2, ("leave", *ALL), 1),
    "sidecar, two pods, two faults": ("sidecar", 2, 2, ("fail", "crash", "delete"), 2),
    "sidecar, three pods, any fault": ("sidecar", 3, 1, ALL, 1),
    "sidecar, two strangers and probes": ("sidecar", 2, 2, PROBES, 1, 0),
    "sidecar, asked for, no budget": ("sidecar", 2, 1, ("ask", "takeover"), 1, 0),
    "supervisor, two pods, asked for, and any": ("supervisor", 2, 2, ("ask", *ALL), 2),
    "supervisor, two strangers": ("supervisor", 2, 2, HARMLESS, 1, 0),
    "supervisor, two pods, drains and clocks that are set":
        ("supervisor", 2, 2, ("drain", "clock", "takeover"), 1),
    "supervisor, one pod, suspensions, failures and clocks that are set":
        ("supervisor", 1, 3, ("suspend", "fail", "clock"), 1),
    "supervisor, two pods, suspensions": ("supervisor", 2, 1, ("suspend",), 1),
    "sidecar, two pods, suspensions": ("sidecar", 2, 1, ("suspend",), 1),
    "supervisor, one pod, suspensions, drains and a takeover":
        ("supervisor", 1, 2, ("suspend", "drain", "takeover"), 1),
    "sidecar, a failure after probes": ("sidecar", 2, 2, ("quit", "fail"), 1, 1),
    "sidecar, a failure after two of anything": ("sidecar", 2, 3, (*PROBES, "fail"), 1, 1),
}  # fmt: skip

# The large cases take minutes each.
BOUNDS = {**CASES, **LARGE_CASES} if LARGE else CASES

# Cases that `make check` leaves to `make test`: together they take three times as long as the others.
DEEPEST = {
    "supervisor, two pods, two faults",
    "supervisor, one pod, suspensions and a failure",
    "supervisor, one pod, suspensions and drains",
    "sidecar, two pods, two failures",
    "sidecar, two pods, drains and a failure",
    "sidecar, one pod, a suspension, drains and clocks that are set",
}

# A case of two faults is explored in slices, one for each kind of the first fault.
SLICES = [
    pytest.param(
        case,
        first,
        id=f"{case}, first {first or 'any'}",
        marks=[pytest.mark.exhaustive] if case in DEEPEST else [],
    )
    for case, (_, _, faults, kinds, *_) in BOUNDS.items()
    for first in (kinds if faults > 1 else [""])
]


@pytest.fixture(autouse=True)
def no_cycles() -> Iterator[None]:
    """Disable garbage collection: a million live states without cycles would take a fifth more."""
    gc.disable()
    yield
    gc.enable()


def explore(mode, pods, faults, kinds, lag, budget=BUDGET, processes=1, first=""):
    """Explore a case and return the explorer, which has seen every state."""
    explorer = Explorer(
        mode,
        pods=pods,
        faults=faults,
        kinds=frozenset(kinds),
        first=first,
        lag=lag,
        budget=budget,
        processes=processes,
    )

    assert explorer.run()
    return explorer


@pytest.mark.timeout(3600 if LARGE else 180)  # for hangs: a slice takes seconds
@pytest.mark.parametrize(("case", "first"), SLICES)
def test_every_order_is_safe_and_can_continue(case, first, record_property):
    """No worker runs ahead, the status never decreases, and every state leads to a running group."""
    explorer = explore(*BOUNDS[case], first=first)
    explorer.check_liveness()
    record_property("states", len(explorer.states))
    record_property("events", explorer.events)

    assert len(explorer.goals) > 0
    assert len(explorer.states) > 500  # the smallest slice has 818


def test_slices_cover_the_whole():
    """Together they have seen every state that is seen without them."""
    case = ("supervisor", 2, 2, ("write", "takeover"), 1)
    slices = [explore(*case, first=first) for first in case[3]]

    assert set(explore(*case).ids) == set().union(*(each.ids for each in slices))


def forgetful(state, synced, deprecated, _note=0):
    """Observe like a sidecar that saves no epoch for its next run."""
    return epoch_steps.observe(state, synced, deprecated)


def test_agent_without_a_saved_epoch_is_found(monkeypatch):
    """It is away when the barrier lifts, and opens an epoch in a group without failures."""
    monkeypatch.setattr("support.restarts.epoch_explorer.observe", forgetful)
    explorer = Explorer("sidecar", pods=2, faults=1, kinds=frozenset({"quit"}), lag=1, budget=0)

    with pytest.raises(Violation, match="the JobSet fails after 0 failures"):
        explorer.run()


def broken_lift(state, synced, deprecated, _note=0):
    """Observe like an agent that lifts its barrier when it should join."""
    seen = epoch_steps.observe(state, synced, deprecated)
    lifts = not seen.restart and seen.barrier[2] >= synced
    barrier = (*seen.barrier[:3], seen.barrier[3] or lifts, *seen.barrier[4:])
    return seen._replace(lift=seen.lift or lifts, barrier=barrier)


def broken_restart(state, synced, deprecated, _note=0):
    """Observe like an agent that never restarts."""
    seen = epoch_steps.observe(state, synced, deprecated)
    return seen._replace(restart=False, barrier=(*seen.barrier[:4], False, False))


def broken_count(view, cached, stored, max_restarts, **flags):
    """Reconcile like a manager that counts every pod like the first one."""
    first = next((pod for pod in view.pods if pod), ())
    pods = tuple((first[0], *pod[1:]) if pod else pod for pod in view.pods)
    done = epoch_steps.reconcile(view._replace(pods=pods), cached, stored, max_restarts, **flags)
    return done._replace(view=done.view._replace(pods=view.pods))


def _forgets_the_release(pod):
    rest = tuple(sorted(each._replace(runs=0) for each in pod.processes))
    return pod._replace(processes=rest)


def test_standby_that_outlives_its_epoch_is_found(monkeypatch):
    """A released standby is the worker: if it is spared, it runs next to the next one."""
    monkeypatch.setattr("support.restarts.epoch_explorer._without", _forgets_the_release)
    explorer = Explorer("standby", pods=2, faults=2, kinds=frozenset({"fail"}), lag=1)

    with pytest.raises(Violation, match="runs 2 at epoch 3"):
        explorer.run()


def _forgets_a_process(pod):
    first = pod.processes[0]._replace(runs=0, line=0)
    return pod._replace(processes=(first, *pod.processes[1:]))


def test_manager_that_waits_by_its_wall_clock_is_found(monkeypatch):
    """Its pause is too long when the clock is set back."""
    monkeypatch.setattr(Pace, "wait_s", epoch_steps.by_the_wall_clock)
    epoch_steps.reconcile.cache_clear()
    explorer = Explorer("supervisor", pods=1, faults=3, kinds=frozenset({"fail", "clock"}), lag=1)

    with pytest.raises(AssertionError, match="a pause is"):
        explorer.run()
    epoch_steps.reconcile.cache_clear()


@pytest.mark.parametrize("kind", ["fail", "hang", "ask"])
def test_process_that_outlives_its_worker_is_found(monkeypatch, kind):
    """The supervisor joins the next epoch when the first of its processes has ended."""
    monkeypatch.setattr("support.restarts.epoch_explorer._without", _forgets_a_process)
    explorer = Explorer("supervisor", faults=1, kinds=frozenset({kind}), lag=1, processes=2)

    with pytest.raises(Violation, match=r"while 1 runs in it|while p[01] runs 1"):
        explorer.run()


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        ("observe", broken_lift, "starts 2 while"),
        ("observe", broken_restart, "no way on"),
        ("reconcile", broken_count, "starts 1 while|starts 2 while|no way on|status"),
    ],
)
def test_broken_protocol_is_found(monkeypatch, name, broken, message):
    """Each of these defects violates an invariant."""
    monkeypatch.setattr(f"support.restarts.epoch_explorer.{name}", broken)
    explorer = Explorer("supervisor", pods=2, faults=1, kinds=frozenset({"fail", "crash"}), lag=2)

    with pytest.raises(Violation, match=message):
        explorer.run()
        explorer.check_liveness()
