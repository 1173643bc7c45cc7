"""The cache of one collection: ``Store`` to read, ``StoreWriter`` to write.

The writer is made once, by the reflector that fills the store, and is never handed out, so readers
cannot change what others see. Every method is a plain function: each change (object, indexes,
tallies) is whole before any other task runs. No locks, no ``await``.
"""

from __future__ import annotations

import asyncio
import builtins
import copy
from collections.abc import Callable, Hashable, Iterable, Mapping
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
from jobsetpy.informers._tally import Tally, TallyTable, TallyView

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


@attrs.frozen
class Diff(Generic[T]):
    """What a new list changed, in terms of handlers.

    An object whose uid changed counts as deleted and added. The final state of the deleted ones is
    not known: ``deleted`` holds the last that was seen.
    """

    added: tuple[T, ...] = ()
    updated: tuple[tuple[T, T], ...] = ()
    deleted: tuple[T, ...] = ()


def same_version(old: Any, new: Any) -> bool:
    """Whether two states of an object are one: same uid and same, known resourceVersion."""
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
    """Whether they are states of one object, not of two that had the same name in turn."""
    same: bool = one.metadata.uid == other.metadata.uid
    return same


class _State(Generic[T]):
    """What reader and writer share."""

    __slots__ = ("indexes", "items", "name", "pending", "synced", "tables", "tallies", "versions")

    def __init__(self, name: str) -> None:
        self.name = name
        self.items: dict[Identity, T] = {}
        self.indexes: dict[str, IndexTable[T]] = {}
        self.tallies: dict[str, TallyTable[T]] = {}
        self.tables: list[IndexTable[T] | TallyTable[T]] = []  # all of both
        self.synced = asyncio.Event()
        self.pending = {""}  # namespaces whose first list is not complete; "" is all of them
        self.versions = {"": ""}  # by namespace, in the same way

    def require_sync(self) -> None:
        if not self.synced.is_set():
            msg = f"the store of {self.name} was read before its first list was complete"
            raise NotSyncedError(msg)


