"""How values are written in the configuration file and as flags."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from jobsetpy.api.durations import parse_duration


class ConfigurationError(Exception):
    """The configuration cannot be used.

    Args:
        problems: one line each, with the field's path where there is one.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@attrs.frozen(eq=False)
class Kind:
    """A kind of value.

    Args:
        decode: makes the value of a field's path and of what the file has there.
        flag: keyword arguments of ``ArgumentParser.add_argument``.
        convert: makes what Settings classes take of it.
    """

    decode: Callable[[str, Any], Any]
    flag: Mapping[str, Any] = attrs.field(factory=dict)
    convert: Callable[[Any], Any] = attrs.field(default=lambda value: value)

    def with_flag(self, **flag: Any) -> Kind:
        """Return the kind with added or replaced keyword arguments for the flag."""
        return attrs.evolve(self, flag={**self.flag, **flag})


def argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the type of a flag: errors of ``parse`` are usage errors with its texts."""

    def of_flag(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return of_flag


def boolean(text: str) -> bool:
    """A flag's truth value, with the spellings that Go's flags have.

    Raises:
        ValueError: another one.
    """
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _positive_duration(text: str) -> float:
    if (seconds := parse_duration(text)) <= 0:
        raise ValueError(f"{text!r} must be longer than 0s")
    return seconds


def expected(what: str, path: str, value: object) -> ConfigurationError:
    """The error for a value of another type."""
    return ConfigurationError([f"{path}: expected {what}, got {value!r}"])


def _exactly(kind: type, what: str) -> Callable[[str, Any], Any]:
    def decode(path: str, value: Any) -> Any:
        if type(value) is not kind:
            raise expected(what, path, value)
        return value

    return decode


def _number(path: str, value: Any) -> float:
    if type(value) not in {int, float} or not math.isfinite(value):
        raise expected("a number", path, value)
    return float(value)


def _duration(path: str, value: Any) -> float:
    if not isinstance(value, str):
        raise expected("a duration such as 15s", path, value)
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ConfigurationError([f"{path}: {error}"]) from None


def _names(path: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise expected("a list of strings", path, value)
    return tuple(TEXT.decode(f"{path}[{index}]", item) for index, item in enumerate(value))


def _amounts(path: str, value: Any) -> dict[str, str]:
    from jobsetpy.api.quantities import amount_problem

    if not isinstance(value, dict):
        raise expected("a mapping such as {cpu: 100m, memory: 64Mi}", path, value)
    amounts = {name: str(each) if type(each) is int else each for name, each in value.items()}
    problems = [amount_problem(name, each) for name, each in amounts.items()]
    if any(problems):
        raise ConfigurationError([f"{path}: {problem}" for problem in problems if problem])
    return amounts


def _annotations(path: str, value: Any) -> dict[str, Any]:
    """Decode annotations of JobSets by name, with or without their usual prefix."""
    from jobsetpy.api.annotations import PREFIX
    from jobsetpy.reconcilers.restart_in_place.injection.effective import ENFORCED, default_problem

    if not isinstance(value, dict):
        raise expected("a mapping such as {in-place-restart: fast}", path, value)
    found: dict[str, Any] = {}
    problems = []
    for name, each in value.items():
        if name == ENFORCED and not path.endswith(ENFORCED):
            found[name] = _annotations(f"{path}.{name}", each)
            continue
        full = name if "/" in str(name) else f"{PREFIX}{name}"
        if why := default_problem(full, each):
            problems.append(f"{path}[{name}]: Invalid value: {each!r}: {why}")
        found[full] = each
    if problems:
        raise ConfigurationError(problems)
    return found


TEXT: Final = Kind(_exactly(str, "a string"))
BOOLEAN: Final = Kind(
    _exactly(bool, "true or false"),
    {"nargs": "?", "const": True, "type": argument(boolean), "metavar": "BOOL"},
)
INTEGER: Final = Kind(_exactly(int, "an integer"), {"type": int, "metavar": "NUMBER"})
NUMBER: Final = Kind(_number, {"type": float, "metavar": "NUMBER"})
NAMES: Final = Kind(_names, {"action": "append", "metavar": "NAME"})
PATH: Final = Kind(TEXT.decode, convert=lambda text: Path(text) if text else None)
DELAY: Final = Kind(_duration, {"type": argument(parse_duration), "metavar": "DURATION"})
"""A duration that may be 0."""
DURATION: Final = DELAY.with_flag(type=argument(_positive_duration))
AMOUNTS: Final = Kind(_amounts)
"""Amounts by resource."""
ANNOTATIONS: Final = Kind(_annotations)
"""Annotations of JobSets, and those that the manager enforces."""
SWITCH: Final = Kind(BOOLEAN.decode, {"action": "store_const", "const": True})
"""Type of flags only: on if given."""


def shown(kind: Kind, value: Any) -> str:
    """A value as a help text has it."""
    if kind in {DURATION, DELAY}:
        return f"{value * 1000:g}ms" if 0 < value < 1 else f"{value:g}s"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(value) if isinstance(value, tuple) else str(value)
