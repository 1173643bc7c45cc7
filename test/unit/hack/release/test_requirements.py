"""Checks of the pinned requirements that need no package index."""

import re
import tomllib
from importlib import metadata
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hack.images.project import pins
from jobsetpy import extras

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
AGENT = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
EXTRAS = {
    name: [Requirement(text) for text in texts]
    for name, texts in PROJECT["project"]["optional-dependencies"].items()
}
RUNTIME = [
    need
    for need in (*AGENT, *(need for needs in EXTRAS.values() for need in needs))
    if need.name != PROJECT["project"]["name"]
]
GROUPS = {
    name: [Requirement(text) for text in texts]
    for name, texts in PROJECT["dependency-groups"].items()
}
WANTED = {
    "runtime": RUNTIME,
    "agent": AGENT,
    **{name: [*RUNTIME, *group] for name, group in GROUPS.items()},
}
NOT_INSTALLED = {"docs"}
"""Groups that only their own make target installs."""


def versions(name):
    """Versions by canonical name that a file pins on this machine."""
    return {
        canonicalize_name(need.name): str(need.specifier).removeprefix("==")
        for need in pins(FOLDER / f"{name}.txt")
    }


def closure(needs):
    """Canonical names of all direct and indirect requirements, by the installed metadata."""
    found = set()
    ahead = list(needs)
    while ahead:
        need = ahead.pop()
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(need.name)
        if name not in found:
            found.add(name)
            extras = [Requirement(text) for text in metadata.requires(name) or []]
            ahead += [r for r in extras if "extra ==" not in str(r.marker)]
    return found


@pytest.mark.parametrize("name", sorted(WANTED))
def test_every_requirement_is_pinned_by_hashes_and_names_no_host(name):
    """``--require-hashes`` accepts the file, with any index that the user has configured."""
    text = (FOLDER / f"{name}.txt").read_text()
    assert not re.search(r"https?:|--(index|extra-index|find-links|trusted)|@", text)
    entries = re.split(r"\n(?=\S)", text.strip())
    for entry in entries:
        assert re.match(r"[a-z0-9.-]+==[\w.]+( ; .+?)? \\\n", entry), entry.splitlines()[0]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry.splitlines()[0]


@pytest.mark.parametrize("name", sorted(WANTED))
def test_pins_are_those_of_the_project_file(name):
    """Exactly the direct and indirect dependencies are pinned, within their bounds."""
    pinned = versions(name)
    for need in WANTED[name]:
        version = pinned.get(canonicalize_name(need.name))
        assert version is not None, f"{need.name} is not pinned: make requirements"
        assert need.specifier.contains(version), f"{need}: {version} is pinned: make requirements"
    if name in NOT_INSTALLED:
        assert set(pinned) > closure(RUNTIME)  # their own requirements are not installed here
    else:
        assert set(pinned) == closure(WANTED[name])


def test_all_files_pin_the_same_versions():
    """Tests, images and the agent use the same libraries."""
    every = {}
    for name in WANTED:
        for package, version in versions(name).items():
            every.setdefault(package, set()).add(version)
    assert {package: found for package, found in every.items() if len(found) > 1} == {}


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_errors_name_the_extra_with_the_library(extra):
    """``jobsetpy.extras`` lists the same libraries of an extra as the project file."""
    installed = packages_distributions()
    names, ahead = set(), list(EXTRAS[extra])
    while ahead:
        need = ahead.pop()
        ahead += [each for name in need.extras for each in EXTRAS[name]]
        if need.name != PROJECT["project"]["name"]:
            names.add(canonicalize_name(need.name))
    provided = set().union(*(installed[name] for name in extras.PROVIDES[extra]))
    assert {canonicalize_name(name) for name in provided} == names
    assert extras.PROVIDES.keys() == EXTRAS.keys()
