"""Which changes are worth a reconcile.

A predicate is a function of an :class:`Event`. Named as adjectives, they read well in a ``Watch``:
``Watch(jobs, enqueue_self, when=any_of(generation_changed, labels_changed))``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from jobsetpy.controller._event import Event

Predicate: TypeAlias = Callable[[Event[Any]], bool]
"""Whether an event counts. Must be quick and must not raise."""


def _changed(path: str) -> Predicate:
    def changed(event: Event[Any]) -> bool:
        if event.old is None or event.new is None:
            return True
        old, new = getattr(event.old.metadata, path), getattr(event.new.metadata, path)
        return bool(old != new)

    changed.__name__ = changed.__qualname__ = f"{path}_changed"
    return changed


def generation_changed(event: Event[Any]) -> bool:
    """Adds, deletes, and updates of the spec: the API server counts those in ``generation``.

    A kind without generations (it stays 0, as for Pods and ConfigMaps) passes with any update.
    """
    if event.old is None or event.new is None:
        return True
    new: int = event.new.metadata.generation
    return new == 0 or new != event.old.metadata.generation


labels_changed = _changed("labels")
"""Adds, deletes, and updates of labels."""

annotations_changed = _changed("annotations")
"""Adds, deletes, and updates of annotations."""

resource_version_changed = _changed("resource_version")
"""Adds, deletes, and updates that changed anything at all (a replay of a cache does not)."""


def any_of(*predicates: Predicate) -> Predicate:
    """Events that pass at least one of ``predicates``; with none, no event passes."""
    return lambda event: any(predicate(event) for predicate in predicates)


def all_of(*predicates: Predicate) -> Predicate:
    """Events that pass all ``predicates``; with none, every event passes."""
    return lambda event: all(predicate(event) for predicate in predicates)


def not_(predicate: Predicate) -> Predicate:
    """Events that do not pass ``predicate``.

    Adds and deletes pass most predicates here, so ``not_`` leaves them out.
    """
    return lambda event: not predicate(event)
