"""More predicates: of what kind a change is, and of which objects."""

from __future__ import annotations

from typing import Any

from jobsetpy.controller import Event, Predicate


def created(event: Event[Any]) -> bool:
    """Adds: objects that are new, or were there when the controller began to listen."""
    return event.old is None


def updated(event: Event[Any]) -> bool:
    """Updates."""
    return event.is_update


def deleted(event: Event[Any]) -> bool:
    """Deletes: objects that are gone."""
    return event.deleted


def deletion_requested(event: Event[Any]) -> bool:
    """Events of objects that are marked as deleted, and wait for their finalizers or their end."""
    return event.obj.metadata.deletion_timestamp is not None


def field_changed(path: str) -> Predicate:
    """Adds, deletes, and updates that change a field.

    Args:
        path: of attributes, such as ``status.phase``. One that is not there counts as ``None``.
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
    """Events of objects in one of these namespaces."""
    wanted = frozenset(namespaces)
    return lambda event: event.obj.metadata.namespace in wanted


def named(*names: str) -> Predicate:
    """Events of objects of one of these names."""
    wanted = frozenset(names)
    return lambda event: event.obj.metadata.name in wanted


def has_labels(**labels: str | None) -> Predicate:
    """Events of objects with these labels, before or after the change.

    Args:
        labels: with their values; ``None`` for any value. Keys that are no Python names are given
            as ``**{"app.kubernetes.io/name": "x"}``.
    """

    def fits(obj: Any) -> bool:
        if obj is None:
            return False
        have = obj.metadata.labels
        return all(key in have and value in (None, have[key]) for key, value in labels.items())

    return lambda event: fits(event.new) or fits(event.old)
