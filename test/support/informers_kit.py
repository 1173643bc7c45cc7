"""Small objects, handlers and an observer for tests of informers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from jobsetpy.aio import supervise
from jobsetpy.api.core import Pod
from jobsetpy.informers import Index, NullObserver, SharedInformer

PHASES: Index[Pod] = Index("phases", lambda pod: f"{pod.metadata.namespace}/{pod.status.phase}")


@asynccontextmanager
async def running(run: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Task of an informer's or watcher's ``run()``, which ends with the block."""
    async with supervise() as tasks:
        yield tasks.start(run, name="run")


@asynccontextmanager
async def synced(informer: SharedInformer[Any]) -> AsyncIterator[None]:
    """Run an informer, and enter the block when it is synced and watches."""
    async with running(informer.run()):
        await informer.wait_for_sync()
        await asyncio.sleep(0.01)
        yield


class ManualInformer:
    """An informer without a server, which the test fills; it is its handlers' registration too.

    Attributes:
        handlers: handlers in the order in which they were added.
        synced: set once the first list is complete.
    """

    waits_for = ""

    def __init__(self) -> None:
        self.handlers: list[Any] = []
        self.synced = asyncio.Event()

    def add_handler(self, handler: Any) -> ManualInformer:
        self.handlers.append(handler)
        return self

    async def wait_for_sync(self) -> None:
        await self.synced.wait()

    def add(self, obj: Any, *, initial: bool = False) -> None:
        """Call each handler for a new object."""
        for handler in self.handlers:
            handler.on_add(obj, initial=initial)


class HandlerLog:
    """A handler that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_add(self, obj: Any, *, initial: bool) -> None:
        self.calls.append(("add", obj.metadata.name, initial))

    def on_update(self, old: Any, new: Any) -> None:
        self.calls.append(("update", new.metadata.name))

    def on_delete(self, obj: Any, *, final_state_known: bool) -> None:
        self.calls.append(("delete", obj.metadata.name))


class Replica:
    """A handler that keeps a copy of the pods, made of its calls alone.

    Attributes:
        pods: pods by key.
        initial: text of the keys of pods that were reported as initial.
    """

    def __init__(self) -> None:
        self.pods: dict[Any, Any] = {}
        self.initial: set[str] = set()

    def on_add(self, obj: Any, *, initial: bool) -> None:
        assert obj.metadata.key not in self.pods
        self.pods[obj.metadata.key] = obj
        if initial:
            self.initial.add(str(obj.metadata.key))

    def on_update(self, old: Any, new: Any) -> None:
        assert self.pods[new.metadata.key] is old
        self.pods[new.metadata.key] = new

    def on_delete(self, obj: Any, *, final_state_known: bool) -> None:
        assert self.pods.pop(obj.metadata.key).metadata.uid == obj.metadata.uid

    @property
    def names(self) -> set[str]:
        """Text of the keys of all pods."""
        return {str(key) for key in self.pods}


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata, as far as informers read it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Thing(msgspec.Struct, frozen=True):
    """An object with one field besides its metadata."""

    metadata: Meta = Meta()
    size: int = 0


class InformerLog(NullObserver):
    """Calls of an informer's observer, by kind of call, without the name of the objects' kind.

    Attributes:
        lists: number of objects of each completed list.
        relists: reasons of lists that began again.
        ends: reasons of ended watches.
        waits: seconds until each failed request is sent again.
        silences: seconds of each silent watch.
        events: types of accepted events.
        bad: namespace and name of each object that could not be decoded.
        functions: function, class of the error, namespace and name of each failed function.
    """

    def __init__(self) -> None:
        self.lists: list[int] = []
        self.relists: list[str] = []
        self.ends: list[str] = []
        self.waits: list[float] = []
        self.silences: list[float] = []
        self.events: list[str] = []
        self.bad: list[tuple[str, str]] = []
        self.functions: list[tuple[str, type[Exception], str, str]] = []

    def on_list(self, kind: str, seconds: float, count: int) -> None:
        self.lists.append(count)

    def on_relist(self, kind: str, reason: str) -> None:
        self.relists.append(reason)

    def on_watch_end(self, kind: str, reason: Any) -> None:
        self.ends.append(reason)

    def on_failure(self, kind: str, error: Exception, retry_in_s: float) -> None:
        self.waits.append(retry_in_s)

    def on_silence(self, kind: str, seconds: float) -> None:
        self.silences.append(seconds)

    def on_event(self, kind: str, type_: str) -> None:
        self.events.append(type_)

    def on_decode_error(self, kind: str, error: Exception, namespace: str, name: str) -> None:
        self.bad.append((namespace, name))

    def on_function_error(
        self, kind: str, function: str, error: Exception, namespace: str, name: str
    ) -> None:
        self.functions.append((function, type(error), namespace, name))
