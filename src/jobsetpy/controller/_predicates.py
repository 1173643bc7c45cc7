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


def _changed(path: str) -> Predicate:
    def changed(event: Event[Any]) -> bool:
        if event.old is None or event.new is None:
            return True
        old, new = getattr(event.old.metadata, path), getattr(event.new.metadata, path)
        return bool(old != new)

    changed.__name__ = changed.__qualname__ = f"{path}_changed"
    return changed


def generation_changed(event: Event[Any]) -> bool:
    """Pass adds, deletes, and updates of the spec, which the API server counts in ``generation``.

    All updates of a kind without generations (always 0, such as Pods and ConfigMaps) pass.
    """
    if event.old is None or event.new is None:
        return True
    new: int = event.new.metadata.generation
    return new == 0 or new != event.old.metadata.generation


labels_changed = _changed("labels")
"""Passes adds, deletes, and updates of labels."""

annotations_changed = _changed("annotations")
"""Passes adds, deletes, and updates of annotations."""

resource_version_changed = _changed("resource_version")
"""Passes adds, deletes, and updates that changed anything (a replay of a cache does not)."""


def any_of(*predicates: Predicate) -> Predicate:
    """Pass events that pass at least one of ``predicates``; with none, no event passes."""
    return lambda event: any(predicate(event) for predicate in predicates)


def all_of(*predicates: Predicate) -> Predicate:
    """Pass events that pass all ``predicates``; with none, every event passes."""
    return lambda event: all(predicate(event) for predicate in predicates)


def not_(predicate: Predicate) -> Predicate:
    """Pass events that do not pass ``predicate``.

    Most predicates here pass adds and deletes, so ``not_`` filters those out.
    """
    return lambda event: not predicate(event)
