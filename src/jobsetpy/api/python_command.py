"""Parser of Python command lines: separates the interpreter's options from the program's arguments.

Used by admission for validation, and by the agent to insert its launcher.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

INTERPRETER = re.compile(r"(.*/)?python[0-9]?(\.[0-9]+)?t?", re.DOTALL)
MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_ALONE = frozenset("bBdEIOPqRsSuvt")
_WITH_VALUE = frozenset("WX")
_LONG_WITH_VALUE = frozenset({"--check-hash-based-pycs"})


class PythonCommand(NamedTuple):
    """A command line of Python.

    Args:
        interpreter: the interpreter and its options.
        program: a file, or ``-m`` and a module, followed by its arguments.
    """

    interpreter: list[str]
    program: list[str]


def split_python(words: Sequence[str]) -> PythonCommand | str:
    """Split ``python [options] FILE ...`` or ``python [options] -m MODULE ...``.

    Returns:
        The two parts; or, as a text, the reason why the command has another form.
    """
    if not words or not INTERPRETER.fullmatch(words[0]):
        name = words[0].rpartition("/")[2][:63] if words else ""
        return f"{name!r} is not Python"
    left = list(words[1:])
    options = [words[0]]
    while left:
        word = left.pop(0)
        if word == "-":
            return "Python reads the program from its standard input"
        if word in _LONG_WITH_VALUE:
            options += [word, *left[:1]]
            del left[:1]
        elif word.startswith("--"):
            return f"Python's option {word[:63]!r} is not known here"
        elif not word.startswith("-"):
            return PythonCommand(options, [word, *left])
        else:
            done = _short(word, left, options)
            if done is not None:
                return done
    return "it names no file and no module"


def _short(word: str, left: list[str], options: list[str]) -> PythonCommand | str | None:
    """Parse a word of one or more short options; return ``None`` to continue."""
    for at, letter in enumerate(word[1:], 1):
        if letter in _ALONE:
            continue
        rest = word[at + 1 :]
        if letter in _WITH_VALUE:
            options.append(word)
            if not rest:
                options += left[:1]
                del left[:1]
            return None
        if letter == "m":
            options += [word[:at]] if at > 1 else []
            program = [rest, *left] if rest else left
            return PythonCommand(options, ["-m", *program]) if program else "it names no module"
        if letter == "c":
            return "the program is a text (-c)"
        return f"Python's option '-{letter}' is not known here"
    options.append(word)
    return None


def module_names(text: str) -> list[str] | None:
    """Return the modules of a comma-separated list; ``None`` if an entry is not a module name."""
    names = [name for name in (word.strip() for word in text.split(",")) if name]
    return names if names and all(map(MODULE.fullmatch, names)) else None
