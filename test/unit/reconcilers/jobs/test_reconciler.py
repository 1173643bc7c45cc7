"""The jobs reconciler in a manager, on a cluster in memory and in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.execution.metrics import REGISTRY
from support.jobsets import replicated_job
from support.patience import eventually

pytestmark = pytest.mark.looptime

A = "test-js-replicated-job-a-0"
B = ["test-js-replicated-job-b-0", "test-js-replicated-job-b-1", "test-js-replicated-job-b-2"]
ALL = [A, *B]


async def test_a_thousand_jobs_are_created_64_at_a_time(rig):
    """Creation is parallel over all ReplicatedJobs, up to the limit."""
    rig.faults.latency(0.1, verb="create", resource="jobs")
    async with rig.manager(epochs=False):
        loop = asyncio.get_running_loop()
        begin = loop.time()
        rig.create(*[replicated_job(f"r{i}", 25) for i in range(40)])
        await eventually(lambda: rig.world.requests.count("create", "jobs") == 1000)

        assert 0.1 * (1000 / 64 - 1) - 0.1 < loop.time() - begin < 0.1 * (1000 / 64) + 0.1

        await rig.settle()
        assert rig.world.requests.count("create", "jobs") == 1000
        assert len(rig.jobs()) == 1000


async def test_nothing_is_created_twice_when_the_cache_is_late(rig):
    """While the watch of Jobs is silent, passes wait for it."""
    async with rig.manager(epochs=False):
        rule = rig.faults.stall(verb="watch", resource="jobs")
        rig.create()
        for _ in range(5):
            await asyncio.sleep(1)
            rig.touch()

        assert rig.world.requests.count("create", "jobs") == 4
        assert rig.events("JobCreationFailed") == []

        rule.lift()
        await rig.settle()

        assert rig.world.requests.count("create", "jobs") == 4
        names = {item["name"] for item in rig.status()["replicatedJobsStatus"]}
        assert names == {"replicated-job-a", "replicated-job-b"}


async def test_nothing_is_created_twice_when_an_answer_is_lost(rig):
    """A Job that was created nevertheless is recognised."""
    rig.faults.lose_answer(verb="create", resource="jobs", count=1)
    async with rig.manager(epochs=False):
        rig.create()
        await rig.settle(20)

        assert rig.jobs() == dict.fromkeys(ALL, "0")
        assert "already exists" not in "".join(note for _, note, _ in rig.events())


async def test_job_that_loses_its_label_gets_it_back(rig):
    """Without it the cache has no such Job; an event says so, and the Job counts again."""
    async with rig.running():
        rig.world.patch("jobs", A, {"metadata": {"labels": {keys.JOBSET_NAME: None}}})
        await rig.settle(60)

        labels = rig.world.get("jobs", A)["metadata"]["labels"]
        assert labels[keys.JOBSET_NAME] == "test-js"
        assert [keys.JOBSET_NAME in note for _, note, _ in rig.events("InvalidChildJob")] == [True]

        for name in ALL:
            rig.finish(name)
        await rig.settle()
        assert rig.condition("Completed") is not None


async def test_foreign_job_of_the_name_is_reported_and_blocks_no_other(rig):
    """All others are created; the event is repeated for the Job that could not be created."""
    rig.world.create("jobs", {"metadata": {"name": B[1]}, "spec": {}})
    async with rig.manager(epochs=False):
        rig.create()
        await rig.settle(60)

        assert set(rig.jobs()) == set(ALL)
        ((reason, note, count),) = rig.events()
        assert reason == "JobCreationFailed"
        assert f'job "{B[1]}" creation failed with error: ' in note
        assert count > 1
        assert {item["name"]: item["ready"] for item in rig.status()["replicatedJobsStatus"]} == {
            "replicated-job-a": 0,
            "replicated-job-b": 0,
        }


async def test_no_job_is_created_without_the_service(rig):
    """Pods could not find each other; an event says so, and the creation is repeated."""
    rig.faults.status(500, verb="create", resource="services", count=2, message="no address left")
    async with rig.manager(epochs=False):
        rig.create()
        await rig.settle(60)

        creates = [resource for _, resource, _ in rig.writes("create")]
        assert creates[0] == "services"
        assert creates.index("jobs") > 1
        assert set(rig.jobs()) == set(ALL)
        (event,) = rig.events("HeadlessServiceCreationFailed")
        assert "no address left" in event[1]


async def test_completion_is_stored_and_reported_once(rig):
    """Event and metric follow the write of condition and terminal state."""
    labels = {"jobset_name": "test-js", "namespace": "default"}
    before = REGISTRY.get_sample_value("jobset_completed_total", labels) or 0
    async with rig.running():
        rig.faults.status(409, verb="patch", resource="jobsets/status", count=1)
        for name in ALL:
            rig.finish(name)
        await rig.settle()

        assert rig.condition("Completed") == ("True", "AllJobsCompleted")
        assert rig.status()["terminalState"] == "Completed"
        assert rig.events() == [("AllJobsCompleted", "jobset completed successfully", 1)]
        assert REGISTRY.get_sample_value("jobset_completed_total", labels) == before + 1


async def test_decisions_are_counted_when_they_are_stored(rig):
    """A conflict costs another pass and is not counted; the label is the action."""

    def count(decision):
        labels = {"action": decision}
        return REGISTRY.get_sample_value("jobset_failure_policy_decisions_total", labels)

    async with rig.manager(epochs=False):
        assert None not in (count("RestartJobSet"), count("FailJob"), count("NoFailurePolicy"))
        before = count("RestartJobSet")
        rig.create(failurePolicy={"maxRestarts": 3})
        await rig.settle()
        rig.faults.status(409, verb="patch", resource="jobsets/status", count=2)
        rig.finish(B[0], "Failed", "BackoffLimitExceeded")
        await rig.settle()

        assert count("RestartJobSet") == before + 1
        ((_, note, _),) = rig.events("FailurePolicyApplied")
        assert f"no rule applies, action RestartJobSet: job {B[0]!r} failed" in note


async def test_restart_recreates_all_jobs(rig):
    """They are deleted in the foreground and recreated at the next attempt, once each."""
    async with rig.running(failurePolicy={"maxRestarts": 3}):
        rig.world.requests.clear()
        rig.finish(B[0], "Failed", "BackoffLimitExceeded")
        await rig.settle()

        assert rig.jobs() == dict.fromkeys(ALL, "1")
        assert (rig.status()["restarts"], rig.status()["restartsCountTowardsMax"]) == (1, 1)
        assert sorted(name for _, _, name in rig.writes("create")) == sorted(ALL)
        deletes = rig.world.requests.matching("delete", "jobs")
        assert sorted(request.name for request in deletes) == sorted(ALL)
        assert all(
            request.json["propagationPolicy"] == "Foreground" and request.json["preconditions"]
            for request in deletes
        )
        assert sorted((reason, count) for reason, _, count in rig.events()) == [
            ("DefaultFailurePolicy", 1),
            ("FailurePolicyApplied", 1),
            ("RestartJobSetFailurePolicyAction", 1),
        ]


async def test_failure_counts_once_when_the_jobset_cache_is_late(rig):
    """No second restart is counted while the watch of JobSets is silent."""
    async with rig.running(failurePolicy={"maxRestarts": 9}):
        rule = rig.faults.stall(verb="watch", resource="jobsets")
        rig.finish(A, "Failed")
        for number in range(4):
            await asyncio.sleep(1)
            rig.world.set_status("jobs", B[0], active=number % 2)

        assert rig.status()["restarts"] == 1

        rule.lift()
        await rig.settle()

        assert rig.status()["restarts"] == 1
        assert rig.jobs() == dict.fromkeys(ALL, "1")


async def test_failure_counts_once_when_two_managers_run(rig):
    """One of them may have lost its Lease without noticing."""
    async with rig.manager(epochs=False), rig.manager(epochs=False):
        rig.create(failurePolicy={"maxRestarts": 9})
        await rig.settle(20)
        rig.finish(A, "Failed")
        await rig.settle(20)

        assert rig.status()["restarts"] == 1
        assert rig.jobs() == dict.fromkeys(ALL, "1")
        assert sum(count for *_, count in rig.events("RestartJobSetFailurePolicyAction")) == 1


async def test_new_manager_continues_a_restart(rig):
    """Everything is decided from the stored objects."""
    rig.world.garbage_collect = False
    async with rig.running(failurePolicy={"maxRestarts": 9}):
        rig.finish(A, "Failed")
        await rig.settle()
    rig.world.garbage_collect = True
    async with rig.manager(epochs=False):
        await rig.settle()

        assert rig.jobs() == dict.fromkeys(ALL, "1")
        assert rig.status()["restarts"] == 1


async def test_jobs_are_suspended_and_resumed(rig):
    """They are resumed with the changes of the template."""
    template = replicated_job("w", 2, pod_spec={"tolerations": [{"key": "old"}]})
    async with rig.running(template):
        rig.change(suspend=True)
        await rig.settle()

        assert {job["spec"]["suspend"] for job in rig.world.list("jobs")} == {True}
        assert rig.condition("Suspended") == ("True", "SuspendedJobs")

        for name in rig.jobs():
            rig.world.set_status("jobs", name, startTime="2026-01-01T00:00:00Z")
        await rig.settle()
        pod_spec = template["template"]["spec"]["template"]["spec"]
        pod_spec["tolerations"] = [{"key": "new"}]
        pod_spec["nodeSelector"] = {"zone": "z"}
        rig.change(suspend=False, replicatedJobs=[template])
        await rig.settle()

        for job in rig.world.list("jobs"):
            pod = job["spec"]["template"]["spec"]
            assert job["spec"]["suspend"] is False
            assert "startTime" not in job["status"]
            assert pod["tolerations"] == [{"key": "new"}]
            assert pod["nodeSelector"] == {"zone": "z"}
        assert rig.condition("Suspended") == ("False", "ResumeJobs")
        assert [reason for reason, *_ in rig.events()] == ["SuspendedJobs", "ResumeJobs"]


async def test_condition_waits_for_a_job_that_cannot_be_suspended(rig):
    """All other Jobs are suspended meanwhile."""
    async with rig.running():
        rule = rig.faults.status(500, verb="patch", resource="jobs", name=B[1])
        rig.change(suspend=True)
        await rig.settle(1)

        suspended = {j["metadata"]["name"] for j in rig.world.list("jobs") if j["spec"]["suspend"]}
        assert suspended == {A, B[0], B[2]}
        assert rig.condition("Suspended") is None

        rule.lift()
        await rig.settle(30)

        assert rig.condition("Suspended") == ("True", "SuspendedJobs")
