"""A share of all objects by a key that no API server knows, such as the name of their owner.

Everything is sent and decoded; what is of other shares is dropped before anybody keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import attrs
import msgspec

from jobsetpy.informers._shard import Identity


@lru_cache(maxsize=1 << 15)
def place_of(namespace: str, name: str, count: int) -> int:
    """Which of ``count`` shares a name belongs to; every release and machine has to agree.

    Names that differ in their last digit only are spread as evenly as any.
    """
    digest = blake2b(f"{namespace}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count


@attrs.define
class Assignment:
    """Which share a process has. It may be known only after informers were declared.

    Args:
        count: how many shares there are.
        index: which one, from 0; ``None`` as long as that is not known.
    """

    count: int
    index: int | None = None


def _decoder(model: type[Any] | None) -> msgspec.json.Decoder[Any] | None:
    return None if model is None else msgspec.json.Decoder(model)


@attrs.frozen(eq=False)
class KeyedShard:
    """The objects whose key is in the share of an assignment.

    Args:
        assignment: which one; known when the informer starts.
        key: the name that decides, by an object's metadata; with "", an object is in every share.
        peek: a model of objects with what ``key`` reads of their metadata and nothing else, to be
            decoded in a tenth of the time; ``None`` if that does not pay.
    """

    assignment: Assignment
    key: Callable[[Any], str]
    peek: msgspec.json.Decoder[Any] | None = attrs.field(default=None, converter=_decoder)

    moves = True
    """A key may change: an object that comes from another share is new, one that leaves is gone."""

    @property
    def selector(self) -> str:
        """Nothing that the API server could be asked for."""
        return ""

    def holds(self, metadata: Identity) -> bool:
        """Whether an object is in the share.

        Raises:
            RuntimeError: nobody knows yet which share that is.
        """
        if self.assignment.index is None:
            raise RuntimeError("the informer of a share runs before the share is known")
        name = self.key(metadata)
        here = self.assignment.index
        return not name or place_of(metadata.namespace, name, self.assignment.count) == here

    def foreign(self, raw: msgspec.Raw) -> Any:
        """An object of another share, as the model of ``peek`` has it; else ``None``."""
        if self.peek is None:
            return None
        try:
            peeked = self.peek.decode(raw)
        except (msgspec.MsgspecError, RecursionError):
            return None
        metadata = peeked.metadata
        return None if not metadata.name or self.holds(metadata) else peeked

    def may_hold(self, metadata: Identity) -> bool:  # noqa: ARG002 - the signature of Share
        """Whether an object may be in the share of which only the identity can be read."""
        return True
