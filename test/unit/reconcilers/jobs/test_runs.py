"""Start time, number and deadline of a JobSet's runs; Jobs that their queue suspends."""

from __future__ import annotations

from datetime import timedelta

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.reconcilers.jobs.plan import plan_jobs
from jobsetpy.reconcilers.rules import plan as p
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.times import Now
from support.jobsets import EPOCH_START, ModelCluster, jobset_json, replicated_job

JOB = "test-js-a-0"


def start(*, features=None, annotations=None, status=None, **spec):
    """Return a cluster with one reconciled JobSet of one Job."""
    jobset = jobset_json(replicated_job("a"), annotations=annotations, status=status, **spec)
    cluster = ModelCluster(jobset, features)
    cluster.reconcile()
    return cluster


def after(cluster, seconds):
    """Reconcile a cluster some seconds later."""
    cluster.clock += timedelta(seconds=seconds)
    cluster.reconcile()


def run_of(cluster):
    """Return the number of the run, and its start in seconds."""
    at = cluster.status.start_time
    return cluster.status.execution_attempts, at and (at - EPOCH_START).total_seconds()


def annotated(cluster):
    """Return the number of the run on the Job and on its pods."""
    job = cluster.jobs[JOB]
    template = job["spec"]["template"]
    return [
        each["metadata"]["annotations"].get(keys.EXECUTION_ATTEMPT_ANNOTATION)
        for each in (job, template)
    ]


def restart(cluster, seconds=5):
    """Let the Job fail, and recreate it some seconds later."""
    cluster.fail(JOB)
    after(cluster, seconds)
    cluster.collect()
    cluster.reconcile()


class TestNumber:
    def test_run_is_counted_with_each_resumption_and_each_restart_of_all_jobs(self):
        """The number is on Jobs and pods before they run."""
        cluster = start(suspend=True, failurePolicy={"maxRestarts": 1})
        seen = [(run_of(cluster), annotated(cluster))]
        for seconds, suspend in ((1, False), (1, True), (1, False)):
            cluster.change_spec(suspend=suspend)
            after(cluster, seconds)
            seen.append((run_of(cluster), annotated(cluster)))
        restart(cluster)
        seen.append((run_of(cluster), annotated(cluster)))
        assert seen == [
            ((None, None), [None, None]),
            ((0, 1), ["0", "0"]),
            ((0, None), ["0", "0"]),
            ((1, 3), ["1", "1"]),
            ((2, 8), ["2", "2"]),
        ]

    def test_run_is_counted_once_when_its_writes_are_repeated(self):
        """The status write may fail after the Jobs were resumed, and a resumption before it."""
        cluster = start(suspend=True)
        cluster.change_spec(suspend=False)
        plan = cluster.plan()
        cluster.carry_out(attrs.evolve(plan, status=None))
        first = annotated(cluster)
        cluster.reconcile()
        assert (first, annotated(cluster), run_of(cluster)) == (["0", "0"], ["0", "0"], (0, 0))
        assert plan.partial_status.patch["executionAttempts"] == 0

    def test_restart_of_a_single_job_continues_the_run(self):
        """Neither its number nor its start changes."""
        rules = [{"name": "r", "action": "RestartJob"}]
        cluster = start(failurePolicy={"maxRestarts": 3, "rules": rules})
        restart(cluster)
        assert (run_of(cluster), cluster.status.restarts) == ((0, 0), 0)

    @pytest.mark.parametrize(
        ("suspend", "restarts", "number", "resumed"),
        [(False, 3, 3, 3), (False, 0, 0, 0), (True, 3, 3, 4), (True, 0, None, 0)],
    )
    def test_jobset_of_an_older_manager_has_run_once_for_each_restart(
        self, suspend, restarts, number, resumed
    ):
        """Its status has no number yet."""
        cluster = start(suspend=suspend, status={"restarts": restarts})
        before = cluster.status.execution_attempts
        cluster.change_spec(suspend=False)
        cluster.reconcile()
        assert (before, cluster.status.execution_attempts) == (number, resumed)

    def test_number_is_kept_while_its_gate_is_off(self):
        """Nothing is written."""
        off = Features(execution_attempts=False)
        cluster = start(features=off, status={"executionAttempts": 4})
        assert (cluster.status.execution_attempts, run_of(start(features=off))) == (4, (None, 0))


