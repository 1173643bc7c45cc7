"""Lines of a worker's output: patterns that show its progress, and rules.

The agent matches them in a process of its own, admission validates them, and ``kubectl jobset lint
--log`` tries them on a log. Patterns have the syntax of RE2, as those of failure policies, in the
part of it that Python's ``re`` understands in the same way. Since ``re`` may need exponential time,
each search has a time limit, see :func:`bounded`.
"""

from __future__ import annotations

import math
import re
import signal
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Literal, get_args

import msgspec

from jobsetpy.api.agent_reports import MAX_STEP
from jobsetpy.api.durations import parse_duration
from jobsetpy.api.hang_sections import section_name

MAX_LINE: Final = 4096
"""Number of bytes at the beginning of a line that patterns see."""
MAX_SHOWN: Final = 512
"""Number of characters of a line that findings have: those of all rules fit into one message."""
MAX_PATTERN: Final = 1024
MAX_RULES: Final = 16
MAX_LINES: Final = 1_000_000
LONGEST_S: Final = 604800.0
SEARCH_S: Final = 1.0
"""Maximum time in seconds of the processor to search one pattern in one piece of output."""
AUTO: Final = "auto"
DONE: Final = "done"
"""Section after the last of the steps that a line announces: what follows is no step."""

BUILT_IN: Final = {
    # A bar prints large numbers as 1.2e+05: that is progress, without a step.
    "nemo": r"global_step[:=] *(?:(\d+)(?:\.0*)?(?:[^\d.e]|$))?",
    "automodel": r"step (\d+) \| epoch \d+ \| loss ",
    # A nested bar, that of an evaluation, ends with the code that moves the cursor up.
    "transformers": r"^ *\d+%\|[^|]*\| *(\d+)/(?P<of>\d+) \[[^\]]*\]$",
    # Data without a length has no bar: "Epoch 0: 24it [00:05, ...]".
    "lightning": r"^Epoch (?P<epoch>\d+): (?:.*\| *)?(?P<step>\d+)(?:/(?P<of>\d+)|it) \[",
    "megatron": r"iteration +(\d+)/ *(?P<of>\d+) \|",
    "maxtext": r"completed step: (\d+), ",
    "torchtitan": r"step: *(\d+) +loss: ",
}
"""Patterns of lines that frameworks print by default, in the order in which ``auto`` tries them.

Each begins with letters or at the line's start, for which Python's engine searches fast."""

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_AGENT: Final = re.compile(r'\{"ts":"[^"]+","level":"[a-z]+","event":"[^"]*","ms":\d+')
"""Beginning of the agent's own lines, which are no output of the worker."""
_ONLY_PYTHON: Final = re.compile(r"\\[1-9Z]|\(\?(?:[=!>(]|<[=!]|P=|#)|[*+?}]\+|\{,")
"""Syntax of Python that RE2 does not understand, or in another way."""
_ONLY_RE2: Final = re.compile(r"\[\[:")
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_NUMBER: Final = re.compile(r"([<>]) *([-+]?[0-9][0-9.]{0,20}(?:[eE][-+]?[0-9]{1,3})?)")

Outcome = Literal["restart", "end-pod", "fail-jobset", "unfit-node", "report"]


def pattern_problem(pattern: str) -> str:
    """Return why a pattern cannot be used; "" if it can, as far as Python's engine tells."""
    if not pattern or len(pattern) > MAX_PATTERN:
        return f"must have 1 to {MAX_PATTERN} characters"
    found = _ONLY_PYTHON.search(pattern.replace("\\\\", "")) or _ONLY_RE2.search(pattern)
    if found:
        return f"has {found[0]!r}, which not all engines understand: write it in another way"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled(pattern)
    except (re.error, RecursionError, OverflowError, Warning) as why:
        return f"is no regular expression: {why}"
    return ""


def compiled(pattern: str) -> re.Pattern[str]:
    r"""Return a pattern for one line of text; ``\d`` and the like are ASCII, as in RE2."""
    return re.compile(pattern, re.ASCII)


