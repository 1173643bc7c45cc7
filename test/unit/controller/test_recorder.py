"""The event recorder in virtual time, with a client that records its requests."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from jobsetpy.aio import ManualClock
from jobsetpy.api.core import Node, Pod
from jobsetpy.api.meta import ObjectMeta
from jobsetpy.controller import EventLimits, EventRecorder
from jobsetpy.controller._token_buckets import TokenBuckets
from jobsetpy.errors import (
    AlreadyExistsError,
    ApiTimeoutError,
    ForbiddenError,
    NotFoundError,
    RetryableApiError,
)
from jobsetpy.observability.metrics import REGISTRY
from jobsetpy.testing import VirtualClock

pytestmark = pytest.mark.looptime

START = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)


class Client:
    """A client that keeps the Events of its requests; the first requests raise the given errors."""

    def __init__(self, *failures: Exception, slow_s: float = 0.0) -> None:
        self.failures = list(failures)
        self.slow_s = slow_s
        self.sent: list[tuple[str, float]] = []
        self.events: dict[tuple[str, str], dict] = {}

    async def create(self, cls, namespace, body, *, timeout_s=None):
        """Store a new Event."""
        await self._exchange("create")
        self.events[namespace, body["metadata"]["name"]] = dict(body)
        return cls()

    async def merge_patch(self, cls, namespace, name, body, *, subresource=None, timeout_s=None):
        """Change a stored Event."""
        await self._exchange("patch")
        if (namespace, name) not in self.events:
            raise NotFoundError(404)
        self.events[namespace, name] |= body
        return cls()

    async def _exchange(self, verb: str) -> None:
        await asyncio.sleep(self.slow_s)
        self.sent.append((verb, asyncio.get_running_loop().time()))
        if self.failures:
            raise self.failures.pop(0)

    @property
    def only(self) -> dict:
        """The only Event."""
        (event,) = self.events.values()
        return event

    @property
    def verbs(self) -> list[str]:
        """Verbs of the requests, in order."""
        return [verb for verb, _ in self.sent]


def pod(name: str = "p", uid: str = "u", version: str = "1") -> Pod:
    """A Pod in namespace ``ns``."""
    return Pod(metadata=ObjectMeta(namespace="ns", name=name, uid=uid, resource_version=version))


def recorder_of(client: Client, component: str = "test", *, instance: str = "", **limits):
    """A recorder in virtual time that does not send yet."""
    return EventRecorder(
        client,
        component=component,
        instance=instance,
        limits=EventLimits(**limits),
        clock=VirtualClock(START),
        rand=lambda: 1.0,
    )


@asynccontextmanager
async def recording(client: Client | None = None, component: str = "test", **options):
    """A recorder that sends until the end of the block, and its client."""
    client = client or Client()
    recorder = recorder_of(client, component, **options)
    sender = asyncio.create_task(recorder.run())
    try:
        yield recorder, client
    finally:
        sender.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sender


def outcome(component: str, outcome: str) -> float | None:
    """Value of the metric of an outcome."""
    labels = {"controller": component, "outcome": outcome}
    return REGISTRY.get_sample_value("event_recorder_events_total", labels)


class TestEvents:
    """Events that are sent."""

    async def test_first_event(self):
        """A first Event has all fields, a unique name, and no series."""
        async with recording(component="jobset", instance="host-1") as (recorder, client):
            recorder.event(pod(), "Warning", "Broken", "it is")
            await asyncio.sleep(1)

        nanoseconds = f"{int(START.timestamp() * 1_000_000) * 1000:x}"
        assert client.only == {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"p.{nanoseconds}", "namespace": "ns"},
            "eventTime": "2026-03-04T05:06:07.890123Z",
            "reportingController": "jobset",
            "reportingInstance": "host-1",
            "action": "Reconciling",
            "reason": "Broken",
            "type": "Warning",
            "note": "it is",
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": "ns",
                "name": "p",
                "uid": "u",
                "resourceVersion": "1",
            },
        }

    async def test_event_of_a_cluster_scoped_object_is_in_default(self):
        """The Event names its related object as well."""
        async with recording() as (recorder, client):
            node = Node(metadata=ObjectMeta(name="n", uid="v"))
            recorder.event(node, "Normal", "R", "m", related=pod())
            await asyncio.sleep(1)

        ((namespace, name),) = client.events
        assert namespace == "default"
        assert name.startswith("n.")
        assert client.only["related"]["name"] == "p"
        assert client.only["regarding"] == {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "n",
            "uid": "v",
        }

    async def test_a_repeat_makes_the_event_a_series(self):
        """The first repeat makes a series of 2, even with another message or version."""
        async with recording() as (recorder, client):
            recorder.event(pod(version="1"), "Warning", "R", "first")
            await asyncio.sleep(10)
            recorder.event(pod(version="2"), "Warning", "R", "second")
            await asyncio.sleep(1)

        assert client.verbs == ["create", "patch"]
        assert client.only["note"] == "first"
        assert client.only["series"] == {
            "count": 2,
            "lastObservedTime": "2026-03-04T05:06:17.890123Z",
        }

    async def test_repeats_are_one_patch_when_the_first_event_was_not_sent_yet(self):
        """The count of the patch includes all of them."""
        async with recording() as (recorder, client):
            for _ in range(50):
                recorder.event(pod(), "Warning", "R", "m")
            await asyncio.sleep(1)

        assert client.verbs == ["create", "patch"]
        assert client.only["series"]["count"] == 50

    async def test_repeats_are_coalesced(self):
        """A series is patched immediately the first time, then every 5 s, up to its last repeat."""
        async with recording() as (recorder, client):
            for _ in range(101):
                recorder.event(pod(), "Warning", "R", "m")
                await asyncio.sleep(0.2)
            await asyncio.sleep(60)

        assert client.only["series"]["count"] == 101
        patches = [at for verb, at in client.sent if verb == "patch"]
        assert patches == pytest.approx([0.2, 5.2, 10.2, 15.2, 20.2])

    async def test_events_differ_by_type_reason_action_and_objects(self):
        """Another type, reason, action, object or related object makes another Event."""
        async with recording() as (recorder, client):
            recorder.event(pod(), "Warning", "R", "m")
            recorder.event(pod(), "Normal", "R", "m")
            recorder.event(pod(), "Warning", "Q", "m")
            recorder.event(pod(), "Warning", "R", "m", action="Scheduling")
            recorder.event(pod(uid="u2"), "Warning", "R", "m")
            recorder.event(pod(), "Warning", "R", "m", related=pod("q"))
            await asyncio.sleep(1)

        assert client.verbs == ["create"] * 6
        assert len(client.events) == 6

    async def test_events_of_different_series_are_not_merged(self):
        """Each series keeps its own message."""
        async with recording() as (recorder, client):
            for series in ("1", "2", "2", "3"):
                recorder.event(pod(), "Normal", "R", f"restart {series}", series=series)
            await asyncio.sleep(1)

        notes = [event["note"] for event in client.events.values()]
        assert sorted(notes) == ["restart 1", "restart 2", "restart 3"]

    async def test_many_series_do_not_displace_other_events(self):
        """Excess series of a reason count as repeats of each other; no Event is lost."""
        async with recording() as (recorder, client):
            for number in range(100):
                recorder.event(pod(), "Normal", "R", "again", series=str(number))
            recorder.event(pod(), "Warning", "Failed", "at the end")
            await asyncio.sleep(60)

        events = list(client.events.values())
        assert "at the end" in {event["note"] for event in events}
        assert sum(event.get("series", {}).get("count", 1) for event in events) == 101
        assert len(events) <= 25

    async def test_series_ends_after_silence(self):
        """After six minutes of silence a repeat is a new Event; earlier repeats extend the series."""
        async with recording() as (recorder, client):
            for pause in (359, 359, 360, 1):
                recorder.event(pod(), "Warning", "R", "m")
                await asyncio.sleep(pause)
            await asyncio.sleep(10)

        assert client.verbs == ["create", "patch", "patch", "create"]

    async def test_series_end_independently(self):
        """A series that continues does not extend a silent one."""
        async with recording() as (recorder, client):
            for second in range(400):
                recorder.event(pod("busy", uid="b"), "Normal", "R", "m")
                if second in {1, 390}:
                    recorder.event(pod("quiet", uid="q"), "Normal", "R", "m")
                await asyncio.sleep(1)

        assert sorted(name[0] for _, name in client.events) == ["b", "q", "q"]

    async def test_names_are_unique(self):
        """Events of the same time have different names."""
        async with recording(burst=100) as (recorder, client):
            for number in range(50):
                recorder.event(pod(), "Warning", f"R{number}", "m")
            await asyncio.sleep(1)

        assert len(client.events) == 50

    @pytest.mark.parametrize(
        ("message", "note"),
        [
            ("100 %s {x} %", "100 %s {x} %"),
            ("x" * 1024, "x" * 1024),
            ("x" * 1025, "x" * 1021 + "..."),
            ("ä" * 600, "ä" * 510 + "..."),
            ("a\udc80", "a?"),
        ],
    )
    async def test_message(self, message: str, note: str):
        """A message is never formatted, and cut at 1,024 bytes between characters."""
        async with recording() as (recorder, client):
            recorder.event(pod(), "Normal", "R", message)
            await asyncio.sleep(1)

        assert client.only["note"] == note
        assert len(client.only["note"].encode()) <= 1024

    async def test_long_words(self):
        """A reason and an action longer than the server accepts are cut."""
        async with recording() as (recorder, client):
            recorder.event(pod(), "Normal", "R" * 200, "m", action="A" * 200)
            await asyncio.sleep(1)

        assert (client.only["reason"], client.only["action"]) == ("R" * 128, "A" * 128)

    async def test_long_object_name(self):
        """The Event's name is valid for the longest possible name of an object."""
        async with recording() as (recorder, client):
            recorder.event(pod("a" * 235 + "-" * 18), "Normal", "R", "m")
            await asyncio.sleep(1)

        name = client.only["metadata"]["name"]
        assert len(name) <= 253
        assert "-." not in name


