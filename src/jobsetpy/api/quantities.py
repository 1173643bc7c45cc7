"""Quantities: numbers with units, the notation of Kubernetes for resources."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

PATTERN: Final = r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
"""Decimal number, then a binary or decimal suffix or an exponent ("Quantity", API reference)."""

_TEXT: Final = re.compile(PATTERN)
_BINARY: Final = {f"{unit}i": Decimal(1024) ** n for n, unit in enumerate("KMGTPE", 1)}
_DECIMAL: Final = {
    unit: Decimal(1000) ** n
    for unit, n in zip("numkMGTPE", (-3, -2, -1, 1, 2, 3, 4, 5, 6), strict=True)
}


def quantity(value: int | str) -> Decimal:
    """Convert a quantity: ``quantity("1.5Gi") == 1610612736``, ``quantity("100m") == 0.1``.

    Raises:
        ValueError: the text is not a quantity.
    """
    found = _TEXT.match(str(value))
    if found is None:
        raise ValueError(f"not a quantity: {value!r}; quantities are such as 500m, 2, 1.5Gi, 1e3")
    unit = found[3] or ""
    number = str(value).removesuffix(unit)
    if unit[1:].lstrip("+-").isdigit():
        return Decimal(number) * Decimal(10) ** int(unit[1:])
    return Decimal(number) * (_BINARY.get(unit) or _DECIMAL.get(unit) or Decimal(1))
