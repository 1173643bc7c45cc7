"""Semantic equality of parts of a JobSet, and normalization to the stored notation.

The API server stores the user's notation; a typed client writes back that of its types
(``api.shapes``). The two are equal if they differ only in

* fields held by value that are zero in one and absent in the other,
* empty lists and maps, which equal absent ones, and ``null``,
* the notation of quantities (``0.5`` is ``500m``).

A field held by pointer differs between zero and absent, and so does an object without fields
(``emptyDir: {}``). Fields without a packaged schema are treated as such.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from jobsetpy.api.shapes import ANY, Shape
from jobsetpy.reconcilers.rules.json_tree import OBJECT

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


def same(left: Any, right: Any, shape: Shape) -> bool:
    """Return True if two values of a shape are equal."""
    return rewritten(left, right, shape) is left


def states(stored: Any, template: Any, shape: Shape) -> bool:
    """Return True if an object that the API server has defaulted agrees with its template.

    Fields that the template does not state are not compared; a map of data is a whole.
    """
    return same(_stated(stored, template, shape), template, shape)


def _stated(stored: Any, template: Any, shape: Shape) -> Any:
    """Return the part of ``stored`` that the template states."""
    if shape.is_map or not (isinstance(stored, OBJECT) and isinstance(template, OBJECT)):
        return stored
    return {
        name: _stated(stored[name], value, _field(shape, name)[0])
        for name, value in template.items()
        if name in stored
    }


def rewritten(stored: Any, new: Any, shape: Shape) -> Any:
    """Return ``new`` with all parts that equal those of ``stored`` in their stored notation.

    Guarantees: the result equals ``new``; it is ``stored`` itself if the two are equal; the
    operation is idempotent.
    """
    if stored == new:
        return stored
    if shape.is_quantity:
        return stored if quantity(stored) == quantity(new) else new
    if isinstance(stored, OBJECT) and isinstance(new, OBJECT):
        return _rewritten_object(stored, new, shape)
    if isinstance(stored, list) and isinstance(new, list) and len(stored) == len(new):
        item = shape.item or ANY
        out = [rewritten(*pair, item) for pair in zip(stored, new, strict=True)]
        return stored if all(map(operator.is_, out, stored)) else out
    return new


def _rewritten_object(
    stored: Mapping[str, Any], new: Mapping[str, Any], shape: Shape
) -> Mapping[str, Any]:
    out: dict[str, Any] = {}
    for name in (*stored, *(name for name in new if name not in stored)):
        inner, by_value = _field(shape, name)
        before, after = stored.get(name), new.get(name)
        absent = not shape.is_map and not (
            _present(before, inner, by_value=by_value) or _present(after, inner, by_value=by_value)
        )
        if not absent and name in new:
            out[name] = rewritten(before, after, inner)
        elif absent and name in stored:
            out[name] = before
    unchanged = out.keys() == stored.keys() and all(out[name] is stored[name] for name in out)
    return stored if unchanged else out


def with_text_quantities(value: Any, shape: Shape) -> Any:
    """Return ``value`` with fractional quantities as texts; itself if there are none.

    The schema accepts texts and whole numbers only, but many users write ``cpu: 0.5``.
    """
    if isinstance(value, str):
        return value
    if shape.is_quantity and isinstance(value, float):
        return _written(Decimal(repr(value)))
    if isinstance(value, OBJECT):
        fields = {
            name: with_text_quantities(each, _field(shape, name)[0]) for name, each in value.items()
        }
        return fields if any(fields[name] is not value[name] for name in fields) else value
    if isinstance(value, list):
        found = [with_text_quantities(each, shape.item or ANY) for each in value]
        unchanged = all(a is b for a, b in zip(found, value, strict=True))
        return value if unchanged else found
    return value


def quantity(value: Any) -> Any:
    """Return the number of a quantity (resource.Quantity's notation); else ``value``."""
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


def _written(number: Decimal) -> str:
    """Return it in the largest unit of 1, m, u and n without a fraction; rounded up to whole n."""
    for suffix in ("", "m", "u"):
        scaled = number / _SCALES[suffix]
        if scaled == scaled.to_integral_value():
            return f"{scaled.to_integral_value():f}{suffix}"
    return f"{(number / _SCALES['n']).to_integral_value('ROUND_UP'):f}n"


def _field(shape: Shape, name: str) -> tuple[Shape, bool]:
    """Return the shape of an object's member, and True if it is held by value."""
    if shape.is_map:
        return shape.item or ANY, False
    return shape.fields.get(name, (ANY, False))


def _present(value: Any, shape: Shape, *, by_value: bool) -> bool:
    """Return True if a field has a meaning."""
    if value is None:
        return False
    if shape.is_quantity:
        return not (by_value and quantity(value) in {"", 0})
    if isinstance(value, str):
        return bool(value) or not by_value
    if isinstance(value, list):
        return bool(value)
    if isinstance(value, OBJECT):
        if shape.is_map:
            return bool(value)
        return not by_value or any(
            _present(each, inner, by_value=held)
            for each, (inner, held) in ((value[name], _field(shape, name)) for name in value)
        )
    return not by_value or bool(value)
