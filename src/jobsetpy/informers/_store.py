"""The cache of one collection: ``Store`` to read, ``StoreWriter`` to write.

The writer is created once, by the informer that fills the store, and is not public, so readers
cannot change what others see. Every method is a plain function: each change (object and
indexes) is complete before any other task runs. No locks, no ``await``.
"""

from __future__ import annotations

import asyncio
import builtins
import copy
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Generic, Protocol, TypeVar

import attrs

from jobsetpy.api.meta import ObjectKey
from jobsetpy.errors import (
    AlreadyStartedError,
    IndexConflictError,
    NotSyncedError,
    UnknownIndexError,
)
from jobsetpy.informers._indexer import BY_NAMESPACE, Identity, Index, IndexTable

T = TypeVar("T")


@attrs.frozen
class Diff(Generic[T]):
    """Changes made by a new list, as handlers receive them.

    An object whose uid changed counts as deleted and added. The final state of deleted objects is
    not known: ``deleted`` contains the last known one.
    """

    added: tuple[T, ...] = ()
    updated: tuple[tuple[T, T], ...] = ()
    deleted: tuple[T, ...] = ()


def same_version(old: Any, new: Any) -> bool:
    """Return whether two states of an object are one: same uid and same, known resourceVersion."""
    before, after = old.metadata, new.metadata
    return bool(
        before.resource_version
        and before.resource_version == after.resource_version
        and before.uid == after.uid
    )


