"""Writes of a JobSet's status: one patch, then events, then metrics."""

from __future__ import annotations

import json
from copy import copy, deepcopy

import pytest
import structlog

from jobsetpy import runtime as rt
from jobsetpy.aio import ManualClock
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.schema import jobset_crd
from jobsetpy.app.wiring import add_jobset_controllers
from jobsetpy.client import HttpResponse
from jobsetpy.errors import ConflictError
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.execution.definition import Definition
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
from support.jobsets import jobset_json

KEY = rt.ObjectKey("default", "test-js")


class Recorder:
    """Keeps events in a list."""

    def __init__(self):
        self.events = []
        self.series = []

    def event(self, obj, type_, reason, message, *, related=None, series=""):
        """Keep an event with the version of its object."""
        self.series.append(series)
        name = None if related is None else related.metadata.name
        self.events.append((obj.metadata.resource_version, type_, reason, message, name))


class Bench:
    """A JobSet on a server in memory, a cache that a test updates, and a status writer."""

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
        """Return the JobSet as the server has it."""
        return decoded(JobSet, self.world.get(JobSet, "test-js"))

    def catch_up(self):
        """Update the cache to the server's state."""
        self.cache.replace([self.stored()], str(self.world.resource_version))

    def disturb(self):
        """Change the JobSet as another client does."""
        note = {"note": str(self.world.resource_version)}
        self.world.patch(JobSet, "test-js", {"metadata": {"annotations": note}})

    def counted(self, jobset):
        """Return a change that counts one more restart."""
        draft = StatusDraft(jobset.status, self.clock.now())
        draft.restart_all(counts_towards_max=True)
        draft.event("Normal", "Again", "once more")
        return draft.change()

    def reads(self):
        """Return the number of reads of the JobSet."""
        return self.world.requests.count("get", "jobsets")


@pytest.fixture
async def bench():
    """Return a bench whose cache is up to date."""
    return Bench()


async def test_change_is_one_patch_with_the_version_that_was_planned_on(bench):
    """It has the resourceVersion of the JobSet and only the changed fields."""
    jobset = bench.writer.latest(KEY)

    stored = await bench.writer.store(jobset, bench.counted(jobset))

    (request,) = bench.client.writes
    body = request.json
    assert body["status"].pop("timeSpent")["activity"] == "Waiting"
    assert body == {
        "metadata": {"resourceVersion": jobset.metadata.resource_version},
        "status": {"restarts": 1, "restartsCountTowardsMax": 1, "state": "Waiting"},
    }
    assert request.resource == "jobsets/status"
    assert stored.status.restarts == 1


class PublishingClient(RecordingClient):
    """Client of a server that publishes the schema of its CRD, like a real one."""

    crd = jobset_crd()

    async def raw(self, request):
        """Answer for the schema."""
        schema = self.crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        document = {"components": {"schemas": {"io.x-k8s.jobset.v1alpha2.JobSet": schema}}}
        assert request.path == "/openapi/v3/apis/jobset.x-k8s.io/v1alpha2"
        return HttpResponse(200, {}, json.dumps(document).encode())


async def test_fields_that_the_crd_does_not_have_are_written_when_it_is_renewed(bench):
    """A write of them alone is none, in any number of reconciles; the log names them once."""
    client, new = PublishingClient(bench.world, qps=0), jobset_crd()
    client.crd = deepcopy(new)
    schema = client.crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["status"]["properties"]["startTime"]
    with structlog.testing.capture_logs() as logs:
        definition = Definition(client, bench.clock)
        await definition.check()
        writer = StatusWriter(client, bench.cache.store, bench.recorder, definition=definition)
        jobset, patches = writer.latest(KEY), []
        for seconds, crd in ((0, client.crd), (30, client.crd), (60, new), (0, new)):
            client.crd = crd
            bench.clock.advance(seconds)
            draft = StatusDraft(jobset.status, bench.clock.now())
            draft.evolve(start_time=draft.now)
            jobset = await writer.store(jobset, draft.change())
            patches.append([list(each.json["status"]) for each in client.writes])
    written = [["startTime", "state", "timeSpent"]]
    assert patches == [[], [], written, written]
    (event, end) = [each["event"] for each in logs]
    assert "no effect: status.startTime; apply" in event
    assert "has all fields" in end


async def test_every_writer_leaves_out_what_the_crd_does_not_have(bench):
    """All controllers of a manager know the CRD that it observes."""

    class Adding(Manager):
        def add(self, runnable):
            writer = getattr(getattr(runnable, "reconciler", None), "_status", None)
            if writer is not None:
                writers.append(writer)
            super().add(runnable)

    writers = []
    manager = Adding(bench.client)
    definition = Definition(bench.client, bench.clock)
    definition.missing = frozenset({"status.startTime"})
    add_jobset_controllers(manager, definition=definition)
    draft = StatusDraft(bench.stored().status, bench.clock.now())
    draft.evolve(start_time=draft.now)
    for writer in writers:
        await writer.store(bench.stored(), draft.change())
    assert (len(writers), bench.client.writes) == (5, [])


@pytest.mark.parametrize("own", ["stored", "read"])
async def test_latest_state_is_the_caches_when_etcd_is_restored(bench, own):
    """A state that was written or read after the backup is lost, despite its higher version."""
    bench.disturb()
    bench.catch_up()
    jobset = bench.writer.latest(KEY)
    if own == "stored":
        newer = await bench.writer.store(jobset, bench.counted(jobset))
    else:
        bench.disturb()
        newer = await bench.writer.read(KEY)
    assert bench.writer.latest(KEY) is newer

    bench.cache.begin(rewound=True)
    bench.cache.stage(copy(jobset))
    bench.cache.commit("1")

    assert bench.writer.latest(KEY) == jobset


