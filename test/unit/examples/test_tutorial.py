"""The controller of the tutorial and its test, extracted from the page."""

import importlib
import re
from pathlib import Path

import pytest

from jobsetpy.app.main import main

PAGE = Path(__file__).resolve().parents[3] / "docs/tutorial/custom-controller.md"


@pytest.fixture
def tutorial(tmp_path, monkeypatch):
    """Function that imports one of the two files of the page."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name, block in zip(("failed_pods", "test_failed_pods"), blocks, strict=False):
        (tmp_path / f"{name}.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module


def test_the_test_of_the_tutorial_passes(tutorial, kube_world, run_manager, virtual_time):
    """A copy of both blocks is a controller that works, and a test that passes."""
    tests = tutorial("test_failed_pods")
    tests.test_failed_pods_are_counted(kube_world, run_manager, virtual_time)


def test_permissions_are_derived_from_the_code(tutorial, capsys):
    """Jobs are listed, watched and patched; pods are listed and watched."""
    tutorial("failed_pods")
    assert main(["rbac", "failed_pods", "--name", "failed-pods"]) == 0
    rules = capsys.readouterr().out
    assert "resources: [jobs]\n  verbs: [list, watch, patch]" in rules
    assert "resources: [pods]\n  verbs: [list, watch]" in rules
