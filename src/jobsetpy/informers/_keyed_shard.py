"""Shards by a key that the API server cannot select by, such as the name of the owner.

The server sends all objects; those of other shards are dropped before they are cached.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import attrs
import msgspec


@lru_cache(maxsize=1 << 15)
def place_of(namespace: str, name: str, count: int) -> int:
    """Return the shard of a name, 0 to ``count - 1``; the same in all releases, on all machines.

    Names that differ only in their last digit are spread as evenly as any others.
    """
    digest = blake2b(f"{namespace}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count


@attrs.define
class Assignment:
    """Shard assigned to a process, which may become known after informers are declared.

    Args:
        count: number of shards.
        index: index of the shard, from 0; ``None`` while it is not known.
    """

    count: int
    index: int | None = None


def _decoder(model: type[Any] | None) -> msgspec.json.Decoder[Any] | None:
    return None if model is None else msgspec.json.Decoder(model)


@attrs.frozen(eq=False)
class KeyedShard:
    """The objects whose key belongs to the assigned shard.

    A key may change: an object that enters the shard is added, one that leaves is deleted.

    Args:
        assignment: the assigned shard; its index must be known when the informer starts.
        key: returns the sharding key of an object's metadata; objects with "" are in every shard.
        peek: a model with only the metadata that ``key`` reads, decoded in a tenth of the time;
            ``None`` if that is not worthwhile.
    """

    assignment: Assignment
    key: Callable[[Any], str]
    peek: msgspec.json.Decoder[Any] | None = attrs.field(default=None, converter=_decoder)

    def holds(self, metadata: Any) -> bool:
        """Return whether an object is in the shard.

        Raises:
            RuntimeError: the index of the shard is not known yet.
        """
        if self.assignment.index is None:
            raise RuntimeError("the informer of a share runs before the shard is known")
        name = self.key(metadata)
        here = self.assignment.index
        return not name or place_of(metadata.namespace, name, self.assignment.count) == here

    def foreign(self, raw: msgspec.Raw) -> Any:
        """Return an object of another shard, decoded as ``peek``; else ``None``."""
        if self.peek is None:
            return None
        try:
            peeked = self.peek.decode(raw)
        except (msgspec.MsgspecError, RecursionError):
            return None
        metadata = peeked.metadata
        return None if not metadata.name or self.holds(metadata) else peeked
