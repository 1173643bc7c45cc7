"""Shared informers: lists, watches, caches with indexes and running tallies.

Names are loaded on first use: the agent needs only the watcher and must not import the caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobsetpy.informers._buffer import CoalescingBuffer
    from jobsetpy.informers._cache import InformerCache
    from jobsetpy.informers._events import (
        Applied,
        Bookmark,
        Deleted,
        ListCompleted,
        Listed,
        ListStarted,
        Unreadable,
        WatchEvent,
    )
    from jobsetpy.informers._handlers import Handler, Registration
    from jobsetpy.informers._indexer import BY_NAMESPACE, OWNER_UID, Index
    from jobsetpy.informers._informer import SharedInformer
    from jobsetpy.informers._keyed_shard import Assignment, KeyedShard
    from jobsetpy.informers._machine import WatchMachine
    from jobsetpy.informers._observer import InformerObserver, NullObserver
    from jobsetpy.informers._options import WatchOptions
    from jobsetpy.informers._shard import Shard, Share
    from jobsetpy.informers._store import Diff, Store, StoreWriter
    from jobsetpy.informers._tally import Tally
    from jobsetpy.informers._watcher import Watcher

_HOMES = {
    "_buffer": ("CoalescingBuffer",),
    "_cache": ("InformerCache",),
    "_events": (
        "Applied", "Bookmark", "Deleted", "ListCompleted", "ListStarted", "Listed", "Unreadable",
        "WatchEvent",
    ),
    "_handlers": ("Handler", "Registration"),
    "_indexer": ("BY_NAMESPACE", "Index", "OWNER_UID"),
    "_informer": ("SharedInformer",),
    "_keyed_shard": ("Assignment", "KeyedShard"),
    "_machine": ("WatchMachine",),
    "_observer": ("InformerObserver", "NullObserver"),
    "_options": ("WatchOptions",),
    "_shard": ("Shard", "Share"),
    "_store": ("Diff", "Store", "StoreWriter"),
    "_tally": ("Tally",),
    "_watcher": ("Watcher",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BY_NAMESPACE",
    "OWNER_UID",
    "Applied",
    "Assignment",
    "Bookmark",
    "CoalescingBuffer",
    "Deleted",
    "Diff",
    "Handler",
    "Index",
    "InformerCache",
    "InformerObserver",
    "KeyedShard",
    "ListCompleted",
    "ListStarted",
    "Listed",
    "NullObserver",
    "Registration",
    "Shard",
    "Share",
    "SharedInformer",
    "Store",
    "StoreWriter",
    "Tally",
    "Unreadable",
    "WatchEvent",
    "WatchMachine",
    "WatchOptions",
    "Watcher",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
