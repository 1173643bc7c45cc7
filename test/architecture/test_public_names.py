"""The public packages export the names that they list, in order, and no name is missing."""

import importlib
import subprocess
import sys

import pytest

PACKAGES = (
    "aio",
    "client",
    "controller",
    "informers",
    "manager",
    "runtime",
    "testing",
    "workqueue",
)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_exported_name_exists(name):
    """Each name in ``dir()`` exists and is listed once."""
    package = importlib.import_module(f"jobsetpy.{name}")
    names = dir(package)

    missing = [each for each in names if not hasattr(package, each)]
    assert missing == []
    assert len(set(names)) == len(names)


def test_importing_the_package_loads_nothing_else():
    """``import jobsetpy`` is free: no dependency is loaded with it."""
    code = "import sys, jobsetpy; print(sorted(m for m in sys.modules if m.startswith('jobsetpy')))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == "['jobsetpy']"
