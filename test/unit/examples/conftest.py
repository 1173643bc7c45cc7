"""Example controllers as modules."""

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "examples/controllers"


@pytest.fixture
def example(monkeypatch):
    """Return a function that imports an example by its name."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module
