"""Indexes of a store: objects by value, kept up to date by each event.

Name and function are declared together, in one constant, before the informer starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeAlias, TypeVar

import attrs

T = TypeVar("T")

Identity: TypeAlias = tuple[str, str]
"""Namespace and name. Tables are keyed by tuples, which Python hashes and compares natively;
``ObjectKey`` does both in Python code, which takes five times as long."""


@attrs.frozen
class Index(Generic[T]):
    """A named function from an object to the values under which it is found.

    Args:
        name: unique within a store; the field's path is a good name.
        func: returns any number of values, and must depend on the object alone; a string is one
            value, ``None`` is no value. An object for which it raises is not in the index.
    """

    name: str
    func: Callable[[T], Iterable[str] | None]


def _controller_uid(obj: Any) -> tuple[str, ...]:
    for reference in obj.metadata.owner_references:
        if reference.controller:
            return (reference.uid,)
    return ()


OWNER_UID: Index[Any] = Index("metadata.ownerReferences.controller.uid", _controller_uid)
"""By the UID of the owner that manages the object (at most one has ``controller: true``)."""

BY_NAMESPACE: Index[Any] = Index("metadata.namespace", lambda obj: (obj.metadata.namespace,))
"""By namespace; with it, ``Store.list(namespace)`` does not scan."""


class IndexTable(Generic[T]):
    """One index's entries: value → identity → object, in the order of insertion.

    Dicts rather than sets: smaller for thousands of entries, ordered, and a look-up needs no
    second step from identity to object.
    """

    __slots__ = ("declared", "entries", "failed")

    def __init__(self, index: Index[T]) -> None:
        self.declared = index
        self.entries: dict[str, dict[Identity, T]] = {}
        self.failed: set[Identity] = set()

    @property
    def title(self) -> str:
        """Name of the index in messages."""
        return f"index {self.declared.name!r}"

    def of(self, obj: T | None) -> tuple[str, ...]:
        """Return the distinct values of an object, () for ``None``. Raises what ``func`` raises."""
        if obj is None:
            return ()
        found: Any = self.declared.func(obj)  # users' code: types are not checked
        if found is None:
            return ()
        if isinstance(found, str):
            return (found,)
        values = tuple(found)
        for value in values:
            if type(value) is not str and not isinstance(value, str):
                raise TypeError(f"an index needs texts as values, not {value!r}")
        return values if len(values) < 2 else tuple(dict.fromkeys(values))

    def change(
        self, identity: Identity, before: tuple[str, ...], after: tuple[str, ...], obj: T | None
    ) -> None:
        """Move an object from its values ``before`` to those ``after``; cannot fail."""
        for value in before:
            if value not in after:
                # A function that depends on more than the object may name another value now.
                bucket = self.entries.get(value)
                if bucket is not None:
                    bucket.pop(identity, None)
                    if not bucket:
                        del self.entries[value]
        if obj is not None:
            for value in after:
                self.entries.setdefault(value, {})[identity] = obj

    def forget(self, identity: Identity) -> None:
        """Remove an object whose values are no longer known; O(values)."""
        for value in [value for value, bucket in self.entries.items() if identity in bucket]:
            self.change(identity, (value,), (), None)
