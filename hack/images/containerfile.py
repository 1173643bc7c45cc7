"""Reads each image's configuration from the Containerfile, so that it is defined only there.

Not a general parser: it supports the instructions of our own file and fails on others.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Target:
    """Configuration of the image of a ``FROM ... AS target`` stage."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] | None = None  # parts of our package; None: all of it

    @property
    def optimize(self) -> int:
        """Optimization level of the entry point's bytecode: the number of its ``-O`` switches."""
        return next((len(word) - 1 for word in self.entrypoint if re.fullmatch("-O+", word)), 0)


@dataclass(frozen=True)
class Stage:
    """Instructions of a stage, as (word, rest), and its base."""

    parent: str
    instructions: list[tuple[str, str]] = field(default_factory=list)


def read_target(path: Path, name: str, arguments: Mapping[str, str] | None = None) -> Target:
    """Return the stage `name` with settings of its base stages; its files: stage ``name-files``.

    Args:
        path: the Containerfile.
        name: name of the target.
        arguments: values of build arguments, which replace their defaults.

    Raises:
        ValueError: the stage does not exist, or has no entry point.
    """
    found = stages(path.read_text())
    if name not in found:
        raise ValueError(f"{path} has no target {name!r}")
    chain = [name]
    while (parent := found[chain[-1]].parent) in found:
        chain.append(parent)
    env: dict[str, str] = {}
    labels: dict[str, str] = {}
    values: dict[str, Sequence[str]] = {}
    known: dict[str, str] = {}
    user = ""
    for word, rest in (pair for each in reversed(chain) for pair in found[each].instructions):
        match word:
            case "ARG":
                argument, _, default = rest.partition("=")
                known[argument] = (arguments or {}).get(argument, default)
            case "ENV":
                env.update(_pairs(rest, {}))
            case "LABEL":
                labels.update(_pairs(rest, known))
            case "ENTRYPOINT":
                values = {word: json.loads(rest)}  # drop the arguments of another entry point
            case "CMD":
                values[word] = json.loads(rest)
            case "USER":
                user = rest
    if "ENTRYPOINT" not in values:
        raise ValueError(f"{path}: target {name!r} has no ENTRYPOINT")
    files = next((found[f"{each}-files"] for each in chain if f"{each}-files" in found), Stage(""))
    return Target(
        entrypoint=values["ENTRYPOINT"],
        command=values.get("CMD", ()),
        user=user,
        env=env,
        labels={key: value for key, value in labels.items() if value},
        packages=_packages(files.instructions),
    )


def stages(text: str) -> dict[str, Stage]:
    """Return the stages of a Containerfile by name, in their order."""
    found: dict[str, Stage] = {}
    current = Stage("")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word.upper() == "FROM":
            parts = rest.split()
            current = found.setdefault(parts[2] if len(parts) == 3 else "", Stage(parts[0]))
        elif word:
            current.instructions.append((word.upper(), rest.strip()))
    return found


def _pairs(text: str, arguments: Mapping[str, str]) -> dict[str, str]:
    values = dict(pair.partition("=")[::2] for pair in shlex.split(text))
    for key, value in values.items():
        values[key] = re.sub(r"\$\{(\w+)\}", lambda name: arguments[name[1]], value)
    return values


def _packages(instructions: Sequence[tuple[str, str]]) -> Sequence[str] | None:
    """Return the parts that a ``cp -r PART ... /app/jobsetpy/`` copies."""
    for word, rest in instructions:
        found = re.search(r"\bcp -r (\S[^&]*?) /app/jobsetpy/", rest) if word == "RUN" else None
        if found:
            return found[1].split()
    return None
