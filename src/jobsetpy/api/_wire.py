"""Frozen attrs classes with snake_case attributes, decoded by msgspec from camelCase JSON.

msgspec decodes attrs classes natively and fast, but cannot rename their fields. ``wire`` adds this
without a second model: each slot gets a second name, its wire name, bound to the *same* slot
descriptor, and msgspec's per-class field table is built once from the wire names. Decoded objects
are ordinary instances of the class; nothing is copied, converted or subclassed.

The table is msgspec's own cache on the class, so a msgspec release that builds it differently would
break this; ``test_wire.py`` tests every assumption made here.

(Measured on a 4.3 kB pod: 13 us this way, 10 us for msgspec's own Struct, 2,400 us for the
generated client model.)
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Any,
    TypedDict,
    TypeVar,
    Unpack,
    dataclass_transform,
    get_type_hints,
)

from jobsetpy.extras import require

require("jobsetpy.api", "runtime", "attrs")

import attrs
import msgspec

from jobsetpy.api._frozen import frozen, frozen_texts

__all__ = ["FieldOptions", "camel_case", "evolve", "field", "to_json", "wire", "wire_name"]

T = TypeVar("T")

_WIRE_NAME = "jobsetpy.wire_name"


class FieldOptions(TypedDict, total=False):
    """Keywords of :func:`field`: what the CRD says about a field.

    Attributes:
        required: True if the API server refuses objects without it.
        defaulted: True if the API server fills in the default of the class.
        minimum, maximum: bounds of a number.
        min_length, max_length: bounds of a text's length.
        min_items, max_items: bounds of a list's length.
        pattern: regular expression that a text matches.
        enum: allowed values.
        quantity: True for an amount such as ``1.5Gi``, of the type ``int | str``.
        map_keys: names of the fields that identify an element of a list, for server-side apply.
        atomic: True for a list that is replaced as a whole.
        immutable: True if the value cannot change.
        always: True if it is written even at its default, since the API server requires it.
        schema_default: default of the API server, if it differs from that of the class.
        embed: name of a type of Kubernetes, whose schema is included.
        format: format of the schema; ``None`` for an integer of any size.
        frozen: True if the class freezes a mapping itself.
    """

    required: bool
    defaulted: bool
    minimum: float
    maximum: float
    min_length: int
    max_length: int
    min_items: int
    max_items: int
    pattern: str
    enum: Sequence[Any]
    quantity: bool
    map_keys: Sequence[str]
    atomic: bool
    immutable: bool
    always: bool
    schema_default: Any
    embed: str
    format: str | None
    frozen: bool


def field(
    description: str = "",
    *,
    default: Any = attrs.NOTHING,
    factory: Any = None,
    name: str | None = None,
    **options: Unpack[FieldOptions],
) -> Any:
    """Return an attrs field with its own wire name and the keywords of its schema.

    Mappings are frozen when an object is created.

    Args:
        description: text for ``kubectl explain``.
        default: value if the field is missing from the JSON.
        factory: creates the default, for mutable types.
        name: name on the wire; camelCase of the attribute's name when absent. Any text is
            allowed, including label keys with dots and slashes.
        options: :class:`FieldOptions`.

    Raises:
        TypeError: there is no such keyword.
    """
    for option in options.keys() - FieldOptions.__annotations__.keys():
        import difflib

        near = difflib.get_close_matches(option, ["description", *FieldOptions.__annotations__], 1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"field has no keyword {option!r}{hint}")
    metadata: dict[str, Any] = dict(options)
    if description:
        metadata["description"] = description
    if name is not None:
        metadata[_WIRE_NAME] = name
    if factory is not None:
        return attrs.field(factory=factory, metadata=metadata)
    return attrs.field(default=default, metadata=metadata)


def camel_case(name: str) -> str:
    """Convert ``owner_references`` to ``ownerReferences``; a trailing underscore is dropped."""
    head, *rest = name.rstrip("_").split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def wire_name(attribute: attrs.Attribute[Any]) -> str:
    """Return the JSON name of an attribute of a wire class."""
    name = attribute.metadata.get(_WIRE_NAME)
    return name if isinstance(name, str) else camel_case(attribute.name)


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(attrs.field, field)
)
def wire(cls: type[T]) -> type[T]:
    """Class decorator: ``attrs.frozen(kw_only=True)`` plus wire names for msgspec.

    Every field needs a default, since the API server omits empty ones. A JSON ``null`` is accepted
    only where the annotation allows ``None``. Objects are deeply frozen: mappings and lists become
    ``FrozenDict`` and ``FrozenList``, at a cost only for classes with such fields.
    """
    _freeze_at_birth(cls)
    cls.__wire__ = True  # type: ignore[attr-defined] # distinguishes it from attrs classes
    made: Any = attrs.frozen(kw_only=True, weakref_slot=False)(cls)
    attributes = made.__attrs_attrs__
    hints = get_type_hints(made, include_extras=True)
    saved = dict(made.__annotations__)
    renamed = []
    try:
        for attribute in attributes:
            name = wire_name(attribute)
            # The fields that msgspec reads of an attrs.Attribute.
            shown = SimpleNamespace(name=name, default=attribute.default, validator=None)
            renamed.append(shown)
            made.__annotations__[name] = hints[attribute.name]
            if name != attribute.name:
                made.__annotations__.pop(attribute.name, None)  # a base class has its own
                setattr(made, name, getattr(made, attribute.name))
        made.__attrs_attrs__ = tuple(renamed)
        msgspec.json.Decoder(made)
    finally:
        made.__attrs_attrs__ = attributes
        made.__annotations__.clear()
        made.__annotations__.update(saved)
    return made  # type: ignore[no-any-return]


_SCALARS = (str, int, float, bool)


def _freezer(hint: Any) -> Callable[[Any], Any] | None:
    """Return the function that freezes a field's values; ``None`` if they are immutable."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {dict, Mapping, MutableMapping}:
        return frozen_texts if arguments[1] in _SCALARS else frozen
    if hint in {dict, list, Mapping, Any, object} or origin is list:
        return frozen
    found = [each for argument in arguments if (each := _freezer(argument)) is not None]
    if not found:
        return None
    return found[0] if len(found) == 1 and origin is not tuple else frozen


