"""Whether two parts of an object mean the same, as the API server's own checks understand it.

Absent and empty lists and maps are equal, and quantities compare by value (``1000m`` is ``1``).
Objects whose presence has a meaning of its own (``namespaceSelector: {}``, ``emptyDir: {}``) are
compared as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_MAPS = frozenset(
    {
        "annotations",
        "labels",
        "limits",
        "matchLabels",
        "metadata",
        "nodeSelector",
        "overhead",
        "requests",
        "resources",
        "status",
    }
)
"""Objects that mean nothing when they are empty: maps, and structures without a pointer."""

_QUANTITY_MAPS = frozenset({"limits", "requests", "overhead", "capacity", "default"})
_QUANTITIES = frozenset({"sizeLimit", "divisor"})

_EXPONENT = re.compile(r"[+-]?[0-9.]+[eE][+-]?[0-9]{1,2}")
_SCALED = re.compile(r"([+-]?[0-9.]+)([KMGTPE]i|[numkMGTPE]?)")
_SCALES: Mapping[str, Decimal] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values mean the same."""
    return bool(_normal(left) == _normal(right))


def quantity(value: Any) -> Any:
    """The number that a quantity (resource.Quantity's notation) stands for; else ``value``."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    written = str(value)
    try:
        if _EXPONENT.fullmatch(written):
            return Decimal(written)
        if scaled := _SCALED.fullmatch(written):
            number, suffix = scaled.groups()
            return Decimal(number) * _SCALES[suffix]
    except ArithmeticError:
        pass  # such as "1.2.3"
    return value


def _normal(value: Any, key: str = "", *, is_quantity: bool = False) -> Any:
    if isinstance(value, Mapping):
        out = {}
        for name, item in value.items():
            normal = _normal(item, name, is_quantity=key in _QUANTITY_MAPS)
            if normal is None or normal == [] or (normal == {} and name in _MAPS):
                continue
            out[name] = normal
        return out
    if isinstance(value, list):
        return [_normal(item) for item in value]
    return quantity(value) if is_quantity or key in _QUANTITIES else value
