"""How the status of a JobSet is stored: one patch, then events, then metrics."""

from __future__ import annotations

import pytest

from jobsetpy import runtime as rt
from jobsetpy.aio import ManualClock
from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import ConflictError
from jobsetpy.reconcilers.execution.memory import Memories
from jobsetpy.reconcilers.execution.metrics import REGISTRY
from jobsetpy.reconcilers.execution.status_writer import (
    TRIES,
    StatusWriter,
    decide_again_on_conflict,
)
from jobsetpy.reconcilers.rules.plan import EmitEvent, StatusChange
from jobsetpy.reconcilers.rules.status_draft import StatusDraft
from jobsetpy.testing import RecordingClient, decoded, store_writer_of
from jobsetpy.testing.jobsets import jobset_json

KEY = rt.ObjectKey("default", "test-js")


class Recorder:
    """Remembers events in place of sending them."""

    def __init__(self):
        self.told = []
        self.series = []

    def event(self, obj, type_, reason, message, *, related=None, series=""):
        """Remember it, with the version of the object it is about."""
        self.series.append(series)
        name = None if related is None else related.metadata.name
        self.told.append((obj.metadata.resource_version, type_, reason, message, name))


class Bench:
    """A JobSet on a server in memory, a cache that a test moves on, and a writer."""

    def __init__(self):
        self.clock = ManualClock()
        self.client = RecordingClient(qps=0)
        self.world = self.client.world
        self.world.register(JobSet)
        self.recorder = Recorder()
        self.create()
        self.cache = store_writer_of(JobSet, [self.stored()])
        self.own_writes = rt.Expectations("test/status", ttl_s=30, clock=self.clock)
        self.writer = StatusWriter(
            self.client, self.cache.store, self.recorder, own_writes=self.own_writes
        )

    def create(self):
        """Create the JobSet."""
        body = jobset_json()
        del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
        self.world.create(JobSet, body)

    def stored(self):
        """The JobSet as the server has it."""
        return decoded(JobSet, self.world.get(JobSet, "test-js"))

    def catch_up(self):
        """The cache shows what the server has."""
        self.cache.replace([self.stored()], str(self.world.resource_version))

    def disturb(self):
        """Somebody else changes the JobSet."""
        note = {"note": str(self.world.resource_version)}
        self.world.patch(JobSet, "test-js", {"metadata": {"annotations": note}})

    def counted(self, jobset):
        """A change that counts one restart more."""
        draft = StatusDraft(jobset.status, self.clock.now())
        draft.restart_all(counts_towards_max=True)
        draft.event("Normal", "Again", "once more")
        return draft.change()

    def reads(self):
        """How often the JobSet was read."""
        return self.world.requests.count("get", "jobsets")


@pytest.fixture
async def bench():
    """A JobSet that is cached as it is stored."""
    return Bench()


async def test_a_change_is_one_patch_with_the_version_it_was_decided_on(bench):
    """One request, with the resourceVersion of the JobSet and the changed fields only."""
    jobset = bench.writer.latest(KEY)

    stored = await bench.writer.store(jobset, bench.counted(jobset))

    (request,) = bench.client.writes
    assert {
        "metadata": {"resourceVersion": jobset.metadata.resource_version},
        "status": {"restarts": 1, "restartsCountTowardsMax": 1, "state": "Waiting"},
    } == request.json
    assert request.resource == "jobsets/status"
    assert stored.status.restarts == 1


async def test_events_and_metrics_come_with_the_write(bench):
    """They tell of what is stored, about the JobSet as it is then."""
    before = REGISTRY.get_sample_value("jobset_restarts_total", {"kind": "recreate"}) or 0.0
    jobset = bench.writer.latest(KEY)

    stored = await bench.writer.store(jobset, bench.counted(jobset))

    version = stored.metadata.resource_version
    assert [(version, "Normal", "Again", "once more", None)] == bench.recorder.told
    after = REGISTRY.get_sample_value("jobset_restarts_total", {"kind": "recreate"})
    assert before + 1 == after


async def test_events_of_two_restarts_are_kept_apart(bench):
    """The same event at another restart is no repeat; beside writes there are no occasions."""
    for _ in range(2):
        jobset = bench.writer.latest(KEY)
        await bench.writer.store(jobset, bench.counted(jobset))
    bench.writer.tell(bench.writer.latest(KEY), [EmitEvent("Normal", "Again", "once more")])

    first, second, beside = bench.recorder.series
    assert first != second
    assert beside == ""


async def test_without_a_patch_nothing_is_done(bench):
    """An unchanged status costs no request and tells nothing."""
    jobset = bench.writer.latest(KEY)
    change = StatusChange(jobset.status, events=(EmitEvent("Normal", "Again", "once more"),))

    assert jobset is await bench.writer.store(jobset, change)
    assert (bench.client.writes, bench.recorder.told) == ([], [])


