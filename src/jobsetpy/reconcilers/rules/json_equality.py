"""Whether two parts of a JobSet mean the same, and how to write what means the same alike.

What the API server stores is what the user wrote; what a typed client writes back is what its types
print (``api.shapes``). The two mean the same where they differ only in

* fields held by value that are zero in one and absent in the other,
* empty lists and maps, which are no other than absent ones, and ``null``,
* the notation of quantities (``0.5`` is ``500m``).

A field held by pointer is another thing when it is zero than when it is absent, and so is an
object without fields (``emptyDir: {}``). Fields that no packaged schema knows are taken for such.
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
    """Return whether two values of a shape mean the same."""
    if left == right:
        return True
    if shape.is_quantity:
        return bool(quantity(left) == quantity(right))
    if isinstance(left, OBJECT) and isinstance(right, OBJECT):
        if shape.is_map:
            item = shape.item or ANY
            return left.keys() == right.keys() and all(
                same(value, right[name], item) for name, value in left.items()
            )
        return all(
            _same_field(left.get(name), right.get(name), *_field(shape, name))
            for name in {**left, **right}
        )
    if isinstance(left, list) and isinstance(right, list):
        item = shape.item or ANY
        return len(left) == len(right) and all(
            same(*pair, item) for pair in zip(left, right, strict=True)
        )
    return False


def _same_field(left: Any, right: Any, shape: Shape, by_value: bool) -> bool:
    present = _present(left, shape, by_value=by_value)
    if present != _present(right, shape, by_value=by_value):
        return False
    return not present or same(left, right, shape)


def rewritten(stored: Any, new: Any, shape: Shape) -> Any:
    """``new``, with everything that means what ``stored`` means written as it is there.

    Guarantees: the result means what ``new`` means; it is ``stored`` itself if the two mean the
    same; doing it again changes nothing.
    """
    if stored == new:
        return stored
    if shape.is_quantity:
        return stored if same(stored, new, shape) else new
    if isinstance(stored, OBJECT) and isinstance(new, OBJECT):
        return _rewritten_object(stored, new, shape)
    if isinstance(stored, list) and isinstance(new, list) and len(stored) == len(new):
        item = shape.item or ANY
        out = [rewritten(*pair, item) for pair in zip(stored, new, strict=True)]
        return stored if all(map(operator.is_, out, stored)) else out
    return stored if same(stored, new, shape) else new


def _rewritten_object(
    stored: Mapping[str, Any], new: Mapping[str, Any], shape: Shape
) -> Mapping[str, Any]:
    out: dict[str, Any] = {}
    for name in (*stored, *(name for name in new if name not in stored)):
        inner, by_value = _field(shape, name)
        before, after = stored.get(name), new.get(name)
        if _present(before, inner, by_value=by_value) or _present(after, inner, by_value=by_value):
            if name in new:
                out[name] = rewritten(before, after, inner)
        elif name in stored:
            out[name] = before
    unchanged = out.keys() == stored.keys() and all(out[name] is stored[name] for name in out)
    return stored if unchanged else out


def with_text_quantities(value: Any, shape: Shape) -> Any:
    """``value`` with quantities that are no whole numbers as texts; itself if there are none.

    The schema takes texts and whole numbers only; ``cpu: 0.5`` is what many people write.
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


def _written(number: Decimal) -> str:
    """In the largest unit of 1, m, u and n that leaves no fraction; rounded up to whole n."""
    for suffix in ("", "m", "u"):
        scaled = number / _SCALES[suffix]
        if scaled == scaled.to_integral_value():
            return f"{scaled.to_integral_value():f}{suffix}"
    return f"{(number / _SCALES['n']).to_integral_value('ROUND_UP'):f}n"


def _field(shape: Shape, name: str) -> tuple[Shape, bool]:
    """A member of an object and whether it is held by value; values of maps are what they are."""
    if shape.is_map:
        return shape.item or ANY, False
    return shape.fields.get(name, (ANY, False))


def _present(value: Any, shape: Shape, *, by_value: bool) -> bool:
    """Return whether a field says anything."""
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
