"""What a controller listens to: an informer, a handler, and which events count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs

from jobsetpy.api.meta import key_of
from jobsetpy.controller._event import Event
from jobsetpy.controller._handlers import EventHandler
from jobsetpy.controller._predicates import Predicate
from jobsetpy.informers import SharedInformer
from jobsetpy.observability import metrics
from jobsetpy.observability.logging import get_logger

T = TypeVar("T")

LIVE_PRIORITY = 0
"""Of requests caused by a change."""

INITIAL_PRIORITY = -100
"""Of requests caused by an object that was there before: the first list, or a late handler."""


@attrs.frozen
class Watch(Generic[T]):
    """Events of ``informer`` that pass ``when`` become requests by ``handler``.

    Of one informer, the watches of a controller hear each event in the order in which they are
    given. A watch that keeps state up to date (a ledger, expectations) has to come before the
    watches whose requests are decided on that state. A watch that keeps a ledger has to hear every
    event, so it has no ``when``.

    Args:
        informer: where events come from.
        handler: which requests an event causes: ``enqueue_self``, ``enqueue_owner(Owner)``,
            ``enqueue_mapped(function)`` or a function of your own.
        when: a predicate; every event counts when absent.
        standby: listen while another process leads as well, so that the handler's state is complete
            when this one is elected; requests of that time are dropped. Such watches hear events
            before all others.
    """

    informer: SharedInformer[T]
    handler: EventHandler[T]
    when: Predicate | None = attrs.field(default=None, kw_only=True)
    standby: bool = attrs.field(default=False, kw_only=True)


class WatchHandler(Generic[T]):
    """Fills a queue with the requests of one watch; the informer's handler.

    An informer takes an exception of its handler for a defect and ends. Handlers and predicates of
    a watch read what users wrote, though, so one that fails for an object must not stop all others:
    the failure is logged with the object's name and counted, and that event causes no more
    requests (one whose predicate failed counts).

    Args:
        watch: what to listen to.
        add: takes each request, with its priority.
        controller: label of logs and metrics.
    """

    __slots__ = ("_add", "_controller", "_handler", "_log", "_when")

    def __init__(self, watch: Watch[T], add: Callable[..., None], *, controller: str) -> None:
        self._handler = watch.handler
        self._when = watch.when
        self._add = add
        self._controller = controller
        self._log = get_logger("controller")

    def on_add(self, obj: T, *, initial: bool) -> None:
        """An object appeared; those of the first list must not delay live events."""
        self._handle(Event(None, obj, initial=initial))

    def on_update(self, old: T, new: T) -> None:
        """An object changed."""
        self._handle(Event(old, new))

    def on_delete(self, obj: T, *, final_state_known: bool) -> None:  # noqa: ARG002 - protocol
        """An object is gone."""
        self._handle(Event(obj, None))

    def _handle(self, event: Event[T]) -> None:
        if self._when is not None:
            try:
                if not self._when(event):
                    return
            except Exception:  # noqa: BLE001 - see the class docstring
                self._failed(event, self._when)
        priority = INITIAL_PRIORITY if event.initial else LIVE_PRIORITY
        try:
            for request in self._handler(event):
                self._add(request, priority=priority)
        except Exception:  # noqa: BLE001 - see the class docstring
            self._failed(event, self._handler)

    def _failed(self, event: Event[T], function: Any) -> None:
        metrics.watch_error(self._controller)
        obj: Any = event.obj
        self._log.exception(
            "a watch's handler or predicate failed",
            controller=self._controller,
            function=getattr(function, "__qualname__", repr(function)),
            kind=type(obj).__name__,
            object=str(key_of(obj)),
        )