class Store(Generic[T]):
    """Read handle of a cached collection.

    Objects are frozen and shared: the same object is given to all readers. Everything is O(1)
    except where said. Reads before the first complete list raise ``NotSyncedError``, because then
    absent does not mean deleted. A store lags behind the API server, never behind itself: indexes
    and tallies always fit the objects.
    """

    __slots__ = ("_state",)

    def __init__(self, state: _State[T]) -> None:
        self._state = state

    def __len__(self) -> int:
        """How many objects are there, synced or not."""
        return len(self._state.items)

    def __bool__(self) -> bool:
        """A store is true even when it is empty."""
        return True

    def __repr__(self) -> str:
        """Kind, size and sync state."""
        synced = "synced" if self.has_synced else "not synced"
        return f"<Store of {self._state.name}: {len(self)} objects, {synced}>"

    @property
    def name(self) -> str:
        """Name of the kind it holds."""
        return self._state.name

    @property
    def has_synced(self) -> bool:
        """Whether the first list is complete."""
        return self._state.synced.is_set()

    @property
    def resource_version(self) -> str:
        """The collection's version up to which changes are in; "" before the first list.

        Of several namespaces that are followed apart, the one that is furthest behind.
        """
        return min(self._state.versions.values(), key=lambda version: (len(version), version))

    async def wait_for_sync(self) -> None:
        """Wait until the first list is complete."""
        await self._state.synced.wait()

    def get(self, key: Named) -> T | None:
        """The object, or ``None``.

        Raises:
            NotSyncedError: before the first complete list.
        """
        self._state.require_sync()
        return self._state.items.get((key.namespace, key.name))

    def by_index(self, index: Index[T] | str, value: str) -> builtins.list[T]:
        """All objects with that indexed value, oldest in the store first; O(result).

        Raises:
            UnknownIndexError: the index was not declared.
            NotSyncedError: before the first complete list.
        """
        return [*self._bucket(index, value).values()]

    def index_keys(self, index: Index[T] | str, value: str) -> AbstractSet[ObjectKey]:
        """Keys of the objects with that indexed value, a copy; O(result).

        Raises:
            UnknownIndexError: the index was not declared.
            NotSyncedError: before the first complete list.
        """
        return frozenset(ObjectKey(*identity) for identity in self._bucket(index, value))

    def index_count(self, index: Index[T] | str, value: str) -> int:
        """How many objects have that indexed value; errors as ``by_index``."""
        return len(self._bucket(index, value))

    def index_values(self, index: Index[T] | str) -> builtins.list[str]:
        """All values some object has, O(values); errors as ``by_index``."""
        return [*self._index(index).entries]

    def tally(self, tally: Tally[T, K, V], key: K) -> Mapping[V, int]:
        """How many objects contribute which value under ``key``; a live, read-only view.

        Raises:
            UnknownIndexError: the tally was not declared.
            NotSyncedError: before the first complete list.
        """
        table = self._state.tallies.get(tally.name)
        if table is None:
            msg = f"the store of {self._state.name} has no tally {tally.name!r}"
            raise UnknownIndexError(msg)
        self._state.require_sync()
        return TallyView(table.counts, key)

    def tally_keys(self, tally: Tally[T, K, V]) -> builtins.list[K]:
        """All keys that some object contributes to, O(keys); errors as ``tally``."""
        table = self._state.tallies.get(tally.name)
        if table is None:
            msg = f"the store of {self._state.name} has no tally {tally.name!r}"
            raise UnknownIndexError(msg)
        self._state.require_sync()
        return [*table.counts]

    def require(self, *declared: Index[T] | Tally[T, Any, Any]) -> None:
        """Check, when things are wired, that indexes and tallies are declared.

        Raises:
            UnknownIndexError: one is not.
        """
        for one in declared:
            known = self._state.tallies if isinstance(one, Tally) else self._state.indexes
            if one.name not in known:
                what = "tally" if isinstance(one, Tally) else "index"
                msg = f"the store of {self._state.name} has no {what} {one.name!r}"
                raise UnknownIndexError(msg)

    def list(self, namespace: str | None = None) -> builtins.list[T]:
        """All objects, or those of one namespace; O(objects), or O(result) with BY_NAMESPACE.

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
            msg = f"the store of {self._state.name} has no index {name!r}"
            raise UnknownIndexError(msg)
        self._state.require_sync()
        return table

    def _bucket(self, index: Index[T] | str, value: str) -> Mapping[Identity, T]:
        return self._index(index).entries.get(value, {})


class StoreWriter(Generic[T]):
    """Write handle of a store; the only one.

    An object for which the function of an index or tally raises is stored, and left out of that
    index or tally: what one user writes must not stop the work for all others.

    Args:
        kind: the wire class, or the name of the kind; for messages.
        indexes: what ``Store.by_index`` shall answer.
        tallies: what ``Store.tally`` shall answer.
        on_error: is told which index or tally failed, with what, and the object's namespace and
            name; each time that an object begins to fail.
    """

    __slots__ = ("_namespace", "_news", "_on_error", "_staged", "_state", "store")

    def __init__(
        self,
        kind: type[T] | str = "objects",
        *,
        indexes: Iterable[Index[T]] = (),
        tallies: Iterable[Tally[T, Any, Any]] = (),
        on_error: Callable[[str, Exception, str, str], None] | None = None,
    ) -> None:
        self._on_error = on_error
        self._state: _State[T] = _State(kind if isinstance(kind, str) else kind.__name__)
        self._staged: dict[Identity, T] | None = None
        self._news: dict[Identity, T] = {}  # of these, what is not in the store as it is
        self._namespace = ""
        self.store: Store[T] = Store(self._state)
        for index in indexes:
            self.add_index(index)
        for tally in tallies:
            self.add_tally(tally)

    def split(self, namespaces: Iterable[str]) -> builtins.list[StoreWriter[T]]:
        """Writers of this store, each for the lists of one namespace.

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
        """Whether this writer's first list is complete; others may write to the same store."""
        return self._namespace not in self._state.pending

    def add_index(self, index: Index[T]) -> None:
        """Declare an index; declaring the same one again does nothing.

        Raises:
            IndexConflictError: another function has that name.
            AlreadyStartedError: the store has objects.
        """
        if not self.declares(index):
            self._require_empty(index.name)
            table = self._state.indexes[index.name] = IndexTable(index)
            self._state.tables.append(table)

    def add_tally(self, tally: Tally[T, Any, Any]) -> None:
        """Declare a tally; declaring the same one again does nothing.

        Raises:
            IndexConflictError: another function has that name.
            AlreadyStartedError: the store has objects.
        """
        if not self.declares(tally):
            self._require_empty(tally.name)
            table = self._state.tallies[tally.name] = TallyTable(tally)
            self._state.tables.append(table)

    def declares(self, what: Index[T] | Tally[T, Any, Any]) -> bool:
        """Whether exactly this index or tally is declared.

        Raises:
            IndexConflictError: another function has that name.
        """
        known: Index[T] | Tally[T, Any, Any] | None
        if isinstance(what, Tally):
            tally = self._state.tallies.get(what.name)
            sort, known = "tally", tally.tally if tally else None
        else:
            index = self._state.indexes.get(what.name)
            sort, known = "index", index.index if index else None
        if known is not None and known != what:
            msg = f"{sort} {what.name!r} is declared already, with another function"
            raise IndexConflictError(msg)
        return known is not None

    def _require_empty(self, what: str) -> None:
        if self._state.items or self._state.synced.is_set():
            msg = f"{what!r} comes too late: the store of {self._state.name} is filled already"
            raise AlreadyStartedError(msg)

    def current(self, key: Named) -> T | None:
        """What ``Store.get`` would answer, synced or not."""
        return self._state.items.get(_identity(key))

    def apply(self, obj: T) -> T | None:
        """Put an object in; returns the one that was there."""
        identity = _identity_of(obj)
        old = self._state.items.get(identity)
        self._change(identity, old, obj)
        return old

    def delete(self, key: Named) -> T | None:
        """Take an object out; returns it, or ``None`` if it was not there."""
        identity = _identity(key)
        old = self._state.items.get(identity)
        if old is not None:
            self._change(identity, old, None)
        return old

    def set_version(self, resource_version: str) -> None:
        """Note up to where changes are in."""
        self._state.versions[self._namespace] = resource_version

    def mark_synced(self, resource_version: str | None = None) -> None:
        """Allow reads; what is there now is complete."""
        if resource_version is not None:
            self._state.versions[self._namespace] = resource_version
        self._state.pending.discard(self._namespace)
        if not self._state.pending:
            self._state.synced.set()

    def begin(self) -> None:
        """Begin a new list beside the present content; an unfinished one is thrown away."""
        self._staged, self._news = {}, {}

    @property
    def staging(self) -> bool:
        """Whether a list has begun and is not committed."""
        return self._staged is not None

    def stage(self, obj: T) -> None:
        """Put an object into the list that has begun.

        As much as can be is done here, page by page, since ``commit`` does its part at once: what
        is held already in this version is not kept a second time, and nobody reads a store before
        its first list, so objects of that one go to their place now.
        """
        assert self._staged is not None, "begin() comes first"
        identity = _identity_of(obj)
        held = self._state.items.get(identity)
        if held is not None and _same_life(held, obj) and same_version(held, obj):
            obj = held
            self._news.pop(identity, None)
        elif self.has_committed:
            self._news[identity] = obj
        else:
            self._change(identity, held, obj)
        self._staged[identity] = obj

    def unstage(self, key: Named) -> None:
        """Take an object out of the list that has begun."""
        assert self._staged is not None, "begin() comes first"
        staged = self._staged.pop(_identity(key), None)
        self._news.pop(_identity(key), None)
        if staged is not None and not self.has_committed:
            self._change(_identity(key), staged, None)

    def commit(self, resource_version: str) -> Diff[T]:
        """Make the list that has begun the content, at once; returns what that changed.

        Objects whose resourceVersion did not change stay the same Python objects, and are no part
        of the difference. Marks the store as synced, or this writer's part of it.
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
            for identity in gone:  # of a list that was not finished; nobody has heard of them
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
            elif same_version(held, new):
                continue
            else:
                updated.append((held, new))
            self._change(identity, held, new)
        self.mark_synced(resource_version)
        return Diff(tuple(added), tuple(updated), tuple(deleted))

    def replace(self, objs: Iterable[T], resource_version: str) -> Diff[T]:
        """Replace the whole content by a list; see ``commit``."""
        self.begin()
        for obj in objs:
            self.stage(obj)
        return self.commit(resource_version)

    def _change(self, identity: Identity, old: T | None, new: T | None) -> None:
        state = self._state
        table: Any
        for table in state.tables:
            failed = table.failed
            try:
                before = table.of(None if failed and identity in failed else old)
                after = table.of(new)
            except Exception as error:  # noqa: BLE001 - a function that users gave, of users' data
                before, after = self._failed(table, identity, old, error), table.nothing()
                if new is None:
                    table.failed.discard(identity)
            else:
                if failed:
                    failed.discard(identity)
            table.change(identity, before, after, new)
        if new is None:
            del state.items[identity]
        else:
            state.items[identity] = new

    def _failed(self, table: Any, identity: Identity, old: T | None, error: Exception) -> Any:
        """What an object had so far in a table whose function fails; it is noted as failed."""
        if identity in table.failed:
            return table.nothing()
        table.failed.add(identity)
        if self._on_error is not None:
            self._on_error(table.title, error, *identity)
        try:
            return table.of(old)
        except Exception:  # noqa: BLE001 - it was another for the same object before
            table.forget(identity)
            return table.nothing()