class TestLimits:
    """Events that are not sent."""

    async def test_hot_loop_cannot_flood(self):
        """An object may have a burst of new Events, then one per period; others are not limited."""
        async with recording(component="flood", burst=5, refill_s=30) as (recorder, client):
            for number in range(600):
                recorder.event(pod(), "Warning", f"R{number}", "m")
                await asyncio.sleep(0.1)
            recorder.event(pod("other", uid="v"), "Warning", "R", "m")
            await asyncio.sleep(1)

        assert len(client.events) == 5 + 1 + 1  # a burst, one after 30 s, and the other's
        assert outcome("flood", "rate_limited") == 594

    async def test_pending_is_bounded(self):
        """When too many Events are pending, further ones are dropped."""
        client = Client()
        recorder = recorder_of(client, "bound", max_pending=3)
        for number in range(5):
            recorder.event(pod(f"p{number}", uid=str(number)), "Normal", "R", "m")
        assert len(recorder) == 3
        await recorder.flush()

        assert [name.split(".")[0] for _, name in client.events] == ["p0", "p1", "p2"]
        assert outcome("bound", "overflow") == 2

    async def test_a_dropped_repeat_is_counted_later(self):
        """A repeat that was dropped is included in the count of the next one."""
        client = Client()
        recorder = recorder_of(client, max_pending=1, patch_every_s=0)
        recorder.event(pod("a", uid="a"), "Normal", "R", "m")
        await recorder.flush()
        recorder.event(pod("b", uid="b"), "Normal", "R", "m")
        recorder.event(pod("a", uid="a"), "Normal", "R", "m")  # dropped
        await recorder._send_due()
        recorder.event(pod("a", uid="a"), "Normal", "R", "m")
        await recorder._send_due()

        counts = {
            name[0]: event.get("series", {}).get("count")
            for (_, name), event in client.events.items()
        }
        assert counts == {"a": 3, "b": None}

    async def test_a_dropped_first_event_is_a_first_one_again(self):
        """It does not become a repeat of an Event that was never sent."""
        client = Client()
        recorder = recorder_of(client, max_pending=1)
        recorder.event(pod("a", uid="a"), "Normal", "R", "m")
        recorder.event(pod("b", uid="b"), "Normal", "R", "m")
        await recorder.flush()
        recorder.event(pod("b", uid="b"), "Normal", "R", "m")
        await recorder.flush()

        assert client.verbs == ["create", "create"]

    async def test_memory_is_bounded(self):
        """The number of remembered series has a limit."""
        recorder = recorder_of(Client(), max_series=10)
        for number in range(100):
            recorder.event(pod(f"p{number}", uid=str(number)), "Normal", "R", "m")

        assert len(recorder._series) == 10


