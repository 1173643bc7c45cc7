"""Objects as large as etcd accepts: plans and checks take time linear in their size."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.jobs.plan import plan_jobs
from jobsetpy.reconcilers.rules.plan import JobsMemory
from jobsetpy.reconcilers.rules.times import Now
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.update import validate_update
from support.admission import hostile
from support.jobsets import EPOCH_START, jobset_json, replicated_job

NOW = Now(EPOCH_START, 0.0)
PART = 8
QUADRATIC = 36
"""Ratio of CPU times for an object of eight times the size; 8 is linear, 64 is quadratic. In a
large process 8 becomes 27, since memory for large objects is requested and returned."""
SLOW_MS = 1000.0
"""Limit for 1.5 MB; an idle machine takes a tenth of it, quadratic code 15 s and more."""


TRIES = 4
"""Number of attempts; CPU time grows with the load of a machine, quadratic code fails each time."""


@pytest.fixture(autouse=True)
def no_collections():
    """Making large objects causes full passes, each over all objects of the test process."""
    gc.disable()
    yield
    gc.enable()


def grows(small: Callable[[], object], large: Callable[[], object]) -> None:
    """Assert that the time of these calls is linear in the size of the object."""
    seen = []
    for times in range(1, TRIES + 1):
        # One long time is compared with the best of several short ones: noise fails, but passes nothing.
        small_ms, large_ms = hostile.cpu_ms(small, 3), hostile.cpu_ms(large, times)
        if large_ms < SLOW_MS and (large_ms < 20 or large_ms / small_ms < QUADRATIC):
            return
        seen.append((small_ms, large_ms))
    pytest.fail(f"milliseconds of CPU for an eighth of the size and for the full size: {seen}")


@pytest.mark.parametrize(
    ("maker", "state"),
    [
        (hostile.startup_group, "new"),
        (hostile.startup_group, "suspended"),
        (hostile.gangs, "new"),
        (hostile.chain, "new"),
        (hostile.chain, "first failed"),
        (hostile.stays_failed, "first failed"),
        (hostile.many_reasons, "failed"),
        (hostile.many_rules, "failed"),
        (hostile.restarts_of_jobs, "failed"),
        (hostile.restarts_of_replicated_jobs, "failed"),
        (hostile.many_claims, "new"),
    ],
)
def test_plan_takes_linear_time(maker, state):
    """For JobSets of the largest possible size and of an eighth of it."""
    number = hostile.SIZES[maker]
    whole = maker(number)
    assert hostile.size_of(whole) < hostile.MAX_BYTES
    small, large = (hostile.observed(each, state) for each in (maker(number // PART), whole))

    grows(*[lambda it=it: plan_jobs(it, JobsMemory(), NOW) for it in (small, large)])


@pytest.mark.parametrize("maker", list(hostile.SIZES))
def test_check_takes_linear_time(maker):
    """At creation and at a change, for accepted and refused objects."""
    number = hostile.SIZES[maker]
    small, large = maker(max(1, number // PART)), maker(number)

    grows(lambda: validate_create(small), lambda: validate_create(large))
    both = (small, large)
    old_small, old_large = ({**it, "spec": {**it["spec"], "suspend": True}} for it in both)
    grows(lambda: validate_update(old_small, small), lambda: validate_update(old_large, large))


@pytest.mark.parametrize(
    ("policy", "field", "limit"),
    [
        ({"rules": [{"action": "FailJobSet"}] * 129}, "rules", 128),
        (
            {"rules": [{"action": "FailJobSet", "onJobFailureReasons": ["A"] * 129}]},
            "rules[0].onJobFailureReasons",
            128,
        ),
    ],
)
def test_policy_is_refused_when_a_list_is_longer_than_the_schema_allows(policy, field, limit):
    """The webhook's port is open to other clients than the API server, which checks the schema."""
    (problem,) = validate_create(jobset_json(failurePolicy=policy))

    assert problem.field == f"spec.failurePolicy.{field}"
    assert f"Too many: 129: must have at most {limit} items" in problem.message


def test_dependencies_through_others_are_found():
    """The problem names the target behind a long chain and the one that it depends on."""
    jobset = hostile.group_behind_chain(50)
    jobset["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "r0", "status": "Ready"}]
    problems = [str(each) for each in validate_create(jobset)]

    assert len(problems) == 2
    assert {"spec.replicatedJobs[49].dependsOn[0].name" in each for each in problems} == {True}
    assert "another of its group (r0 through it)" in problems[0]


def test_labels_of_replicated_jobs_that_are_no_targets_are_accepted_at_a_resumption():
    """Coscheduling leaves them alone, at creation and at changes."""
    own = {"labels": {keys.POD_GROUP_NAME: "mine"}}
    scope, targets = keys.COSCHEDULING_ANNOTATION, keys.COSCHEDULING_TARGETS_ANNOTATION
    notes = {scope: "ReplicatedJob", targets: "a"}
    jobs = [replicated_job("a"), replicated_job("b", pod_metadata=own)]
    stored = jobset_json(*jobs, annotations=notes, suspend=True)
    resumed = jobset_json(*jobs, annotations=notes, suspend=False)

    assert validate_create(stored) == []
    assert validate_update(stored, stored) == []
    assert validate_update(stored, resumed) == []
