"""Objects of kinds without a class: the whole JSON, with metadata like that of other objects."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

import msgspec

from jobsetpy.api._frozen import EMPTY, frozen
from jobsetpy.api.meta import ObjectMeta, ResourceInfo

_ABSENT: Final = object()


class Unstructured:
    """An object as received from the API server, of a kind without a class.

    Each kind has its own class, created by ``unstructured(info)`` or, from the server's discovery
    data, by ``runtime.discover``. Clients, informers and watches accept it like any other::

        Widget = rt.unstructured(rt.ResourceInfo("example.com", "v1", "Widget", "widgets"))
        widget = await client.get(Widget, "default", "a")
        widget.metadata.labels, widget["spec"]["size"], widget.at("spec.size", 1)

    It is deeply frozen, like other objects from caches; ``copy.deepcopy(widget.data)`` is an
    ordinary dict. It needs several times the memory of a class with only the fields that are read.

    Attributes:
        data: the whole object, with wire names.
        metadata: metadata of the object.
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
        """Create an object from decoded JSON, for decoders."""
        if not isinstance(data, Mapping):
            raise msgspec.ValidationError(f"Expected `object`, got `{type(data).__name__}`")
        return cls(data)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse the change."""
        raise AttributeError(f"{self!r} is frozen; write with the client")

    def __getitem__(self, name: str) -> Any:
        """Return a top-level field: ``widget["spec"]``."""
        return self.data[name]

    def at(self, path: str, default: Any = None) -> Any:
        """Return the value at a dotted path (``spec.template.replicas``), or ``default``."""
        value: Any = self.data
        for name in path.split("."):
            value = value.get(name, _ABSENT) if isinstance(value, Mapping) else _ABSENT
            if value is _ABSENT:
                return default
        return value

    @property
    def spec(self) -> Mapping[str, Any]:
        """The object's ``spec``; empty if absent."""
        return self.data.get("spec") or EMPTY

    @property
    def status(self) -> Mapping[str, Any]:
        """The object's ``status``; empty if absent."""
        return self.data.get("status") or EMPTY

    def __eq__(self, other: object) -> bool:
        """Return whether kind and content are equal."""
        return type(other) is type(self) and other.data == self.data

    __hash__ = None  # type: ignore[assignment] # as dicts

    def __reduce__(self) -> tuple[Any, ...]:
        """Support copying and pickling: recreate an object of its kind."""
        return (_made, (self.RESOURCE, dict(self.data)))

    def __repr__(self) -> str:
        """Kind and name."""
        return f"<{self.RESOURCE.kind} {self.metadata.key}>"


@functools.cache
def unstructured(info: ResourceInfo) -> type[Unstructured]:
    """Return the class of untyped objects of a kind, always the same one."""
    made = type(info.kind, (Unstructured,), {"__slots__": (), "RESOURCE": info})
    made.__module__ = __name__
    return made


def _made(info: ResourceInfo, data: Mapping[str, Any]) -> Unstructured:
    return unstructured(info)(data)
