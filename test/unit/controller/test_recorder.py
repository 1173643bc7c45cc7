"""The event recorder in virtual time, with a client that writes down what it is asked."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

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

START = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)


class Client:
    """Keeps the Events it is sent; fails as often as told."""

    def __init__(self, *failures: Exception, slow_s: float = 0.0) -> None:
        self.failures = list(failures)
        self.slow_s = slow_s
        self.sent: list[tuple[str, float]] = []
        self.events: dict[tuple[str, str], dict] = {}

    async def create(self, cls, namespace, body, *, timeout_s=None):
        """Keep a new Event."""
        await self._exchange("create")
        self.events[namespace, body["metadata"]["name"]] = dict(body)
        return cls()

    async def merge_patch(self, cls, namespace, name, body, *, subresource=None, timeout_s=None):
        """Change a kept Event."""
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
        """The only Event there is."""
        (event,) = self.events.values()
        return event

    @property
    def verbs(self) -> list[str]:
        """What was asked, in order."""
        return [verb for verb, _ in self.sent]


def pod(name: str = "p", uid: str = "u", version: str = "1") -> Pod:
    """A Pod in namespace ``ns``."""
    return Pod(metadata=ObjectMeta(namespace="ns", name=name, uid=uid, resource_version=version))


@asynccontextmanager
async def recording(client: Client, component: str = "test", *, instance: str = "", **limits):
    """A recorder that sends."""
    recorder = EventRecorder(
        client,
        component=component,
        instance=instance,
        limits=EventLimits(**limits),
        clock=VirtualClock(START),
        rand=lambda: 1.0,
    )
    sender = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        sender.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sender


def outcome(component: str, outcome: str) -> float | None:
    """The metric."""
    labels = {"controller": component, "outcome": outcome}
    return REGISTRY.get_sample_value("event_recorder_events_total", labels)


@pytest.mark.looptime
class TestEvents:
    """What is sent."""

    async def test_first_event(self):
        """A first Event has all fields, a unique name, and no series."""
        client = Client()
        async with recording(client, "jobset", instance="host-1") as recorder:
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

    async def test_related_and_cluster_scoped(self):
        """A related object is named; an Event of a cluster-scoped object goes to default."""
        client = Client()
        async with recording(client) as recorder:
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

    async def test_second_makes_a_series(self):
        """A repeat makes the first Event a series of 2, whatever its message or version."""
        client = Client()
        async with recording(client) as recorder:
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

    async def test_repeats_before_the_first_was_sent(self):
        """Repeats while the first waits are summed up in one patch."""
        client = Client()
        async with recording(client) as recorder:
            for _ in range(50):
                recorder.event(pod(), "Warning", "R", "m")
            await asyncio.sleep(1)

        assert client.verbs == ["create", "patch"]
        assert client.only["series"]["count"] == 50

    async def test_repeats_are_coalesced(self):
        """A series is patched at once the first time, then every 5 s at most, and to the end."""
        client = Client()
        async with recording(client) as recorder:
            for _ in range(101):
                recorder.event(pod(), "Warning", "R", "m")
                await asyncio.sleep(0.2)
            await asyncio.sleep(60)

        assert client.only["series"]["count"] == 101
        patches = [at for verb, at in client.sent if verb == "patch"]
        assert patches == pytest.approx([0.2, 5.2, 10.2, 15.2, 20.2])

    async def test_what_is_different_is_another_event(self):
        """Another type, reason, action, object or related object makes another Event."""
        client = Client()
        async with recording(client) as recorder:
            recorder.event(pod(), "Warning", "R", "m")
            recorder.event(pod(), "Normal", "R", "m")
            recorder.event(pod(), "Warning", "Q", "m")
            recorder.event(pod(), "Warning", "R", "m", action="Scheduling")
            recorder.event(pod(uid="u2"), "Warning", "R", "m")
            recorder.event(pod(), "Warning", "R", "m", related=pod("q"))
            await asyncio.sleep(1)

        assert client.verbs == ["create"] * 6
        assert len(client.events) == 6

    async def test_another_occasion_is_another_event(self):
        """What a series names apart is not merged, and each message is kept."""
        client = Client()
        async with recording(client) as recorder:
            for occasion in ("1", "2", "2", "3"):
                recorder.event(pod(), "Normal", "R", f"restart {occasion}", series=occasion)
            await asyncio.sleep(1)

        notes = [event["note"] for event in client.events.values()]
        assert sorted(notes) == ["restart 1", "restart 2", "restart 3"]

    async def test_occasions_leave_room_for_other_events(self):
        """Too many of them are repeats of each other; none is lost, nor is another Event."""
        client = Client()
        async with recording(client) as recorder:
            for occasion in range(100):
                recorder.event(pod(), "Normal", "R", "again", series=str(occasion))
            recorder.event(pod(), "Warning", "Failed", "at the end")
            await asyncio.sleep(60)

        told = list(client.events.values())
        assert "at the end" in {event["note"] for event in told}
        counts = [event.get("series", {}).get("count", 1) for event in told]
        assert sum(counts) == 101
        assert len(told) <= 25

    async def test_series_ends_after_silence(self):
        """After six minutes of silence a repeat is a new Event; repeats before keep it alive."""
        client = Client()
        async with recording(client) as recorder:
            for pause in (359, 359, 360, 1):
                recorder.event(pod(), "Warning", "R", "m")
                await asyncio.sleep(pause)
            await asyncio.sleep(10)

        assert client.verbs == ["create", "patch", "patch", "create"]

    async def test_series_end_independently(self):
        """A series that goes on does not keep a silent one alive."""
        client = Client()
        async with recording(client) as recorder:
            for second in range(400):
                recorder.event(pod("busy", uid="b"), "Normal", "R", "m")
                if second in {1, 390}:
                    recorder.event(pod("quiet", uid="q"), "Normal", "R", "m")
                await asyncio.sleep(1)

        assert sorted(name[0] for _, name in client.events) == ["b", "q", "q"]

    async def test_names_are_unique(self):
        """Events of one instant have different names."""
        client = Client()
        async with recording(client, burst=100) as recorder:
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
        client = Client()
        async with recording(client) as recorder:
            recorder.event(pod(), "Normal", "R", message)
            await asyncio.sleep(1)

        assert client.only["note"] == note
        assert len(client.only["note"].encode()) <= 1024

    async def test_long_words(self):
        """A reason and an action longer than the server accepts are cut."""
        client = Client()
        async with recording(client) as recorder:
            recorder.event(pod(), "Normal", "R" * 200, "m", action="A" * 200)
            await asyncio.sleep(1)

        assert (client.only["reason"], client.only["action"]) == ("R" * 128, "A" * 128)

    async def test_long_object_name(self):
        """The Event's name stays a valid one for the longest of objects."""
        client = Client()
        async with recording(client) as recorder:
            recorder.event(pod("a" * 235 + "-" * 18), "Normal", "R", "m")
            await asyncio.sleep(1)

        name = client.only["metadata"]["name"]
        assert len(name) <= 253
        assert "-." not in name