async def test_own_writes_are_known_before_the_cache_shows_them(bench):
    """What was stored is the latest state, until the cache has caught up with it."""
    jobset = bench.writer.latest(KEY)
    stored = await bench.writer.store(jobset, bench.counted(jobset))

    assert stored is bench.writer.latest(KEY)
    assert not bench.own_writes.is_satisfied(KEY)

    bench.disturb()
    bench.catch_up()
    assert bench.cache.store.get(KEY) is bench.writer.latest(KEY)


async def test_a_conflict_stores_and_reports_nothing(bench):
    """Nothing is announced that was not stored."""
    jobset = bench.writer.latest(KEY)
    bench.disturb()

    with pytest.raises(ConflictError):
        await bench.writer.store(jobset, bench.counted(jobset))

    assert bench.recorder.told == []
    assert bench.stored().status.restarts == 0
    assert bench.own_writes.is_satisfied(KEY)


async def test_a_jobset_that_is_gone_is_not_the_latest_state_of_anything(bench):
    """A write that finds nothing says so, also while the cache still shows the JobSet."""
    jobset = bench.writer.latest(KEY)
    bench.world.delete(JobSet, "test-js")

    assert await bench.writer.store(jobset, bench.counted(jobset)) is None
    assert bench.writer.latest(KEY) is None

    bench.create()
    bench.catch_up()
    assert bench.stored() == bench.writer.latest(KEY)


async def test_another_jobset_of_the_name_is_not_the_one_in_the_cache(bench):
    """What a read finds is judged by its UID."""
    bench.world.delete(JobSet, "test-js")
    bench.create()

    assert await bench.writer.read(KEY) is None
    assert bench.writer.latest(KEY) is None


async def test_what_was_read_is_the_latest_state(bench):
    """A read past the cache is remembered until the cache has caught up."""
    bench.disturb()

    newer = await bench.writer.read(KEY)

    assert bench.stored().metadata.resource_version == newer.metadata.resource_version
    assert newer is bench.writer.latest(KEY)


async def test_forgetting_a_jobset_leaves_nothing(bench):
    """Neither expectations nor what was read are kept of a JobSet that is gone."""
    await bench.writer.store(bench.writer.latest(KEY), bench.counted(bench.writer.latest(KEY)))
    bench.writer.forget(KEY)

    assert bench.own_writes.is_satisfied(KEY)
    assert bench.cache.store.get(KEY) is bench.writer.latest(KEY)


class Counting:
    """A reconciler that counts one restart, in a world that changes while it decides."""

    def __init__(self, bench, disturbances):
        self._status = bench.writer
        self._bench = bench
        self.disturbances = disturbances
        self.decided_on = []

    @decide_again_on_conflict
    async def reconcile(self, request):
        """Decide on the latest state."""
        jobset = self._status.latest(request.key)
        if jobset is None:
            return rt.Result.done(summary="gone")
        self.decided_on.append(jobset.metadata.resource_version)
        if self.disturbances:
            self.disturbances -= 1
            self._bench.disturb()
        await self._status.store(jobset, self._bench.counted(jobset))
        return rt.Result.done(summary="stored")


@pytest.mark.parametrize("disturbances", range(TRIES))
async def test_a_conflict_is_decided_again_at_once(bench, disturbances):
    """Each try is made on the JobSet as it is by then, and one of them is stored, once."""
    reconciler = Counting(bench, disturbances)

    result = await reconciler.reconcile(rt.Request(KEY))

    assert result.summary == "stored"
    assert disturbances + 1 == len(set(reconciler.decided_on))
    assert disturbances == bench.reads()
    assert bench.stored().status.restarts == 1
    assert len(bench.recorder.told) == 1


async def test_a_jobset_that_never_rests_is_left_to_the_queue(bench):
    """After some tries the conflict is passed on, and nothing was stored."""
    reconciler = Counting(bench, TRIES)

    with pytest.raises(ConflictError):
        await reconciler.reconcile(rt.Request(KEY))

    assert len(reconciler.decided_on) == TRIES
    assert bench.stored().status.restarts == 0


async def test_a_conflict_with_a_deletion_ends_the_tries(bench):
    """The next try sees that the JobSet is gone, whatever the cache shows."""
    reconciler = Counting(bench, 1)
    bench.disturb = lambda: (bench.world.delete(JobSet, "test-js"), bench.create())

    result = await reconciler.reconcile(rt.Request(KEY))

    assert result.summary == "gone"
    assert len(reconciler.decided_on) == 1


def test_memories_keep_what_they_receive():
    """A value is kept, replaced and forgotten by key; asking alone keeps nothing."""
    memories = Memories(lambda: "new")

    assert memories.of(KEY) == "new"
    assert len(memories) == 0
    memories.keep(KEY, "seen")
    assert (memories.of(KEY), KEY in memories) == ("seen", True)
    memories.keep(KEY, None)
    assert (memories.of(KEY), KEY in memories) == ("new", False)
    memories.keep(KEY, "seen")
    memories.forget(KEY)
    assert len(memories) == 0
