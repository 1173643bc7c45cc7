"""Admission errors and warnings about fields, with the texts and types of the Kubernetes API."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import attrs

from jobsetpy.api.name_rules import TOO_LONG_LABEL

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
FORBIDDEN = "FieldValueForbidden"
INTERNAL = "InternalError"
IMMUTABLE = "field is immutable"
NO_FIELD = "<nil>"
"""Field for errors about the whole object."""


@attrs.frozen
class FieldError:
    """One problem of an object.

    Args:
        cause: one of the cause types of ``metav1.StatusCause`` above.
        field: path of the field, or :data:`NO_FIELD`.
        message: the text without the field.
    """

    cause: str
    field: str
    message: str

    def __str__(self) -> str:
        """``field: message``."""
        return f"{self.field}: {self.message}"


@attrs.frozen
class FieldWarning:
    """Warning about an object that is accepted.

    Args:
        field: path of the field.
        message: the text without the field.
    """

    field: str
    message: str

    def __str__(self) -> str:
        """``field: message``."""
        return f"{self.field}: {self.message}"


def invalid(field: str, value: Any, detail: str) -> FieldError:
    """Return the error for a value that is not allowed."""
    return FieldError(INVALID, field, f"Invalid value: {_shown(value)}: {detail}")


def immutable(field: str, value: Any, why: str) -> FieldError:
    """Return the error for a change of a value that is built into existing objects."""
    advice = "to change it, delete the JobSet and create it again"
    return invalid(field, value, f"{IMMUTABLE}: {why}; {advice}")


def invalid_label(
    field: str, value: str, problems: Iterable[str], long_text: str
) -> list[FieldError]:
    """Return the errors for a label of a JobSet, with a separate text if it is too long."""
    return [
        invalid(field, value, long_text if problem == TOO_LONG_LABEL else problem)
        for problem in problems
    ]


def required(field: str, detail: str) -> FieldError:
    """Return the error for a missing value."""
    return FieldError(REQUIRED, field, f"Required value: {detail}")


def too_long(field: str, limit: int) -> FieldError:
    """Return the error for a text of more than ``limit`` bytes."""
    return FieldError(TOO_LONG, field, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    """Return the error for a list of more than ``limit`` items."""
    return FieldError(TOO_MANY, field, f"Too many: {count}: must have at most {limit} items")


def forbidden(field: str, detail: str) -> FieldError:
    """Return the error for a change that is not allowed, regardless of the value."""
    return FieldError(FORBIDDEN, field, f"Forbidden: {detail}")


def plain(text: str) -> FieldError:
    """Return an error about several fields together, without a field."""
    return FieldError(INTERNAL, NO_FIELD, f"Internal error: {text}")


def internal(field: str, text: str) -> FieldError:
    """Return the error for a check that could not be made."""
    return FieldError(INTERNAL, field, f"Internal error: {text}")


_SHOWN_CHARACTERS = 256
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _shown(value: Any) -> str:
    """Return a value as truncated JSON: a list of Jobs would be too large and slow to encode."""
    if isinstance(value, str):
        value = value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}..."
        return json.dumps(value, ensure_ascii=False)
    shown = ""
    for piece in _ENCODER.iterencode(value):  # piece by piece, as far as it is needed
        shown += piece
        if len(shown) > _SHOWN_CHARACTERS:
            return shown[:_SHOWN_CHARACTERS] + "..."
    return shown
