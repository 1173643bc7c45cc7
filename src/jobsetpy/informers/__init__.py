"""Shared informers: lists, watches, caches with indexes and running tallies.

Names are loaded on first use: the agent needs only the watcher and must not import the caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobsetpy._lazy import lazy

if TYPE_CHECKING:
    from jobsetpy.informers._cache import InformerCache as InformerCache
    from jobsetpy.informers._events import Applied as Applied
    from jobsetpy.informers._events import Bookmark as Bookmark
    from jobsetpy.informers._events import Deleted as Deleted
    from jobsetpy.informers._events import ListCompleted as ListCompleted
    from jobsetpy.informers._events import Listed as Listed
    from jobsetpy.informers._events import ListStarted as ListStarted
    from jobsetpy.informers._events import Unreadable as Unreadable
    from jobsetpy.informers._events import WatchEvent as WatchEvent
    from jobsetpy.informers._handlers import Handler as Handler
    from jobsetpy.informers._handlers import Registration as Registration
    from jobsetpy.informers._indexer import BY_NAMESPACE as BY_NAMESPACE
    from jobsetpy.informers._indexer import OWNER_UID as OWNER_UID
    from jobsetpy.informers._indexer import Index as Index
    from jobsetpy.informers._informer import SharedInformer as SharedInformer
    from jobsetpy.informers._keyed_shard import Assignment as Assignment
    from jobsetpy.informers._keyed_shard import KeyedShard as KeyedShard
    from jobsetpy.informers._machine import WatchMachine as WatchMachine
    from jobsetpy.informers._observer import InformerObserver as InformerObserver
    from jobsetpy.informers._observer import NullObserver as NullObserver
    from jobsetpy.informers._options import WatchOptions as WatchOptions
    from jobsetpy.informers._shard import Shard as Shard
    from jobsetpy.informers._shard import Share as Share
    from jobsetpy.informers._store import Diff as Diff
    from jobsetpy.informers._store import Store as Store
    from jobsetpy.informers._store import StoreWriter as StoreWriter
    from jobsetpy.informers._tally import Tally as Tally
    from jobsetpy.informers._watcher import Watcher as Watcher

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_cache": ("InformerCache",),
        "_events": (
            "Applied",
            "Bookmark",
            "Deleted",
            "ListCompleted",
            "ListStarted",
            "Listed",
            "Unreadable",
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
    },
)
