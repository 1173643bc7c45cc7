"""What JobSets do and wait for, and the sums over time; ready pods of all."""

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
from jobsetpy.testing.jobsets import ModelCluster, decoded, jobset_json, replicated_job

READY = {"name": "w", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}


def does(*conditions, ready=0, suspend=None, labels=None, **more):
    """What a JobSet with one Job does, with so many Jobs ready and these conditions."""
    status = {
        "conditions": [{"type": each, "status": "True"} for each in conditions],
        "replicatedJobsStatus": [{**READY, "ready": ready}],
    }
    data = jobset_json(replicated_job("w", 1), status=status, suspend=suspend)
    data["metadata"]["labels"] = labels or {}
    return activity(decoded(JobSet, data), **more)


class TestActivity:
    @pytest.mark.parametrize(
        ("found", "wanted"),
        [
            (does("Completed", ready=1), ""),
            (does("Failed"), ""),
            (does(suspend=True), "suspended"),
            (does(suspend=True, labels={"kueue.x-k8s.io/queue-name": "q"}), "queue"),
            (does(ready=1), "running"),
            (does(ready=1, lacks_pods=True), "running"),
            (does("RestartingJobSet"), "restarting"),
            (does("RestartingJobSet", pauses=True), "backoff"),
            (does("RestartingInPlace", "BarrierStalled"), "barrier"),
            (does("RestartingInPlace", "BarrierStalled", lost=True), "lost_node"),
            (does("CoschedulingInProgress"), "gates"),
            (does("GroupSchedulingInProgress"), "barrier"),
            (does("GroupSchedulingInProgress", lacks_pods=True), "missing_pods"),
            (does(depends=True, lacks_pods=True), "dependencies"),
            (does(lacks_pods=True), "missing_pods"),
            (does(), "not_ready"),
        ],
    )
    def test_what_is_most_in_the_way(self, found, wanted):
        """One thing at a time; a JobSet that has ended does nothing."""
        assert wanted == found

    def test_each_has_a_series(self):
        """Names are those of the list, which has each once."""
        assert len(ACTIVITIES) == len(set(ACTIVITIES))


class TestTimes:
    def test_the_sum_continues_while_nothing_changes(self):
        """JobSet-seconds and pod-seconds, whenever they are asked for, and however often."""
        times, a, b = ActivityTimes(), ObjectKey("n", "a"), ObjectKey("n", "b")
        times.note(a, "running", 4, 100.0)
        times.note(b, "running", 2, 110.0)
        times.note(b, "running", 2, 111.0)
        assert Total(10.0 + 2 * 5.0, 40.0 + 6 * 5.0, 2) == times.totals(115.0)["running"]
        times.note(a, "restarting", 4, 120.0)
        times.note(b, "", 0, 120.0)

        totals = times.totals(130.0)
        assert Total(30.0, 100.0, 0) == totals["running"]
        assert Total(10.0, 40.0, 1) == totals["restarting"]

    def test_another_size(self):
        """A JobSet that is resized is counted with its new pods from then on."""
        times, a = ActivityTimes(), ObjectKey("n", "a")
        times.note(a, "running", 4, 0.0)
        times.note(a, "running", 8, 10.0)

        assert Total(20.0, 120.0, 1) == times.totals(20.0)["running"]

    def test_what_was_never_there_may_go(self):
        """A JobSet of which nothing is known is forgotten without harm."""
        times = ActivityTimes()
        times.note(ObjectKey("n", "a"), "", 0, 5.0)

        assert {Total()} == set(times.totals(10.0).values())


class TestOfPlans:
    def plan(self, cluster, **observed):
        """A plan as of now."""
        seen = attrs.evolve(cluster.observe(), **observed)
        return plan_jobs(seen, JobsMemory("js-uid"), cluster.now)

    def test_a_life(self):
        """Pods come, a Job lacks one, all are ready, one Job fails, the JobSet ends."""
        policy = {"maxRestarts": 1}
        of = ModelCluster(jobset_json(replicated_job("a", 1, parallelism=4), failurePolicy=policy))
        name = "test-js-a-0"
        of.reconcile()
        assert (self.plan(of).activity, self.plan(of).pods) == ("not_ready", 4)
        of.set_status(name, startTime="2026-01-01T00:00:00Z", active=3, ready=3)
        assert self.plan(of).activity == "missing_pods"
        assert self.plan(of, lost=True).activity == "lost_node"
        of.set_status(name, startTime="2026-01-01T00:00:00Z", active=3, ready=3, terminating=1)
        assert self.plan(of).activity == "not_ready"
        of.ready(name)
        assert self.plan(of).activity == "running"
        of.fail(name)
        of.reconcile()
        assert self.plan(of).activity == "restarting"
        of.collect()
        of.reconcile()
        of.fail(name)
        of.reconcile()
        assert self.plan(of).activity == ""

    def test_a_pause_is_looked_at_when_it_ends(self):
        """The back-off of a restart in place: it is told, and looked at again in time."""
        status = {
            "syncedEpoch": 1,
            "deprecatedEpoch": 1,
            "conditions": [{"type": "RestartingInPlace", "status": "True"}],
        }
        policy = {"restartStrategy": "InPlaceRestart", "maxRestarts": 3}
        of = ModelCluster(
            jobset_json(replicated_job("a", 1, parallelism=1), failurePolicy=policy, status=status)
        )
        of.reconcile()
        at = (of.now.wall + timedelta(seconds=4)).isoformat().replace("+00:00", "Z")
        of.object["status"]["restartPacing"] = {"series": 4, "notBefore": at}
        plan = self.plan(of, backoff=RestartBackoff())
        assert ("backoff", timedelta(seconds=4)) == (plan.activity, plan.result.delay)


class TestReadyPods:
    def test_it_costs_no_write(self):
        """A pod that becomes ready is told with the next write of something else."""
        of = ModelCluster(
            jobset_json(
                replicated_job("a", 1, parallelism=4),
                replicated_job("b", 2, parallelism=1),
            )
        )
        of.reconcile()
        assert of.status.ready_pods == "0/6"
        of.set_status("test-js-a-0", active=4, ready=3)
        of.reconcile()
        of.status_writes = 0
        of.set_status("test-js-a-0", active=4, ready=2)
        of.reconcile()
        assert of.status_writes == 0
        of.set_status("test-js-a-0", active=4, ready=4)
        of.reconcile()
        assert of.status.ready_pods == "4/6"
