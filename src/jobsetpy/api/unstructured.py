"""Objects of kinds without a class: the whole JSON, with metadata as of every other object."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

import msgspec

from jobsetpy.api._frozen import EMPTY, frozen
from jobsetpy.api.meta import ObjectMeta, ResourceInfo

_ABSENT: Final = object()


class Unstructured:
    """An object as the API server sent it, of a kind that no class describes.

    Each kind has a class of its own, made by ``unstructured(info)`` or, of what the server says,
    by ``runtime.discover``: clients, informers and watches take it as any other::

        Widget = rt.unstructured(rt.ResourceInfo("example.com", "v1", "Widget", "widgets"))
        widget = await client.get(Widget, "default", "a")
        widget.metadata.labels, widget["spec"]["size"], widget.at("spec.size", 1)

    It is frozen to the ground, as other objects from caches are; ``copy.deepcopy(widget.data)`` is
    an ordinary dict. It takes several times the memory of a class with the few fields that are
    read.

    Attributes:
        data: the whole object, by names as on the wire.
        metadata: of it.
    """

    RESOURCE: ClassVar[ResourceInfo]
    __slots__ = ("data", "metadata")

    data: Mapping[str, Any]
    metadata: ObjectMeta

    def __init__(self, data: Mapping[str, Any]) -> None:
        put = object.__setattr__
        put(self, "data", frozen(dict(data)))
        put(self, "metadata", msgspec.convert(data.get("metadata") or {}, ObjectMeta))

    @classmethod
    def __decode__(cls, data: Any) -> Self:
        """An object from decoded JSON, for decoders."""
        if not isinstance(data, Mapping):
            msg = f"Expected `object`, got `{type(data).__name__}`"
            raise msgspec.ValidationError(msg)
        return cls(data)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refused."""
        msg = f"{self!r} is frozen; write with the client"
        raise AttributeError(msg)

    def __getitem__(self, name: str) -> Any:
        """A top-level field: ``widget["spec"]``."""
        return self.data[name]

    def at(self, path: str, default: Any = None) -> Any:
        """What is at a dotted path (``spec.template.replicas``), or ``default``."""
        value: Any = self.data
        for name in path.split("."):
            value = value.get(name, _ABSENT) if isinstance(value, Mapping) else _ABSENT
            if value is _ABSENT:
                return default
        return value

    @property
    def spec(self) -> Mapping[str, Any]:
        """``spec``, empty where there is none."""
        return self.data.get("spec") or EMPTY

    @property
    def status(self) -> Mapping[str, Any]:
        """``status``, empty where there is none."""
        return self.data.get("status") or EMPTY

    def __eq__(self, other: object) -> bool:
        """Of the same kind, with the same content."""
        return type(other) is type(self) and other.data == self.data

    __hash__ = None  # type: ignore[assignment] # as dicts

    def __reduce__(self) -> tuple[Any, ...]:
        """For copies and pickles: made anew of its kind."""
        return (_made, (self.RESOURCE, dict(self.data)))

    def __repr__(self) -> str:
        """Kind and name."""
        return f"<{self.RESOURCE.kind} {self.metadata.key}>"


@functools.cache
def unstructured(info: ResourceInfo) -> type[Unstructured]:
    """The class of untyped objects of a kind, always the same one."""
    made = type(info.kind, (Unstructured,), {"__slots__": (), "RESOURCE": info})
    made.__module__ = __name__
    return made


def _made(info: ResourceInfo, data: Mapping[str, Any]) -> Unstructured:
    return unstructured(info)(data)
