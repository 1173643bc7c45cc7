"""Shared informers: calls of handlers, and when informers and handlers count as synced."""

from __future__ import annotations

import asyncio

import attrs
import msgspec
import pytest

from jobsetpy.api.core import Pod
from jobsetpy.api.meta import ObjectKey
from jobsetpy.client import WatchFrame
from jobsetpy.errors import AlreadyStartedError, IndexConflictError
from jobsetpy.informers import BY_NAMESPACE, OWNER_UID, Index, SharedInformer, WatchOptions
from support.informers_kit import PHASES, running, synced

pytestmark = pytest.mark.looptime


class Recorder:
    """A handler that records its calls, and checks that the store is up to date at each."""

    def __init__(self, store):
        self.store = store
        self.calls = []

    def on_add(self, obj, *, initial):
        assert self.store.get(obj.metadata.key) is not None
        self.calls.append(("add", obj.metadata.name, initial))

    def on_update(self, old, new):
        assert old.metadata.uid == new.metadata.uid
        self.calls.append(("update", old.metadata.resource_version, new.metadata.resource_version))

    def on_delete(self, obj, *, final_state_known):
        self.calls.append(("delete", obj.metadata.name, final_state_known))


@pytest.fixture
def informer(server):
    """An informer of the server's Pods."""
    return SharedInformer(
        server,
        Pod,
        WatchOptions(rand=lambda: 0.5, page_limit=2),
        indexes=[OWNER_UID, PHASES],
    )


@pytest.fixture
def recorder(informer):
    """A handler that is registered from the beginning."""
    recorder = Recorder(informer.store)
    recorder.registration = informer.add_handler(recorder)
    return recorder


async def settle(seconds=0.01):
    await asyncio.sleep(seconds)


async def test_handlers_are_called_for_the_list_and_then_for_changes(server, informer, recorder):
    """Listed objects are initial adds, later ones are not; updates and deletions follow."""
    for name in "abc":
        server.put(name)
    async with synced(informer):
        assert recorder.calls == [("add", name, True) for name in "abc"]
        recorder.calls.clear()
        server.put("d")
        server.put("a")
        server.delete("b")
        await settle()

    assert recorder.calls == [("add", "d", False), ("update", "1", "5"), ("delete", "b", True)]
    assert informer.store.index_count(PHASES, "ns/Running") == 3
    assert informer.store.resource_version == "6"


async def test_repeated_events_reach_handlers_once(server, informer, recorder):
    """Neither a repeated state nor a repeated deletion reaches handlers or indexes."""
    async with synced(informer):
        pod = server.put("a")
        server.stream.send(server._frame("MODIFIED", pod, 1))
        server.delete("a")
        server.stream.send(server._frame("DELETED", pod, 2))
        server.stream.send(server._frame("ADDED", pod, 1))
        await settle()

    assert recorder.calls == [("add", "a", False), ("delete", "a", True)]
    assert informer.store.index_values(PHASES) == []


async def test_a_deletion_reports_the_state_that_was_reported_last(server):
    """The state in a deletion event may never have been reported before, so no handler counted it."""
    deletions = []

    class Sees(Recorder):
        def on_delete(self, obj, *, final_state_known):
            deletions.append((obj.metadata.labels, final_state_known))

    informer = SharedInformer(server, Pod)
    informer.add_handler(Sees(informer.store))
    async with synced(informer):
        server.put("a", labels={"epoch": "1"})
        await settle()
        server.deaf = True
        server.put("a", labels={"epoch": "2"})
        server.deaf = False
        server.delete("a")
        await settle()

    assert deletions == [({"epoch": "1"}, True)]


async def test_relist_reports_what_was_missed(server, informer, recorder):
    """After 410 handlers receive adds, updates and deletions of unknown final state."""
    for name in "abc":
        server.put(name)
    async with synced(informer):
        await settle(5)
        recorder.calls.clear()
        server.deaf = True
        server.delete("a")
        server.put("b")
        server.delete("c")
        server.put("c")
        server.put("d")
        server.forget()
        server.stream.fail(410)
        await settle()

    assert sorted(recorder.calls, key=lambda call: ("delete", "add", "update").index(call[0])) == [
        ("delete", "a", False),
        ("delete", "c", False),
        ("add", "c", False),
        ("add", "d", False),
        ("update", "2", "5"),
    ]
    assert informer.store.index_count(PHASES, "ns/Running") == 3


async def test_unseen_recreation_is_a_delete_and_an_add(server, informer, recorder):
    """An object that reappears with another UID is another object."""
    server.put("a")
    async with synced(informer):
        recorder.calls.clear()
        pod = server.objects[ObjectKey("ns", "a")]
        other = attrs.evolve(pod, metadata=attrs.evolve(pod.metadata, uid="other"))
        server.stream.send(server._frame("MODIFIED", other, 9))
        await settle()

    assert recorder.calls == [("delete", "a", False), ("add", "a", False)]


