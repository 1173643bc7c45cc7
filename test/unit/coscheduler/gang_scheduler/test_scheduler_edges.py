"""The gang scheduler: preemption, portions, observers and unusual events."""

from __future__ import annotations

import pytest

from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import (
    Bind,
    Cause,
    Limits,
    Outcome,
    Preemption,
    Refuse,
)
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey
from support.coscheduling.scheduler_kit import seen, short, shown

A, B = (PodGroupKey("ns", name) for name in "ab")


class CallLog:
    """An observer that records all calls."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


@pytest.fixture
def scheduler():
    """A gang scheduler without pods."""
    return GangScheduler()


# -- preemption ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "outcome"),
    [(("a1",), Outcome.REFUSED), (("a1", "a2"), Outcome.ALLOWED), ((), Outcome.ALLOWED)],
    ids=["too small", "large enough", "in no gang"],
)
def test_a_member_may_preempt_only_when_its_gang_has_enough_pods(scheduler, pods, outcome):
    """A pod that is in no gang may always preempt."""
    shown(scheduler, *pods)
    victims = {"n": ["x"]}
    expected = Preemption(outcome, victims if outcome == Outcome.ALLOWED else {}, [])
    assert scheduler.preempt(victims, 1.0, preemptor="a1") == expected


def test_a_gang_preempts_no_more_for_a_while_when_it_did_so_in_vain():
    """Otherwise a gang that never fits would delete other pods at each attempt."""
    scheduler = GangScheduler(Limits(permit_s=10, permit_per_pod_s=0))
    shown(scheduler, "a1", "a2")
    now, pauses = 0.0, []
    for ticket in range(1, 10):
        scheduler.bind_asked(ticket, "a1", now)
        assert scheduler.preempt({"n": ["x"]}, now, preemptor="a2").outcome is Outcome.ALLOWED
        assert short(scheduler.tick(now + 10)) == [("Refuse", "a1")]
        now += 10
        until = scheduler.gang(A).held.preempts_from
        assert scheduler.preempt({"n": ["x"]}, until - 1, preemptor="a2").outcome is Outcome.REFUSED
        pauses.append(until - now)
        now = until
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    scheduler.bind_asked(20, "a1", now)
    scheduler.bind_asked(21, "a2", now)
    assert scheduler.gang(A).held.preempts_from == 0.0


def test_a_replacement_in_a_complete_gang_may_preempt(scheduler):
    """Its gang needs only this pod."""
    shown(scheduler, "a1", "a2", bound=True)
    shown(scheduler, "a3")
    answer = scheduler.preempt({"n": ["x"]}, 1.0, preemptor="a3")
    assert answer == Preemption(Outcome.ALLOWED, {"n": ["x"]}, [])


def test_pods_are_spared_when_their_binds_were_just_refused(scheduler):
    """kube-scheduler processes the refusals one by one; there is no other bind to refuse."""
    shown(scheduler, "a1", "a2", "a3", minimum=3)
    scheduler.bind_asked(1, "a1", 0.0)
    scheduler.bind_asked(2, "a2", 0.0)
    answer = scheduler.preempt({"n": ["a1"]}, 1.0)
    assert (answer.outcome, answer.nodes) == (Outcome.SPARED, {})
    assert short(answer.actions) == [("Refuse", "a1"), ("Refuse", "a2")]
    assert scheduler.preempt({"n": ["a2"]}, 1.1) == Preemption(Outcome.SPARED, {}, [])


# -- unusual events -----------------------------------------------------------------------------


def test_a_bind_is_refused_when_the_pod_is_bound(scheduler):
    """The refusal names the state of the pod."""
    shown(scheduler, "a1", bound=True)
    assert scheduler.bind_asked(1, "a1", 0.0) == [Refuse(1, "a1", "the pod is bound")]


def test_a_held_bind_is_refused_when_another_scheduler_bound_the_pod(scheduler):
    """The pod counts for its gang."""
    shown(scheduler, "a1", "a2")
    scheduler.bind_asked(1, "a1", 0.0)
    actions = scheduler.seen(seen("a1", bound=True), 1.0)
    assert actions == [Refuse(1, "a1", "the pod has a node")]
    assert scheduler.bind_asked(2, "a2", 2.0) == [Bind(2, "a2")]
    assert scheduler.seen(seen("a1", bound=True), 3.0) == []


def test_pods_with_scheduling_gates_are_no_members(scheduler):
    """A gang that stays too small is refused once its time is over, until it has enough pods."""
    shown(scheduler, "a1", "a2", blocked=True)
    assert scheduler.gang(A).placeable == 0
    scheduler.unschedulable("a1", 0.0)
    assert not scheduler.gang(A).lacks_a_node
    assert scheduler.bind_asked(1, "a1", 9.0) == []
    assert short(scheduler.tick(50.0)) == [("Refuse", "a1")]
    assert scheduler.bind_asked(2, "a1", 55.0) == [Refuse(2, "a1", "ns/a has 0 of 2 pods")]


def test_a_complete_gang_has_no_timeout(scheduler):
    """An unschedulable pod beyond the minimum has no effect."""
    shown(scheduler, "a1", "a2", "a3")
    scheduler.bind_asked(1, "a1", 0.0)
    scheduler.bind_asked(2, "a2", 0.0)
    assert scheduler.unschedulable("a3", 1.0) == []
    assert scheduler.bind_done("a1", ok=True, now=1.0) == []
    assert scheduler.bind_done("a1", ok=True, now=1.0) == []
    assert scheduler.gang(A).running == 2


def test_a_gang_is_refused_when_it_needs_more_held_binds_than_the_limit():
    """It holds nothing, so other gangs are bound."""
    scheduler = GangScheduler(Limits(held=1))
    shown(scheduler, "a1", "a2")
    why = "ns/a needs 2 held binds, of 1"
    assert scheduler.bind_asked(1, "a1", 1.0) == [Refuse(1, "a1", why)]


# -- portions -----------------------------------------------------------------------------------


def large(size):
    """A gang of which all pods but the last have a node."""
    scheduler = GangScheduler(Limits(permit_s=1, permit_per_pod_s=0))
    shown(scheduler, *(f"a{at}" for at in range(size)), minimum=size)
    for at in range(size - 1):
        scheduler.bind_asked(at, f"a{at}", 0.0)
    return scheduler


def rest(scheduler, first, now):
    """Kinds and number of all actions from now on, and the length of the longest list."""
    kinds, longest = {kind for kind, _ in first}, len(first)
    count = len(first)
    while (wake := scheduler.next_wake(now)) is not None and wake <= now:
        actions = short(scheduler.tick(now))
        kinds |= {kind for kind, _ in actions}
        count, longest = count + len(actions), max(longest, len(actions))
    return kinds, count, longest


def test_a_large_gang_is_released_in_portions():
    """Once its release has begun, its pods are neither refused nor deleted for others."""
    scheduler = large(2200)
    first = short(scheduler.bind_asked(9999, "a2199", 0.5))
    held = [uid for uid, state in scheduler.states().items() if state.value == "waiting"]
    assert held
    assert scheduler.preempt({"a": held[:1]}, 0.5).nodes == {"a": held[:1]}
    assert rest(scheduler, first, 0.5) == ({"Bind"}, 2200, 500)


def test_gangs_refused_at_the_same_time_share_one_portion():
    """Gangs with the same timeout do not block the loop together."""
    scheduler = GangScheduler(Limits(permit_s=1, permit_per_pod_s=0))
    for name in "abcd":
        shown(scheduler, *(f"{name}{at}" for at in range(91)), minimum=91)
        for at in range(90):
            assert scheduler.bind_asked(1000 * ord(name) + at, f"{name}{at}", 0.0) == []
    first = short(scheduler.tick(1.0))
    assert rest(scheduler, first, 1.0) == ({"Refuse"}, 360, 100)


@pytest.mark.parametrize("complete", [True, False])
def test_remaining_portions_are_finished_at_the_end(complete):
    """Otherwise a gang would be left bound in part."""
    scheduler = large(1200)
    first = scheduler.bind_asked(9999, "a1199", 0.5) if complete else scheduler.tick(1.0)
    actions = short(scheduler.finish(1.0))
    assert len(first) + len(actions) == (1200 if complete else 1199)
    assert {kind for kind, _ in actions} == {"Bind" if complete else "Refuse"}
    assert scheduler.gang(A).waiting == 0


# -- observers ----------------------------------------------------------------------------------


def test_the_observer_is_called_for_each_decision():
    """A gang is begun, rejected with its cause, released and forgotten."""
    log = CallLog()
    scheduler = GangScheduler(observer=log)
    shown(scheduler, "a1", "a2")
    scheduler.bind_asked(1, "a1", 0.0)
    scheduler.unschedulable("a2", 0.0)
    scheduler.tick(40.0)
    scheduler.bind_asked(2, "a1", 47.0)
    scheduler.bind_asked(3, "a2", 47.0)
    scheduler.gone("a1", 48.0)
    scheduler.gone("a2", 48.0)
    assert [call[0] for call in log.calls] == ["begun", "rejected", "released", "gone"]
    assert any(Cause.TIMEOUT in call for call in log.calls)
