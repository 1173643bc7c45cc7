"""Shared informers: what handlers hear, and when things count as synced."""

from __future__ import annotations

import asyncio

import attrs
import msgspec
import pytest

from jobsetpy.aio import supervise
from jobsetpy.api.core import Pod
from jobsetpy.api.meta import ObjectKey
from jobsetpy.client import WatchFrame
from jobsetpy.errors import AlreadyStartedError, IndexConflictError
from jobsetpy.informers import BY_NAMESPACE, OWNER_UID, Index, SharedInformer, Tally, WatchOptions

PHASES: Tally[Pod, str, str] = Tally(
    "phases", lambda pod: (pod.metadata.namespace, pod.status.phase)
)


class Recorder:
    """A handler that writes down what it hears, and checks that the store shows it already."""

    def __init__(self, store):
        self.store = store
        self.heard = []

    def on_add(self, obj, *, initial):
        assert self.store.get(obj.metadata.key) is not None
        self.heard.append(("add", obj.metadata.name, initial))

    def on_update(self, old, new):
        assert old.metadata.uid == new.metadata.uid
        self.heard.append(("update", old.metadata.resource_version, new.metadata.resource_version))

    def on_delete(self, obj, *, final_state_known):
        self.heard.append(("delete", obj.metadata.name, final_state_known))


@pytest.fixture
def informer(server):
    """An informer of the server's Pods."""
    return SharedInformer(
        server,
        Pod,
        WatchOptions(rand=lambda: 0.5, page_limit=2),
        indexes=[OWNER_UID],
        tallies=[PHASES],
    )


@pytest.fixture
def recorder(informer):
    """A handler that is there from the beginning."""
    recorder = Recorder(informer.store)
    recorder.registration = informer.add_handler(recorder)
    return recorder


async def settle(seconds=0.01):
    await asyncio.sleep(seconds)


@pytest.mark.looptime
async def test_handlers_hear_the_list_and_then_changes(server, informer, recorder):
    """Present objects are initial adds, later ones are not; states and deletions follow."""
    server.put("a")
    server.put("b")
    server.put("c")
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await settle()
        assert [("add", name, True) for name in "abc"] == recorder.heard
        recorder.heard.clear()
        server.put("d")
        server.put("a")
        server.delete("b")
        await settle()

    assert recorder.heard == [("add", "d", False), ("update", "1", "5"), ("delete", "b", True)]
    assert dict(informer.store.tally(PHASES, "ns")) == {"Running": 3}
    assert informer.store.resource_version == "6"


@pytest.mark.looptime
async def test_repeated_events_are_heard_once(server, informer, recorder):
    """Neither a repeated state nor a repeated deletion reaches handlers or tallies."""
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await settle()
        pod = server.put("a")
        server.stream.send(server._frame("MODIFIED", pod, 1))
        server.delete("a")
        server.stream.send(server._frame("DELETED", pod, 2))
        server.stream.send(server._frame("ADDED", pod, 1))
        await settle()

    assert recorder.heard == [("add", "a", False), ("delete", "a", True)]
    assert dict(informer.store.tally(PHASES, "ns")) == {}


@pytest.mark.looptime
async def test_a_deletion_reports_the_state_that_was_reported_last(server):
    """What the server shows of a deleted object may never have been told, so nobody counted it."""
    told = []

    class Sees(Recorder):
        def on_delete(self, obj, *, final_state_known):
            told.append((obj.metadata.labels, final_state_known))

    informer = SharedInformer(server, Pod)
    informer.add_handler(Sees(informer.store))
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await settle()
        server.put("a", labels={"epoch": "1"})
        await settle()
        server.deaf = True
        server.put("a", labels={"epoch": "2"})
        server.deaf = False
        server.delete("a")
        await settle()

    assert told == [({"epoch": "1"}, True)]


@pytest.mark.looptime
async def test_relist_reports_what_was_missed(server, informer, recorder):
    """After 410 handlers hear adds, updates and deletions of unknown final state."""
    for name in "abc":
        server.put(name)
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await settle(5)
        recorder.heard.clear()
        server.deaf = True
        server.delete("a")
        server.put("b")
        server.delete("c")
        server.put("c")
        server.put("d")
        server.forget()
        server.stream.fail(410)
        await settle()

    assert sorted(
        recorder.heard, key=lambda heard: ("delete", "add", "update").index(heard[0])
    ) == [
        ("delete", "a", False),
        ("delete", "c", False),
        ("add", "c", False),
        ("add", "d", False),
        ("update", "2", "5"),
    ]
    assert dict(informer.store.tally(PHASES, "ns")) == {"Running": 3}


@pytest.mark.looptime
async def test_unseen_recreation_is_a_delete_and_an_add(server, informer, recorder):
    """An object that comes back with another uid is another object."""
    server.put("a")
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await settle()
        recorder.heard.clear()
        pod = server.objects[ObjectKey("ns", "a")]
        other = attrs.evolve(pod, metadata=attrs.evolve(pod.metadata, uid="other"))
        server.stream.send(server._frame("MODIFIED", other, 9))
        await settle()

    assert recorder.heard == [("delete", "a", False), ("add", "a", False)]