def progress_patterns(text: str) -> dict[str, str]:
    """Return the patterns that a setting stands for, by name.

    Args:
        text: ``auto``, the name of a built-in pattern, or a pattern.

    Raises:
        ValueError: it is none of these.
    """
    if text == AUTO:
        return BUILT_IN
    if text in BUILT_IN:
        return {text: BUILT_IN[text]}
    if why := pattern_problem(text):
        raise ValueError(why)
    return {"": text}


class LogRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rule on lines; with neither times nor a number, each line that matches breaks it.

    Args:
        name: name for messages, unique.
        line: pattern of its lines.
        within: the first one must come within as many seconds of the worker's start; 0 for never.
        again_within: the next one must come within as many seconds.
        number: ``finite``, ``< X`` or ``> X``: requirement for the number in the first group.
        lines: number of consecutive lines with another number that break the rule.
        then: outcome.
    """

    name: str
    line: str
    within: float = 0.0
    again_within: float = 0.0
    number: str = ""
    lines: int = 1
    then: Outcome = "restart"

    @property
    def is_timed(self) -> bool:
        """Return True if its lines must come in time."""
        return self.within > 0 or self.again_within > 0


def parse_rules(data: Any) -> list[LogRule]:
    """Return rules from a list of mappings, whose durations are texts or numbers of seconds.

    Raises:
        ValueError: they are invalid; the message has the path, the value, and what would be right.
    """
    if not isinstance(data, list) or not 0 < len(data) <= MAX_RULES:
        raise ValueError(f"must be a list of 1 to {MAX_RULES} rules")
    rules: list[LogRule] = []
    for at, each in enumerate(data):
        if not isinstance(each, dict) or not all(isinstance(key, str) for key in each):
            raise ValueError(f"[{at}] must be a mapping with name and line")
        rule = _rule(f"[{at}]", {key.replace("_", "-"): each[key] for key in each})
        if rule.name in {other.name for other in rules}:
            raise ValueError(f"[{at}].name {rule.name!r} is the name of another rule")
        rules.append(rule)
    return rules


def _rule(path: str, given: dict[str, Any]) -> LogRule:
    def refuse(key: str, why: str) -> ValueError:
        value = given.get(key)
        # A list in YAML may stand for many more by aliases.
        shown = repr(value if isinstance(value, str | int | float) else type(value).__name__)
        return ValueError(f"{path}.{key} {shown[:64]} {why}")

    known = [field.replace("_", "-") for field in LogRule.__struct_fields__]
    for key in given:
        if key not in known:
            raise ValueError(f"{path}.{key[:64]} is unknown: must be one of {', '.join(known)}")
    if not isinstance(given.get("name"), str) or not _NAME.fullmatch(given["name"]):
        raise refuse("name", "must be lower case letters, digits and dashes, at most 32")
    line = given.get("line")
    if why := pattern_problem(line) if isinstance(line, str) else "must be a pattern":
        raise refuse("line", why)
    times = {key: _seconds(given[key]) for key in ("within", "again-within") if key in given}
    for key, seconds in times.items():
        if not 0 < seconds <= LONGEST_S:
            raise refuse(key, "must be a duration such as 90s, 5m or 2h, at most 168h")
    number, lines = given.get("number", ""), given.get("lines", 1)
    if number and (times or not _is_bound(number)):
        why = "has no effect with times" if times else 'must be "finite", "< X" or "> X"'
        raise refuse("number", why)
    if number and not compiled(str(line)).groups:
        raise refuse("line", r"must have a group with the number, such as loss=(\S+)")
    if type(lines) is not int or not 1 <= lines <= MAX_LINES or ("lines" in given and not number):
        raise refuse("lines", f"must be from 1 to {MAX_LINES}, and needs number")
    if given.get("then", "restart") not in get_args(Outcome):
        raise refuse("then", f"must be one of {', '.join(get_args(Outcome))}")
    return LogRule(
        name=given["name"],
        line=str(line),
        within=times.get("within", 0.0),
        again_within=times.get("again-within", 0.0),
        number=str(number),
        lines=lines,
        then=given.get("then", "restart"),
    )


def _seconds(value: object) -> float:
    """Return a duration in seconds; 0 if it is invalid."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return parse_duration(value[:64]) if isinstance(value, str) else 0.0
    except ValueError:
        return 0.0


