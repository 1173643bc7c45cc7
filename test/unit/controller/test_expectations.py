"""Expectations: the controller's own writes that the cache does not show yet."""

from datetime import UTC, datetime

import attrs
import pytest
import structlog

from jobsetpy.aio import ManualClock
from jobsetpy.api.core import Pod
from jobsetpy.api.meta import ObjectKey, ObjectMeta
from jobsetpy.controller import Event, Expectations, Request, enqueue_mapped
from jobsetpy.observability.metrics import REGISTRY

KEY = ObjectKey("ns", "js")
OTHER = ObjectKey("ns", "other")


@pytest.fixture
def subject() -> Expectations:
    """Expectations without any entry."""
    return Expectations("test", clock=ManualClock())


def pod(name: str, uid: str, version: str = "1", *, terminating: bool = False) -> Pod:
    """A Pod."""
    deleted = datetime(2026, 1, 1, tzinfo=UTC) if terminating else None
    meta = ObjectMeta(namespace="ns", name=name, uid=uid, resource_version=version)
    return Pod(metadata=attrs.evolve(meta, deletion_timestamp=deleted))


def to_key(_: Event[Pod]) -> list[Request]:
    """All Pods were written because of KEY."""
    return [Request(KEY)]


class TestCalls:
    """Expectations that are set and met by direct calls."""

    def test_creations(self, subject):
        """A key is satisfied when each name was seen; other keys and names do not matter."""
        subject.expect_creations(KEY, ["a", "b"])
        subject.observed_creation(KEY, "a")
        subject.observed_creation(KEY, "z")
        subject.observed_creation(OTHER, "b")
        assert not subject.is_satisfied(KEY)
        assert subject.is_satisfied(OTHER)
        subject.observed_creation(KEY, "b")

        assert subject.is_satisfied(KEY)
        assert len(subject) == 0

    @pytest.mark.parametrize(
        ("seen", "satisfied"), [("9", False), ("10", True), ("11", True), ("odd", True)]
    )
    def test_versions(self, subject, seen: str, satisfied: bool):
        """A version is seen when the cache shows it or a later one, compared as numbers."""
        subject.expect_version(KEY, "u", "10")
        subject.observed_version(KEY, "other", "99")
        subject.observed_version(KEY, "u", seen)

        assert subject.is_satisfied(KEY) is satisfied

    def test_a_version_in_the_cache_is_not_expected(self, subject):
        """An event that arrived before the answer of the write is not waited for."""
        subject.expect_version(KEY, "u", "10", cached="10")
        subject.expect_version(KEY, "u", "no number")

        assert subject.is_satisfied(KEY)

    def test_the_latest_version_counts(self, subject):
        """After two writes of one object the later one must be seen."""
        subject.expect_version(KEY, "u", "12")
        subject.expect_version(KEY, "u", "10")
        subject.observed_version(KEY, "u", "11")

        assert not subject.is_satisfied(KEY)

    def test_expectations_expire_with_a_warning(self):
        """After five minutes the key is satisfied; one warning is logged and counted."""
        clock = ManualClock()
        subject = Expectations("expiring", clock=clock)
        subject.expect_creations(KEY, ["a"])
        clock.advance(100)
        subject.expect_creations(KEY, ["b"])  # the time starts again
        clock.advance(299)
        assert not subject.is_satisfied(KEY)
        assert subject.seconds_left(KEY) == pytest.approx(1.0)
        clock.advance(1)
        with structlog.testing.capture_logs() as logs:
            assert subject.is_satisfied(KEY)
            assert subject.is_satisfied(KEY)

        assert [(line["log_level"], line["creations"]) for line in logs] == [
            ("warning", ["a", "b"])
        ]
        name = {"name": "expiring"}
        assert REGISTRY.get_sample_value("controller_expectations_expired_total", name) == 1


class TestHandler:
    """Expectations that are met by the events of an informer."""

    @pytest.mark.parametrize(
        "requests", [to_key, enqueue_mapped(lambda _: [KEY])], ids=["event", "object"]
    )
    @pytest.mark.parametrize(
        ("creations", "deletions", "version", "event", "satisfied"),
        [
            (["a"], [], "5", Event(None, pod("a", "u", "5")), True),
            ([], ["u"], "", Event(pod("a", "u"), pod("a", "u", "2", terminating=True)), True),
            ([], ["u"], "99", Event(pod("a", "u"), None), True),
            (["a"], ["u"], "", Event(pod("a", "u"), pod("a", "u2")), True),
            (["a"], [], "", Event(pod("a", "u1"), None), False),
        ],
        ids=["created", "terminating", "gone", "replaced", "old object of the name gone"],
    )
    def test_an_event_meets_expectations(
        self, subject, requests, creations, deletions, version, event, satisfied
    ):
        """An add meets a creation and a version; a deletion, or its begin, meets all of its UID."""
        handler = subject.handler(requests)
        subject.expect_creations(KEY, creations)
        subject.expect_deletions(KEY, deletions)
        if version:
            subject.expect_version(KEY, "u", version)
        handler(event)

        assert subject.is_satisfied(KEY) is satisfied

    def test_an_update_meets_a_version_but_no_creation(self, subject):
        """A creation of the object's name is still expected."""
        handler = subject.handler(to_key)
        subject.expect_version(KEY, "u", "5")
        subject.expect_creations(KEY, ["a"])
        handler(Event(pod("a", "u", "4"), pod("a", "u", "5")))
        assert not subject.is_satisfied(KEY)
        subject.observed_creation(KEY, "a")

        assert subject.is_satisfied(KEY)

    @pytest.mark.parametrize("after", ["3", "4"])
    def test_lost_writes_are_not_expected_when_etcd_is_restored(self, subject, after):
        """An update without a higher version comes from a list that is rewound."""
        handler = subject.handler(to_key)
        subject.expect_version(KEY, "u", "5")
        subject.expect_creations(KEY, ["b"])
        handler(Event(pod("a", "u", "4"), pod("a", "u", after)))

        assert subject.is_satisfied(KEY)

    def test_events_are_not_mapped_when_nothing_is_expected(self, subject):
        """Without expectations an event costs almost nothing."""

        def unreachable(event: Event[Pod]) -> list[Request]:
            raise AssertionError(event)

        handler = subject.handler(unreachable)
        handler(Event(None, pod("a", "u"), initial=True))
        handler(Event(pod("a", "u"), attrs.evolve(pod("a", "u"))))
        handler(Event(pod("a", "u"), None))

        assert len(subject) == 0
