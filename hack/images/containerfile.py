"""Reads from the Containerfile how each image is run, so that it is said in one place only.

Not a general parser: the instructions our own file uses, and an error for what it does not know.
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
    """What one ``FROM ... AS target`` stage says about running it."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] | None = None  # parts of our package; None means all of it

    @property
    def optimize(self) -> int:
        """The level of the bytecode the entry point wants: its ``-O`` switches."""
        return next((len(word) - 1 for word in self.entrypoint if re.fullmatch("-O+", word)), 0)


def read_target(path: Path, name: str) -> Target:
    """The stage `name`; what it carries is said by the stage ``name-files``.

    Raises:
        ValueError: there is no such stage, or no entry point in it.
    """
    stages = _stages(path.read_text())
    if name not in stages:
        raise ValueError(f"{path} has no target {name!r}")
    env: dict[str, str] = {}
    values: dict[str, Sequence[str]] = {}
    user = ""
    for word, rest in stages[name]:
        match word:
            case "ENV":
                env.update(pair.partition("=")[::2] for pair in shlex.split(rest))
            case "ENTRYPOINT" | "CMD":
                values[word] = json.loads(rest)
            case "USER":
                user = rest
    if "ENTRYPOINT" not in values:
        raise ValueError(f"{path}: target {name!r} has no ENTRYPOINT")
    return Target(
        entrypoint=values["ENTRYPOINT"],
        command=values.get("CMD", ()),
        user=user,
        env=env,
        packages=_packages(stages.get(f"{name}-files", [])),
    )


def _stages(text: str) -> dict[str, list[tuple[str, str]]]:
    stages: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word.upper() == "FROM":
            found = re.search(r"\sAS\s+(\S+)", line, re.IGNORECASE)
            current = stages.setdefault(found[1] if found else "", [])
        elif word:
            current.append((word.upper(), rest.strip()))
    return stages


def _packages(instructions: Sequence[tuple[str, str]]) -> Sequence[str] | None:
    """The parts that a ``cp -r PART ... /app/jobsetpy/`` takes over."""
    for word, rest in instructions:
        found = re.search(r"\bcp -r (.+?) /app/jobsetpy/", rest) if word == "RUN" else None
        if found:
            return found[1].split()
    return None
