"""Assignment of objects to JobSets, for managers with shards.

A JobSet and all objects created for it are in one shard. Every manager watches all Services:
several JobSets may share one, or use one of the user's own.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import ObjectMeta
from jobsetpy.api.structs import Metadata


class _Labels(msgspec.Struct, frozen=True):
    jobset_name: str = msgspec.field(default="", name=keys.JOBSET_NAME)


class _Metadata(Metadata, frozen=True, rename="camel"):
    labels: _Labels = _Labels()


class PeekedPod(msgspec.Struct, frozen=True):
    """Fields of a pod that show that it belongs to another shard."""

    metadata: _Metadata


def peek(cls: type[Any]) -> type[Any] | None:
    """Return the class to decode first for objects of a class, if worthwhile: pods are many."""
    return PeekedPod if cls is ChildPod else None


def jobset_name_of(cls: type[Any]) -> Callable[[Any], str]:
    """Return a function from an object's metadata to the name of its JobSet; "" for none."""
    if cls is JobSet:
        return attrgetter("name")
    return attrgetter("labels.jobset_name") if cls is ChildPod else _by_owner


def _by_owner(metadata: ObjectMeta) -> str:
    """Return the owner's name, which proves more than the label; claims outlive their owner."""
    owner = metadata.controller
    if owner is not None and owner.kind == JobSet.RESOURCE.kind:
        return owner.name
    return metadata.labels.get(keys.JOBSET_NAME, "")
