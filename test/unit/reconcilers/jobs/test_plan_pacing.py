"""When the jobs reconciler looks, writes counters and tells notices: plans in virtual time."""

from __future__ import annotations

from datetime import timedelta

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.jobs.counter_pace import CounterPace, is_restarting
from jobsetpy.reconcilers.jobs.plan import plan_jobs
from jobsetpy.reconcilers.rules.plan import JobsMemory, JobsPlan
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.testing.jobsets import ModelCluster, jobset_json, merge, replicated_job

A = "test-js-replicated-job-a-0"
JOBS = 10


@pytest.fixture
def cluster():
    """A JobSet whose Jobs and status are there."""
    cluster = ModelCluster(jobset_json())
    cluster.reconcile()
    return cluster


def plan(cluster, memory, at=100.0, **observed):
    """A plan at a time of the monotonic clock; counters are paced by 0.2 s."""
    seen = attrs.evolve(cluster.observe(), pace=CounterPace(every_s=0.2), **observed)
    return plan_jobs(seen, memory, Now(cluster.clock, at))


def test_a_jobset_that_is_gone_is_forgotten(cluster):
    """Nothing is done and nothing remembered."""
    assert JobsPlan() == plan(cluster, JobsMemory("js-uid"), jobset=None)


def test_nothing_is_decided_before_own_writes_show(cluster):
    """The plan only says when to look again, and keeps what is remembered."""
    memory = JobsMemory("js-uid", counters_at=3.0)
    cluster.fail(A)

    waiting = plan(cluster, memory, wait_s=7.0)

    assert timedelta(seconds=7) == waiting.result.delay
    assert (True, memory, None) == (waiting.empty, waiting.memory, waiting.begun)


def test_a_wait_shorter_than_a_timer_is_none(cluster):
    """Timers are not exact enough for less than a millisecond."""
    cluster.fail(A)

    assert not plan(cluster, JobsMemory(), wait_s=0.0005).empty


@pytest.mark.parametrize(
    ("at", "delay_s"), [(100.0, 0.2), (100.15, 0.05), (100.1995, None), (100.2, None)]
)
def test_counters_wait_for_the_write_before(cluster, at, delay_s):
    """A change of nothing but counters is stored so long after the last write, and then at once."""
    cluster.ready(A)
    memory = JobsMemory("js-uid", counters_at=100.0)

    paced = plan(cluster, memory, at)

    if delay_s is None:
        assert (None, at) == (paced.result.delay, paced.memory.counters_at)
        assert paced.result.summary == "status"
        assert "replicatedJobsStatus" in paced.status.patch
    else:
        assert pytest.approx(delay_s) == paced.result.delay.total_seconds()
        assert (
            paced.status,
            paced.memory.counters_at,
            paced.result.summary,
        ) == (None, 100.0, "")


class Group:
    """A JobSet of ten Jobs that restarts in place; time passes only where a test says so.

    Args:
        pods: of each Job, each with an agent.
        pace: of its counters.
    """

    def __init__(self, pods=500, pace=None, strategy=keys.IN_PLACE_RESTART):
        self.cluster = ModelCluster(
            jobset_json(
                replicated_job("w", JOBS, parallelism=pods),
                failurePolicy={"maxRestarts": 9, "restartStrategy": strategy},
            )
        )
        self.cluster.reconcile()
        self.epochs(1, 0)
        self.pace = pace or CounterPace(every_s=0.2, agent_events_per_s=5000)
        self.memory = JobsMemory()
        self.at = 1000.0
        self.told = []
        self.churned = 0

    def epochs(self, synced, deprecated):
        """The other reconciler writes both numbers."""
        status = {"syncedEpoch": synced, "deprecatedEpoch": deprecated}
        self.cluster.object["status"] = {**self.cluster.object["status"], **status}

    def churn(self, seconds):
        """Every 20 ms a Job gets another number of ready pods; writes of the status are noted."""
        for _ in range(round(seconds * 50)):
            self.at += 0.02
            self.churned += 1
            name = f"test-js-w-{self.churned % JOBS}"
            if self.churned // JOBS % 2:
                self.cluster.ready(name)
            else:
                self.cluster.set_status(name, active=1, ready=0)
            self.look()

    def look(self):
        """One reconcile."""
        seen = attrs.evolve(self.cluster.observe(), pace=self.pace)
        made = plan_jobs(seen, self.memory, Now(self.cluster.clock, self.at))
        self.memory = made.memory
        if not made.empty:
            self.told.append(self.at)
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
    """Ten seconds of churn: so many writes that agents hear of no more than the limit a second."""
    group = Group(pods, CounterPace(every_s=0.2, agent_events_per_s=limit), strategy)

    group.churn(10)

    assert abs(len(group.told) - writes) <= 1