@pytest.mark.looptime
class TestLimits:
    """What is not sent."""

    async def test_hot_loop_cannot_flood(self):
        """One object may have a burst of new Events, then one at a time; others are free."""
        client = Client()
        async with recording(client, "flood", burst=5, refill_s=30) as recorder:
            for number in range(600):
                recorder.event(pod(), "Warning", f"R{number}", "m")
                await asyncio.sleep(0.1)
            recorder.event(pod("other", uid="v"), "Warning", "R", "m")
            await asyncio.sleep(1)

        assert len(client.events) == 5 + 1 + 1  # a burst, one after 30 s, and the other's
        assert outcome("flood", "rate_limited") == 594

    async def test_pending_is_bounded(self):
        """When too many wait, the oldest is dropped."""
        client = Client()
        recorder = EventRecorder(
            client, component="bound", limits=EventLimits(max_pending=3), clock=VirtualClock(START)
        )
        for number in range(5):
            recorder.event(pod(f"p{number}", uid=str(number)), "Normal", "R", "m")
        assert len(recorder) == 3
        await recorder.flush()

        assert [name.split(".")[0] for _, name in client.events] == ["p2", "p3", "p4"]
        assert outcome("bound", "overflow") == 2

    async def test_dropped_repeat_is_caught_up(self):
        """A repeat that was dropped is in the count of the next one."""
        client = Client()
        recorder = EventRecorder(
            client,
            component="catch-up",
            limits=EventLimits(max_pending=1, patch_every_s=0),
            clock=VirtualClock(START),
        )
        recorder.event(pod("a", uid="a"), "Normal", "R", "m")
        await recorder.flush()
        recorder.event(pod("a", uid="a"), "Normal", "R", "m")  # dropped for the next
        recorder.event(pod("b", uid="b"), "Normal", "R", "m")
        await recorder._send_due()
        recorder.event(pod("a", uid="a"), "Normal", "R", "m")
        await recorder._send_due()

        counts = {
            name[0]: event.get("series", {}).get("count")
            for (_, name), event in client.events.items()
        }
        assert counts == {"a": 3, "b": None}

    async def test_dropped_event_can_come_again(self):
        """A first Event that was dropped is a first one again, not a repeat of nothing."""
        client = Client()
        recorder = EventRecorder(
            client, component="again", limits=EventLimits(max_pending=1), clock=VirtualClock(START)
        )
        recorder.event(pod("a", uid="a"), "Normal", "R", "m")
        recorder.event(pod("b", uid="b"), "Normal", "R", "m")
        await recorder.flush()
        recorder.event(pod("a", uid="a"), "Normal", "R", "m")
        await recorder.flush()

        assert client.verbs == ["create", "create"]

    async def test_memory_is_bounded(self):
        """Only so many series are remembered."""
        recorder = EventRecorder(
            Client(), component="mem", limits=EventLimits(max_series=10), clock=VirtualClock(START)
        )
        for number in range(100):
            recorder.event(pod(f"p{number}", uid=str(number)), "Normal", "R", "m")

        assert len(recorder._series) == 10


