"""Quantities: numbers with units, the notation of Kubernetes for resources."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

PATTERN: Final = r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
"""Decimal number, then a binary or decimal suffix or an exponent ("Quantity", API reference)."""

RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources that containers which admission adds may have."""

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


def parse_amounts(written: str) -> dict[str, str]:
    """Parse amounts by resource, such as ``cpu=100m,memory=64Mi``.

    Raises:
        ValueError: the text has another form.
    """
    found = {}
    for part in written.split(","):
        name, _, amount = (each.strip() for each in part.partition("="))
        problem = amount_problem(name, amount)
        if problem:
            raise ValueError(problem)
        found[name] = amount
    return found


def amount_problem(name: object, amount: object) -> str:
    """Return why an amount of a resource is not valid; "" if it is."""
    if name not in RESOURCES:
        return f"{name!r} is not one of {', '.join(RESOURCES)}, as in cpu=100m,memory=64Mi"
    positive = isinstance(amount, str) and _TEXT.fullmatch(amount) and quantity(amount) > 0
    return "" if positive else f"{name}: {amount!r} is not a quantity above 0, such as 100m or 64Mi"
