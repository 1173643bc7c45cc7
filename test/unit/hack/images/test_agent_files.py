"""The Containerfile's list of files of the agent's image, checked without building the image."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.images.containerfile import read_target
from hack.images.project import PROJECT, pins

PACKAGE = PROJECT / "src" / "jobsetpy"
CONTAINERFILE = PROJECT / "Containerfile"


def module_file(name: str) -> Path | None:
    """Source file of a module of the project; ``None`` for a name that is not a module."""
    place = PACKAGE.parent.joinpath(*name.split("."))
    return next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()), None)


def imported(tree: ast.AST) -> Iterator[str]:
    """Names of all modules that a source file may import, within functions as well."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imported(node)


def named_files(tree: ast.AST) -> Iterator[Path]:
    """Files of the project that a source names by a string: copied, or run by their path."""
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and re.fullmatch(r"[\w./]*\w\.\w[\w.]*", value):
            for place in (PACKAGE / value, module_file(value)):
                if place is not None and place.is_file():
                    yield place


def needed_files() -> tuple[set[Path], set[str]]:
    """Files of the project that the agent may load, and other packages that they import."""
    waiting = sorted((PACKAGE / "agent").rglob("*.py"))
    found, foreign = set(waiting), set()
    while waiting:
        tree = ast.parse(waiting.pop().read_text())
        files = list(named_files(tree))
        for name in imported(tree):
            parts = name.split(".")
            if parts[0] != PACKAGE.name:
                foreign.add(parts[0])
                continue
            parents = (module_file(".".join(parts[:end])) for end in range(1, len(parts) + 1))
            files += [file for file in parents if file is not None]
        for file in set(files) - found:
            found.add(file)
            if file.suffix == ".py":
                waiting.append(file)
    return found, foreign


def missing_from(packages: set[str]) -> list[str]:
    """Files that the agent may load and that a list of the package's parts does not have."""
    files = (file.relative_to(PACKAGE) for file in needed_files()[0])
    return sorted(str(file) for file in files if file.parts[0] not in packages)


def test_agent_image_has_each_file_when_the_agent_may_load_it():
    """A missing part of the package would only fail in pods."""
    packages = read_target(CONTAINERFILE, "agent").packages

    assert packages is not None
    assert missing_from(set(packages)) == []


@pytest.mark.parametrize("part", ["warm", "client", "errors.py"])
def test_file_list_is_incomplete_when_a_part_is_left_out(part):
    """Imports, imports within functions and files that are named by strings all count."""
    packages = set(read_target(CONTAINERFILE, "agent").packages or ()) - {part}

    assert missing_from(packages) != []


def test_agent_image_has_each_library_when_the_agent_imports_it():
    """It imports only libraries that the image's requirements pin."""
    pinned = {need.name.replace("-", "_") for need in pins(PROJECT / "requirements" / "agent.txt")}
    # Warm-ups import the frameworks, in the worker's own Python; admission and `lint` alone check
    # annotations, and read those in YAML.
    elsewhere = {"jax", "numpy", "torch", "yaml"}

    assert needed_files()[1] - set(sys.stdlib_module_names) - elsewhere <= pinned


@pytest.mark.parametrize("image", ["manager", "agent"])
def test_image_user_is_a_number_when_containers_state_no_user(image):
    """The kubelet refuses an image's user with ``runAsNonRoot`` if it is a name or root."""
    user = read_target(CONTAINERFILE, image).user.partition(":")[0]

    assert user.isdecimal()
    assert int(user) > 0
