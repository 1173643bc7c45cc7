"""The watcher in virtual time: deadlines, resumption, back-off, and slow consumers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from jobsetpy.aio import supervise
from jobsetpy.api.core import Pod
from jobsetpy.api.meta import ObjectMeta
from jobsetpy.client import WatchFrame
from jobsetpy.errors import (
    DecodeError,
    NotSyncedError,
    StreamBrokenError,
)
from jobsetpy.informers import WatchOptions
from jobsetpy.informers._events import Applied, Deleted, ListCompleted, Listed, ListStarted
from jobsetpy.informers._watcher import Watcher
from support.informers_kit import InformerLog, running

pytestmark = pytest.mark.looptime


class View:
    """A sink that applies events as consumers have to, and records them."""

    def __init__(self):
        self.objects = {}
        self.staged = None
        self.seen = []
        self.batches = []

    def __call__(self, events):
        self.batches.append(len(events))
        for event in events:
            self.seen.append(event)
            match event:
                case ListStarted():
                    self.staged = {}
                case Listed(pod):
                    self.staged[pod.metadata.key] = pod
                case ListCompleted():
                    self.objects, self.staged = self.staged, None
                case Applied(pod):
                    self.objects[pod.metadata.key] = pod
                case Deleted(pod):
                    del self.objects[pod.metadata.key]

    def of(self, type_):
        return [event for event in self.seen if isinstance(event, type_)]


def now():
    return asyncio.get_running_loop().time()


def make(server, *, decode=None, **options):
    log = InformerLog()
    options = {"rand": lambda: 0.5, "observer": log} | options
    return Watcher(server, Pod, WatchOptions(**options), decode=decode), log


@asynccontextmanager
async def watching(server, **options):
    """A running watcher that has listed the collection, as its sink and its log."""
    watcher, log = make(server, **options)
    view = View()
    async with running(watcher.run(view)):
        await settle()
        yield view, log


async def settle(seconds=0.01):
    """Let all tasks that are ready run."""
    await asyncio.sleep(seconds)


async def test_quiet_watch_costs_one_request_in_half_a_minute(server):
    """Without changes, the server ends watches shortly before the deadline, after a bookmark."""
    watcher, log = make(server)

    async def end_in_time():
        """End each watch at its requested time-out, with a bookmark two seconds before."""
        served = 0
        while True:
            await asyncio.sleep(0.5)
            if len(server.streams) > served:
                served = len(server.streams)
                stream = server.stream
                tasks.start(end(stream), name="end")

    async def end(stream):
        await asyncio.sleep(stream.request["timeout_seconds"] - 2)
        server.version += 1
        stream.bookmark(server.version)
        await asyncio.sleep(2)
        stream.send(None)

    async with supervise() as tasks:
        tasks.start(end_in_time(), name="server")
        tasks.start(watcher.run(View()), name="watch")
        await asyncio.sleep(600)
        assert not watcher.silent_too_long()

    assert log.ends.count("silence") == 1
    assert 17 <= log.ends.count("eof") <= 18
    assert {stream.request["timeout_seconds"] for stream in server.streams} == {450, 32}
    # The version does not become stale: it follows the bookmarks.
    assert int(server.stream.request["resource_version"]) >= server.version - 1
    assert len(server.lists) == 1


async def test_watcher_is_unhealthy_when_the_server_is_gone(server):
    """The watcher reports silence once a new watch cannot be opened either."""
    watcher, _ = make(server)
    assert watcher.silent_too_long()
    async with running(watcher.run(View())):
        await settle()
        assert not watcher.silent_too_long()
        server.stream.silent = True
        server.gone = True
        await asyncio.sleep(55)
        assert not watcher.silent_too_long()
        await asyncio.sleep(10)
        assert watcher.silent_too_long()
        server.gone = False
        await asyncio.sleep(120)

        assert not watcher.silent_too_long()


async def test_watch_that_never_opens_is_tried_again(server):
    """Opening has its own deadline, even if the client has none."""
    watcher, log = make(server, connect_timeout_s=7.0)
    server.never_opens = True
    async with running(watcher.run(View())):
        await asyncio.sleep(7.5)
        assert len(log.waits) == 1
        server.never_opens = False
        await asyncio.sleep(14.5)  # the second attempt may take twice as long

        assert len(server.open_streams) == 1


async def test_watch_is_opened_when_the_server_takes_longer_than_the_deadline(server):
    """Each attempt may take twice as long as the one before it, up to four times the deadline."""
    watcher, log = make(server, connect_timeout_s=5.0)
    server.opens_after_s = 19.0
    async with running(watcher.run(View())):
        await asyncio.sleep(5 + 10 + 19 + sum(log.waits) + 19 + 1)
        assert len(server.open_streams) == 1
        server.stream.send(None)
        await asyncio.sleep(5 + 10 + 19 + 19 + 1)

        assert len(server.open_streams) == 1


async def test_bad_objects_of_a_list_are_reported(server):
    """Objects that the client could not decode are reported to the observer."""
    server.bad = [DecodeError("Pod", "$.status", "bad")]
    server.put("a")
    async with watching(server) as (view, log):
        assert len(log.bad) == 1
        assert len(view.objects) == 1


async def test_watch_breaks_when_json_is_nested_too_deeply(server):
    """JSON that is nested too deeply breaks the stream, not the process."""
    async with watching(server) as (_, log):
        server.stream.send(RecursionError())
        await asyncio.sleep(1)

    assert log.ends == ["broken"]
    assert len(server.streams) == 2


async def test_errors_of_the_sink_end_the_watch(server):
    """An error of the consumer is raised, even if its class is one of the server's errors."""
    server.put("a")
    watcher, _ = make(server)

    def sink(events):
        if any(isinstance(event, Applied) for event in events):
            raise StreamBrokenError("from the sink")

    with pytest.raises(StreamBrokenError, match="from the sink"):
        async with running(watcher.run(sink)):
            await settle()
            server.put("b")
            await settle()
    assert server.stream.closed


