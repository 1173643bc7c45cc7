"""Immutable mappings and lists for the values of wire classes.

They are subclasses of dict and list, so that they are read, compared and encoded at the same speed;
only methods that change them are refused. ``copy.deepcopy`` and ``copy()`` return ordinary ones.
"""

from __future__ import annotations

import copy
from types import MappingProxyType
from typing import Any, Final, Never


def _refuse(self: Any, *_: Any, **__: Any) -> Never:
    raise TypeError(
        f"a {'mapping' if isinstance(self, dict) else 'list'} of an object from the API is shared "
        "by all its readers and cannot be changed: change a copy (copy.deepcopy), and write with "
        "the client"
    )


class FrozenDict(dict[str, Any]):
    """A dict that refuses changes."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[str, Any]:
        """Return an ordinary dict with the same, frozen, values."""
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        """Return an ordinary dict that can be changed, as can all values in it."""
        return {key: copy.deepcopy(value, memo) for key, value in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling."""
        return (FrozenDict, (dict(self),))


class FrozenList(list[Any]):
    """A list that refuses changes."""

    __slots__ = ()

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __copy__(self) -> list[Any]:
        """Return an ordinary list with the same, frozen, items."""
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        """Return an ordinary list that can be changed, as can all items in it."""
        return [copy.deepcopy(item, memo) for item in self]

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling."""
        return (FrozenList, (list(self),))


EMPTY: Final = FrozenDict()

_ATOMS: Final = frozenset({str, int, float, bool, type(None)})
_IMMUTABLE: Final = _ATOMS | {FrozenDict, FrozenList, MappingProxyType}


def frozen(value: Any) -> Any:
    """Return a value with every dict and list in it frozen; frozen ones are kept."""
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    if isinstance(value, dict):
        if not value:
            return EMPTY
        return FrozenDict(
            {key: each if type(each) in _ATOMS else frozen(each) for key, each in value.items()}
        )
    if isinstance(value, list):
        return FrozenList([frozen(each) for each in value])
    if kind is tuple:
        return tuple([frozen(each) for each in value])
    return value


def frozen_texts(value: Any) -> Any:
    """Return a frozen mapping of scalars: as ``frozen``, but in one step."""
    if type(value) is dict or (isinstance(value, dict) and type(value) is not FrozenDict):
        return FrozenDict(value) if value else EMPTY
    return value