@pytest.mark.looptime
class TestFailures:
    """Delivery is best effort."""

    async def test_passing_failures_are_tried_again(self):
        """What may pass is tried three times, with pauses."""
        client = Client(RetryableApiError(503), ApiTimeoutError("late"))
        async with recording(client) as recorder:
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(60)

        assert [at for _, at in client.sent] == [0.0, 1.0, 3.0]
        assert len(client.events) == 1

    @pytest.mark.parametrize(
        ("component", "failures"),
        [("no-luck", [RetryableApiError(503)] * 3), ("refused", [ForbiddenError(403)])],
    )
    async def test_given_up(self, component: str, failures: list[Exception]):
        """What cannot be sent is counted, and the next one is a first one again."""
        client = Client(*failures)
        async with recording(client, component) as recorder:
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(60)
            assert client.events == {}
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)

        assert "series" not in client.only
        assert outcome(component, "failed") == 1
        assert outcome(component, "created") == 1

    async def test_patch_refused(self):
        """A series that cannot be patched is given up, and the next Event is a first one."""
        client = Client()
        async with recording(client) as recorder:
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)
            client.failures = [ForbiddenError(403)]
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)

        assert client.verbs == ["create", "patch", "create"]

    async def test_event_has_expired_in_the_cluster(self):
        """A series whose Event is gone gets a new Event that has the count."""
        client = Client()
        async with recording(client) as recorder:
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)
            client.events.clear()
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)

        assert client.verbs == ["create", "patch", "create"]
        assert client.only["series"]["count"] == 2

    async def test_failure_after_being_forgotten(self):
        """A series that was pushed out while it was sent does not take its successor with it."""
        client = Client(ForbiddenError(403), slow_s=1)
        async with recording(client, max_series=1) as recorder:
            recorder.event(pod("a", uid="a"), "Normal", "R", "m")
            await asyncio.sleep(0.5)
            recorder.event(pod("b", uid="b"), "Normal", "R", "m")
            await asyncio.sleep(10)

        assert [name[0] for _, name in client.events] == ["b"]

    async def test_repeats_of_a_series_that_was_pushed_out(self):
        """Repeats that wait when their series is pushed out are lost, and nothing else is."""
        client = Client()
        async with recording(client, max_series=1) as recorder:
            for _ in range(3):
                recorder.event(pod("a", uid="a"), "Normal", "R", "m")
                await asyncio.sleep(0.1)
            recorder.event(pod("b", uid="b"), "Normal", "R", "m")
            await asyncio.sleep(60)

        counts = [event.get("series", {}).get("count") for event in client.events.values()]
        assert counts == [2, None]

    async def test_created_after_all(self):
        """That the name is taken means that an earlier attempt came through."""
        client = Client(ApiTimeoutError("late"), AlreadyExistsError(409))
        async with recording(client, "after-all") as recorder:
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(60)

        assert outcome("after-all", "created") == 1

    async def test_last_words(self):
        """What waits, or is on its way, when the sender is cancelled is still sent."""
        client = Client(slow_s=0.1)
        async with recording(client) as recorder:
            recorder.event(pod("a"), "Normal", "R", "m")
            recorder.event(pod("b"), "Normal", "R", "m")
            await asyncio.sleep(0.05)

        assert sorted(name[0] for _, name in client.events) == ["a", "b"]

    async def test_last_repeats(self):
        """Repeats that wait for the next patch are sent at the end."""
        client = Client()
        async with recording(client) as recorder:
            for _ in range(5):
                recorder.event(pod(), "Normal", "R", "m")
                await asyncio.sleep(0.1)

        assert client.only["series"]["count"] == 5

    async def test_last_words_are_bounded(self):
        """A server that does not answer holds up the end for two seconds at most."""
        client = Client(slow_s=1000)
        async with recording(client) as recorder:
            recorder.event(pod(), "Normal", "R", "m")
            await asyncio.sleep(1)

        assert asyncio.get_running_loop().time() == 3.0


class Steps:
    """A clock."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        """Where the test put it."""
        return self.at

    def now(self) -> datetime:
        """The same."""
        return START + timedelta(seconds=self.at)


class TestBuckets:
    """One bucket for each object."""

    def test_burst_and_refill(self):
        """A bucket gives its burst, then one token each period."""
        clock = Steps()
        buckets = TokenBuckets(burst=2, refill_s=10, clock=clock)
        assert [buckets.take("a") for _ in range(3)] == [True, True, False]
        clock.at = 9.9
        assert not buckets.take("a")
        clock.at = 10.0

        assert buckets.take("a")
        assert buckets.take("b")

    def test_bounded(self):
        """Only so many buckets are kept."""
        buckets = TokenBuckets(burst=1, refill_s=10, clock=Steps(), max_keys=3)
        for number in range(10):
            buckets.take(number)

        assert len(buckets) == 3
