"""The decoders and URL paths of each wire class, cached by class.

msgspec decodes directly into the wire classes (and into its own Structs), so a typed response costs
one pass over the bytes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from jobsetpy.client._errors import UNDECODABLE, decode_error
from jobsetpy.client._http import percent_encode
from jobsetpy.errors import DecodeError

if TYPE_CHECKING:  # not needed by the agent
    from jobsetpy.api.meta import ResourceInfo

T = TypeVar("T")

SLICE_BYTES: Final = 256 * 1024
"""Number of bytes of a list that are decoded before other tasks run (about 2 ms)."""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list.

    ``continue_token`` is "" on the last page. ``bad`` contains a DecodeError for each object that
    does not fit the model: it is left out of ``items``, so that one bad object does not block the
    others.
    """

    items: list[T]
    resource_version: str
    continue_token: str
    bad: list[DecodeError] = []


class _ListMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_token: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


class BareMetadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Metadata that can be read of an object that does not fit its model."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Bare(msgspec.Struct, frozen=True):
    """An object of any kind."""

    metadata: BareMetadata


_raw_list = msgspec.json.Decoder(_List)
decode_bare: Final = msgspec.json.Decoder(Bare).decode


def decoder_of(cls: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder that also supports classes with their own ``__decode__``."""
    return msgspec.json.Decoder(cls, dec_hook=_decode_itself)


def _decode_itself(cls: Any, data: Any) -> Any:
    make = getattr(cls, "__decode__", None)
    if make is None:
        raise NotImplementedError(f"{cls} cannot be decoded")
    return make(data)


def _identity(raw: msgspec.Raw) -> dict[str, str]:
    """Return an object's identity as arguments of ``DecodeError``; {} if it is unreadable."""
    try:
        metadata = decode_bare(raw).metadata
    except UNDECODABLE:
        return {}
    return {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}


class Model(Generic[T]):
    """Decoders and URL paths of one wire class."""

    __slots__ = (*("_all", "_decoder", "_prefix", "api_version", "cls", "kind", "plural"),)

    def __init__(self, cls: type[T]) -> None:
        resource: ResourceInfo | None = getattr(cls, "RESOURCE", None)
        if resource is None:
            raise TypeError(f"{cls.__name__} stands for no kind of the API: it has no RESOURCE")
        if "__attrs_attrs__" in vars(cls) and "__wire__" not in vars(cls):
            raise TypeError(
                f"{cls.__name__} is an attrs class without wire names, of which camelCase fields "
                "would be lost without a word: decorate it with runtime.model, not with attrs"
            )
        group, version = resource.group, resource.version
        self.cls = cls
        self.kind = resource.kind
        self.plural = resource.plural
        self.api_version = f"{group}/{version}" if group else version
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        self._all = f"{root}/{resource.plural}"
        self._prefix = f"{root}/namespaces/" if resource.namespaced else ""
        self._decoder: msgspec.json.Decoder[T] = decoder_of(cls)

    def collection(self, namespace: str) -> str:
        """Return the path of all objects, or of those in a namespace if the kind is namespaced."""
        if not namespace or not self._prefix:
            return self._all
        return f"{self._prefix}{percent_encode(namespace)}/{self.plural}"

    def creation(self, namespace: str) -> str:
        """Return the path to which a new object is posted.

        Raises:
            ValueError: the kind is namespaced, and ``namespace`` is empty.
        """
        if self._prefix and not namespace:
            msg = f"{self.plural} are in a namespace: name the one in which to create {self.kind!r}"
            raise ValueError(msg)
        return self.collection(namespace)

    def object(self, namespace: str, name: str, subresource: str | None = None) -> str:
        """Return the path of one object or of one of its subresources.

        Raises:
            ValueError: an empty name or namespace: the path would be that of all objects.
        """
        if not name or (self._prefix and not namespace):
            msg = f"{self.plural} needs a namespace and a name, not {namespace!r} and {name!r}"
            raise ValueError(msg)
        path = f"{self.collection(namespace)}/{percent_encode(name)}"
        return f"{path}/{subresource}" if subresource else path

    def decode(self, body: bytes) -> T:
        """Decode one object.

        Raises:
            DecodeError: it does not fit the model.
        """
        try:
            return self._decoder.decode(body)
        except UNDECODABLE as problem:
            raise decode_error(self.kind, problem) from problem

    async def decode_page(self, body: bytes) -> Page[T]:
        """Decode a list; objects that do not fit the model are in ``Page.bad``.

        While a large one is decoded, other tasks run after each ``SLICE_BYTES``.

        Raises:
            DecodeError: the body is not a list.
        """
        try:
            split = _raw_list.decode(body)
        except UNDECODABLE as problem:
            raise decode_error(f"{self.kind}List", problem) from problem
        items: list[T] = []
        bad: list[DecodeError] = []
        taken = 0
        for index, raw in enumerate(split.items or ()):
            self._decode_item(index, raw, items, bad)
            taken += len(memoryview(raw))
            if taken > SLICE_BYTES:
                taken = 0
                await asyncio.sleep(0)
        meta = split.metadata
        return Page(items, meta.resource_version, meta.continue_token, bad)

    def _decode_item(
        self, index: int, raw: msgspec.Raw, items: list[T], bad: list[DecodeError]
    ) -> None:
        try:
            items.append(self._decoder.decode(raw))
        except UNDECODABLE as problem:
            who = _identity(raw)
            kind = f"{self.kind} {who['namespace']}/{who['name']}" if who else self.kind
            bad.append(decode_error(kind, problem, f"$.items[{index}]", **who))
