"""Further predicates: for kinds of changes, and for selected objects."""

from __future__ import annotations

from typing import Any

from jobsetpy.controller import Event, Predicate


def created(event: Event[Any]) -> bool:
    """Pass adds: objects that are new, or existed when the controller started to watch."""
    return event.old is None


def updated(event: Event[Any]) -> bool:
    """Pass updates."""
    return event.is_update


def deleted(event: Event[Any]) -> bool:
    """Pass deletes: objects that are gone."""
    return event.deleted


def deletion_requested(event: Event[Any]) -> bool:
    """Pass events of objects that are marked as deleted and wait for finalizers or removal."""
    return event.obj.metadata.deletion_timestamp is not None


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


def in_namespaces(*namespaces: str) -> Predicate:
    """Pass events of objects in one of these namespaces."""
    wanted = frozenset(namespaces)
    return lambda event: event.obj.metadata.namespace in wanted


def named(*names: str) -> Predicate:
    """Pass events of objects with one of these names."""
    wanted = frozenset(names)
    return lambda event: event.obj.metadata.name in wanted


def has_labels(**labels: str | None) -> Predicate:
    """Pass events of objects with these labels, before or after the change.

    Args:
        labels: labels and their values; ``None`` for any value. Keys that are not Python names
            are given as ``**{"app.kubernetes.io/name": "x"}``.
    """

    def fits(obj: Any) -> bool:
        if obj is None:
            return False
        have = obj.metadata.labels
        return all(key in have and value in (None, have[key]) for key, value in labels.items())

    return lambda event: fits(event.new) or fits(event.old)