class Named(Protocol):
    """A key, or an object's metadata."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


def _identity(named: Named) -> Identity:
    return (named.namespace, named.name)


def _identity_of(obj: Any) -> Identity:
    meta = obj.metadata
    return (meta.namespace, meta.name)


def _same_life(one: Any, other: Any) -> bool:
    """Return whether two states are of one object, not of two with the same name in succession."""
    same: bool = one.metadata.uid == other.metadata.uid
    return same


class _State(Generic[T]):
    """State shared by reader and writer."""

    __slots__ = ("indexes", "items", "name", "pending", "synced", "versions")

    def __init__(self, name: str) -> None:
        self.name = name
        self.items: dict[Identity, T] = {}
        self.indexes: dict[str, IndexTable[T]] = {}
        self.synced = asyncio.Event()
        self.pending = {""}  # namespaces whose first list is not complete; "" is all of them
        self.versions = {"": ""}  # by namespace, in the same way

    def require_sync(self) -> None:
        if not self.synced.is_set():
            msg = f"the store of {self.name} was read before its first list was complete"
            raise NotSyncedError(msg)


class Store(Generic[T]):
    """Read handle of a cached collection.

    Objects are frozen and shared: all readers receive the same object. Methods are O(1) unless
    stated otherwise. Reads before the first complete list raise ``NotSyncedError``, because an
    absent object need not be deleted then. A store lags behind the API server, but indexes
    are always consistent with the objects.
    """

    __slots__ = ("_state",)

    def __init__(self, state: _State[T]) -> None:
        self._state = state

    def __len__(self) -> int:
        """Number of objects, synced or not."""
        return len(self._state.items)

    def __bool__(self) -> bool:
        """Return true, even if the store is empty."""
        return True

    def __repr__(self) -> str:
        """Kind, size and sync state."""
        synced = "synced" if self.has_synced else "not synced"
        return f"<Store of {self._state.name}: {len(self)} objects, {synced}>"

    @property
    def name(self) -> str:
        """Name of the kind of the objects."""
        return self._state.name

    @property
    def has_synced(self) -> bool:
        """True once the first list is complete."""
        return self._state.synced.is_set()

    @property
    def resource_version(self) -> str:
        """Version of the collection up to which changes are applied; "" before the first list.

        With several namespaces that are followed separately, the oldest of their versions.
        """
        return min(self._state.versions.values(), key=lambda version: (len(version), version))

    async def wait_for_sync(self) -> None:
        """Wait until the first list is complete."""
        await self._state.synced.wait()

    def get(self, key: Named) -> T | None:
        """Return the object, or ``None``.

        Raises:
            NotSyncedError: before the first complete list.
        """
        self._state.require_sync()
        return self._state.items.get((key.namespace, key.name))

    def by_index(self, index: Index[T] | str, value: str) -> builtins.list[T]:
        """Return the objects with an indexed value, oldest in the store first; O(result).

        Raises:
            UnknownIndexError: the index was not declared.
            NotSyncedError: before the first complete list.
        """
        return [*self._bucket(index, value).values()]

    def index_keys(self, index: Index[T] | str, value: str) -> AbstractSet[ObjectKey]:
        """Return a copy of the keys of the objects with an indexed value; O(result).

        Raises:
            UnknownIndexError: the index was not declared.
            NotSyncedError: before the first complete list.
        """
        return frozenset(ObjectKey(*identity) for identity in self._bucket(index, value))

    def index_count(self, index: Index[T] | str, value: str) -> int:
        """Return the number of objects with an indexed value, O(1); errors as ``by_index``."""
        return len(self._bucket(index, value))

    def index_values(self, index: Index[T] | str) -> builtins.list[str]:
        """Return all indexed values, O(values); errors as ``by_index``."""
        return [*self._index(index).entries]

    def require(self, *declared: Index[T]) -> None:
        """Check, during set-up, that indexes are declared.

        Raises:
            UnknownIndexError: one is not declared.
        """
        for one in declared:
            if one.name not in self._state.indexes:
                raise self._unknown(one.name)

    def list(self, namespace: str | None = None) -> builtins.list[T]:
        """Return all objects, or those of a namespace; O(objects), or O(result) with BY_NAMESPACE.

        Raises:
            NotSyncedError: before the first complete list.
        """
        self._state.require_sync()
        if namespace is None:
            return [*self._state.items.values()]
        if BY_NAMESPACE.name in self._state.indexes:
            return self.by_index(BY_NAMESPACE, namespace)
        return [obj for (home, _), obj in self._state.items.items() if home == namespace]

    def _index(self, index: Index[T] | str) -> IndexTable[T]:
        name = index if isinstance(index, str) else index.name
        table = self._state.indexes.get(name)
        if table is None:
            raise self._unknown(name)
        self._state.require_sync()
        return table

    def _unknown(self, name: str) -> UnknownIndexError:
        return UnknownIndexError(f"the store of {self._state.name} has no index {name!r}")

    def _bucket(self, index: Index[T] | str, value: str) -> Mapping[Identity, T]:
        return self._index(index).entries.get(value, {})


class StoreWriter(Generic[T]):
    """Write handle of a store; the only one.

    An object for which the function of an index raises is stored, and left out of that index: an
    object of one user must not stop the work for all others.

    Args:
        kind: the wire class, or the name of the kind; for messages.
        indexes: indexes for ``Store.by_index``.
        on_error: called with the title of the failed index, the exception, and the object's
            namespace and name, each time that an object begins to fail.
    """

    __slots__ = ("_namespace", "_news", "_on_error", "_rewound", "_staged", "_state", "store")

    def __init__(
        self,
        kind: type[T] | str = "objects",
        *,
        indexes: Iterable[Index[T]] = (),
        on_error: Callable[[str, Exception, str, str], None] | None = None,
    ) -> None:
        self._on_error = on_error
        self._state: _State[T] = _State(kind if isinstance(kind, str) else kind.__name__)
        self._staged: dict[Identity, T] | None = None
        self._news: dict[Identity, T] = {}  # the staged objects that differ from the store
        self._namespace = ""
        self._rewound = False
        self.store: Store[T] = Store(self._state)
        for index in indexes:
            self.declare(index)

    def split(self, namespaces: Iterable[str]) -> builtins.list[StoreWriter[T]]:
        """Return writers of this store, each for the lists of one namespace.

        The store is synced when each of them has committed a list.
        """
        names = [*namespaces]
        self._state.pending = set(names)
        self._state.versions = dict.fromkeys(names, "")
        parts = [copy.copy(self) for _ in names]
        for part, name in zip(parts, names, strict=True):
            part._namespace = name  # noqa: SLF001 - a copy of this very object
        return parts

    @property
    def has_committed(self) -> bool:
        """True once this writer's first list is complete; others may write to the same store."""
        return self._namespace not in self._state.pending

    def declare(self, index: Index[T]) -> None:
        """Declare an index; declaring the same one again does nothing.

        Raises:
            IndexConflictError: another function has that name.
            AlreadyStartedError: the store has objects.
        """
        state = self._state
        if self.declares(index):
            return
        if state.items or state.synced.is_set():
            msg = f"{index.name!r} comes too late: the store of {state.name} is filled already"
            raise AlreadyStartedError(msg)
        state.indexes[index.name] = IndexTable(index)

    def declares(self, index: Index[T]) -> bool:
        """Return whether exactly this index is declared.

        Raises:
            IndexConflictError: another function has that name.
        """
        table = self._state.indexes.get(index.name)
        if table is not None and table.declared != index:
            raise IndexConflictError(f"{table.title} is declared already, with another function")
        return table is not None

    def current(self, key: Named) -> T | None:
        """Return the object as ``Store.get`` does, synced or not."""
        return self._state.items.get(_identity(key))

    def apply(self, obj: T) -> T | None:
        """Add or replace an object; return the previous one or ``None``."""
        identity = _identity_of(obj)
        old = self._state.items.get(identity)
        self._change(identity, old, obj)
        return old

    def delete(self, key: Named) -> T | None:
        """Remove an object; return it, or ``None`` if it was not there."""
        identity = _identity(key)
        old = self._state.items.get(identity)
        if old is not None:
            self._change(identity, old, None)
        return old

    def set_version(self, resource_version: str) -> None:
        """Set the version up to which changes are applied."""
        self._state.versions[self._namespace] = resource_version

    def mark_synced(self, resource_version: str | None = None) -> None:
        """Mark the present content as complete, which allows reads."""
        if resource_version is not None:
            self._state.versions[self._namespace] = resource_version
        self._state.pending.discard(self._namespace)
        if not self._state.pending:
            self._state.synced.set()

    def begin(self, *, rewound: bool = False) -> None:
        """Begin a new list in addition to the present content; discard an unfinished one.

        In a list that is ``rewound`` (see ``ListStarted``) every object counts as changed.
        """
        self._staged, self._news = {}, {}
        self._rewound = rewound

    @property
    def staging(self) -> bool:
        """True while a list has begun and is not committed."""
        return self._staged is not None

    def stage(self, obj: T) -> None:
        """Add an object to the list that has begun.

        Most work is done here, page by page, since ``commit`` runs without a pause: an object that
        is stored in this version already is not kept a second time, and objects of the first list
        are stored immediately, since the store is not read before its end.
        """
        assert self._staged is not None, "begin() comes first"
        identity = _identity_of(obj)
        held = self._state.items.get(identity)
        if held is not None and not self._rewound and same_version(held, obj):
            obj = held
            self._news.pop(identity, None)
        elif self.has_committed:
            self._news[identity] = obj
        else:
            self._change(identity, held, obj)
        self._staged[identity] = obj

    def unstage(self, key: Named) -> None:
        """Remove an object from the list that has begun."""
        assert self._staged is not None, "begin() comes first"
        staged = self._staged.pop(_identity(key), None)
        self._news.pop(_identity(key), None)
        if staged is not None and not self.has_committed:
            self._change(_identity(key), staged, None)

    def commit(self, resource_version: str) -> Diff[T]:
        """Replace the content by the list that has begun, atomically; return the changes.

        Objects whose resourceVersion did not change stay the same Python objects and are not part
        of the changes. Marks the store, or this writer's part of it, as synced.
        """
        staged, self._staged = self._staged, None
        news, self._news = self._news, {}
        assert staged is not None, "begin() comes first"
        items = self._state.items
        added: list[T] = []
        updated: list[tuple[T, T]] = []
        deleted: list[T] = []
        home = self._namespace
        gone: list[Identity] = []
        if home or len(items) != len(staged) - sum(identity not in items for identity in news):
            gone = [
                identity
                for identity in items
                if identity not in staged and (not home or identity[0] == home)
            ]
        if not self.has_committed:
            for identity in gone:  # of an unfinished list; never delivered to handlers
                self._change(identity, items[identity], None)
            self.mark_synced(resource_version)
            return Diff(tuple(staged.values()), (), ())
        for identity in gone:
            old = items[identity]
            deleted.append(old)
            self._change(identity, old, None)
        for identity, new in news.items():
            held = items.get(identity)
            if held is None:
                added.append(new)
            elif not _same_life(held, new):
                deleted.append(held)
                added.append(new)
            elif not self._rewound and same_version(held, new):
                continue
            else:
                updated.append((held, new))
            self._change(identity, held, new)
        self.mark_synced(resource_version)
        return Diff(tuple(added), tuple(updated), tuple(deleted))

    def replace(self, objs: Iterable[T], resource_version: str) -> Diff[T]:
        """Replace the whole content by a list and return the changes, as ``commit`` does."""
        self.begin()
        for obj in objs:
            self.stage(obj)
        return self.commit(resource_version)

    def _change(self, identity: Identity, old: T | None, new: T | None) -> None:
        state = self._state
        for table in state.indexes.values():
            try:
                before = table.of(None if identity in table.failed else old)
                after = table.of(new)
            except Exception as error:  # noqa: BLE001 - a function that users gave, of users' data
                before, after = self._failed(table, identity, old, error), ()
                if new is None:
                    table.failed.discard(identity)
            else:
                table.failed.discard(identity)
            if before or after:
                table.change(identity, before, after, new)
        if new is None:
            del state.items[identity]
        else:
            state.items[identity] = new

    def _failed(
        self, table: IndexTable[T], identity: Identity, old: T | None, error: Exception
    ) -> tuple[str, ...]:
        """Mark an object as failed in an index; return its previous values there."""
        if identity in table.failed:
            return ()
        table.failed.add(identity)
        if self._on_error is not None:
            self._on_error(table.title, error, *identity)
        try:
            return table.of(old)
        except Exception:  # noqa: BLE001 - it returned another value for the same object before
            table.forget(identity)
            return ()
