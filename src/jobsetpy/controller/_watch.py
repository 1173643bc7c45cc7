"""What a controller listens to: an informer, a handler, and which events count."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import attrs

from jobsetpy.api.meta import key_of
from jobsetpy.controller._handlers import EventHandler
from jobsetpy.controller._predicates import Event, Predicate
from jobsetpy.controller._reconcile import Request
from jobsetpy.observability import metrics
from jobsetpy.observability.logging import get_logger
from jobsetpy.workqueue import WorkQueue

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

LIVE_PRIORITY = 0
"""Of requests caused by a change."""

INITIAL_PRIORITY = -100
"""Of requests caused by an object that was there before: the first list, or a late handler."""


class Listener(Protocol[T_contra]):
    """What an informer calls: an ``informers.Handler``."""

    def on_add(self, obj: T_contra, *, initial: bool) -> None:
        """An object appeared in the cache."""
        ...

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """An object changed."""
        ...

    def on_delete(self, obj: T_contra, *, final_state_known: bool) -> None:
        """An object is gone."""
        ...


class Listening(Protocol):
    """What an informer gives for a handler; ``informers.Registration`` is one."""

    async def wait_for_sync(self) -> None:
        """Wait until the handler has been told of all objects of the first list."""
        ...


class Source(Protocol[T_co]):
    """What a controller needs of an informer; ``informers.SharedInformer`` is one."""

    def add_handler(self, handler: Listener[T_co]) -> Listening:
        """Have ``handler`` called for everything from now on, and for what is there already."""
        ...


@attrs.frozen
class Watch(Generic[T]):
    """Changes in ``informer`` that pass ``when`` become requests by ``handler``.

    Args:
        informer: where changes come from.
        handler: which requests an object causes: ``enqueue_self``, ``enqueue_owner(Owner)``,
            ``enqueue_mapped(function)`` or a function of your own.
        when: a predicate; every event counts when absent.
    """

    informer: Source[T]
    handler: EventHandler[T]
    when: Predicate | None = attrs.field(default=None, kw_only=True)


class Feed(Generic[T]):
    """Fills a queue with the requests of one watch; the informer's handler.

    Requests of an update come from both the old and the new object. The queue merges equal ones.

    An informer takes an exception of its handler for a defect and ends. Handlers and predicates of
    a watch read what users wrote, though, so one that stumbles over an object must not stop all
    others: the failure is logged and counted, that object causes no request (and an event whose
    predicate failed counts).
    """

    __slots__ = ("_controller", "_handler", "_log", "_queue", "_when")

    def __init__(self, watch: Watch[T], queue: WorkQueue[Request], *, controller: str) -> None:
        self._handler = watch.handler
        self._when = watch.when
        self._queue = queue
        self._controller = controller
        self._log = get_logger("controller")

    def on_add(self, obj: T, *, initial: bool) -> None:
        """An object appeared; those of the first list must not delay live events."""
        if self._counts(None, obj):
            self._enqueue(obj, INITIAL_PRIORITY if initial else LIVE_PRIORITY)

    def on_update(self, old: T, new: T) -> None:
        """An object changed."""
        if self._counts(old, new):
            self._enqueue(new, LIVE_PRIORITY)
            self._enqueue(old, LIVE_PRIORITY)

    def on_delete(self, obj: T, *, final_state_known: bool) -> None:  # noqa: ARG002 - protocol
        """An object is gone; the key is all that counts, so its last state need not be known."""
        if self._counts(obj, None):
            self._enqueue(obj, LIVE_PRIORITY)

    def _counts(self, old: T | None, new: T | None) -> bool:
        if self._when is None:
            return True
        try:
            return self._when(Event(old, new))
        except Exception:  # noqa: BLE001 - see the class docstring
            self._stumbled(new if old is None else old, self._when)
            return True

    def _enqueue(self, obj: T, priority: int) -> None:
        try:
            for request in self._handler(obj):
                self._queue.add(request, priority=priority)
        except Exception:  # noqa: BLE001 - see the class docstring
            self._stumbled(obj, self._handler)

    def _stumbled(self, obj: Any, over: Any) -> None:
        metrics.watch_error(self._controller)
        self._log.exception(
            "a watch's handler or predicate failed",
            controller=self._controller,
            function=getattr(over, "__qualname__", repr(over)),
            kind=type(obj).__name__,
            object=str(key_of(obj)),
        )
