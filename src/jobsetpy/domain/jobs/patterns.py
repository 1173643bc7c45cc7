"""Users' regular expressions, matched by RE2 in time linear in the text.

Failure policies carry patterns (``onJobFailureMessagePatterns``, Go's RE2 syntax) that anybody who
may create a JobSet can write. Python's own engine backtracks, and one such pattern could stop the
whole manager for good; RE2 cannot, and its syntax is the one users know.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from jobsetpy.extras import require

require("JobSet's rules", "manager", "re2")

import re2

MAX_PATTERN: Final = 4096
"""Longer patterns are not compiled: a pattern's program grows with its length."""

_CACHE: Final = 1024


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options


@lru_cache(maxsize=_CACHE)
def _compiled(pattern: str) -> tuple[Any | None, str]:
    if len(pattern) > MAX_PATTERN:
        return None, f"must not be longer than {MAX_PATTERN} characters"
    try:
        return re2.compile(pattern, _options()), ""
    except re2.error as error:
        why = error.args[0] if error.args else ""
        why = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        return None, f"is no regular expression of RE2's syntax: {why}"


def compiled(pattern: str) -> Any | None:
    """The pattern ready for ``search``, or ``None`` if it is no valid RE2 pattern.

    Compiled once, and kept for as long as it is among the last 1,024 that were used.
    """
    return _compiled(pattern)[0]


def pattern_problem(pattern: str) -> str:
    """Why a pattern matches nothing, ever; "" if it may match."""
    return _compiled(pattern)[1]


def found(pattern: str, text: str) -> bool:
    """Whether ``pattern`` matches anywhere in ``text``; an invalid pattern matches nothing."""
    matcher = compiled(pattern)
    return matcher is not None and matcher.search(text) is not None
