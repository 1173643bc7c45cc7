"""Own writes that the cache does not show yet."""

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


def expectations(name: str = "test") -> tuple[Expectations, ManualClock]:
    """Expectations and their clock."""
    clock = ManualClock()
    return Expectations(name, clock=clock), clock


def pod(name: str, uid: str, version: str = "1", *, terminating: bool = False) -> Pod:
    """A Pod."""
    deleted = datetime(2026, 1, 1, tzinfo=UTC) if terminating else None
    return Pod(
        metadata=ObjectMeta(
            namespace="ns",
            name=name,
            uid=uid,
            resource_version=version,
            deletion_timestamp=deleted,
        )
    )


def to_key(_: Event[Pod]) -> list[Request]:
    """All Pods were written because of KEY."""
    return [Request(KEY)]


class TestCalls:
    """The calls themselves."""

    def test_nothing_expected(self):
        """A key that wrote nothing is satisfied, and knows no time."""
        subject, _ = expectations()

        assert subject.is_satisfied(KEY)
        assert subject.seconds_left(KEY) == 0.0

    def test_creations(self):
        """A key is satisfied when each name was seen; other keys and names do not matter."""
        subject, _ = expectations()
        subject.expect_creations(KEY, ["a", "b"])
        subject.observed_creation(KEY, "a")
        subject.observed_creation(KEY, "z")
        subject.observed_creation(OTHER, "b")
        assert not subject.is_satisfied(KEY)
        assert subject.is_satisfied(OTHER)
        subject.observed_creation(KEY, "b")

        assert subject.is_satisfied(KEY)
        assert len(subject) == 0

    def test_deletions(self):
        """Deletions are known by uid."""
        subject, _ = expectations()
        subject.expect_deletions(KEY, ["u1", "u2"])
        subject.observed_deletion(KEY, "u1")
        assert not subject.is_satisfied(KEY)
        subject.observed_deletion(KEY, "u2")

        assert subject.is_satisfied(KEY)

    @pytest.mark.parametrize(
        ("seen", "satisfied"), [("9", False), ("10", True), ("11", True), ("odd", True)]
    )
    def test_versions(self, seen: str, satisfied: bool):
        """A version is seen when the cache shows it or a later one, compared as numbers."""
        subject, _ = expectations()
        subject.expect_version(KEY, "u", "10")
        subject.observed_version(KEY, "other", "99")
        subject.observed_version(KEY, "u", seen)

        assert subject.is_satisfied(KEY) is satisfied

    def test_version_that_is_there_already(self):
        """An event that overtook the answer is not waited for."""
        subject, _ = expectations()
        subject.expect_version(KEY, "u", "10", cached="10")
        subject.expect_version(KEY, "u", "no number")

        assert subject.is_satisfied(KEY)

    def test_latest_version_counts(self):
        """Of two writes of one object the later must be seen."""
        subject, _ = expectations()
        subject.expect_version(KEY, "u", "12")
        subject.expect_version(KEY, "u", "10")
        subject.observed_version(KEY, "u", "11")

        assert not subject.is_satisfied(KEY)

    def test_expires_with_a_warning(self):
        """After five minutes it goes on without, says so once, and counts it."""
        subject, clock = expectations("expiring")
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

    def test_forget(self):
        """A key that is gone waits for nothing."""
        subject, _ = expectations()
        subject.expect_creations(KEY, ["a"])
        subject.forget(KEY)
        subject.forget(OTHER)

        assert subject.is_satisfied(KEY)

    def test_expecting_nothing_leaves_nothing(self):
        """Empty expectations do not pile up."""
        subject, _ = expectations()
        subject.expect_creations(KEY, [])
        subject.expect_deletions(KEY, [])

        assert len(subject) == 0


class TestHandler:
    """Fed by an informer."""

    def test_add(self):
        """An object that appears is a creation seen, and a version."""
        subject, _ = expectations()
        handler = subject.handler(enqueue_mapped(lambda _: [KEY]))
        subject.expect_creations(KEY, ["a"])
        subject.expect_version(KEY, "u", "5")
        handler(Event(None, pod("a", "u", "5")))

        assert subject.is_satisfied(KEY)

    def test_update(self):
        """An update is a version seen, and no creation."""
        subject, _ = expectations()
        handler = subject.handler(to_key)
        subject.expect_version(KEY, "u", "5")
        subject.expect_creations(KEY, ["a"])
        handler(Event(pod("a", "u", "4"), pod("a", "u", "5")))
        assert not subject.is_satisfied(KEY)
        subject.observed_creation(KEY, "a")

        assert subject.is_satisfied(KEY)

    def test_terminating_is_deleted(self):
        """A deletion is seen when the object is terminating; its versions are still waited for."""
        subject, _ = expectations()
        handler = subject.handler(to_key)
        subject.expect_deletions(KEY, ["u"])
        handler(Event(pod("a", "u"), pod("a", "u", "2", terminating=True)))

        assert subject.is_satisfied(KEY)

    def test_gone(self):
        """With the object all that was expected of it is over."""
        subject, _ = expectations()
        handler = subject.handler(to_key)
        subject.expect_deletions(KEY, ["u"])
        subject.expect_version(KEY, "u", "99")
        handler(Event(pod("a", "u"), None))

        assert subject.is_satisfied(KEY)

    def test_other_object_of_the_same_name(self):
        """An update that swaps the object is the old one's end and the new one's creation."""
        subject, _ = expectations()
        handler = subject.handler(to_key)
        subject.expect_deletions(KEY, ["u1"])
        subject.expect_creations(KEY, ["a"])
        handler(Event(pod("a", "u1"), pod("a", "u2")))

        assert subject.is_satisfied(KEY)

    def test_old_object_does_not_hide_the_new(self):
        """The end of an old object of the same name is not the creation of the new one."""
        subject, _ = expectations()
        handler = subject.handler(to_key)
        subject.expect_creations(KEY, ["a"])
        handler(Event(pod("a", "u1"), None))

        assert not subject.is_satisfied(KEY)

    def test_idle_handler_maps_nothing(self):
        """With nothing expected an event costs next to nothing: it is not even mapped."""
        subject, _ = expectations()

        def unreachable(event: Event[Pod]) -> list[Request]:
            raise AssertionError(event)

        handler = subject.handler(unreachable)
        handler(Event(None, pod("a", "u"), initial=True))
        handler(Event(pod("a", "u"), attrs.evolve(pod("a", "u"))))
        handler(Event(pod("a", "u"), None))

        assert len(subject) == 0
