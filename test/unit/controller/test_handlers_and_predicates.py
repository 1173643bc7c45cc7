"""Handlers that map objects to requests, and predicates that select events."""

import attrs
import pytest
import structlog

from jobsetpy.api.batch import Job
from jobsetpy.api.core import Node, Pod
from jobsetpy.api.meta import ObjectKey, ObjectMeta, OwnerReference
from jobsetpy.controller import Event, Request, Watch, enqueue_mapped, enqueue_owner, enqueue_self
from jobsetpy.controller._watch import WatchHandler
from jobsetpy.controller.predicates import (
    annotations_changed,
    any_of,
    generation_changed,
    labels_changed,
    not_,
    resource_version_changed,
)
from jobsetpy.observability.metrics import REGISTRY
from jobsetpy.workqueue import WorkQueue
from support.informers_kit import ManualInformer


def pod(name: str = "p", *, owner: OwnerReference | None = None, **metadata) -> Pod:
    """A Pod in namespace ``ns``."""
    references = () if owner is None else (owner,)
    return Pod(
        metadata=ObjectMeta(namespace="ns", name=name, owner_references=references, **metadata)
    )


def owned_by(name: str, api_version: str = "batch/v1", kind: str = "Job", controller=True):
    """An owner reference."""
    return OwnerReference(api_version=api_version, kind=kind, name=name, controller=controller)


class TestHandlers:
    """Functions from objects to requests."""

    @pytest.mark.parametrize(
        ("cls", "owner", "expected"),
        [
            (Job, owned_by("j"), [ObjectKey("ns", "j")]),
            (Job, owned_by("j", "batch/v1beta1"), [ObjectKey("ns", "j")]),  # any version
            (Job, owned_by("j", "example.com/v1"), []),
            (Job, owned_by("j", "v1"), []),
            (Job, owned_by("j", kind="CronJob"), []),
            (Job, owned_by("j", controller=False), []),
            (Job, owned_by("j", controller=None), []),
            (Job, None, []),
            (Pod, owned_by("p2", "v1", "Pod"), [ObjectKey("ns", "p2")]),  # the core group is ""
            (Node, owned_by("n", "v1", "Node"), [ObjectKey("", "n")]),  # cluster-scoped
        ],
    )
    def test_owner(self, cls, owner, expected):
        """Only the controlling owner of the right group and kind is enqueued."""
        requests = enqueue_owner(cls)(Event(None, pod(owner=owner)))

        assert [request.key for request in requests] == expected

    def test_owner_among_others(self):
        """Owners that do not control the object are ignored."""
        obj = pod()
        references = (owned_by("x", controller=False), owned_by("j"), owned_by("y"))
        obj = attrs.evolve(obj, metadata=attrs.evolve(obj.metadata, owner_references=references))

        assert [str(request) for request in enqueue_owner(Job)(Event(None, obj))] == ["ns/j"]

    def test_mapped_old_and_new(self):
        """Both objects of an update are mapped, even if the mapping fails for one of them."""

        def picky(obj: Pod) -> list[ObjectKey]:
            return [ObjectKey("ns", obj.metadata.labels["to"])]

        handler, good, bad = enqueue_mapped(picky), pod(labels={"to": "x"}), pod()
        for old, new in ((good, bad), (bad, good)):
            listener, queue = watching(handler)
            listener.on_update(old, new)
            assert [str(queue.get_nowait())] == ["ns/x"]

        assert [str(request) for request in handler(Event(good, good))] == ["ns/x", "ns/x"]


def event(old: dict | None, new: dict | None) -> Event[Pod]:
    """An event of a Pod with these metadata."""
    return Event(None if old is None else pod(**old), None if new is None else pod(**new))


