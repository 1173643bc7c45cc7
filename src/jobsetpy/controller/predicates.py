"""Predicates: select the changes that trigger a reconcile.

A predicate is a function of an :class:`Event`. Named as adjectives, they read well in a ``Watch``:
``Watch(jobs, enqueue_self, when=any_of(generation_changed, labels_changed))``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from jobsetpy.controller._event import Event

Predicate: TypeAlias = Callable[[Event[Any]], bool]
"""Function that returns whether an event counts. Must be fast and must not raise."""


def generation_changed(event: Event[Any]) -> bool:
    """Pass adds, deletes, and updates of the spec, which the API server counts in ``generation``.

    All updates of a kind without generations (always 0, such as Pods and ConfigMaps) pass.
    """
    if event.old is None or event.new is None:
        return True
    new: int = event.new.metadata.generation
    return new == 0 or new != event.old.metadata.generation


def created(event: Event[Any]) -> bool:
    """Pass adds: objects that are new, or existed when the controller started to watch."""
    return event.old is None


def updated(event: Event[Any]) -> bool:
    """Pass updates."""
    return event.is_update


def deleted(event: Event[Any]) -> bool:
    """Pass deletes: objects that are gone."""
    return event.deleted


def field_changed(path: str) -> Predicate:
    """Pass adds, deletes, and updates that change a field.

    Args:
        path: attribute path, such as ``status.phase``. A missing attribute counts as ``None``.
    """
    names = path.split(".")

    def read(obj: Any) -> Any:
        for name in names:
            obj = getattr(obj, name, None)
        return obj

    def changed(event: Event[Any]) -> bool:
        if event.old is None or event.new is None:
            return True
        return bool(read(event.old) != read(event.new))

    changed.__name__ = changed.__qualname__ = f"field_changed({path!r})"
    return changed


labels_changed = field_changed("metadata.labels")
"""Passes adds, deletes, and updates of labels."""

annotations_changed = field_changed("metadata.annotations")
"""Passes adds, deletes, and updates of annotations."""

resource_version_changed = field_changed("metadata.resource_version")
"""Passes adds, deletes, and updates that changed anything (a replay of a cache does not)."""


def named(*names: str) -> Predicate:
    """Pass events of objects with one of these names."""
    wanted = frozenset(names)
    return lambda event: event.obj.metadata.name in wanted


def any_of(*predicates: Predicate) -> Predicate:
    """Pass events that pass at least one of ``predicates``; with none, no event passes."""
    return lambda event: any(predicate(event) for predicate in predicates)


def not_(predicate: Predicate) -> Predicate:
    """Pass events that do not pass ``predicate``.

    Most predicates here pass adds and deletes, so ``not_`` filters those out.
    """
    return lambda event: not predicate(event)
