"""Which JobSet an object belongs to, where several managers share the JobSets.

A JobSet and all that is made for it are in one share. Services are followed by every manager: the
pods of several JobSets may have one, or one of the user's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from jobsetpy.api import keys
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import ObjectMeta


class _Labels(msgspec.Struct, frozen=True):
    jobset_name: str = msgspec.field(default="", name=keys.JOBSET_NAME)


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: _Labels = _Labels()


class PeekedPod(msgspec.Struct, frozen=True):
    """A pod of which only that is read by which it is known to be another share's."""

    metadata: _Metadata


def peek(cls: type[Any]) -> type[Any] | None:
    """What is decoded first of objects of a class, if that pays: there are many pods."""
    return PeekedPod if cls is ChildPod else None


def jobset_name_of(cls: type[Any]) -> Callable[[Any], str]:
    """What gives the name of the JobSet of an object of a class, by its metadata; "" for none."""
    if cls is JobSet:
        return _own_name
    return _by_label if cls is ChildPod else _by_owner


def _own_name(metadata: ObjectMeta) -> str:
    return metadata.name


def _by_label(metadata: Any) -> str:
    name: str = metadata.labels.jobset_name
    return name


def _by_owner(metadata: ObjectMeta) -> str:
    """By owner, which proves more; claims outlive theirs, and have the label."""
    owner = metadata.controller
    if owner is not None and owner.kind == JobSet.RESOURCE.kind:
        return owner.name
    return metadata.labels.get(keys.JOBSET_NAME, "")