async def test_events_and_metrics_follow_the_write(bench):
    """They are about the JobSet as it is stored."""
    before = REGISTRY.get_sample_value("jobset_restarts_total", {"kind": "recreate"}) or 0.0
    jobset = bench.writer.latest(KEY)

    stored = await bench.writer.store(jobset, bench.counted(jobset))

    version = stored.metadata.resource_version
    assert bench.recorder.events == [(version, "Normal", "Again", "once more", None)]
    after = REGISTRY.get_sample_value("jobset_restarts_total", {"kind": "recreate"})
    assert after == before + 1


async def test_events_of_two_restarts_are_not_merged(bench):
    """Each restart starts a series of its own; events without a write belong to none."""
    for _ in range(2):
        jobset = bench.writer.latest(KEY)
        await bench.writer.store(jobset, bench.counted(jobset))
    bench.writer.record_events(
        bench.writer.latest(KEY), [EmitEvent("Normal", "Again", "once more")]
    )

    first, second, unwritten = bench.recorder.series
    assert first != second
    assert unwritten == ""


async def test_unchanged_status_causes_no_request_and_no_event(bench):
    """There is no patch."""
    jobset = bench.writer.latest(KEY)
    change = StatusChange(jobset.status, events=(EmitEvent("Normal", "Again", "once more"),))

    assert await bench.writer.store(jobset, change) is jobset
    assert (bench.client.writes, bench.recorder.events) == ([], [])


async def test_latest_state_includes_own_writes(bench):
    """Until the cache has them."""
    jobset = bench.writer.latest(KEY)
    stored = await bench.writer.store(jobset, bench.counted(jobset))

    assert bench.writer.latest(KEY) is stored
    assert not bench.own_writes.is_satisfied(KEY)

    bench.disturb()
    bench.catch_up()
    assert bench.writer.latest(KEY) is bench.cache.store.get(KEY)


async def test_conflict_stores_and_reports_nothing(bench):
    """Events follow only a successful write."""
    jobset = bench.writer.latest(KEY)
    bench.disturb()

    with pytest.raises(ConflictError):
        await bench.writer.store(jobset, bench.counted(jobset))

    assert bench.recorder.events == []
    assert bench.stored().status.restarts == 0
    assert bench.own_writes.is_satisfied(KEY)


async def test_deleted_jobset_has_no_latest_state(bench):
    """After a write that found nothing, even if the cache still has the JobSet."""
    jobset = bench.writer.latest(KEY)
    bench.world.delete(JobSet, "test-js")

    assert await bench.writer.store(jobset, bench.counted(jobset)) is None
    assert bench.writer.latest(KEY) is None

    bench.create()
    bench.catch_up()
    assert bench.writer.latest(KEY) == bench.stored()


async def test_recreated_jobset_is_not_the_one_in_the_cache(bench):
    """A read compares UIDs."""
    bench.world.delete(JobSet, "test-js")
    bench.create()

    assert await bench.writer.read(KEY) is None
    assert bench.writer.latest(KEY) is None


async def test_latest_state_includes_reads(bench):
    """A read that bypassed the cache is kept until the cache has it."""
    bench.disturb()

    newer = await bench.writer.read(KEY)

    assert newer.metadata.resource_version == bench.stored().metadata.resource_version
    assert bench.writer.latest(KEY) is newer


async def test_nothing_is_kept_of_a_forgotten_jobset(bench):
    """Neither expectations nor reads."""
    await bench.writer.store(bench.writer.latest(KEY), bench.counted(bench.writer.latest(KEY)))
    bench.writer.forget(KEY)

    assert bench.own_writes.is_satisfied(KEY)
    assert bench.writer.latest(KEY) is bench.cache.store.get(KEY)


class Counting:
    """Reconciler that counts one restart while other clients change the JobSet."""

    def __init__(self, bench, disturbances):
        self._status = bench.writer
        self._bench = bench
        self.disturbances = disturbances
        self.decided_on = []

    @decide_again_on_conflict
    async def reconcile(self, request):
        """Count one restart on the latest state."""
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
async def test_plan_is_repeated_immediately_after_a_conflict(bench, disturbances):
    """Each attempt uses the state of that moment, and one of them is stored once."""
    reconciler = Counting(bench, disturbances)

    result = await reconciler.reconcile(rt.Request(KEY))

    assert result.summary == "stored"
    assert len(set(reconciler.decided_on)) == disturbances + 1
    assert bench.reads() == disturbances
    assert bench.stored().status.restarts == 1
    assert len(bench.recorder.events) == 1


async def test_conflict_is_left_to_the_work_queue_after_some_attempts(bench):
    """The JobSet changes before each write, and nothing is stored."""
    reconciler = Counting(bench, TRIES)

    with pytest.raises(ConflictError):
        await reconciler.reconcile(rt.Request(KEY))

    assert len(reconciler.decided_on) == TRIES
    assert bench.stored().status.restarts == 0


async def test_attempts_end_when_the_jobset_is_deleted(bench):
    """The next attempt sees this even if the cache does not."""
    reconciler = Counting(bench, 1)
    bench.disturb = lambda: (bench.world.delete(JobSet, "test-js"), bench.create())

    result = await reconciler.reconcile(rt.Request(KEY))

    assert result.summary == "gone"
    assert len(reconciler.decided_on) == 1


def test_memories_keep_replace_and_forget_values_by_key():
    """Reading a missing key keeps nothing."""
    memories = Memories(lambda: "new")

    assert memories.of(KEY) == "new"
    assert len(memories) == 0
    memories.keep(KEY, "seen")
    assert (memories.of(KEY), KEY in memories) == ("seen", True)
    memories.keep(KEY, None)
    assert (memories.of(KEY), KEY in memories) == ("new", False)
    assert len(memories) == 0