def _freeze_at_birth(cls: type[Any]) -> None:
    """Make ``cls`` freeze mappings and lists on creation, if it has fields for them."""
    freezers = []
    for name, hint in get_type_hints(cls).items():
        if typing.get_origin(hint) is typing.ClassVar:
            continue
        declared = cls.__dict__.get(name)
        # attrs keeps metadata on the marker that attrs.field() returns.
        marked = getattr(declared, "metadata", None) or {}
        freezer = None if marked.get("frozen") else _freezer(hint)
        if freezer is not None:
            freezers.append((name, freezer))
    if not freezers:
        return
    own = getattr(cls, "__attrs_post_init__", None)
    put = object.__setattr__

    def freeze(self: Any) -> None:
        if own is not None:
            own(self)
        for name, freezer in freezers:
            put(self, name, freezer(getattr(self, name)))

    cls.__attrs_post_init__ = freeze


if TYPE_CHECKING:
    # Type checkers know wire classes as dataclasses, and check the names and types of the changes.
    from dataclasses import replace as evolve
else:

    def evolve(value: T, /, **changes: Any) -> T:
        """Return a copy of a wire object with some fields changed, as ``attrs.evolve``.

        Raises:
            TypeError: there is no such field.
        """
        return attrs.evolve(value, **changes)


def to_json(value: Any) -> Any:
    """Return a wire object as JSON data with wire names, without fields at their default."""
    if attrs.has(type(value)):
        out = {}
        for attribute in attrs.fields(type(value)):
            item = getattr(value, attribute.name)
            default = attribute.default
            if isinstance(default, attrs.Factory):  # type: ignore[arg-type] # a class at run time
                default = default.factory()
            if item != default or attribute.metadata.get("always"):
                out[wire_name(attribute)] = to_json(item)
        return out
    if isinstance(data := getattr(value, "data", None), Mapping) and hasattr(value, "__decode__"):
        return to_json(data)  # an untyped object
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return msgspec.to_builtins(value)