async def test_late_handler_is_called_for_present_objects(server, informer, recorder):
    """A handler that is added late immediately receives all objects as initial adds."""
    server.put("a")
    async with synced(informer):
        late = Recorder(informer.store)
        registration = informer.add_handler(late)
        assert late.calls == [("add", "a", True)]
        assert registration.has_synced
        server.put("b")
        await settle()

    assert late.calls == [("add", "a", True), ("add", "b", False)]
    assert late.calls == recorder.calls


async def test_handlers_sync_after_the_store(server, informer):
    """A handler is synced after its last initial add; one added meanwhile gets no call twice."""
    for number in range(600):
        server.put(f"p{number}")
    late = Recorder(informer.store)

    class Joins(Recorder):
        def on_add(self, obj, *, initial):
            super().on_add(obj, initial=initial)
            if len(self.calls) == 300:
                assert self.store.has_synced
                assert not self.registration.has_synced
                assert not informer.has_synced
                informer.add_handler(late)

    first = Joins(informer.store)
    first.registration = informer.add_handler(first)
    async with running(informer.run()):
        await first.registration.wait_for_sync()
        await informer.wait_for_sync()
        server.delete("p0")
        await settle()

    assert first.calls == late.calls
    assert len(late.calls) == 601


async def test_removed_handlers_are_no_longer_called(server, informer, recorder):
    """After ``remove`` a handler is not called, and another handler can take its place."""
    async with synced(informer):
        recorder.registration.remove()
        recorder.registration.remove()
        other = Recorder(informer.store)
        informer.add_handler(other)
        server.put("a")
        await settle()

    assert recorder.calls == []
    assert other.calls == [("add", "a", False)]


async def test_handler_that_raises_ends_the_informer(server, informer):
    """An exception in a handler is a programming error: ``run`` raises it."""

    class Broken(Recorder):
        def on_add(self, obj, *, initial):
            raise KeyError("programming error")

    informer.add_handler(Broken(informer.store))
    server.put("a")

    with pytest.raises(KeyError):
        await informer.run()


async def test_transform_shapes_what_is_stored(server):
    """Every object passes the transform before the store and the handlers see it."""

    def strip(pod):
        return attrs.evolve(pod, metadata=attrs.evolve(pod.metadata, labels={}))

    informer = SharedInformer(server, Pod, transform=strip)
    server.put("a", labels={"big": "x"})
    seen = []

    class Sees(Recorder):
        def on_delete(self, obj, *, final_state_known):
            seen.append(obj.metadata.labels)

    informer.add_handler(Sees(informer.store))
    async with synced(informer):
        server.put("b", labels={"big": "y"})
        await settle()
        assert [pod.metadata.labels for pod in informer.store.list()] == [{}, {}]
        server.delete("b")
        await settle()

    assert seen == [{}]


async def test_running_twice_is_refused(server, informer):
    """An informer runs once."""
    async with synced(informer):
        with pytest.raises(AlreadyStartedError):
            await informer.run()


async def test_new_indexes_are_refused_after_the_start(server, informer):
    """After the start only indexes that exist may be declared again."""
    informer.add_index(BY_NAMESPACE)
    async with running(informer.run()):
        await asyncio.sleep(0)
        assert informer.started
        informer.add_index(BY_NAMESPACE)
        with pytest.raises(AlreadyStartedError):
            informer.add_index(Index("new", lambda pod: ()))
        with pytest.raises(IndexConflictError):
            informer.add_index(Index(OWNER_UID.name, lambda pod: ()))


async def test_health(server, informer):
    """An informer is healthy once it is synced and while its server answers."""
    assert not informer.healthy()
    assert informer.last_activity is None
    async with synced(informer):
        assert informer.healthy()
        assert informer.last_activity is not None
        assert not informer.healthy(now=informer.last_activity + 61)
        assert repr(informer) == "<SharedInformer of <Store of Pod: 0 objects, synced>>"
        assert informer.kind == "Pod"


async def test_objects_deleted_during_a_streaming_list(server):
    """An object that is created and deleted before the list is complete reaches no handler."""
    informer = SharedInformer(server, Pod, WatchOptions(streaming=True))
    recorder = Recorder(informer.store)
    informer.add_handler(recorder)
    async with running(informer.run()):
        await settle()
        server.put("a")
        server.put("b")
        server.delete("a")
        await settle()
        assert not informer.has_synced
        server.stream.bookmark(3, ends_list=True)
        await settle()

    assert recorder.calls == [("add", "b", True)]
    assert informer.store.resource_version == "3"
    assert server.lists == []


async def test_deletion_whose_object_cannot_be_decoded(server, informer, recorder):
    """The handler gets the last known state, marked as possibly not the final one."""
    server.put("a", labels={"seen": "yes"})
    async with synced(informer):
        frame = server._frame("DELETED", server.objects[ObjectKey("ns", "a")], 2)
        body = bytes(frame.object).replace(b'"phase":"Running"', b'"phase":[]')
        server.stream.send(WatchFrame("DELETED", msgspec.Raw(body)))
        await settle()

    assert recorder.calls == [("add", "a", True), ("delete", "a", False)]
    assert len(informer.store) == 0
