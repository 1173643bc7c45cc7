"""Options of a watch, shared by the watcher, its machine and the informer above them.

This module is on the agent's start-up path: standard library and msgspec only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from jobsetpy.aio import Clock, LoopClock
from jobsetpy.informers._observer import InformerObserver, NullObserver

if TYPE_CHECKING:  # the agent has no shards, and none of the libraries that they need
    from jobsetpy.informers._keyed_shard import KeyedShard


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Scope and limits of a watch.

    Args:
        namespace: namespace to watch; "" for all.
        label_selector: label selector in the API's syntax; "" for everything.
        field_selector: field selector in the API's syntax; "" for everything.
        optional: accept a kind that the server does not know: it has no objects then, and is listed
            again every ``ABSENT_S`` seconds.
        shard: part of the collection to watch; ``None`` for everything.
        page_limit: maximum number of objects in a page of a list; 0 for lists without pages.
        streaming: try the streaming list first (KEP-3157).
        idle_timeout_s: maximum silence of a watch, in seconds.
        server_timeout_s: bounds of the time after which the server ends a watch, in seconds.
        connect_timeout_s: timeout for opening a watch, in seconds; each list or attempt to open one
            that takes too long doubles it, up to four times, until a watch opens.
        list_timeout_s: timeout for one page of a list, in seconds.
        backoff_base_s: upper bound of the first wait after a failure, in seconds.
        backoff_cap_s: upper bound of every wait, in seconds.
        observer: receives events for metrics and logs.
        rand: source of uniform numbers in [0, 1).
        clock: source of time for durations.
    """

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    optional: bool = False
    shard: KeyedShard | None = None
    page_limit: int = 500
    streaming: bool = False
    idle_timeout_s: float = 45.0
    server_timeout_s: tuple[float, float] = (300.0, 600.0)
    connect_timeout_s: float = 15.0
    list_timeout_s: float = 60.0
    backoff_base_s: float = 0.1
    backoff_cap_s: float = 30.0
    observer: InformerObserver = NullObserver()
    rand: Callable[[], float] = random.random
    clock: Clock = LoopClock()


DEFAULT_OPTIONS: Final = WatchOptions()