def test_counters_of_a_restart_are_written_at_its_end():
    """None while the group is on its way to the next epoch; afterwards at the usual pace."""
    group = Group()
    group.look()
    group.epochs(1, 1)
    began = group.at

    group.churn(8)
    assert [at for at in group.told if at > began] == []

    group.epochs(2, 1)
    ended = group.at
    group.churn(3.5)
    assert [round(at - ended) for at in group.told if at > began] == [1, 2, 3]


def test_a_long_restart_does_not_hide_counters():
    """A barrier that stays closed: they are written after thirty times the pause, again and again."""
    group = Group()
    group.look()
    group.epochs(1, 1)
    began = group.at

    group.churn(70)

    assert [round(at - began) for at in group.told if at > began] == [30, 60]
    assert group.pace.pause_s(group.cluster.jobset) == 30


def test_a_manager_that_finds_a_restart_waits_from_then_on():
    """Nothing is lost with the memory but the time that has passed."""
    group = Group()
    group.epochs(1, 1)
    group.churn(5)
    group.memory, group.told = JobsMemory(), []

    group.churn(29)
    assert group.told == []
    waits = group.look().result.delay
    assert timedelta(0) < waits <= timedelta(seconds=1.1)

    group.churn(1.5)
    assert len(group.told) == 1


@pytest.mark.parametrize(
    "over",
    [
        {"spec": {"suspend": True}},
        {
            "status": {
                "terminalState": "Failed",
                "conditions": [{"type": "Failed", "status": "True"}],
            }
        },
        {"status": {"syncedEpoch": 0, "deprecatedEpoch": 0}},
        {"spec": {"failurePolicy": {"restartStrategy": "Recreate"}}},
    ],
)
def test_no_restart_is_under_way(over):
    """A suspended JobSet restarts no more than one that ended or has not begun to run."""
    group = Group()
    group.epochs(1, 1)
    assert is_restarting(group.cluster.jobset)

    group.cluster.object = merge(group.cluster.object, over)

    assert not is_restarting(group.cluster.jobset)


def test_only_counters_wait_for_a_restart():
    """A Job that fails meanwhile is decided at once."""
    group = Group()
    group.look()
    group.epochs(1, 1)
    group.churn(1)

    group.cluster.fail("test-js-w-7")
    restarted = group.look()

    assert restarted.status.patch["restarts"] == 1
    assert group.at == group.told[-1]


def test_a_decision_does_not_wait(cluster):
    """What is more than counters is stored at once."""
    cluster.fail(A)

    decided = plan(cluster, JobsMemory("js-uid", counters_at=100.0))

    assert decided.status.patch["terminalState"] == "Failed"
    assert decided.memory.counters_at == 100.0


def test_a_notice_is_reported_once_while_it_holds(cluster):
    """It is told again only after it did not hold any more, or to another JobSet of the name."""
    broken = cluster.jobs[A]["metadata"]["labels"]
    attempt = broken.pop(keys.RESTART_ATTEMPT)
    first = plan(cluster, JobsMemory())
    (notice,) = first.notices
    assert A in notice.message

    again = plan(cluster, first.memory)
    assert again.notices == ()

    broken[keys.RESTART_ATTEMPT] = attempt
    mended = plan(cluster, again.memory)
    assert mended.notices == ()
    del broken[keys.RESTART_ATTEMPT]
    assert (notice,) == plan(cluster, mended.memory).notices

    cluster.object["metadata"]["uid"] = "another"
    assert (notice,) == plan(cluster, again.memory).notices


def test_pauses_between_recreations_grow_and_end():
    """1, 2, 4 ... 60 seconds, for ever if need be; after ten quiet minutes it begins again."""
    cluster = ModelCluster(jobset_json())
    cluster.reconcile()
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

    assert pytest.approx(pauses[:8]) == [1, 2, 4, 8, 16, 32, 60, 60]
    assert {60.0} == set(pauses[8:])

    del cluster.jobs[A]
    assert plan(cluster, memory, at + 601).confirm
    assert plan(cluster, memory, at + 601).memory.recreations == 1