class TestFailures:
    """Delivery is best effort."""

    async def test_temporary_failures_are_retried(self):
        """A request that may succeed later is sent three times, with pauses."""
        async with recording(Client(RetryableApiError(503), ApiTimeoutError("late"))) as (
            recorder,
            client,
        ):
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(60)

        assert [at for _, at in client.sent] == [0.0, 1.0, 3.0]
        assert len(client.events) == 1

    @pytest.mark.parametrize(
        ("component", "failures"),
        [("no-luck", [RetryableApiError(503)] * 3), ("refused", [ForbiddenError(403)])],
    )
    async def test_an_event_is_dropped_when_it_cannot_be_sent(self, component, failures):
        """It is counted, and the next one is a first Event again."""
        async with recording(Client(*failures), component) as (recorder, client):
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(60)
            assert client.events == {}
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)

        assert "series" not in client.only
        assert outcome(component, "failed") == 1
        assert outcome(component, "created") == 1

    async def test_a_series_is_dropped_when_its_patch_is_refused(self):
        """The next Event is a first one."""
        async with recording() as (recorder, client):
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)
            client.failures = [ForbiddenError(403)]
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)

        assert client.verbs == ["create", "patch", "create"]

    async def test_a_series_gets_a_new_event_when_its_event_has_expired(self):
        """The new Event has the count of the series."""
        async with recording() as (recorder, client):
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)
            client.events.clear()
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)

        assert client.verbs == ["create", "patch", "create"]
        assert client.only["series"]["count"] == 2

    async def test_a_failed_event_does_not_remove_its_successor(self):
        """A series that was displaced while it was sent leaves the next series in place."""
        async with recording(Client(ForbiddenError(403), slow_s=1), max_series=1) as (
            recorder,
            client,
        ):
            recorder.event(pod("a", uid="a"), "Normal", "R", "m")
            await asyncio.sleep(0.5)
            recorder.event(pod("b", uid="b"), "Normal", "R", "m")
            await asyncio.sleep(10)

        assert [name[0] for _, name in client.events] == ["b"]

    async def test_only_pending_repeats_are_lost_when_their_series_is_displaced(self):
        """Events that were sent keep their count, and the next series is sent."""
        async with recording(max_series=1) as (recorder, client):
            for _ in range(3):
                recorder.event(pod("a", uid="a"), "Normal", "R", "m")
                await asyncio.sleep(0.1)
            recorder.event(pod("b", uid="b"), "Normal", "R", "m")
            await asyncio.sleep(60)

        counts = [event.get("series", {}).get("count") for event in client.events.values()]
        assert counts == [2, None]

    async def test_already_exists_counts_as_created(self):
        """If the name is taken, an earlier attempt has succeeded."""
        async with recording(
            Client(ApiTimeoutError("late"), AlreadyExistsError(409)), "after-all"
        ) as (recorder, _):
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(60)

        assert outcome("after-all", "created") == 1

    async def test_pending_events_are_sent_when_the_sender_is_cancelled(self):
        """Events that are pending or being sent at the cancellation are not lost."""
        async with recording(Client(slow_s=0.1)) as (recorder, client):
            recorder.event(pod("a"), "Normal", "R", "m")
            recorder.event(pod("b"), "Normal", "R", "m")
            await asyncio.sleep(0.05)

        assert sorted(name[0] for _, name in client.events) == ["a", "b"]

    async def test_pending_repeats_are_sent_when_the_sender_is_cancelled(self):
        """Repeats that wait for the next patch are sent at the end."""
        async with recording() as (recorder, client):
            for _ in range(5):
                recorder.event(pod(), "Normal", "R", "m")
                await asyncio.sleep(0.1)

        assert client.only["series"]["count"] == 5

    async def test_the_end_waits_two_seconds_for_a_server_that_does_not_answer(self):
        """Pending Events must not delay the process's end further."""
        async with recording(Client(slow_s=1000)) as (recorder, _):
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)

        assert asyncio.get_running_loop().time() == 3.0


class TestBuckets:
    """One bucket for each object."""

    def test_burst_and_refill(self):
        """A bucket gives its burst, then one token per period."""
        clock = ManualClock()
        buckets = TokenBuckets(burst=2, refill_s=10, clock=clock)
        assert [buckets.take("a") for _ in range(3)] == [True, True, False]
        clock.advance(9.75)
        assert not buckets.take("a")
        clock.advance(0.25)

        assert buckets.take("a")
        assert buckets.take("b")

    def test_number_of_buckets_is_bounded(self):
        """Excess buckets are dropped."""
        buckets = TokenBuckets(burst=1, refill_s=10, clock=ManualClock(), max_keys=3)
        for number in range(10):
            buckets.take(number)

        assert len(buckets) == 3
