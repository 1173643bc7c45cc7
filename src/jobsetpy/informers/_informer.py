"""One list and watch shared by all consumers of a collection: a store and its handlers.

Handlers are synchronous and only enqueue; I/O is done in a worker.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Never, TypeVar

import msgspec

from jobsetpy.aio import supervise
from jobsetpy.api.meta import ResourceInfo
from jobsetpy.client import Client
from jobsetpy.errors import AlreadyStartedError
from jobsetpy.informers._error_hints import advice
from jobsetpy.informers._handlers import Handler, HandlerSet, Registration
from jobsetpy.informers._indexer import Index
from jobsetpy.informers._options import DEFAULT_OPTIONS, WatchOptions
from jobsetpy.informers._reflector import Reflector
from jobsetpy.informers._store import Store, StoreWriter
from jobsetpy.informers._watcher import Watcher

T = TypeVar("T")


class SharedInformer(Generic[T]):
    """Cache of one collection that notifies handlers of changes.

    Guarantees: per object, each handler receives adds, updates and deletes in the order in which
    they happened, in a valid sequence (no update before an add, none after a delete), and only
    after the store shows the change. A handler that is added late first receives all present
    objects as adds. After lost events (a new list), deletions have ``final_state_known=False``; an
    object that was deleted and recreated in between is delivered as a delete and an add. States in
    between may be skipped. Not guaranteed: any order between objects.

    Args:
        client: sends the requests.
        cls: the wire class of the objects.
        options: scope and limits of the watch.
        namespaces: namespaces to follow, each with its own list and watch, in one store; overrides
            the namespace of ``options``.
        indexes: indexes for ``store.by_index``.
        transform: applied to each object before it is stored. An object for which this, or the
            function of an index, raises is reported to the observer and left out of it.
        before_first: awaited before handlers receive the first list, for example until other
            stores that they read are complete.

    Raises:
        ValueError: a namespace was given for a cluster-scoped class.
    """

    def __init__(
        self,
        client: Client,
        cls: type[T],
        options: WatchOptions = DEFAULT_OPTIONS,
        *,
        namespaces: Iterable[str] = (),
        indexes: Iterable[Index[T]] = (),
        transform: Callable[[T], T] | None = None,
        before_first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.cls = cls
        resource: ResourceInfo | None = getattr(cls, "RESOURCE", None)
        self._namespaces = tuple(sorted(set(namespaces))) or (options.namespace,)
        if resource is not None and not resource.namespaced and self._namespaces != ("",):
            raise ValueError(f"a {resource.kind} is in no namespace: {', '.join(self._namespaces)}")

        def watcher(namespace: str) -> Watcher[T]:
            advise = None
            if resource is not None:
                advise = functools.partial(advice, resource=resource, namespace=namespace)
            scope = msgspec.structs.replace(options, namespace=namespace)
            return Watcher(client, cls, scope, advise=advise)

        self._watchers = [watcher(namespace) for namespace in self._namespaces]
        self._function_failed: Callable[[str, Exception, str, str], None] = lambda *what: (
            options.observer.on_function_error(self.kind, *what)
        )
        self._writer: StoreWriter[T] = StoreWriter(
            self.kind, indexes=indexes, on_error=self._function_failed
        )
        self._before_first = before_first
        self.store: Store[T] = self._writer.store
        self.transform = transform
        self._handlers: HandlerSet[T] = HandlerSet(lists=len(self._watchers))
        self.started = False
        """True once ``run`` was called."""

    def __repr__(self) -> str:
        """Kind and state."""
        return f"<SharedInformer of {self.store!r}>"

    @property
    def kind(self) -> str:
        """Name of the kind."""
        return self._watchers[0].kind

    @property
    def has_synced(self) -> bool:
        """True once the store is synced and the handlers have received the first list."""
        return self._handlers.synced.is_set()

    async def wait_for_sync(self) -> None:
        """Wait until ``has_synced``."""
        await self._handlers.synced.wait()

    @property
    def last_activity(self) -> float | None:
        """Monotonic time of the last sign of life from the server; ``None`` before the first.

        With several watches, the time of the one that has been silent for longest.
        """
        times = [watcher.last_activity for watcher in self._watchers]
        return None if None in times else min(time for time in times if time is not None)

    @property
    def waits_for(self) -> str:
        """Reason why the informer has not synced; "" if it has."""
        if self.has_synced:
            return ""
        if not self.started:
            return (
                f"the informer of {self.kind} is not running: take informers from "
                "manager.informer(...), or add a Runnable that runs this one"
            )
        if self.store.has_synced:
            return f"the first list of {self.kind} is complete; waiting for the others"
        failures = (watcher.failure for watcher in self._watchers)
        failure = next((one for one in failures if one is not None), None)
        if failure is None:
            return f"the first list of {self.kind} is not complete"
        return "\n".join([f"no list of {self.kind}: {failure}", *getattr(failure, "__notes__", ())])

    def healthy(self, now: float | None = None) -> bool:
        """Return whether the store is synced and the server has answered recently.

        Args:
            now: monotonic time of the check; the clock's when absent.
        """
        silent = any(watcher.silent_too_long(now) for watcher in self._watchers)
        return self.store.has_synced and not silent

    def add_index(self, index: Index[T]) -> None:
        """Declare an index; only before the start, unless it is declared already.

        Raises:
            IndexConflictError: another function has that name.
            AlreadyStartedError: the index is new and the informer runs.
        """
        if self.started and not self._writer.declares(index):
            msg = f"{index.name!r} comes too late: the informer of {self.kind} runs already"
            raise AlreadyStartedError(msg)
        self._writer.declare(index)

    def add_handler(self, handler: Handler[T]) -> Registration:
        """Call ``handler`` with all changes from now on.

        If delivery of the first list has begun, the handler is called with all present objects
        before this returns.
        """
        return self._handlers.join(handler, self.store)

    async def run(self) -> Never:
        """Follow the collection until cancelled.

        Raises:
            AlreadyStartedError: the informer was started before.
        """
        if self.started:
            raise AlreadyStartedError(f"the informer of {self.kind} was started already")
        self.started = True
        async with supervise() as tasks:
            for watcher, writer in zip(
                self._watchers, self._writer.split(self._namespaces), strict=True
            ):
                reflector = Reflector(
                    watcher,
                    writer,
                    self._handlers,
                    transform=self.transform,
                    on_error=self._function_failed,
                    before_first=self._before_first,
                )
                tasks.start(reflector.run(), name=f"reflector {self.kind}")
            await asyncio.Event().wait()
        raise AssertionError("reflectors do not end by themselves")