def _is_bound(text: object) -> bool:
    if text == "finite":
        return True
    found = _NUMBER.fullmatch(text) if isinstance(text, str) else None
    return found is not None and found[2].count(".") <= 1


def number_is_right(bound: str, number: float) -> bool:
    """Return True if a number meets the requirement of a rule."""
    if bound == "finite":
        return math.isfinite(number)
    found = _NUMBER.fullmatch(bound)
    if found is None:
        return True
    return number < float(found[2]) if found[1] == "<" else number > float(found[2])


# ---- matching -----------------------------------------------------------------------------------


class Splitter:
    """Divides one stream into lines, of which it keeps no more than the beginning."""

    def __init__(self) -> None:
        self._rest = b""
        self.is_bar = False
        """True if the last line has not ended, and is a progress bar: its end is the next one."""

    def feed(self, data: bytes) -> list[str]:
        r"""Return the lines that end in ``data``; a progress bar ends its lines with ``\r``."""
        if (end := max(data.rfind(b"\r"), data.rfind(b"\n"))) >= 0:
            self.is_bar = data[end] == 13
        # The cut keeps a worker that never ends its line from taking memory.
        *whole, rest = data.replace(b"\r", b"\n").split(b"\n")
        if not whole:
            self._rest = (self._rest + rest[:MAX_LINE])[:MAX_LINE]
            return []
        whole[0] = self._rest + whole[0]
        self._rest = rest[:MAX_LINE]
        return [clean(line) for line in whole if line]

    def bar(self) -> list[str]:
        """Return the last progress bar, which nothing has followed for a while; only once."""
        rest, self.is_bar = self._rest, False
        return [clean(rest)] if rest else []

    def gap(self) -> None:
        """Forget a line that has lost a part."""
        self._rest, self.is_bar = b"", False


def clean(line: bytes) -> str:
    """Return the beginning of a line as patterns see it: text, without colours."""
    text = line[:MAX_LINE].decode("utf-8", "replace")
    return _COLOURS.sub("", text) if "\x1b" in text else text


