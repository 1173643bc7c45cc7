"""All informers of a process: one for each kind and scope, started and stopped together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import msgspec

from jobsetpy.aio import supervise
from jobsetpy.api.meta import ResourceInfo
from jobsetpy.client import Client
from jobsetpy.errors import AlreadyStartedError, IndexConflictError
from jobsetpy.informers._indexer import Index
from jobsetpy.informers._informer import SharedInformer
from jobsetpy.informers._keyed_shard import KeyedShard
from jobsetpy.informers._options import DEFAULT_OPTIONS, WatchOptions

T = TypeVar("T")


def namespaced(cls: type[Any]) -> bool:
    """Return whether objects of a class are namespaced."""
    resource: ResourceInfo | None = getattr(cls, "RESOURCE", None)
    return resource is None or resource.namespaced


_Scope: TypeAlias = tuple[type[Any], tuple[str, ...], str, str, bool, KeyedShard | None]
"""Class, namespaces, label selector, field selector, ``optional``, shard."""


class InformerCache:
    """Informers by kind and scope.

    Handlers are called only after all first lists are complete: a handler may read any store.

    Args:
        client: sends all requests.
        options: options of every informer; each adds its scope.
        namespaces: default namespaces of informers of namespaced kinds; empty for all.
    """

    def __init__(
        self,
        client: Client,
        options: WatchOptions = DEFAULT_OPTIONS,
        *,
        namespaces: Iterable[str] = (),
    ) -> None:
        self._client = client
        self._namespaces = tuple(sorted(set(namespaces)))
        self._options = options
        self._informers: dict[_Scope, SharedInformer[Any]] = {}
        self._started = False

    def __len__(self) -> int:
        """Number of informers."""
        return len(self._informers)

    def informer(  # noqa: PLR0913 - what is cached, and how
        self,
        cls: type[T],
        *,
        namespace: str = "",
        namespaces: Iterable[str] = (),
        label_selector: str = "",
        field_selector: str = "",
        shard: KeyedShard | None = None,
        indexes: Iterable[Index[T]] = (),
        transform: Callable[[T], T] | None = None,
        optional: bool = False,
    ) -> SharedInformer[T]:
        """Return the informer of a class and scope, the same for each caller.

        A later call may add indexes until the start; without ``transform`` it accepts
        the present one. With ``optional``, a kind that the server does not know has no objects
        until its CRD is installed.

        Raises:
            IndexConflictError: an index or ``transform`` differs from the declared one.
            AlreadyStartedError: the informer or index is new, and the cache runs.
            TypeError: the class represents no kind.
            ValueError: a namespace was given for a cluster-scoped class.
        """
        if getattr(cls, "RESOURCE", None) is None:
            name = getattr(cls, "__name__", repr(cls))
            msg = f"{name} stands for no kind of the API: decorate a class with runtime.resource"
            raise TypeError(msg)
        homes = tuple(sorted({*namespaces, *filter(None, [namespace])}))
        if not homes and namespaced(cls):
            homes = self._namespaces
        scope = (cls, homes, label_selector, field_selector, optional, shard)
        informer: SharedInformer[T] | None = self._informers.get(scope)
        if informer is None:
            options = msgspec.structs.replace(
                self._options,
                label_selector=label_selector,
                field_selector=field_selector,
                optional=optional,
                shard=shard,
            )
            informer = self._informers[scope] = self._new(cls, options, homes, transform)
        elif transform is not None and transform != informer.transform:
            msg = f"the informer of {cls.__name__} has another transform already"
            raise IndexConflictError(msg)
        for index in indexes:
            informer.add_index(index)
        return informer

    @property
    def classes(self) -> list[type[Any]]:
        """Classes of the informers, some more than once."""
        return [scope[0] for scope in self._informers]

    def _new(
        self,
        cls: type[T],
        options: WatchOptions,
        homes: tuple[str, ...],
        transform: Callable[[T], T] | None,
    ) -> SharedInformer[T]:
        if self._started:
            msg = f"the informer of {cls.__name__} comes too late: the cache runs already"
            raise AlreadyStartedError(msg)
        gate = self._all_listed
        return SharedInformer(
            self._client, cls, options, namespaces=homes, transform=transform, before_first=gate
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all informers while the block runs; a failure of one ends the block.

        The block starts immediately, so that health can be served meanwhile: use ``wait_for_sync``
        before reading a store.

        Raises:
            AlreadyStartedError: the cache was started before.
        """
        if self._started:
            raise AlreadyStartedError("the informer cache was started already")
        self._started = True
        async with supervise() as tasks:
            for informer in self._informers.values():
                tasks.start(informer.run(), name=f"informer {informer.kind}")
            yield

    @property
    def has_synced(self) -> bool:
        """True once every informer has synced and called its handlers with the first list."""
        return all(informer.has_synced for informer in self._informers.values())

    async def wait_for_sync(self) -> None:
        """Wait until every informer has synced and called its handlers with the first list."""
        for informer in self._informers.values():
            await informer.wait_for_sync()

    async def _all_listed(self) -> None:
        for informer in self._informers.values():
            await informer.store.wait_for_sync()

    def waits_for(self) -> str:
        """Describe the informers that have not synced, and why; one or more lines for each."""
        return "\n".join(filter(None, (each.waits_for for each in self._informers.values())))

    def sizes(self) -> dict[str, int]:
        """Return the number of cached objects of each kind."""
        counts: dict[str, int] = {}
        for informer in self._informers.values():
            counts[informer.kind] = counts.get(informer.kind, 0) + len(informer.store)
        return counts

    def healthy(self, now: float | None = None) -> list[str]:
        """Return the kinds of the informers that are *not* healthy; empty if all are.

        An informer is unhealthy before its first list is complete, and when the server has been
        silent for longer than the deadlines allow (45 s, plus the time to open a new watch).

        Args:
            now: monotonic time of the check; the clock's when absent.
        """
        return sorted({one.kind for one in self._informers.values() if not one.healthy(now)})
