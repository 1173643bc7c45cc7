"""Keeps a store equal to a collection: watch events in, store changes and handler calls out.

The only module that writes to a store. Events of a batch are applied in order of arrival; the
changes of a complete list are delivered in slices, so that thousands of objects do not block the
event loop. No event is read from the watch meanwhile, so handlers receive everything in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, Never, TypeVar, assert_never

import attrs

from jobsetpy.informers._events import (
    Applied,
    Bookmark,
    Deleted,
    ListCompleted,
    Listed,
    ListStarted,
    Unreadable,
    WatchEvent,
)
from jobsetpy.informers._handlers import HandlerSet
from jobsetpy.informers._store import Diff, Named, StoreWriter, same_version
from jobsetpy.informers._watcher import Watcher

T = TypeVar("T")

ANNOUNCE_SLICE: Final = 64
"""Maximum number of changes of a list that are delivered before other tasks run."""


@attrs.define(eq=False)
class Reflector(Generic[T]):
    """Applies a watcher's events to a store and notifies the handlers.

    Args:
        watcher: source of the events.
        writer: writer of the store to fill; the only one.
        handlers: receivers of the changes.
        transform: applied to every object before it is stored, for example to drop fields. An
            object for which it raises is left out, or keeps its last good state.
        on_error: called with ``"transform"``, the exception, and the object's namespace and name,
            each time that ``transform`` begins to fail for an object.
        before_first: awaited before the handlers receive the first list.
    """

    _watcher: Watcher[T]
    _writer: StoreWriter[T]
    _handlers: HandlerSet[T]
    _transform: Callable[[T], T] | None
    _on_error: Callable[[str, Exception, str, str], None]
    _before_first: Callable[[], Awaitable[None]] | None
    _untransformed: set[tuple[str, str]] = attrs.field(factory=set, init=False)

    async def run(self) -> Never:
        """Follow the collection until cancelled. An exception of a handler ends it."""
        await self._watcher.run(self._take)

    async def _take(self, events: Sequence[WatchEvent[T]]) -> None:
        writer = self._writer
        for event in events:
            match event:
                case Applied(obj):
                    self._apply(obj)
                case Deleted(obj, final_state_known):
                    self._delete(obj, final_state_known=final_state_known)
                case Listed(obj):
                    self._stage(obj)
                case Unreadable():
                    self._keep(event)
                case Bookmark(resource_version):
                    writer.set_version(resource_version)
                case ListStarted(rewound):
                    writer.begin(rewound=rewound)
                case ListCompleted(resource_version):
                    await self._complete(resource_version)
                case _:
                    assert_never(event)

    async def _complete(self, resource_version: str) -> None:
        """Replace the store's content by the list, and deliver the changes."""
        initial = not self._writer.has_committed
        diff = self._writer.commit(resource_version)
        if initial:
            await self._writer.store.wait_for_sync()  # another namespace may be missing
            if self._before_first is not None:
                await self._before_first()
        await self._announce(diff, initial=initial)

    def _stage(self, obj: T) -> None:
        changed = self._transformed(obj)
        if changed is not None:
            self._writer.stage(changed)
        else:
            self._keep(_metadata(obj))

    def _keep(self, listed: Any) -> None:
        """Keep the last good version of an object, if it is the same object."""
        last = self._writer.current(listed)
        if last is not None and listed.uid in {"", last.metadata.uid}:  # type: ignore[attr-defined] # KubeObject
            self._writer.stage(last)

    def _transformed(self, obj: T) -> T | None:
        """Return the transformed object to store; ``None`` if ``transform`` fails."""
        if self._transform is None:
            return obj
        meta = _metadata(obj)
        identity = (meta.namespace, meta.name)
        try:
            changed = self._transform(obj)
            after = _metadata(changed)
            if (after.namespace, after.name) != identity:
                msg = f"a transform must not rename an object, to {after.namespace}/{after.name}"
                raise ValueError(msg)
        except Exception as error:  # noqa: BLE001 - a function that users gave, of users' data
            if identity not in self._untransformed:
                self._untransformed.add(identity)
                self._on_error("transform", error, *identity)
            return None
        if self._untransformed:
            self._untransformed.discard(identity)
        return changed

    def _apply(self, received: T) -> None:
        obj = self._transformed(received)
        self._note_version(received)
        if obj is None:
            return
        old = self._writer.current(_metadata(obj))
        if old is not None and same_version(old, obj):
            return  # delivered already; the store keeps the object that handlers have
        self._writer.apply(obj)
        if old is None:
            self._handlers.everybody.added(obj, initial=False)
        elif old.metadata.uid != obj.metadata.uid:  # type: ignore[attr-defined] # KubeObject
            # The deletion in between was not seen; this is another object of the same name.
            everybody = self._handlers.everybody
            everybody.deleted(old, final_state_known=False)
            everybody.added(obj, initial=False)
        else:
            self._handlers.everybody.updated(old, obj)

    def _delete(self, obj: T, *, final_state_known: bool) -> None:
        key = _metadata(obj)
        self._untransformed.discard((key.namespace, key.name))
        if self._writer.staging:
            self._writer.unstage(key)
            return
        old = self._writer.delete(key)
        self._note_version(obj)
        if old is not None:
            self._handlers.everybody.deleted(old, final_state_known=final_state_known)

    def _note_version(self, obj: T) -> None:
        version: str = obj.metadata.resource_version  # type: ignore[attr-defined] # KubeObject
        if version:
            self._writer.set_version(version)

    async def _announce(self, diff: Diff[T], *, initial: bool) -> None:
        audience = self._handlers.begin_announcement(initial=initial)
        announced = 0
        for obj in diff.deleted:
            audience.deleted(obj, final_state_known=False)
            announced = await _yield_to_loop(announced)
        for obj in diff.added:
            audience.added(obj, initial=initial)
            announced = await _yield_to_loop(announced)
        for old, new in diff.updated:
            audience.updated(old, new)
            announced = await _yield_to_loop(announced)
        if initial:
            self._handlers.end_announcement()


def _metadata(obj: Any) -> Named:
    metadata: Named = obj.metadata
    return metadata


async def _yield_to_loop(announced: int) -> int:
    if announced % ANNOUNCE_SLICE == ANNOUNCE_SLICE - 1:
        await asyncio.sleep(0)
    return announced + 1
