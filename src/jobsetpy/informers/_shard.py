"""A share of all objects, by the hash that the API server knows (KEP-5866).

With the feature gate ShardedListAndWatch (alpha in Kubernetes 1.36) the server sends only objects
of the share. One that does not know it ignores the parameter, so what comes is looked at once more
in any case.

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
"""So many shards at most."""


class Identity(Protocol):
    """What of an object's metadata decides."""

    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...


class Share(Protocol):
    """A part of a collection that is followed; the rest is dropped as it comes."""

    @property
    def moves(self) -> bool:
        """Whether an object may leave it or come into it."""

    @property
    def selector(self) -> str:
        """The request's parameter ``shardSelector``; "" for everything."""

    def holds(self, metadata: Any) -> bool:
        """Whether an object is in it, by its metadata."""

    def may_hold(self, metadata: Identity) -> bool:
        """The same of an object that does not fit the model: its identity is all there is."""

    def foreign(self, raw: msgspec.Raw) -> Any:
        """An object that is certainly not in it, with its metadata alone; else ``None``.

        Only to save the rest of the decoding: ``None`` is always right.
        """


@lru_cache(maxsize=4096)
def fnv1a_64(text: str) -> int:
    """The hash of Kubernetes' shard selectors: FNV-1a with 64 bits, of UTF-8."""
    value = _OFFSET
    for byte in text.encode():
        value = (value ^ byte) * _PRIME % _ALL
    return value


class Shard(msgspec.Struct, frozen=True):
    """One of ``count`` shares of about the same size; together they are everything, once.

    Args:
        index: which one, from 0.
        count: how many there are.
        by: what is hashed. ``uid``: spread evenly, each object by itself. ``namespace``: objects of
            a namespace stay together, such as one and what was made for it; how evenly depends on
            the names, since the hash hardly mixes their last letters into what the ranges are of:
            ``team-0`` to ``team-9`` are all in one.

    Raises:
        ValueError: there is no such share.
    """

    index: int
    count: int
    by: Literal["namespace", "uid"] = "namespace"

    moves: ClassVar[bool] = False
    """What is hashed never changes."""

    def __post_init__(self) -> None:
        """Refuse what is none."""
        if not 1 <= self.count <= MOST:
            msg = f"number of shards: {self.count}: must be from 1 to {MOST}"
            raise ValueError(msg)
        if not 0 <= self.index < self.count:
            msg = f"shard {self.index} of {self.count}: must be from 0 to {self.count - 1}"
            raise ValueError(msg)
        if self.by not in {"namespace", "uid"}:
            msg = f"shards by {self.by!r}: must be by namespace or uid"
            raise ValueError(msg)

    @classmethod
    def parse(cls, text: str) -> Shard:
        """``INDEX/COUNT``, such as ``0/2``.

        Raises:
            ValueError: another form, or no such share.
        """
        index, slash, count = text.partition("/")
        if not (slash and index.isdecimal() and count.isdecimal() and text.isascii()):
            msg = f"{text!r} is not INDEX/COUNT, such as 0/2 and 1/2"
            raise ValueError(msg)
        return cls(int(index), int(count))

    def __str__(self) -> str:
        """As ``parse`` takes it."""
        return f"{self.index}/{self.count}"

    @property
    def selector(self) -> str:
        """The request's parameter ``shardSelector``; "" for everything."""
        if self.count == 1:
            return ""
        low, high = self._bounds
        return f"shardRange(object.metadata.{self.by}, '0x{low:016x}', '0x{high:016x}')"

    def holds(self, metadata: Identity) -> bool:
        """Whether an object is in the share."""
        if self.count == 1:
            return True
        low, high = self._bounds
        return low <= fnv1a_64(getattr(metadata, self.by)) < high

    def may_hold(self, metadata: Identity) -> bool:
        """The same as ``holds``: an identity is all that it needs."""
        return self.holds(metadata)

    def foreign(self, raw: msgspec.Raw) -> Any:  # noqa: ARG002 - the signature of Share
        """Nothing: of what is another's, a server that knows shards sends nothing."""
        return None

    @property
    def _bounds(self) -> tuple[int, int]:
        span = _ALL // self.count
        low = span * self.index
        return low, _ALL if self.index == self.count - 1 else low + span