class TestDeadline:
    @pytest.mark.parametrize(
        ("spec", "ended", "expected"),
        [
            ({}, None, ("True", "DeadlineExceeded")),
            ({}, "complete", None),
            ({}, "fail", ("True", "DeadlineExceeded")),
            ({"activeDeadlineSeconds": None}, "fail", ("True", "FailedJobs")),
            ({"activeDeadlineSeconds": 2**63 - 1}, None, None),
            ({"activeDeadlineSeconds": 11}, "fail", ("True", "FailedJobs")),
            ({"suspend": True}, None, None),
        ],
    )
    def test_jobset_fails_when_a_run_exceeds_its_deadline(self, spec, ended, expected):
        """Success comes before the deadline, and the deadline before other failures."""
        cluster = start(**{"activeDeadlineSeconds": 10, **spec})
        if ended:
            getattr(cluster, ended)(JOB)
        after(cluster, 10)
        assert cluster.condition("Failed") == expected
        gone = "deletionTimestamp" in cluster.jobs[JOB]["metadata"]
        assert gone == (expected == ("True", "DeadlineExceeded") and ended is None)

    def test_deadline_counts_from_the_current_run(self):
        """A restart of all Jobs and a resumption begin one; a change of the deadline counts."""
        cluster = start(activeDeadlineSeconds=10, failurePolicy={"maxRestarts": 1})
        restart(cluster, 9)
        after(cluster, 9)
        cluster.change_spec(suspend=True)
        after(cluster, 100)
        cluster.change_spec(suspend=False)
        after(cluster, 0)
        left = cluster.plan().result.delay
        assert (cluster.condition("Failed"), left) == (None, timedelta(seconds=10))
        cluster.change_spec(activeDeadlineSeconds=5)
        after(cluster, 6)
        assert cluster.condition("Failed") == ("True", "DeadlineExceeded")
        assert cluster.status.restarts == 1

    def test_deadline_does_not_follow_a_clock_that_jumps(self):
        """It is measured on the monotonic clock; a start time in the future counts as now."""
        cluster = start(activeDeadlineSeconds=10, status={"startTime": "2027-01-01T00:00:00Z"})
        first = plan_jobs(cluster.observe(), p.JobsMemory(), cluster.now)
        left = []
        for jump, seconds in ((-500, 4), (5000, 6), (-500, 9)):
            now = Now(cluster.clock + timedelta(seconds=jump), seconds)
            left.append(plan_jobs(cluster.observe(), first.memory, now).result.delay)
        assert [each.total_seconds() for each in left] == [6, 4, 1]

    def test_deadline_has_no_effect_while_its_gate_is_off(self):
        """The start time is written nevertheless."""
        cluster = start(features=Features(active_deadline=False), activeDeadlineSeconds=1)
        after(cluster, 10)
        assert (cluster.condition("Failed"), run_of(cluster)) == (None, (0, 0))


