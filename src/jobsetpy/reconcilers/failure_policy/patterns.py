"""Users' regular expressions, matched by RE2 in time linear in the text.

Failure policies have patterns (``onJobFailureMessagePatterns``, Go's RE2 syntax) from any user who
may create a JobSet. Python's own engine backtracks, and one such pattern could block the whole
manager; RE2 cannot, and its syntax is the one users know.

RE2 does not bound the cost of compiling: a pattern of 13 characters may become a program of 38 MiB.
So the size of each program, and the number, length and parts of all patterns of a policy are
limited so that compiling a whole policy takes at most a tenth of a second.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from jobsetpy.extras import require

require("JobSet's rules", "manager", "re2")

import re2

MAX_PATTERN: Final = 4096
"""Maximum length of a pattern, in characters."""
MAX_PATTERNS: Final = 64
"""Maximum number of patterns in a failure policy."""
MAX_TOTAL: Final = 16384
"""Maximum length of all patterns of a failure policy together, in characters."""
MAX_COSTLY: Final = 256
"""Maximum number of costly parts (``\\p``, ``\\P``, ``{``) in all patterns of a failure policy.

Each takes up to 0.2 ms to parse, where any other character takes a microsecond.
"""
MAX_TEXT: Final = 32768
"""Maximum number of characters of a message to search, as many as ``metav1.Condition`` allows."""

MAX_PROGRAM: Final = 40_000
"""Maximum size of all compiled patterns of a failure policy together, in instructions of RE2.

``\\d`` and most characters are one instruction, ``\\pL`` is 1,200. Compiling as many takes 20 ms.
"""

_MEMORY: Final = 512 * 1024  # of one pattern; a program of 5,400 instructions
_TOO_LARGE: Final = 8_000  # instructions that a program is charged with which does not fit in that
_CACHE: Final = 2 * MAX_PATTERNS  # times _MEMORY: at most 64 MiB
_SHOWN: Final = 64


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    return options


@lru_cache(maxsize=_CACHE)
def compiled(pattern: str) -> Any | None:
    """Return the compiled pattern, or ``None`` if it is not a valid RE2 pattern.

    The last 128 used patterns are cached.
    """
    return None if pattern_problem(pattern) else re2.compile(pattern, _options())


def pattern_problem(pattern: str) -> str:
    """Return why a pattern can never match; "" if it may match."""
    return patterns_problems((pattern,))[0]


@lru_cache(maxsize=1024)
def patterns_problems(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return why each pattern of one failure policy can never match; "" if it may match.

    Patterns after the total limit are not compiled.
    """
    refusal = _refusal(patterns)
    if refusal:
        return (refusal,) * len(patterns)
    left = MAX_PROGRAM
    out = []
    for pattern in patterns:
        if left <= 0:
            out.append("is too much: the patterns before it are as large as all may be together")
            continue
        size, problem = _size(pattern)
        left -= size
        out.append(problem)
    return tuple(out)


def _refusal(patterns: tuple[str, ...]) -> str:
    if len(patterns) > MAX_PATTERNS:
        return (
            f"a failure policy may have {MAX_PATTERNS} patterns, and this one has {len(patterns)}"
        )
    total = sum(map(len, patterns))
    if total > MAX_TOTAL:
        return f"all patterns together have {total} characters, and may have {MAX_TOTAL}"
    costly = sum(each.count("{") + each.count("\\p") + each.count("\\P") for each in patterns)
    if costly > MAX_COSTLY:
        return (
            rf"all patterns together have {costly} Unicode classes (\p) and counted repetitions "
            f"({{n}}), and may have {MAX_COSTLY}"
        )
    return ""


def _size(pattern: str) -> tuple[int, str]:
    """Return the size of a pattern's program, and the error in the pattern."""
    if len(pattern) > MAX_PATTERN:
        return 0, f"must not be longer than {MAX_PATTERN} characters"
    try:
        return re2.compile(pattern, _options()).programsize, ""
    except re2.error as error:
        why = error.args[0] if error.args else ""
        why = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        if "too large" in why:
            return _TOO_LARGE, f"is too large: compiled it takes more than {_MEMORY // 1024} KiB"
        why = why if len(why) <= _SHOWN else f"{why[:_SHOWN]}..."
        return 0, f"is no regular expression of RE2's syntax: {why}"


def found(pattern: str, text: str) -> bool:
    """Return True if ``pattern`` matches in the first 32,768 characters of ``text``.

    An invalid pattern matches nothing.
    """
    matcher = compiled(pattern)
    return matcher is not None and matcher.search(text[:MAX_TEXT]) is not None
