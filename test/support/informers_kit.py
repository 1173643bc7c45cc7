"""Small objects for tests of informers, and an observer that keeps what it is called with."""

from __future__ import annotations

from typing import Any

import msgspec

from jobsetpy.informers import NullObserver


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata, as far as informers read it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Thing(msgspec.Struct, frozen=True):
    """An object with a field of its own."""

    metadata: Meta = Meta()
    size: int = 0


class InformerLog(NullObserver):
    """Calls of an informer's observer, by kind of call, without the name of the objects' kind.

    Attributes:
        lists: number of objects of each completed list.
        relists: reasons of lists that began again.
        ends: reasons of ended watches.
        waits: seconds until each failed request is sent again.
        silences: seconds of each silent watch.
        events: types of accepted events.
        stale: types of dropped events.
        bad: namespace and name of each object that could not be decoded.
        functions: function, class of the error, namespace and name of each failed function.
        shards: for each list of a shard, whether the server left out objects of others.
    """

    def __init__(self) -> None:
        self.lists: list[int] = []
        self.relists: list[str] = []
        self.ends: list[str] = []
        self.waits: list[float] = []
        self.silences: list[float] = []
        self.events: list[str] = []
        self.stale: list[str] = []
        self.bad: list[tuple[str, str]] = []
        self.functions: list[tuple[str, type[Exception], str, str]] = []
        self.shards: list[bool] = []

    def on_list(self, kind: str, seconds: float, count: int) -> None:
        self.lists.append(count)

    def on_relist(self, kind: str, reason: str) -> None:
        self.relists.append(reason)

    def on_watch_end(self, kind: str, reason: Any) -> None:
        self.ends.append(reason)

    def on_failure(self, kind: str, error: Exception, retry_in_s: float) -> None:
        self.waits.append(retry_in_s)

    def on_silence(self, kind: str, seconds: float) -> None:
        self.silences.append(seconds)

    def on_event(self, kind: str, type_: str) -> None:
        self.events.append(type_)

    def on_stale_event(self, kind: str, type_: str) -> None:
        self.stale.append(type_)

    def on_decode_error(self, kind: str, error: Exception, namespace: str, name: str) -> None:
        self.bad.append((namespace, name))

    def on_function_error(
        self, kind: str, function: str, error: Exception, namespace: str, name: str
    ) -> None:
        self.functions.append((function, type(error), namespace, name))

    def on_shard(self, kind: str, *, by_server: bool) -> None:
        self.shards.append(by_server)
