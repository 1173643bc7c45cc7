"""Shards of a collection, by the API server's hash (KEP-5866).

With the feature gate ShardedListAndWatch (alpha in Kubernetes 1.36) the server sends only objects
of the shard. A server without it ignores the parameter, so received objects are always checked
again.

This module is on the agent's start-up path: standard library and msgspec only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Final, Literal, Protocol

import msgspec

_OFFSET: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_ALL: Final = 1 << 64
MOST: Final = 1024
"""Maximum number of shards."""


class Share(Protocol):
    """The followed part of a collection; other objects are dropped when received."""

    @property
    def moves(self) -> bool:
        """True if an object may leave or enter it: more than its identity decides."""

    @property
    def selector(self) -> str:
        """The request's parameter ``shardSelector``; "" for everything."""

    def holds(self, metadata: Any) -> bool:
        """Return whether an object is in it, by its metadata; by its identity if not ``moves``."""

    def foreign(self, raw: msgspec.Raw) -> Any:
        """Return an object that is certainly not in it, with its metadata alone; else ``None``.

        Only to save the rest of the decoding: ``None`` is always correct.
        """


@lru_cache(maxsize=4096)
def fnv1a_64(text: str) -> int:
    """Return the hash of Kubernetes' shard selectors: 64-bit FNV-1a of the UTF-8 text."""
    value = _OFFSET
    for byte in text.encode():
        value = (value ^ byte) * _PRIME % _ALL
    return value


class Shard(msgspec.Struct, frozen=True):
    """One of ``count`` disjoint shards of about the same size that cover the collection.

    Args:
        index: index of the shard, from 0.
        count: number of shards.
        by: hashed field. ``uid``: objects are spread evenly, one by one. ``namespace``: objects of
            a namespace stay together, such as an object and its children; the balance depends on
            the names, since the last letters hardly affect the high bits of the hash, by which the
            ranges are divided: ``team-0`` to ``team-9`` are all in one shard.

    Raises:
        ValueError: an argument is out of range.
    """

    index: int
    count: int
    by: Literal["namespace", "uid"] = "namespace"

    moves: ClassVar[bool] = False
    """The hashed fields never change."""

    def __post_init__(self) -> None:
        """Validate the fields."""
        if not 1 <= self.count <= MOST:
            raise ValueError(f"number of shards: {self.count}: must be from 1 to {MOST}")
        if not 0 <= self.index < self.count:
            msg = f"shard {self.index} of {self.count}: must be from 0 to {self.count - 1}"
            raise ValueError(msg)
        if self.by not in {"namespace", "uid"}:
            raise ValueError(f"shards by {self.by!r}: must be by namespace or uid")

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse ``INDEX/COUNT``, such as ``0/2``.

        Raises:
            ValueError: the form is wrong, or a number is out of range.
        """
        index, slash, count = text.partition("/")
        if not (slash and index.isdecimal() and count.isdecimal() and text.isascii()):
            raise ValueError(f"{text!r} is not INDEX/COUNT, such as 0/2 and 1/2")
        return cls(int(index), int(count))

    def __str__(self) -> str:
        """Format of ``parse``."""
        return f"{self.index}/{self.count}"

    @property
    def selector(self) -> str:
        """The request's parameter ``shardSelector``; "" for everything."""
        if self.count == 1:
            return ""
        low, high = self._bounds
        return f"shardRange(object.metadata.{self.by}, '0x{low:016x}', '0x{high:016x}')"

    def holds(self, metadata: Any) -> bool:
        """Return whether an object is in the shard, by its namespace and uid."""
        if self.count == 1:
            return True
        low, high = self._bounds
        return low <= fnv1a_64(getattr(metadata, self.by)) < high

    def foreign(self, raw: msgspec.Raw) -> Any:  # noqa: ARG002 - the signature of Share
        """Return ``None``: a server with shards does not send objects of other shards."""
        return None

    @property
    def _bounds(self) -> tuple[int, int]:
        span = _ALL // self.count
        low = span * self.index
        return low, _ALL if self.index == self.count - 1 else low + span
