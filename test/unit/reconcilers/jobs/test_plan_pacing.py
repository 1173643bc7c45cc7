"""Times of passes, counter writes and notices of the jobs reconciler, in virtual time."""

from __future__ import annotations

from datetime import timedelta

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.jobs.counter_pace import CounterPace, is_restarting
from jobsetpy.reconcilers.jobs.plan import plan_jobs
from jobsetpy.reconcilers.rules.plan import JobsMemory, JobsPlan
from jobsetpy.reconcilers.rules.times import Now
from support.jobsets import merge, replicated_job
from support.model_kit import begin

A = "test-js-replicated-job-a-0"
JOBS = 10
FAILED = {"type": "Failed", "status": "True"}


@pytest.fixture
def cluster():
    """Return a cluster with a JobSet that has its Jobs and status."""
    return begin()


def plan(cluster, memory, at=100.0, **observed):
    """Return the plan at a time of the monotonic clock; the pause between counters is 0.2 s."""
    seen = attrs.evolve(cluster.observe(), pace=CounterPace(every_s=0.2), **observed)
    return plan_jobs(seen, memory, Now(cluster.clock, at))


def test_deleted_jobset_is_forgotten(cluster):
    """The plan does nothing and remembers nothing."""
    assert plan(cluster, JobsMemory("js-uid"), jobset=None) == JobsPlan()


def test_plan_waits_until_own_writes_are_in_the_cache(cluster):
    """It only says when to look again, and keeps the memory."""
    memory = JobsMemory("js-uid", counters_at=3.0)
    cluster.fail(A)

    waiting = plan(cluster, memory, wait_s=7.0)

    assert waiting.result.delay == timedelta(seconds=7)
    assert (waiting.empty, waiting.memory, waiting.begun) == (True, memory, None)


def test_plan_does_not_wait_for_less_than_a_millisecond(cluster):
    """Timers are not that exact."""
    cluster.fail(A)

    assert not plan(cluster, JobsMemory(), wait_s=0.0005).empty


@pytest.mark.parametrize(
    ("at", "delay_s"), [(100.0, 0.2), (100.15, 0.05), (100.1995, None), (100.2, None)]
)
def test_counters_are_written_after_a_pause(cluster, at, delay_s):
    """A change of counters alone waits for the pause after the previous write."""
    cluster.ready(A)
    memory = JobsMemory("js-uid", counters_at=100.0)

    paced = plan(cluster, memory, at)

    if delay_s is None:
        assert (None, at) == (paced.result.delay, paced.memory.counters_at)
        assert paced.result.summary == "status"
        assert "replicatedJobsStatus" in paced.status.patch
    else:
        assert paced.result.delay.total_seconds() == pytest.approx(delay_s)
        assert (paced.status, paced.memory.counters_at) == (None, 100.0)
        assert paced.result.summary == ""


class RestartGroup:
    """A JobSet of ten Jobs that restarts in place; only a test advances the time.

    Args:
        pods: number of pods of each Job, each with an agent.
        pace: pace of its counters.
        strategy: its restart strategy.
    """

    def __init__(self, pods=500, pace=None, strategy=keys.IN_PLACE_RESTART):
        policy = {"maxRestarts": 9, "restartStrategy": strategy}
        self.cluster = begin(replicated_job("w", JOBS, parallelism=pods), failurePolicy=policy)
        self.epochs(1, 0)
        self.pace = pace or CounterPace(every_s=0.2, agent_events_per_s=5000)
        self.memory = JobsMemory()
        self.at = 1000.0
        self.written_at = []
        self.changes = 0

    def epochs(self, synced, deprecated):
        """Set both epochs as the reconciler of restart in place does."""
        status = {"syncedEpoch": synced, "deprecatedEpoch": deprecated}
        self.cluster.object["status"] = {**self.cluster.object["status"], **status}

    def change_counters(self, seconds):
        """Change the number of ready pods of a Job every 20 ms; record the status writes."""
        for _ in range(round(seconds * 50)):
            self.at += 0.02
            self.changes += 1
            name = f"test-js-w-{self.changes % JOBS}"
            if self.changes // JOBS % 2:
                self.cluster.ready(name)
            else:
                self.cluster.set_status(name, active=1, ready=0)
            self.reconcile()

    def reconcile(self):
        """Plan and execute once; return the plan."""
        seen = attrs.evolve(self.cluster.observe(), pace=self.pace)
        made = plan_jobs(seen, self.memory, Now(self.cluster.clock, self.at))
        self.memory = made.memory
        if not made.empty:
            self.written_at.append(self.at)
        self.cluster.carry_out(made)
        return made