class Seen(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Findings in a part of a worker's output.

    Args:
        run: number of the worker's run.
        progress: True if a line has shown progress.
        step: step of the last such line; -1 for none.
        section: section of the program that it names.
        pattern: name of the built-in pattern that it matched.
        seen: names of the rules of which there was a line.
        broken: lines by which rules were broken, by their names.
        slow: patterns that took too long, and are no longer used.
        caught_up: True if all output was matched that had been sent before a request.
    """

    run: int = 0
    progress: bool = False
    step: int = -1
    section: str = ""
    pattern: str = ""
    seen: set[str] = set()
    broken: dict[str, str] = {}
    slow: list[str] = []
    caught_up: bool = False

    @property
    def is_empty(self) -> bool:
        """Return True if there is nothing to report."""
        return not (self.progress or self.seen or self.broken or self.slow)


Search = Callable[[str], re.Match[str] | None]
Limit = Callable[[Search, Sequence[str]], list[re.Match[str]] | None]
"""Function that returns the matches in lines; ``None`` if that took too long."""


def search_all(search: Search, lines: Iterable[str]) -> list[re.Match[str]]:
    """Return the matches in lines, however long that takes."""
    return [found for line in lines if (found := search(line))]


class Matcher:
    """Finds what the lines of one worker say, run after run.

    Args:
        progress: patterns of progress by name; the first that matches is used from then on.
        rules: rules on lines.
        limit: bounds the time of a search.
    """

    def __init__(
        self, progress: dict[str, str], rules: Sequence[LogRule], *, limit: Limit = search_all
    ) -> None:
        self._progress = {name: compiled(each).search for name, each in progress.items()}
        self._rules = {each.name: (each, compiled(each.line).search) for each in rules}
        self._limit = limit
        self._slow: list[str] = []
        self._wrong: dict[str, int] = {}
        self._step = -1

    def start(self) -> None:
        """Forget the last run."""
        self._wrong.clear()
        self._step = -1

    def take(self, lines: Sequence[str], into: Seen) -> None:
        """Add the findings in further lines."""
        if any(line.startswith('{"ts":"') for line in lines):
            lines = [line for line in lines if not _AGENT.match(line)]
        for name, search in list(self._progress.items()):
            if found := self._matches(name or "progress-pattern", search, lines):
                if len(self._progress) > 1:
                    self._progress = {name: search}
                into.progress, into.pattern = True, name
                for each in found:
                    self._note(each.groupdict(), each, into)
                break
        for rule, search in list(self._rules.values()):
            if found := self._matches(rule.name, search, lines):
                into.seen.add(rule.name)
                if not rule.is_timed and rule.name not in into.broken:
                    self._judge(rule, found, into)
        if self._slow:
            into.slow += self._slow
            for name in self._slow:
                self._rules.pop(name, None)
                self._progress.pop("" if name == "progress-pattern" else name, None)
            self._slow = []

    def _matches(self, name: str, search: Search, lines: Sequence[str]) -> list[re.Match[str]]:
        found = self._limit(search, lines)
        if found is None:
            self._slow.append(name)
        return found or []

    def _note(self, named: dict[str, Any], found: re.Match[str], into: Seen) -> None:
        plain = found[1] if found.re.groups and found.re.groupindex.get("section") != 1 else ""
        text = named.get("step") or ("" if "step" in named else plain) or ""
        into.section = section_name((named.get("section") or "").encode())
        if not (text.isascii() and text.isdigit() and len(text) <= 19):
            into.step = self._step
            return
        step, of = int(text), named.get("of") or ""
        of = int(of) if of.isdigit() and len(of) <= 19 else 0
        if step == of and not into.section:
            into.section = DONE
        epoch = named.get("epoch") or ""
        if "of" in named and epoch.isdigit() and len(epoch) <= 9:
            # Steps are those of the epoch: of later ones, they are not known without its length.
            step = step + int(epoch) * of if of or not int(epoch) else self._step
        self._step = into.step = min(step, MAX_STEP)

    def _judge(self, rule: LogRule, found: Sequence[re.Match[str]], into: Seen) -> None:
        for each in found:
            if rule.number:
                number = _number_in(each[1])
                if number is None:
                    continue
                right = number_is_right(rule.number, number)
                self._wrong[rule.name] = 0 if right else self._wrong.get(rule.name, 0) + 1
                if self._wrong[rule.name] < rule.lines:
                    continue
                self._wrong[rule.name] = 0
            text = each.string if rule.number or not each.re.groups else each[1] or each.string
            into.broken[rule.name] = text[:MAX_SHOWN]
            return


def _number_in(text: str | None) -> float | None:
    """Return a number that may have punctuation around it; ``None`` if it is none."""
    plain = (text or "").strip(" \t,;:%()[]{}'\"")[:64]
    try:
        return float(plain.replace("_", "x"))  # float() would take 1_000
    except ValueError:
        return None


class _TooSlow(Exception):  # noqa: N818 - no error
    pass


def bounded(*, seconds: float = SEARCH_S) -> Limit:
    """Return a limit that ends a search by a timer of this process's time on the processor.

    Python's engine lets handlers of signals interrupt it. Only for the main thread of a process
    that uses SIGVTALRM for nothing else.
    """
    signal.signal(signal.SIGVTALRM, _interrupt)
    return partial(_bounded, seconds)


def _interrupt(_number: int, _frame: object) -> None:
    raise _TooSlow


def _bounded(seconds: float, search: Search, lines: Sequence[str]) -> list[re.Match[str]] | None:
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            return search_all(search, lines)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TooSlow:
        return None
