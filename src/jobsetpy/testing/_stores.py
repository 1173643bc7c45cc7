"""Manually filled caches, for tests of reconcilers that need no server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from jobsetpy.informers import Index, Store, StoreWriter

T = TypeVar("T")


def decoded(cls: type[T], data: Mapping[str, Any]) -> T:
    """Decode a wire object from JSON data, as informers do."""
    return msgspec.json.decode(msgspec.json.encode(data), type=cls)


def store_of(
    cls: type[T],
    objs: Iterable[T | Mapping[str, Any]] = (),
    *,
    indexes: Iterable[Index[T]] = (),
) -> Store[T]:
    """Return a synced store that holds ``objs``: wire objects, or JSON data to decode."""
    return store_writer_of(cls, objs, indexes=indexes).store


def store_writer_of(
    cls: type[T],
    objs: Iterable[T | Mapping[str, Any]] = (),
    *,
    indexes: Iterable[Index[T]] = (),
) -> StoreWriter[T]:
    """Return a store's writer, like ``store_of``, for tests that change the store afterwards."""
    writer: StoreWriter[T] = StoreWriter(cls, indexes=indexes)
    made = [decoded(cls, obj) if isinstance(obj, Mapping) else obj for obj in objs]
    writer.replace(made, "1")
    writer.mark_synced("1")
    return writer
