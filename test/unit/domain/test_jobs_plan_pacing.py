"""When the jobs reconciler looks, writes counters and tells notices: plans in virtual time."""

from __future__ import annotations

from datetime import timedelta

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.domain.children.planner import plan_jobs
from jobsetpy.domain.plan import JobsMemory, JobsPlan, Moment
from jobsetpy.testing.jobsets import ModelCluster, jobset_json

A = "test-js-replicated-job-a-0"


@pytest.fixture
def cluster():
    """A JobSet whose Jobs and status are there."""
    cluster = ModelCluster(jobset_json())
    cluster.reconcile()
    return cluster


def plan(cluster, memory, at=100.0, **observed):
    """A plan at a time of the monotonic clock; counters are paced by 0.2 s."""
    seen = attrs.evolve(cluster.observe(), counters_every_s=0.2, **observed)
    return plan_jobs(seen, memory, Moment(cluster.clock, at))


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
        assert "status" == paced.result.summary
        assert "replicatedJobsStatus" in paced.status.patch
    else:
        assert pytest.approx(delay_s) == paced.result.delay.total_seconds()
        assert (None, 100.0, "") == (
            paced.status,
            paced.memory.counters_at,
            paced.result.summary,
        )


def test_a_decision_does_not_wait(cluster):
    """What is more than counters is stored at once."""
    cluster.fail(A)

    decided = plan(cluster, JobsMemory("js-uid", counters_at=100.0))

    assert "Failed" == decided.status.patch["terminalState"]
    assert 100.0 == decided.memory.counters_at


def test_a_notice_is_told_once_while_it_holds(cluster):
    """It is told again only after it did not hold any more, or to another JobSet of the name."""
    broken = cluster.jobs[A]["metadata"]["labels"]
    attempt = broken.pop(keys.RESTART_ATTEMPT)
    first = plan(cluster, JobsMemory())
    (notice,) = first.notices
    assert A in notice.message

    again = plan(cluster, first.memory)
    assert () == again.notices

    broken[keys.RESTART_ATTEMPT] = attempt
    mended = plan(cluster, again.memory)
    assert () == mended.notices
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

    assert [1, 2, 4, 8, 16, 32, 60, 60] == pytest.approx(pauses[:8])
    assert {60.0} == set(pauses[8:])

    del cluster.jobs[A]
    assert plan(cluster, memory, at + 601).confirm
    assert 1 == plan(cluster, memory, at + 601).memory.recreations
