"""A pytest plugin: collect only files that a group of tests can be in, for `run_tests`.

Collecting all tests takes tens of seconds of CPU, most of them for imports, and each of several
processes side by side would do so. ``pytest -p hack.ci.groups --wants cluster --without
node,faults`` leaves out files that cannot have a test with the first mark and without the others.
``--inside`` and ``--outside`` name folders: one group is dealt out to two processes by place.

A file is read, not imported. So a mark that a test has must be named in its file, or in a
``conftest.py`` above it: a test of which this is not true fails the collection, in whichever
process finds it. No test is left out by all.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

MARKS = ("cluster", "node", "faults", "clients", "foreign", "releases")
"""Those that groups are told apart by; tests with the last two have targets of their own."""

_NAMED = re.compile(r"\bmark\.(\w+)")
_OF_THE_MODULE = re.compile(r"^pytestmark = (?:\[\n.*?^\]|[^\n]*)", re.MULTILINE | re.DOTALL)


class Group(NamedTuple):
    """Some of the tests.

    Attributes:
        what: what they are called.
        wants: marks that each of them has.
        without: marks that none of them has.
        inside: folders that they are in, from the root of the project; none for all.
        outside: folders that they are not in.
        nice: how much they give way to others.
    """

    what: str
    wants: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    nice: int = 0

    @property
    def marks(self) -> str:
        """Pytest's expression that selects them, wherever they are."""
        return " and ".join([*self.wants, *(f"not {mark}" for mark in self.without)])

    @property
    def arguments(self) -> list[str]:
        """Pytest's arguments, this plugin's among them."""
        chosen = [f"--{name}={','.join(getattr(self, name))}" for name in OPTIONS]
        return ["-p", __name__, *chosen, "-m", self.marks]

    def may_be_in(self, file: Path, root: Path) -> bool:
        """Return True if a file can hold one of them, by its place and the marks that it names."""
        return (
            self.holds(file, root)
            and set(self.wants) <= named(file, root)
            and not set(self.without) & of_the_module(file)
        )

    def holds(self, file: Path, root: Path) -> bool:
        """Return True if a file is in the right place."""
        inside = not self.inside or _is_in(file, root, self.inside)
        return inside and not _is_in(file, root, self.outside)


OPTIONS = ("wants", "without", "inside", "outside")


def _is_in(file: Path, root: Path, folders: Iterable[str]) -> bool:
    return any(file.is_relative_to(root / folder) for folder in folders)


@functools.cache
def named(file: Path, root: Path) -> frozenset[str]:
    """Marks that a file names, or a ``conftest.py`` above it."""
    above = (folder / "conftest.py" for folder in file.parents if folder.is_relative_to(root))
    return frozenset().union(_named(file), *(_named(each) for each in above))


@functools.cache
def _named(file: Path) -> frozenset[str]:
    return frozenset(_NAMED.findall(file.read_text())) if file.is_file() else frozenset()


def of_the_module(file: Path) -> frozenset[str]:
    """Marks that all tests of a file have."""
    return frozenset(
        mark
        for statement in _OF_THE_MODULE.findall(file.read_text())
        for mark in _NAMED.findall(statement)
    )


class _Chosen:
    """Hooks that choose files and tests."""

    def __init__(self, group: Group, root: Path) -> None:
        self._group = group
        self._root = root

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave a file out."""
        if collection_path.suffix != ".py" or not collection_path.is_file():
            return None
        return None if self._group.may_be_in(collection_path, self._root) else True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out tests of files that were asked for by name, but are elsewhere."""
        for problem in problems(items, self._root):
            raise pytest.UsageError(problem)
        kept: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            (kept if self._group.holds(item.path, self._root) else left_out).append(item)
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = kept


def problems(items: Iterable[pytest.Item], root: Path) -> Iterator[str]:
    """Tests with a mark that cannot be seen in their file."""
    for item in items:
        has = {mark.name for mark in item.iter_markers()}
        for mark in sorted(has.intersection(MARKS) - named(item.path, root)):
            yield (
                f"{item.nodeid} has the mark {mark}, which neither its file nor a conftest.py "
                f"above it names as pytest.mark.{mark}: a group of tests could leave it out"
            )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    for name in OPTIONS:
        kind = "MARKS" if name.startswith("w") else "FOLDERS"
        parser.addoption(f"--{name}", metavar=kind, default="", help=f"a group's {kind.lower()}")


def pytest_configure(config: pytest.Config) -> None:
    """Choose, where there is anything to choose by."""
    options: dict[str, Any] = {
        name: tuple(filter(None, config.getoption(name).split(","))) for name in OPTIONS
    }
    if any(options.values()):
        config.pluginmanager.register(
            _Chosen(Group("", **options), config.rootpath), __name__ + "+"
        )