async def test_errors_of_the_sink_in_a_list_end_the_watch(server):
    """An error of the consumer while listing is raised as well."""
    watcher, _ = make(server)

    def sink(events):
        raise NotSyncedError

    with pytest.raises(NotSyncedError):
        await watcher.run(sink)


async def test_asynchronous_sink_is_awaited(server):
    """A sink may be a coroutine function; the next events wait until it returns."""
    watcher, _ = make(server)
    times = []

    async def sink(events):
        await asyncio.sleep(1)
        times.append((now(), len(events)))

    async with running(watcher.run(sink)):
        await asyncio.sleep(1.5)
        server.put("a")
        await asyncio.sleep(0.1)
        server.put("b")
        await asyncio.sleep(3)

    assert [(round(at, 3), count) for at, count in times] == [(1.0, 2), (2.5, 1), (3.5, 1)]


async def test_big_bursts_are_taken_in_slices(server):
    """A burst of thousands of events is handled in slices; other tasks run in between."""
    turns = 0
    async with watching(server) as (view, _):
        for number in range(2000):
            server.put(f"p{number}")
        for _ in range(1000):
            await asyncio.sleep(0)
            turns += len(view.objects) < 2000

    assert max(view.batches[1:]) == 64
    assert turns >= 2000 // 64 - 3


async def test_cancelling_closes_the_stream(server):
    """Cancelling ``run`` closes its stream."""
    watcher, _ = make(server)
    async with running(watcher.run(View())) as task:
        await settle()
        task.cancel()
        await settle()

        assert task.cancelled()
        assert server.stream.closed


async def test_own_decoder_is_used(server):
    """``decode`` replaces msgspec for watch events."""
    watcher, _ = make(server, decode=lambda raw: Pod(metadata=ObjectMeta(name="made")))
    view = View()
    async with running(watcher.run(view)):
        await settle()
        server.stream.send(WatchFrame("ADDED", msgspec.Raw(b'{"size":1}')))
        await settle()

    assert [pod.metadata.name for pod in view.objects.values()] == ["made"]
    assert watcher.kind == "Pod"
