"""A JobSet that was deleted stays deleted, however late the cache says so."""

from __future__ import annotations

import pytest

from jobsetpy.api.jobset import JobSet
from jobsetpy.testing.jobsets import replicated_job

pytestmark = pytest.mark.looptime


def creates(rig):
    """How many children were created since the log was cleared."""
    return len(rig.writes("create"))


async def with_silent_watch(rig, jobs=50):
    """A running JobSet of which no event comes any more."""
    rig.create(replicated_job("w", jobs))
    await rig.settle()
    silent = rig.faults.stall(verb="watch", resource="jobsets")
    rig.world.requests.clear()
    return silent


async def test_garbage_collection_wins(rig):
    """What the garbage collector deletes is not created again once the owner is known to be gone."""
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


async def test_a_jobset_of_the_same_name_begins_when_its_watch_speaks(rig):
    """Nothing is created for the one that is gone, and everything for the new one."""
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
        assert [uid] * 3 == owners


async def test_a_jobset_that_is_being_deleted_gets_nothing(rig):
    """Foreground deletion takes the Jobs first; the read shows that it is under way."""
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


async def test_a_status_write_that_finds_nothing_ends_it(rig):
    """After a 404 the JobSet in the cache is not looked at any more."""
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


async def test_a_status_write_that_finds_another_jobset_ends_it(rig):
    """The conflict is looked into: the JobSet of that name has another UID."""
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


async def test_deletions_that_were_not_requested_are_answered_ever_more_slowly(rig):
    """Whoever deletes a Job again and again does not make the manager a busy loop."""
    async with rig.manager(epochs=False):
        rig.create(replicated_job("w", 2))
        await rig.settle()
        rig.world.requests.clear()
        for _ in range(600):
            if "test-js-w-0" in rig.jobs():
                rig.world.delete("jobs", "test-js-w-0")
            await rig.settle(0.1)

        assert 3 <= creates(rig) <= 8

        await rig.settle(120)
        assert sorted(rig.jobs()) == ["test-js-w-0", "test-js-w-1"]


async def test_one_deletion_is_answered_at_once(rig):
    """A Job that somebody deletes by hand is made anew without a pause."""
    async with rig.manager(epochs=False):
        rig.create(replicated_job("w", 2))
        await rig.settle()
        rig.world.delete("jobs", "test-js-w-0")
        await rig.settle(0.2)

        assert sorted(rig.jobs()) == ["test-js-w-0", "test-js-w-1"]


async def test_a_late_jobset_is_read_and_its_job_made_at_once(rig):
    """A JobSet that only changed is decided on again, without a pause."""
    async with rig.manager(epochs=False):
        await with_silent_watch(rig, 2)
        rig.touch()
        rig.world.delete("jobs", "test-js-w-0")
        await rig.settle(0.5)

        assert sorted(rig.jobs()) == ["test-js-w-0", "test-js-w-1"]


async def test_creations_that_fail_are_no_deletions(rig):
    """They are tried again by the queue's own delays."""
    async with rig.manager(epochs=False):
        rig.faults.status(500, verb="create", resource="jobs", count=6)
        rig.create(replicated_job("w", 2))
        await rig.settle(1)

        assert sorted(rig.jobs()) == ["test-js-w-0", "test-js-w-1"]
        assert rig.world.requests.count("get", "jobsets") == 0
