"""Shared informers: lists, watches, caches with indexes.

Names are loaded on first use: the agent needs only the watcher and must not import the caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobsetpy._lazy import lazy

if TYPE_CHECKING:
    from jobsetpy.informers._cache import InformerCache as InformerCache
    from jobsetpy.informers._handlers import Handler as Handler
    from jobsetpy.informers._handlers import Registration as Registration
    from jobsetpy.informers._indexer import BY_NAMESPACE as BY_NAMESPACE
    from jobsetpy.informers._indexer import OWNER_UID as OWNER_UID
    from jobsetpy.informers._indexer import Index as Index
    from jobsetpy.informers._informer import SharedInformer as SharedInformer
    from jobsetpy.informers._keyed_shard import Assignment as Assignment
    from jobsetpy.informers._keyed_shard import KeyedShard as KeyedShard
    from jobsetpy.informers._observer import InformerObserver as InformerObserver
    from jobsetpy.informers._observer import NullObserver as NullObserver
    from jobsetpy.informers._options import WatchOptions as WatchOptions
    from jobsetpy.informers._store import Store as Store
    from jobsetpy.informers._store import StoreWriter as StoreWriter

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_cache": ("InformerCache",),
        "_handlers": ("Handler", "Registration"),
        "_indexer": ("BY_NAMESPACE", "Index", "OWNER_UID"),
        "_informer": ("SharedInformer",),
        "_keyed_shard": ("Assignment", "KeyedShard"),
        "_observer": ("InformerObserver", "NullObserver"),
        "_options": ("WatchOptions",),
        "_store": ("Store", "StoreWriter"),
    },
)