class TestPredicates:
    """Functions of events."""

    @pytest.mark.parametrize(
        ("predicate", "old", "new", "expected"),
        [
            (generation_changed, {"generation": 1}, {"generation": 2}, True),
            (generation_changed, {"generation": 2}, {"generation": 2}, False),
            (generation_changed, {}, {}, True),  # a kind without generations
            (labels_changed, {"labels": {"a": "1"}}, {"labels": {"a": "2"}}, True),
            (labels_changed, {"labels": {"a": "1"}}, {"labels": {"a": "1"}}, False),
            (annotations_changed, {"annotations": {}}, {"annotations": {"a": "2"}}, True),
            (annotations_changed, {"labels": {}}, {"labels": {"a": "2"}}, False),
            (resource_version_changed, {"resource_version": "1"}, {"resource_version": "2"}, True),
            (resource_version_changed, {"resource_version": "2"}, {"resource_version": "2"}, False),
        ],
    )
    def test_updates(self, predicate, old, new, expected):
        """An update passes if the part in the predicate's name has changed."""
        assert predicate(event(old, new)) is expected

    def test_combined(self):
        """any_of and not_ combine predicates."""
        both = event({"generation": 1, "labels": {}}, {"generation": 2, "labels": {"a": "b"}})
        one = event({"generation": 1, "labels": {}}, {"generation": 1, "labels": {"a": "b"}})

        assert any_of(generation_changed, labels_changed)(one)
        assert not_(generation_changed)(one)
        assert not any_of()(both)


def watching(handler, when=None) -> tuple[WatchHandler, WorkQueue[Request]]:
    """The handler of a watch, and the queue it fills."""
    queue: WorkQueue[Request] = WorkQueue()
    watch = Watch(ManualInformer(), handler, when=when)
    return WatchHandler(watch, queue.add, controller="t"), queue


class TestWatchHandler:
    """A watch's handler at the informer."""

    def test_priorities(self):
        """Objects of the first list are queued below live events, which raise their priority."""
        listener, queue = watching(enqueue_self)
        listener.on_add(pod("old"), initial=True)
        listener.on_add(pod("new"), initial=False)
        assert queue.depths() == {-100: 1, 0: 1}
        listener.on_update(pod("old"), pod("old"))

        assert queue.depths() == {0: 2}

    def test_owner_changes(self):
        """An object that moves to another owner enqueues both owners, other updates one."""
        listener, queue = watching(enqueue_owner(Job))
        listener.on_update(pod(owner=owned_by("a")), pod(owner=owned_by("b")))
        listener.on_update(pod(owner=owned_by("c")), pod(owner=owned_by("c")))

        assert [str(queue.get_nowait()) for _ in range(len(queue))] == ["ns/b", "ns/a", "ns/c"]

    def test_predicate_filters(self):
        """Events that do not pass cause no request."""
        listener, queue = watching(enqueue_self, lambda event: False)
        listener.on_add(pod(), initial=False)
        listener.on_update(pod(), pod())
        listener.on_delete(pod(), final_state_known=True)

        assert len(queue) == 0

    def test_failing_handler_is_contained(self):
        """A handler that fails for one object does not stop the next; the failure is counted and logged."""

        def picky(event: Event[Pod]) -> list[Request]:
            return [Request(ObjectKey("ns", event.obj.metadata.labels["to"]))]

        listener, queue = watching(picky)
        before = REGISTRY.get_sample_value("controller_watch_errors_total", {"controller": "t"})
        with structlog.testing.capture_logs() as logs:
            listener.on_add(pod("bad"), initial=False)
        listener.on_add(pod("good", labels={"to": "x"}), initial=False)

        assert [str(queue.get_nowait())] == ["ns/x"]
        assert [(line["object"], line["controller"]) for line in logs] == [("ns/bad", "t")]
        after = REGISTRY.get_sample_value("controller_watch_errors_total", {"controller": "t"})
        assert after == (before or 0) + 1

    def test_whole_event(self):
        """A handler gets both objects, and whether an add belongs to the first list."""
        events: list[Event[Pod]] = []

        def note(event: Event[Pod]) -> list[Request]:
            events.append(event)
            return []

        listener, queue = watching(note)
        listener.on_add(pod("a"), initial=True)
        listener.on_update(pod("a"), pod("b"))
        listener.on_delete(pod("b"), final_state_known=True)

        assert events == [
            Event(None, pod("a"), initial=True),
            Event(pod("a"), pod("b")),
            Event(pod("b"), None),
        ]
        assert len(queue) == 0

    def test_failing_predicate_lets_pass(self):
        """An event whose predicate fails passes: an extra reconcile is better than a missing one."""
        listener, queue = watching(enqueue_self, lambda event: 1 // 0)
        listener.on_add(pod("a"), initial=False)

        assert len(queue) == 1
