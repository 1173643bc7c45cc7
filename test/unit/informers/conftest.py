"""An API server in memory, behind the ``Client`` protocol: no sockets, any fault on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from jobsetpy.api._wire import to_json
from jobsetpy.api.core import Pod
from jobsetpy.api.meta import ObjectKey, ObjectMeta, OwnerReference
from jobsetpy.client import Page, WatchFrame
from jobsetpy.errors import ApiTimeoutError, ExpiredError


class MemoryStream:
    """An open watch; ``None`` in the queue is a clean end, an exception is raised."""

    def __init__(self, request):
        self.request = request
        self.queue: asyncio.Queue = asyncio.Queue()
        self.silent = False
        self.closed = False
        self.reads = 0

    async def read(self):
        self.reads += 1
        batch = [await self.queue.get()]
        while not self.queue.empty():
            batch.append(self.queue.get_nowait())
        frames = [item for item in batch if isinstance(item, WatchFrame)]
        if frames:
            for item in batch[len(frames) :]:
                self.queue.put_nowait(item)
            return frames
        if batch[0] is None:
            return []
        raise batch[0]

    def send(self, item):
        if not self.silent and not self.closed:
            self.queue.put_nowait(item)

    def bookmark(self, version, *, ends_list=False):
        meta = {"resourceVersion": str(version)}
        if ends_list:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        self.send(WatchFrame("BOOKMARK", msgspec.Raw(msgspec.json.encode({"metadata": meta}))))

    def fail(self, code):
        self.send(WatchFrame("ERROR", msgspec.Raw(msgspec.json.encode({"code": code}))))


class MemoryServer:
    """One collection of Pods; implements as much of ``Client`` as informers use."""

    def __init__(self):
        self.version = 0
        self.objects: dict[ObjectKey, Pod] = {}
        self.history: list[tuple[int, str, Pod]] = []
        self.compacted = 0
        self.streams: list[MemoryStream] = []
        self.lists: list[dict] = []
        self.opened_at: list[float] = []
        self.list_faults: list[Exception] = []
        self.watch_faults: list[Exception] = []
        self.bad: list[Exception] = []
        self.deaf = False
        self.gone = self.never_opens = False
        self.opens_after_s = 0.0
        self.uids = 0
        self.snapshot: tuple[str, list[Pod]] = ("", [])

    # Called by tests.

    def put(self, name, *, namespace="ns", owner="", phase="Running", labels=None):
        key = ObjectKey(namespace, name)
        old = self.objects.get(key)
        self.version += 1
        if old is None:
            self.uids += 1
        pod = Pod(
            metadata=ObjectMeta(
                name=name,
                namespace=namespace,
                uid=f"uid-{self.uids}" if old is None else old.metadata.uid,
                resource_version=str(self.version),
                labels=labels or {},
                owner_references=(OwnerReference(uid=owner, controller=True),) if owner else (),
            ),
            status=msgspec.convert({"phase": phase}, type(Pod().status)),
        )
        self.objects[key] = pod
        self._publish("ADDED" if old is None else "MODIFIED", pod)
        return pod

    def delete(self, name, *, namespace="ns"):
        self.version += 1
        pod = self.objects.pop(ObjectKey(namespace, name))
        self._publish("DELETED", pod)
        return pod

    def forget(self):
        """Compact: watches from an older version are answered with 410."""
        self.compacted = self.version

    @property
    def stream(self):
        """The watch that was opened last."""
        return self.streams[-1]

    @property
    def open_streams(self):
        return [stream for stream in self.streams if not stream.closed]

    def _frame(self, type_, pod, version):
        body = to_json(pod)
        body["metadata"]["resourceVersion"] = str(version)
        return WatchFrame(type_, msgspec.Raw(msgspec.json.encode(body)))

    def _publish(self, type_, pod):
        self.history.append((self.version, type_, pod))
        for stream in self.open_streams:
            if not self.deaf:
                stream.send(self._frame(type_, pod, self.version))

    # Called by informers.

    async def list_page(self, cls, namespace="", **options):
        await asyncio.sleep(0)
        if self.gone:
            await asyncio.sleep(options["timeout_s"])
            raise ApiTimeoutError("late")
        self.lists.append(options)
        if self.list_faults:
            raise self.list_faults.pop(0)
        token = options["continue_token"]
        if not token:
            objects = [pod for key, pod in self.objects.items() if namespace in ("", key.namespace)]
            self.snapshot = (str(self.version), objects)
        version, objects = self.snapshot
        start = int(token or 0)
        end = start + (options["limit"] or len(objects))
        bad, self.bad = self.bad, []
        return Page(objects[start:end], version, str(end) if end < len(objects) else "", bad)

    @asynccontextmanager
    async def watch(self, cls, namespace="", **options) -> AsyncIterator[MemoryStream]:
        await asyncio.sleep(self.opens_after_s)
        if self.gone or self.never_opens:
            await asyncio.Event().wait()
        if self.watch_faults:
            raise self.watch_faults.pop(0)
        since = int(options["resource_version"] or self.version)
        if since < self.compacted:
            raise ExpiredError(410)
        # The test itself sends the initial events of a streaming list.
        stream = MemoryStream(options)
        for version, type_, pod in self.history:
            if version > since:
                stream.send(self._frame(type_, pod, version))
        self.streams.append(stream)
        self.opened_at.append(asyncio.get_running_loop().time())
        try:
            yield stream
        finally:
            stream.closed = True


@pytest.fixture
def server():
    """An empty collection of Pods."""
    return MemoryServer()