@pytest.mark.looptime
async def test_late_handler_hears_present_objects(server, informer, recorder):
    """A handler that comes late is told of everything at once, as initial adds."""
    server.put("a")
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await settle()
        late = Recorder(informer.store)
        registration = informer.add_handler(late)
        assert late.heard == [("add", "a", True)]
        assert registration.has_synced
        server.put("b")
        await settle()

    assert late.heard == [("add", "a", True), ("add", "b", False)]
    assert late.heard == recorder.heard


@pytest.mark.looptime
async def test_handlers_sync_after_the_store(server, informer):
    """A handler is synced when it was told of all; who joins meanwhile hears nothing twice."""
    for number in range(600):
        server.put(f"p{number}")
    late = Recorder(informer.store)

    class Joins(Recorder):
        def on_add(self, obj, *, initial):
            super().on_add(obj, initial=initial)
            if len(self.heard) == 300:
                assert self.store.has_synced
                assert not self.registration.has_synced
                assert not informer.has_synced
                informer.add_handler(late)

    first = Joins(informer.store)
    first.registration = informer.add_handler(first)
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await first.registration.wait_for_sync()
        await informer.wait_for_sync()
        server.delete("p0")
        await settle()

    assert first.heard == late.heard
    assert len(late.heard) == 601


@pytest.mark.looptime
async def test_removed_handlers_hear_nothing(server, informer, recorder):
    """After ``remove`` a handler is called no more, and its place is freed by the next one."""
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await settle()
        recorder.registration.remove()
        recorder.registration.remove()
        other = Recorder(informer.store)
        informer.add_handler(other)
        server.put("a")
        await settle()

    assert recorder.heard == []
    assert other.heard == [("add", "a", False)]


@pytest.mark.looptime
async def test_handler_that_raises_ends_the_informer(server, informer):
    """An exception in a handler is a programming error: ``run`` raises it."""

    class Broken(Recorder):
        def on_add(self, obj, *, initial):
            raise KeyError("programming error")

    informer.add_handler(Broken(informer.store))
    server.put("a")

    with pytest.raises(KeyError):
        await informer.run()


@pytest.mark.looptime
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
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await settle()
        server.put("b", labels={"big": "y"})
        await settle()
        assert [pod.metadata.labels for pod in informer.store.list()] == [{}, {}]
        server.delete("b")
        await settle()

    assert seen == [{}]


async def test_running_twice_is_refused(server, informer):
    """One informer runs once."""
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await informer.wait_for_sync()

        with pytest.raises(AlreadyStartedError):
            await informer.run()


async def test_declaring_after_the_start(server, informer):
    """After the start only what is declared already may be declared again."""
    informer.add_index(BY_NAMESPACE)
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await asyncio.sleep(0)
        assert informer.started
        informer.add_index(BY_NAMESPACE)
        informer.add_tally(PHASES)
        with pytest.raises(AlreadyStartedError):
            informer.add_index(Index("new", lambda pod: ()))
        with pytest.raises(AlreadyStartedError):
            informer.add_tally(Tally("new", lambda pod: None))
        with pytest.raises(IndexConflictError):
            informer.add_index(Index(OWNER_UID.name, lambda pod: ()))


@pytest.mark.looptime
async def test_health(server, informer):
    """An informer is healthy once it is synced and while its server answers."""
    assert not informer.healthy()
    assert informer.last_activity is None
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await settle()
        assert informer.healthy()
        assert informer.last_activity is not None
        assert not informer.healthy(now=informer.last_activity + 61)
        assert repr(informer) == "<SharedInformer of <Store of Pod: 0 objects, synced>>"
        assert informer.kind == "Pod"


@pytest.mark.looptime
async def test_objects_deleted_during_a_streaming_list(server):
    """An object that comes and goes before the list is complete is never heard of."""
    informer = SharedInformer(server, Pod, WatchOptions(streaming=True))
    recorder = Recorder(informer.store)
    informer.add_handler(recorder)
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await settle()
        server.put("a")
        server.put("b")
        server.delete("a")
        await settle()
        assert not informer.has_synced
        server.stream.bookmark(3, ends_list=True)
        await settle()

    assert recorder.heard == [("add", "b", True)]
    assert informer.store.resource_version == "3"
    assert server.lists == []


@pytest.mark.looptime
async def test_deletion_whose_object_cannot_be_decoded(server, informer, recorder):
    """The handler gets the last state that was seen, and is told that it may not be the final."""
    server.put("a", labels={"seen": "yes"})
    async with supervise() as tasks:
        tasks.start(informer.run(), name="informer")
        await settle()
        frame = server._frame("DELETED", server.objects[ObjectKey("ns", "a")], 2)
        body = bytes(frame.object).replace(b'"phase":"Running"', b'"phase":[]')
        server.stream.send(WatchFrame("DELETED", msgspec.Raw(body)))
        await settle()

    assert recorder.heard == [("add", "a", True), ("delete", "a", False)]
    assert len(informer.store) == 0