@pytest.mark.parametrize(
    ("pods", "limit", "strategy", "writes"),
    [
        (5, 5000, keys.IN_PLACE_RESTART, 50),
        (500, 0, keys.IN_PLACE_RESTART, 50),
        (500, 5000, "Recreate", 50),
        (500, 5000, keys.IN_PLACE_RESTART, 10),
        (500, 1000, keys.IN_PLACE_RESTART, 2),
        (5000, 5000, keys.IN_PLACE_RESTART, 1),
    ],
)
def test_agents_receive_counters_at_a_bounded_rate(pods, limit, strategy, writes):
    """In ten seconds of changes, agents receive no more events per second than the limit."""
    group = RestartGroup(pods, CounterPace(every_s=0.2, agent_events_per_s=limit), strategy)

    group.change_counters(10)

    assert abs(len(group.written_at) - writes) <= 1


def test_counters_of_a_restart_are_written_at_its_end():
    """There are none before the next epoch is reached; afterwards they have the usual pace."""
    group = RestartGroup()
    group.reconcile()
    group.epochs(1, 1)
    began = group.at

    group.change_counters(8)
    assert [at for at in group.written_at if at > began] == []

    group.epochs(2, 1)
    ended = group.at
    group.change_counters(3.5)
    assert [round(at - ended) for at in group.written_at if at > began] == [1, 2, 3]


def test_counters_are_written_rarely_during_a_long_restart():
    """While a barrier stays closed, the pause is thirty times as long."""
    group = RestartGroup()
    group.reconcile()
    group.epochs(1, 1)
    began = group.at

    group.change_counters(70)

    assert [round(at - began) for at in group.written_at if at > began] == [30, 60]
    assert group.pace.pause_s(group.cluster.jobset) == 30


def test_new_manager_waits_from_the_time_when_it_finds_a_restart():
    """Without memory only the time that has passed is lost."""
    group = RestartGroup()
    group.epochs(1, 1)
    group.change_counters(5)
    group.memory, group.written_at = JobsMemory(), []

    group.change_counters(29)
    assert group.written_at == []
    delay = group.reconcile().result.delay
    assert timedelta(0) < delay <= timedelta(seconds=1.1)

    group.change_counters(1.5)
    assert len(group.written_at) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"suspend": True}},
        {"status": {"terminalState": "Failed", "conditions": [FAILED]}},
        {"status": {"syncedEpoch": 0, "deprecatedEpoch": 0}},
        {"spec": {"failurePolicy": {"restartStrategy": "Recreate"}}},
    ],
)
def test_jobset_is_not_restarting_when_it_is_suspended_or_not_running(change):
    """Nor if it has ended, has not begun to run, or is recreated."""
    group = RestartGroup()
    group.epochs(1, 1)
    assert is_restarting(group.cluster.jobset)

    group.cluster.object = merge(group.cluster.object, change)

    assert not is_restarting(group.cluster.jobset)


def test_failure_is_planned_immediately_during_a_restart():
    """Only counters wait for its end."""
    group = RestartGroup()
    group.reconcile()
    group.epochs(1, 1)
    group.change_counters(1)

    group.cluster.fail("test-js-w-7")
    restarted = group.reconcile()

    assert restarted.status.patch["restarts"] == 1
    assert group.written_at[-1] == group.at


def test_decision_does_not_wait_for_the_pause(cluster):
    """Status changes other than counters are stored immediately."""
    cluster.fail(A)

    decided = plan(cluster, JobsMemory("js-uid", counters_at=100.0))

    assert decided.status.patch["terminalState"] == "Failed"
    assert decided.memory.counters_at == 100.0


def test_a_notice_is_reported_once_while_it_holds(cluster):
    """It is reported again after it was resolved, or for another JobSet of this name."""
    broken = cluster.jobs[A]["metadata"]["labels"]
    attempt = broken.pop(keys.RESTART_ATTEMPT)
    first = plan(cluster, JobsMemory())
    (notice,) = first.notices
    assert A in notice.message

    again = plan(cluster, first.memory)
    assert again.notices == ()

    broken[keys.RESTART_ATTEMPT] = attempt
    resolved = plan(cluster, again.memory)
    assert resolved.notices == ()
    del broken[keys.RESTART_ATTEMPT]
    assert plan(cluster, resolved.memory).notices == (notice,)

    cluster.object["metadata"]["uid"] = "another"
    assert plan(cluster, again.memory).notices == (notice,)


def test_pauses_between_recreations_grow_up_to_a_minute():
    """1, 2, 4 ... 60 seconds without end; they start again after ten minutes without a deletion."""
    cluster = begin()
    at = 1000.0
    memory = plan(cluster, JobsMemory(), at).memory
    pauses = []
    for _ in range(1100):
        cluster.jobs.pop(A, None)
        held = plan(cluster, memory, at)
        if held.result.delay is not None:
            assert (held.empty, held.confirm) == (True, False)
            pauses.append(held.result.delay.total_seconds())
            at += pauses[-1]
            memory = held.memory
        made = plan(cluster, memory, at)
        assert (made.confirm, made.result.delay) == (True, None)
        cluster.carry_out(made)
        memory = made.memory

    assert pauses[:8] == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60])
    assert set(pauses[8:]) == {60.0}

    del cluster.jobs[A]
    assert plan(cluster, memory, at + 601).confirm
    assert plan(cluster, memory, at + 601).memory.recreations == 1