class TestResources:
    @pytest.mark.parametrize(
        ("given", "new", "expected"),
        [
            ({}, {"requests": {"cpu": "1"}}, {"requests": {"cpu": "1"}}),
            ({"requests": {"cpu": "1"}}, {}, {}),
            (
                {"requests": {"cpu": "1"}, "claims": [{"name": "c"}]},
                {"limits": {"cpu": "2"}},
                {"claims": [{"name": "c"}], "limits": {"cpu": "2"}},
            ),
        ],
    )
    @pytest.mark.parametrize("enabled", [True, False])
    def test_jobs_get_changed_resources_when_resumed(self, given, new, expected, enabled):
        """Containers that others have added to the Job, and all other fields, stay."""

        def containers(resources):
            return [{"name": "w", "image": "i", "resources": resources}]

        spec = {"containers": containers(given), "initContainers": containers(given)}
        jobset = jobset_json(replicated_job("a", pod_spec=spec), suspend=True)
        cluster = ModelCluster(jobset, Features(mutable_resources=enabled))
        cluster.reconcile()
        pod = cluster.jobs[JOB]["spec"]["template"]["spec"]
        pod["containers"] = [
            {"name": "other", "resources": {"limits": {"a": 1}}},
            *pod["containers"],
        ]
        template = cluster.object["spec"]["replicatedJobs"][0]["template"]["spec"]["template"][
            "spec"
        ]
        template |= {kind: containers(new) for kind in spec}
        cluster.change_spec(suspend=False)
        cluster.reconcile()
        pod = cluster.jobs[JOB]["spec"]["template"]["spec"]
        (wanted,) = containers(expected if enabled else given)
        other = {"name": "other", "resources": {"limits": {"a": 1}}}
        assert (pod["containers"], pod["initContainers"]) == ([other, wanted], [wanted])

    @pytest.mark.looptime
    async def test_refused_resources_are_reported(self, rig):
        """The Job stays suspended: it would run with other resources than it was admitted for."""
        async with rig.running(replicated_job("a"), suspend=True):
            rig.faults.status(422, verb="patch", resource="jobs")
            jobset = rig.jobset()
            containers = [{"name": "worker", "image": "worker:1"}]
            containers[0]["resources"] = {"requests": {"cpu": "1"}}
            jobs = jobset["spec"]["replicatedJobs"]
            jobs[0]["template"]["spec"]["template"]["spec"]["containers"] = containers
            rig.change(replicatedJobs=jobs, suspend=False)
            await rig.settle()
            assert rig.world.get("jobs", JOB)["spec"]["suspend"] is True
            ((_, note, _),) = rig.events("FailedResourcePropagation")
            assert "MutablePodResourcesForSuspendedJobs" in note


class TestQueuedJobs:
    def test_jobs_are_suspended_and_resumed_by_their_queue_alone(self):
        """The controller restarts and counts them as always."""
        notes = {keys.SKIP_SUSPEND_ANNOTATION: "true"}
        cluster = start(annotations=notes, failurePolicy={"maxRestarts": 1})
        created = cluster.jobs[JOB]["spec"].get("suspend")
        for suspend in (True, False):
            cluster.jobs[JOB]["spec"]["suspend"] = suspend
            cluster.reconcile()
            assert cluster.jobs[JOB]["spec"]["suspend"] == suspend
        restart(cluster)
        assert (created, cluster.condition("Suspended"), run_of(cluster)) == (None, None, (1, 5))

    def test_suspended_job_is_not_ready(self):
        """The next ReplicatedJob starts in order when the queue has resumed it."""
        jobs = [replicated_job("a"), replicated_job("b")]
        notes = {keys.SKIP_SUSPEND_ANNOTATION: "true"}
        order = {"startupPolicyOrder": "InOrder"}
        cluster = ModelCluster(jobset_json(*jobs, annotations=notes, startupPolicy=order))
        cluster.reconcile()
        cluster.jobs[JOB]["spec"]["suspend"] = True
        cluster.reconcile()
        before = list(cluster.jobs)
        cluster.jobs[JOB]["spec"]["suspend"] = False
        cluster.ready(JOB)
        cluster.reconcile()
        assert (before, list(cluster.jobs)) == ([JOB], [JOB, "test-js-b-0"])


def test_crd_without_fields_of_this_release_is_a_condition_and_one_event():
    """Both name the fields; the JobSet is planned again until the CRD is renewed."""
    cluster, missing = start(), frozenset({"status.startTime", "spec.scheduling"})
    observed = attrs.evolve(cluster.observe(), missing=missing)
    plan = plan_jobs(observed, p.JobsMemory(), cluster.now)
    (event,) = plan.status.events
    (condition,) = plan.status.status.conditions
    assert (event.reason, condition.type) == ("OutdatedDefinition", "OutdatedDefinition")
    assert "no effect: spec.scheduling, status.startTime; apply" in event.message
    assert plan.result.delay == timedelta(minutes=10)
    stored = evolve(observed.jobset, status=plan.status.status)
    again = plan_jobs(attrs.evolve(observed, jobset=stored), plan.memory, cluster.now)
    assert again.status.events == ()
    renewed = attrs.evolve(observed, jobset=stored, missing=frozenset())
    plan = plan_jobs(renewed, plan.memory, cluster.now)
    assert [each.status for each in plan.status.status.conditions] == ["False"]
