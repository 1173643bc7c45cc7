"""Watches: the informer, event handler and predicate that trigger a controller."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import attrs

from jobsetpy.api.meta import key_of
from jobsetpy.api.reconcile import Request
from jobsetpy.controller._event import Event
from jobsetpy.controller._handlers import EventHandler, enqueue_mapped, enqueue_owner
from jobsetpy.controller.predicates import Predicate
from jobsetpy.errors import NotSyncedError
from jobsetpy.informers import SharedInformer
from jobsetpy.observability import metrics
from jobsetpy.observability.logging import get_logger

T = TypeVar("T")

_SHOWN: Final = 200
"""Maximum number of characters of a value shown in a message."""

LIVE_PRIORITY = 0
"""Priority of requests caused by a change."""

INITIAL_PRIORITY = -100
"""Priority of requests caused by existing objects: the first list, or a late handler."""


@attrs.frozen
class Watch(Generic[T]):
    """Turns the events of ``informer`` that pass ``when`` into requests by ``handler``.

    The watches of one informer receive each event in the order in which the controller lists
    them. A watch that keeps state up to date (a ledger, expectations) must come before the
    watches whose requests depend on that state. A watch that keeps a ledger needs every event,
    so it has no ``when``.

    Args:
        informer: source of events.
        handler: function that returns the requests of an event: ``enqueue_self``,
            ``enqueue_owner(Owner)``, ``enqueue_mapped(function)`` or your own.
        when: a predicate; every event counts when absent.
        standby: also receive events while another process leads, so that the handler's state is
            complete when this one is elected; requests of that time are dropped. Such watches
            receive events before all others.
        debounce_s: delay of this watch's requests, in seconds; requests for the same key within
            it are merged: for objects that change in bursts.
    """

    informer: SharedInformer[T] = attrs.field()
    handler: EventHandler[T] = attrs.field()
    when: Predicate | None = attrs.field(default=None, kw_only=True)
    standby: bool = attrs.field(default=False, kw_only=True)
    debounce_s: float = attrs.field(default=0.0, kw_only=True)

    @informer.validator
    def _check_informer(self, _: object, informer: object) -> None:
        if isinstance(informer, type):
            name = informer.__name__
            msg = f"a Watch needs an informer, not the class {name}: manager.informer({name})"
            raise TypeError(msg)
        if not callable(getattr(informer, "add_handler", None)):
            raise TypeError(
                f"a Watch needs an informer, not {_short(informer)}: take what "
                "manager.informer(...) returns, not its store"
            )

    @handler.validator
    def _check_handler(self, _: object, handler: object) -> None:
        for factory, usage in _FACTORIES.items():
            if handler is factory:
                msg = f"a Watch needs what {usage} returns, not {factory.__name__} itself"
                raise TypeError(msg)
        if not callable(handler):
            raise TypeError(f"a Watch's handler is a function of an Event, not {_short(handler)}")
        if inspect.iscoroutinefunction(handler):
            raise TypeError(
                f"a Watch's handler must not be async: {_short(handler)} is called for each event "
                "and only says which keys to reconcile"
            )

    @when.validator
    def _check_when(self, _: object, when: object) -> None:
        if when is not None and (not callable(when) or inspect.iscoroutinefunction(when)):
            msg = f"a Watch's predicate is a synchronous function of an Event, not {_short(when)}"
            raise TypeError(msg)


_FACTORIES: Final[dict[Callable[..., Any], str]] = {
    enqueue_owner: "enqueue_owner(Owner)",
    enqueue_mapped: "enqueue_mapped(function)",
}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class WatchHandler(Generic[T]):
    """Fills a queue with the requests of one watch; registered with the informer.

    An informer treats an exception of its handler as a defect and ends. Handlers and predicates
    of a watch read user input, however, so a failure for one object must not stop the others: it
    is logged with the object's name and counted, and the event causes no further requests (if the
    predicate failed, the event counts).

    Args:
        watch: the watch.
        add: takes each request, with its priority.
        controller: label of logs and metrics.
        put_off: takes events for which the handler or predicate read a store that had not synced,
            to pass them to ``handle`` again; returns whether it takes them.
    """

    __slots__ = ("_add", "_controller", "_handler", "_log", "_put_off", "_when")

    def __init__(
        self,
        watch: Watch[T],
        add: Callable[..., None],
        *,
        controller: str,
        put_off: Callable[[WatchHandler[T], Event[T]], bool] = lambda *_: False,
    ) -> None:
        self._put_off = put_off
        self._handler = watch.handler
        self._when = watch.when
        self._add = add
        self._controller = controller
        self._log = get_logger("controller")

    def on_add(self, obj: T, *, initial: bool) -> None:
        """Handle an add; objects of the first list must not delay live events."""
        self.handle(Event(None, obj, initial=initial))

    def on_update(self, old: T, new: T) -> None:
        """Handle an update."""
        self.handle(Event(old, new))

    def on_delete(self, obj: T, *, final_state_known: bool) -> None:  # noqa: ARG002 - protocol
        """Handle a delete."""
        self.handle(Event(obj, None))

    def handle(self, event: Event[T]) -> None:
        """Enqueue the requests of an event."""
        if self._when is not None:
            try:
                if not self._when(event):
                    return
            except Exception as error:  # noqa: BLE001 - see the class docstring
                if self._is_put_off(event, self._when, error):
                    return
        priority = INITIAL_PRIORITY if event.initial else LIVE_PRIORITY
        try:
            for request in self._handler(event):
                if type(request) is not Request:
                    _check_request(request)
                self._add(request, priority=priority)
        except Exception as error:  # noqa: BLE001 - see the class docstring
            self._is_put_off(event, self._handler, error)

    def _is_put_off(self, event: Event[T], function: Any, error: Exception) -> bool:
        """Put the event off if a store had not synced; log any other failure."""
        if isinstance(error, NotSyncedError) and self._put_off(self, event):
            return True
        metrics.watch_error(self._controller)
        obj: Any = event.obj
        self._log.exception(
            "a watch's handler or predicate failed",
            controller=self._controller,
            function=getattr(function, "__qualname__", repr(function)),
            kind=type(obj).__name__,
            object=str(key_of(obj)),
        )
        return False


def _check_request(request: object) -> None:
    if not isinstance(request, Request):
        raise TypeError(
            "a watch's handler gives Requests (a function for enqueue_mapped: or ObjectKeys), not "
            f"{_short(request)}"
        )
