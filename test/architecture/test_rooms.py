"""Rooms: each folder's modules and folders depend on each other in one direction only.

``pytest -s test/architecture/test_rooms.py`` prints each folder with its rooms (modules and folders
in it), floors (how many rooms lie above each other), arrows (pairs of rooms of which one imports
the other, also late or for types only) and lines.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2] / "src" / "jobsetpy"

Name = tuple[str, ...]


class Folder(NamedTuple):
    """One folder: its rooms, in floors from the lowest, and the arrows between them."""

    name: str
    floors: list[set[str]]
    circle: set[str]
    arrows: set[tuple[str, str]]
    lines: int

    def __str__(self) -> str:
        rooms = len(self.circle) + sum(map(len, self.floors))
        return (
            f"{self.name:55} {rooms:3} rooms {len(self.floors):3} floors "
            f"{len(self.arrows):4} arrows {self.lines:6} lines"
        )


def name_of(path: Path) -> Name:
    """Return the dotted name of a module as a tuple."""
    parts = ("jobsetpy", *path.relative_to(ROOT).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported(tree: ast.Module) -> Iterator[Name]:
    """Return the names that a module imports, also in functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((*node.module.split("."), one.name) for one in node.names)
        elif isinstance(node, ast.Import):
            yield from (tuple(one.name.split(".")) for one in node.names)


def module_in(name: Name, modules: dict[Name, Path]) -> Name:
    """Return the module that defines a name; an empty tuple if it is none of ours."""
    while name and name not in modules:
        name = name[:-1]
    return name


def layers(rooms: set[str], arrows: set[tuple[str, str]]) -> tuple[list[set[str]], set[str]]:
    """Return the rooms by floor from the lowest, and those on or above a circle."""
    floors: list[set[str]] = []
    left = set(rooms)
    while lowest := left - {start for start, end in arrows if start in left and end in left}:
        floors.append(lowest)
        left -= lowest
    return floors, left


@pytest.fixture(scope="module")
def folders() -> list[Folder]:
    """All folders of the package."""
    modules = {name_of(path): path for path in ROOT.rglob("*.py")}
    texts = {name: path.read_text() for name, path in modules.items()}
    imports = {
        (name, target)
        for name, text in texts.items()
        for one in imported(ast.parse(text))
        if (target := module_in(one, modules)) not in {(), name}
    }
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
        lines = sum(texts[name].count("\n") for name in inside)
        found.append(Folder(".".join(package), *layers(rooms, arrows), arrows, lines))
    return found


def test_rooms_import_in_one_direction(folders: list[Folder]) -> None:
    """No folder has rooms that import each other in a circle."""
    print()
    for folder in folders:
        print(folder)
    circles = {folder.name: folder.circle for folder in folders if folder.circle}
    assert circles == {}


def test_circle_is_found_when_two_rooms_import_each_other() -> None:
    """The rooms above it have no floor either; those below do."""
    arrows = {("a", "b"), ("b", "a"), ("top", "a"), ("b", "low")}
    assert layers({"a", "b", "top", "low"}, arrows) == ([{"low"}], {"a", "b", "top"})
