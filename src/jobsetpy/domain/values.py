"""Copies of frozen API values with some fields changed."""

from __future__ import annotations

from typing import Any, TypeVar

import attrs

T = TypeVar("T")


def evolve(value: T, **changes: Any) -> T:
    """``attrs.evolve`` for wire classes, which type checkers do not know as attrs classes."""
    changed: Any = attrs.evolve
    result: T = changed(value, **changes)
    return result
