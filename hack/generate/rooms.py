"""Rooms of the package: the modules and folders in each folder, and which imports which.

A room is a module or a folder; floors say how many rooms lie above each other; an arrow is a pair
of rooms of which one imports the other, also late or for types only. Lines are code lines: neither
blank, comment nor docstring.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2] / "src" / "jobsetpy"
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

Name = tuple[str, ...]
Arrow = tuple[str, str]


class Folder(NamedTuple):
    """One folder: its rooms, in floors from the lowest, and the arrows between them."""

    name: str
    floors: list[set[str]]
    circle: set[str]
    arrows: set[Arrow]
    lines: int

    def __str__(self) -> str:
        """Return its numbers as a line."""
        rooms = len(self.circle) + sum(map(len, self.floors))
        return (
            f"{self.name:55} {rooms:3} rooms {len(self.floors):3} floors "
            f"{len(self.arrows):4} arrows {self.lines:6} code lines"
        )

    def direct_arrows(self) -> set[Arrow]:
        """Return the arrows without those that follow from others."""
        below: dict[str, set[str]] = {}
        for floor in self.floors:
            for room in floor:
                ends = {end for start, end in self.arrows if start == room}
                below[room] = ends.union(*(below[end] for end in ends))
        return {
            (start, end)
            for start, end in self.arrows
            if not any(end in below[via] for first, via in self.arrows if first == start)
        }


def code_lines(text: str) -> int:
    """Return the number of lines of a module that are neither blank, comment nor docstring."""
    texts: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                texts |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT and token.type not in _LAYOUT:
            found |= set(range(token.start[0], token.end[0] + 1))
    return len(found - texts)


def layers(rooms: set[str], arrows: set[Arrow]) -> tuple[list[set[str]], set[str]]:
    """Return the rooms by floor from the lowest, and those on or above a circle."""
    floors: list[set[str]] = []
    left = set(rooms)
    while lowest := left - {start for start, end in arrows if start in left and end in left}:
        floors.append(lowest)
        left -= lowest
    return floors, left


def all_folders() -> list[Folder]:
    """Return all folders of the package."""
    modules = {_name_of(path): path for path in ROOT.rglob("*.py")}
    texts = {name: path.read_text() for name, path in modules.items()}
    imports = {
        (name, target)
        for name, text in texts.items()
        for one in _imported(ast.parse(text))
        if (target := _module_in(one, modules)) not in {(), name}
    }
    lines = {name: code_lines(text) for name, text in texts.items()}
    found = []
    for package in sorted({name[:-1] for name in modules if len(name) > 1}):
        depth = len(package)
        inside = [name for name in modules if name[:depth] == package]
        arrows = {
            (start[depth], end[depth])
            for start, end in imports
            if start[:depth] == end[:depth] == package and min(len(start), len(end)) > depth
        }
        arrows = {(start, end) for start, end in arrows if start != end}
        rooms = {name[depth] for name in inside if len(name) > depth}
        total = sum(lines[name] for name in inside)
        found.append(Folder(".".join(package), *layers(rooms, arrows), arrows, total))
    return found


def _name_of(path: Path) -> Name:
    """Return the dotted name of a module as a tuple."""
    parts = ("jobsetpy", *path.relative_to(ROOT).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def _imported(tree: ast.Module) -> Iterator[Name]:
    """Return the names that a module imports, also in functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((*node.module.split("."), one.name) for one in node.names)
        elif isinstance(node, ast.Import):
            yield from (tuple(one.name.split(".")) for one in node.names)


def _module_in(name: Name, modules: dict[Name, Path]) -> Name:
    """Return the module that defines a name; an empty tuple if it is none of ours."""
    while name and name not in modules:
        name = name[:-1]
    return name
