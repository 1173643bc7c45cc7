"""Activities of JobSets, sums of their times, and ready pods."""

from __future__ import annotations

from datetime import timedelta

import attrs
import pytest

from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import ObjectKey
from jobsetpy.reconcilers.jobs.plan import plan_jobs
from jobsetpy.reconcilers.rules.backoff import RestartBackoff
from jobsetpy.reconcilers.rules.plan import JobsMemory
from jobsetpy.reconcilers.rules.time_accounting import ACTIVITIES, ActivityTimes, Total, activity
from support.jobsets import decoded, jobset_json, replicated_job
from support.model_kit import begin, settle

READY = {"name": "w", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}


def activity_of(*conditions, ready=0, suspend=None, labels=None, **more):
    """Return the activity of a JobSet of one Job with this number of ready Jobs."""
    status = {
        "conditions": [{"type": each, "status": "True"} for each in conditions],
        "replicatedJobsStatus": [{**READY, "ready": ready}],
    }
    data = jobset_json(replicated_job("w", 1), status=status, suspend=suspend)
    data["metadata"]["labels"] = labels or {}
    return activity(decoded(JobSet, data), **more)


class TestActivity:
    @pytest.mark.parametrize(
        ("found", "expected"),
        [
            (activity_of("Completed", ready=1), ""),
            (activity_of("Failed"), ""),
            (activity_of(suspend=True), "suspended"),
            (activity_of(suspend=True, labels={"kueue.x-k8s.io/queue-name": "q"}), "queue"),
            (activity_of(ready=1), "running"),
            (activity_of(ready=1, lacks_pods=True), "running"),
            (activity_of("RestartingJobSet"), "restarting"),
            (activity_of("RestartingJobSet", pauses=True), "backoff"),
            (activity_of("RestartingInPlace", "BarrierStalled"), "barrier"),
            (activity_of("RestartingInPlace", "BarrierStalled", lost=True), "lost_node"),
            (activity_of("CoschedulingInProgress"), "gates"),
            (activity_of("GroupSchedulingInProgress"), "barrier"),
            (activity_of("GroupSchedulingInProgress", lacks_pods=True), "missing_pods"),
            (activity_of(depends=True, lacks_pods=True), "dependencies"),
            (activity_of(lacks_pods=True), "missing_pods"),
            (activity_of(), "not_ready"),
        ],
    )
    def test_activity_is_the_strongest_obstacle(self, found, expected):
        """A JobSet has one activity at a time, and none when it has ended."""
        assert found == expected

    def test_list_of_activities_has_each_once(self):
        """They are values of a metric's label."""
        assert len(ACTIVITIES) == len(set(ACTIVITIES))


class TestTimes:
    def test_sum_grows_while_nothing_changes(self):
        """In JobSet-seconds and pod-seconds, for any time and number of queries."""
        times, a, b = ActivityTimes(), ObjectKey("n", "a"), ObjectKey("n", "b")
        times.note(a, "running", 4, 100.0)
        times.note(b, "running", 2, 110.0)
        times.note(b, "running", 2, 111.0)
        assert times.totals(115.0)[(), "running"] == Total(10.0 + 2 * 5.0, 40.0 + 6 * 5.0, 2)
        times.note(a, "restarting", 4, 120.0)
        times.note(b, "", 0, 120.0)

        totals = times.totals(130.0)
        assert totals[(), "running"] == Total(30.0, 100.0, 0)
        assert totals[(), "restarting"] == Total(10.0, 40.0, 1)

    def test_resized_jobset_counts_with_its_new_pods(self):
        """From the time of the change."""
        times, a = ActivityTimes(), ObjectKey("n", "a")
        times.note(a, "running", 4, 0.0)
        times.note(a, "running", 8, 10.0)

        assert times.totals(20.0)[(), "running"] == Total(20.0, 120.0, 1)

    def test_unknown_jobset_can_be_removed(self):
        """It changes no sum."""
        times = ActivityTimes()
        times.note(ObjectKey("n", "a"), "", 0, 5.0)

        assert times.totals(10.0) == {}


class TestActivityOfPlans:
    def plan(self, cluster, **observed):
        """Return the plan of this moment."""
        seen = attrs.evolve(cluster.observe(), **observed)
        return plan_jobs(seen, JobsMemory("js-uid"), cluster.now)

    def test_activity_follows_the_life_of_a_jobset(self):
        """Pods are created, one is missing, all are ready, one Job fails, the JobSet ends."""
        policy = {"maxRestarts": 1}
        cluster = begin(replicated_job("a", 1, parallelism=4), failurePolicy=policy)
        name = "test-js-a-0"
        assert (self.plan(cluster).activity, self.plan(cluster).pods) == ("not_ready", 4)
        cluster.set_status(name, startTime="2026-01-01T00:00:00Z", active=3, ready=3)
        assert self.plan(cluster).activity == "missing_pods"
        assert self.plan(cluster, lost=True).activity == "lost_node"
        cluster.set_status(name, startTime="2026-01-01T00:00:00Z", active=3, ready=3, terminating=1)
        assert self.plan(cluster).activity == "not_ready"
        cluster.ready(name)
        assert self.plan(cluster).activity == "running"
        cluster.fail(name)
        cluster.reconcile()
        assert self.plan(cluster).activity == "restarting"
        settle(cluster)
        cluster.fail(name)
        cluster.reconcile()
        assert self.plan(cluster).activity == ""

    def test_pause_is_an_activity_until_it_ends(self):
        """The plan of a restart in place in its back-off asks for a reconcile at the end."""
        status = {
            "syncedEpoch": 1,
            "deprecatedEpoch": 1,
            "conditions": [{"type": "RestartingInPlace", "status": "True"}],
        }
        policy = {"restartStrategy": "InPlaceRestart", "maxRestarts": 3}
        job = replicated_job("a", 1, parallelism=1)
        cluster = begin(job, failurePolicy=policy, status=status)
        at = (cluster.now.wall + timedelta(seconds=4)).isoformat().replace("+00:00", "Z")
        cluster.object["status"]["restartPacing"] = {"series": 4, "notBefore": at}
        plan = self.plan(cluster, backoff=RestartBackoff())
        assert (plan.activity, plan.result.delay) == ("backoff", timedelta(seconds=4))


class TestReadyPods:
    def test_number_of_ready_pods_causes_no_write(self):
        """It is written with the next write of something else."""
        cluster = begin(
            replicated_job("a", 1, parallelism=4), replicated_job("b", 2, parallelism=1)
        )
        assert cluster.status.ready_pods == "0/6"
        cluster.set_status("test-js-a-0", active=4, ready=3)
        cluster.reconcile()
        cluster.status_writes = 0
        cluster.set_status("test-js-a-0", active=4, ready=2)
        cluster.reconcile()
        assert cluster.status_writes == 0
        cluster.set_status("test-js-a-0", active=4, ready=4)
        cluster.reconcile()
        assert cluster.status.ready_pods == "4/6"
