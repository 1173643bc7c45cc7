"""Deleted JobSets stay deleted, even if the cache is late."""

from __future__ import annotations

import pytest

from jobsetpy.api.jobset import JobSet
from support.jobsets import replicated_job

pytestmark = pytest.mark.looptime


def creates(rig):
    """Return the number of children created since the log was cleared."""
    return len(rig.writes("create"))


async def with_silent_watch(rig, jobs=50):
    """Run a JobSet, then stop all events of JobSets; return the fault."""
    rig.create(replicated_job("w", jobs))
    await rig.settle()
    silent = rig.faults.stall(verb="watch", resource="jobsets")
    rig.world.requests.clear()
    return silent


async def test_children_are_not_recreated_when_the_garbage_collector_deletes_them(rig):
    """Once the manager knows that their JobSet is gone."""
    async with rig.manager(epochs=False):
        silent = await with_silent_watch(rig)
        rig.world.delete(JobSet, "test-js")
        await rig.settle(20)

        assert creates(rig) == 0
        assert rig.world.list("jobs") == []
        assert rig.world.requests.count("get", "jobsets") <= 2

        silent.lift()
        await rig.settle()
        assert creates(rig) == 0


async def test_new_jobset_of_the_same_name_starts_when_its_event_arrives(rig):
    """Nothing is created for the deleted JobSet, and everything for the new one."""
    async with rig.manager(epochs=False):
        silent = await with_silent_watch(rig, 3)
        rig.world.delete(JobSet, "test-js")
        rig.create(replicated_job("w", 3))
        await rig.settle(20)
        assert creates(rig) == 0

        silent.lift()
        await rig.settle()
        uid = rig.jobset()["metadata"]["uid"]
        owners = [job["metadata"]["ownerReferences"][0]["uid"] for job in rig.world.list("jobs")]
        assert owners == [uid] * 3


async def test_terminating_jobset_gets_no_children(rig):
    """Foreground deletion deletes the Jobs first; a read shows that the JobSet is terminating."""
    async with rig.manager(epochs=False):
        rig.world.garbage_collect = False
        await with_silent_watch(rig, 3)
        rig.world.patch(JobSet, "test-js", {"metadata": {"finalizers": ["example.com/hold"]}})
        rig.world.delete(JobSet, "test-js")
        for name in sorted(rig.jobs()):
            rig.world.delete("jobs", name)
        rig.world.delete("services", "test-js")
        await rig.settle(20)

        assert creates(rig) == 0


async def test_jobset_is_dropped_when_a_status_write_finds_nothing(rig):
    """After a 404 the cached JobSet is no longer reconciled."""
    async with rig.manager(epochs=False):
        rig.world.garbage_collect = False
        await with_silent_watch(rig, 3)
        rig.world.delete(JobSet, "test-js")
        rig.world.set_status("jobs", "test-js-w-0", active=1, ready=1)
        await rig.settle(1)
        for name in sorted(rig.jobs()):
            rig.world.delete("jobs", name)
        await rig.settle(20)

        assert creates(rig) == 0
        assert rig.world.requests.count("patch", "jobsets/status") == 1


async def test_jobset_is_dropped_when_a_status_write_finds_another_uid(rig):
    """After a conflict it is read, and found to be another JobSet of this name."""
    async with rig.manager(epochs=False):
        rig.world.garbage_collect = False
        await with_silent_watch(rig, 3)
        rig.world.delete(JobSet, "test-js")
        rig.create(replicated_job("w", 3))
        rig.world.set_status("jobs", "test-js-w-0", active=1, ready=1)
        await rig.settle(20)

        assert creates(rig) == 0
        assert rig.world.requests.count("patch", "jobsets/status") == 1
        assert rig.status() == {}


async def test_job_that_is_deleted_repeatedly_is_recreated_after_growing_pauses(rig):
    """The manager does not run in a busy loop."""
    async with rig.running(replicated_job("w", 2)):
        rig.world.requests.clear()
        for _ in range(600):
            if "test-js-w-0" in rig.jobs():
                rig.world.delete("jobs", "test-js-w-0")
            await rig.settle(0.1)

        assert 3 <= creates(rig) <= 8

        await rig.settle(120)
        assert sorted(rig.jobs()) == ["test-js-w-0", "test-js-w-1"]


async def test_job_that_is_deleted_once_is_recreated_immediately(rig):
    """A user may delete a Job by hand."""
    async with rig.running(replicated_job("w", 2)):
        rig.world.delete("jobs", "test-js-w-0")
        await rig.settle(0.2)

        assert sorted(rig.jobs()) == ["test-js-w-0", "test-js-w-1"]


async def test_job_is_recreated_immediately_when_the_cached_jobset_is_outdated(rig):
    """The JobSet is read; it has changed but still exists."""
    async with rig.manager(epochs=False):
        await with_silent_watch(rig, 2)
        rig.touch()
        rig.world.delete("jobs", "test-js-w-0")
        await rig.settle(0.5)

        assert sorted(rig.jobs()) == ["test-js-w-0", "test-js-w-1"]


async def test_failed_creations_do_not_count_as_deletions(rig):
    """The work queue repeats them after its own delays."""
    async with rig.manager(epochs=False):
        rig.faults.status(500, verb="create", resource="jobs", count=6)
        rig.create(replicated_job("w", 2))
        await rig.settle(1)

        assert sorted(rig.jobs()) == ["test-js-w-0", "test-js-w-1"]
        assert rig.world.requests.count("get", "jobsets") == 0
