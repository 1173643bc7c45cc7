r"""Regular expressions of users, matched in linear time.

Failure policy rules carry patterns that any user may write, and they are matched inside the one
process that serves all JobSets. A backtracking engine can be made to run for years by a pattern of
ten characters. This one follows all alternatives at once (Thompson's construction), so its work is
bounded by the size of the pattern times the length of the text.

The syntax is RE2's, as in JobSet: no back references and no look-around. Only whether a pattern
matches somewhere is asked, so greediness and group names are read and ignored. Unicode classes
(``\pL``) and flags other than ``i``, ``m``, ``s`` and ``U`` are not supported.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import attrs

MAX_PROGRAM: Final = 5_000
"""A pattern that needs more instructions is refused; ``{n,m}`` multiplies them."""

MAX_REPEAT: Final = 1_000
"""The largest count in ``{n,m}``, as in RE2."""

MAX_STEPS: Final = 500_000
"""A match gives up after so many steps, some tenths of a second: no pattern may take longer."""


class PatternError(ValueError):
    """The pattern is not valid, or too large."""


Test = Callable[[str], bool]


@attrs.frozen
class Chars:
    """One character that passes a test."""

    test: Test


@attrs.frozen
class Assertion:
    """A place in the text: ``^``, ``$``, ``A`` (begin), ``z`` (end), ``b`` or ``B``."""

    kind: str


@attrs.frozen
class Sequence:
    """Parts one after the other."""

    parts: tuple[Node, ...]


@attrs.frozen
class Choice:
    """One of several."""

    options: tuple[Node, ...]


@attrs.frozen
class Repeat:
    """``low`` to ``high`` times; ``None`` for any number."""

    node: Node
    low: int
    high: int | None


Node = Chars | Assertion | Sequence | Choice | Repeat


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


_CLASSES: Final[dict[str, Test]] = {
    "d": lambda c: "0" <= c <= "9",
    "s": lambda c: c in "\t\n\f\r ",
    "w": _is_word,
}
_ESCAPES: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_POSIX: Final[dict[str, Test]] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": str.isascii,
    "blank": lambda c: c in "\t ",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "digit": _CLASSES["d"],
    "graph": lambda c: "!" <= c <= "~",
    "lower": lambda c: "a" <= c <= "z",
    "print": lambda c: " " <= c <= "~",
    "punct": lambda c: "!" <= c <= "~" and not c.isalnum(),
    "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: "A" <= c <= "Z",
    "word": _is_word,
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}


def _not(test: Test) -> Test:
    return lambda c: not test(c)


def _any_case(test: Test) -> Test:
    return lambda c: test(c) or test(c.lower()) or test(c.upper())


class _Parser:
    """Recursive descent over one pattern."""

    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.at = 0
        self.flags: frozenset[str] = frozenset()
        self.depth = 0

    def parse(self) -> Node:
        node = self._choice()
        if self.at < len(self.text):
            raise PatternError("unexpected )")
        return node

    def _peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def _next(self) -> str:
        if self.at >= len(self.text):
            raise PatternError("the pattern ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def _choice(self) -> Node:
        flags = self.flags
        options = [self._sequence()]
        while self._peek("|"):
            self.at += 1
            options.append(self._sequence())
        self.flags = flags
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            if self._peek(r"\Q"):
                parts += [self._literal(c) for c in self._quoted()]
                continue
            part = self._atom()
            if part is not None:
                parts.append(self._repeated(part))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quoted(self) -> str:
        end = self.text.find(r"\E", self.at)
        text = self.text[self.at + 2 : end if end >= 0 else len(self.text)]
        self.at = end + 2 if end >= 0 else len(self.text)
        return text

    def _repeated(self, node: Node) -> Node:
        times = 0
        while (bounds := self._bounds()) is not None:
            times += 1
            if times > 1:
                raise PatternError("a repetition of a repetition")
            node = Repeat(node, *bounds)
            if self._peek("?"):
                self.at += 1
        return node

    def _bounds(self) -> tuple[int, int | None] | None:
        char = self.text[self.at : self.at + 1]
        if char and char in "*+?":
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        end = self.text.find("}", self.at)
        if char != "{" or end < 0:
            return None
        low, comma, high = self.text[self.at + 1 : end].partition(",")
        if not (low.isascii() and low.isdigit()) or not (high == "" or high.isdigit()):
            return None  # then the brace is an ordinary character
        self.at = end + 1
        first = int(low)
        last = first if not comma else int(high) if high else None
        if first > MAX_REPEAT or (last is not None and not first <= last <= MAX_REPEAT):
            raise PatternError("bad repeat count")
        return first, last

    def _atom(self) -> Node | None:
        char = self._next()
        match char:
            case "(":
                return self._group()
            case "[":
                return Chars(self._cased(self._set()))
            case ".":
                return Chars(lambda _: True) if "s" in self.flags else Chars(lambda c: c != "\n")
            case "^":
                return Assertion("^" if "m" in self.flags else "A")
            case "$":
                return Assertion("$" if "m" in self.flags else "z")
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise PatternError(f"nothing to repeat before {char}")
            case _:
                return self._literal(char)

    def _literal(self, char: str) -> Node:
        return Chars(self._cased(lambda c: c == char))

    def _cased(self, test: Test) -> Test:
        return _any_case(test) if "i" in self.flags else test

    def _group(self) -> Node | None:
        self.depth += 1
        if self.depth > 100:
            raise PatternError("groups are nested too deeply")
        flags = self.flags
        if self._peek("?"):
            self.at += 1
            if self._peek("P<") or self._peek("<"):
                end = self.text.find(">", self.at)
                name = self.text[self.at : end].lstrip("P<")
                if end < 0 or not name.isidentifier():
                    raise PatternError("bad group name")
                self.at = end + 1
            elif not self._set_flags():
                self.depth -= 1
                return None  # (?i) holds until the end of the group around it
        node = self._choice()
        if not self._peek(")"):
            raise PatternError("missing )")
        self.at += 1
        self.flags = flags
        self.depth -= 1
        return node

    def _set_flags(self) -> bool:
        """Read ``i-s:`` or ``i)``; whether a group follows."""
        on, flags = True, set(self.flags)
        while (char := self._next()) not in ":)":
            if char == "-" and on:
                on = False
            elif char in "imsU":
                (flags.add if on else flags.discard)(char)
            else:
                raise PatternError(f"unknown flag or group (?{char}")
        self.flags = frozenset(flags)
        return char == ":"

    def _escape(self) -> Node:
        char = self._next()
        if char in "AzbB":
            return Assertion(char)
        return Chars(self._cased(self._escaped(char)))

    def _escaped(self, char: str) -> Test:
        if char.lower() in _CLASSES:
            test = _CLASSES[char.lower()]
            return test if char.islower() else _not(test)
        literal = self._escaped_char(char)
        return lambda c: c == literal

    def _escaped_char(self, char: str) -> str:
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char == "x":
            if self._peek("{"):
                end = self.text.find("}", self.at)
                digits = self.text[self.at + 1 : max(end, self.at)]
                self.at = end + 1
            else:
                digits = self.text[self.at : self.at + 2]
                self.at += 2
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise PatternError("bad hexadecimal escape") from None
        if char.isascii() and char.isalnum():
            raise PatternError(rf"unknown escape \{char}")
        return char

    def _set(self) -> Test:
        negated = self._peek("^")
        self.at += negated
        tests: list[Test] = []
        first = True
        while first or not self._peek("]"):
            tests.append(self._set_item())
            first = False
        self.at += 1

        def test(char: str) -> bool:
            return any(each(char) for each in tests)

        return _not(self._cased(test)) if negated else test

    def _set_item(self) -> Test:
        if self._peek("[:"):
            end = self.text.find(":]", self.at)
            name = self.text[self.at + 2 : end]
            posix = _POSIX.get(name.removeprefix("^"))
            if end < 0 or posix is None:
                raise PatternError("unknown character class")
            self.at = end + 2
            return _not(posix) if name.startswith("^") else posix
        low = self._next()
        if low == "\\":
            escape = self._next()
            if escape.lower() in _CLASSES:
                return self._escaped(escape)
            low = self._escaped_char(escape)
        if not self._peek("-") or self._peek("-]"):
            return lambda c: c == low
        self.at += 1
        high = self._next()
        if high == "\\":
            high = self._escaped_char(self._next())
        if high < low:
            raise PatternError("bad character range")
        return lambda c: low <= c <= high


_MATCH: Final = "match"
Instruction = Chars | Assertion | tuple[int, ...] | str
"""A character or assertion goes on to the next instruction; a tuple goes to all of its places."""


def _compile(node: Node, out: list[Instruction]) -> None:
    if len(out) > MAX_PROGRAM:
        raise PatternError("the pattern is too large")
    match node:
        case Chars() | Assertion():
            out.append(node)
        case Sequence(parts):
            for part in parts:
                _compile(part, out)
        case Choice(options):
            fork = len(out)
            out.append(())
            starts, ends = [], []
            for option in options:
                starts.append(len(out))
                _compile(option, out)
                ends.append(len(out))
                out.append(())
            out[fork] = tuple(starts)
            for end in ends:
                out[end] = (len(out),)
        case Repeat(inner, low, high):
            for _ in range(low):
                _compile(inner, out)
            if high is None:
                fork = len(out)
                out.append(())
                _compile(inner, out)
                out.append((fork,))
                out[fork] = (fork + 1, len(out))
            else:
                forks = []
                for _ in range(high - low):
                    forks.append(len(out))
                    out.append(())
                    _compile(inner, out)
                for fork in forks:
                    out[fork] = (fork + 1, len(out))


class Pattern:
    """A compiled pattern.

    Args:
        pattern: in RE2's syntax.

    Raises:
        PatternError: it is not valid or too large.
    """

    __slots__ = ("_program",)

    def __init__(self, pattern: str) -> None:
        program: list[Instruction] = []
        _compile(_Parser(pattern).parse(), program)
        if len(program) > MAX_PROGRAM:
            raise PatternError("the pattern is too large")
        program.append(_MATCH)
        self._program = tuple(program)

    def found_in(self, text: str) -> bool:
        """Whether it matches somewhere in a text; false when that takes too many steps to say."""
        program = self._program
        steps = 0
        threads: list[int] = []
        for at in range(len(text) + 1):
            # Wherever threads are, a match may also begin here.
            stack = [0, *threads]
            seen: set[int] = set()
            threads = []
            char = text[at] if at < len(text) else ""
            while stack:
                place = stack.pop()
                if place in seen:
                    continue
                seen.add(place)
                steps += 1
                match program[place]:
                    case Chars(test):
                        if char and test(char):
                            threads.append(place + 1)
                    case Assertion(kind):
                        if _holds(kind, text, at):
                            stack.append(place + 1)
                    case tuple() as places:
                        stack.extend(places)
                    case _:
                        return True
            if steps > MAX_STEPS:
                return False
        return False


def _holds(kind: str, text: str, at: int) -> bool:
    match kind:
        case "A":
            return at == 0
        case "z":
            return at == len(text)
        case "^":
            return at == 0 or text[at - 1] == "\n"
        case "$":
            return at == len(text) or text[at] == "\n"
        case _:
            before = at > 0 and _is_word(text[at - 1])
            after = at < len(text) and _is_word(text[at])
            return (before != after) is (kind == "b")


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Pattern | None:
    """A pattern, compiled once; ``None`` if it is not valid."""
    try:
        return Pattern(pattern)
    except (PatternError, RecursionError):
        return None


def found(pattern: str, text: str) -> bool:
    """Whether a pattern matches somewhere in a text; an invalid one matches nothing."""
    program = compiled(pattern)
    return program is not None and program.found_in(text)
