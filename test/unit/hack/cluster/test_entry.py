"""``python3 hack/cluster`` with a Python that has nothing of the project."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[4] / "hack/cluster"
FOREIGN = Path(sys.base_prefix, "bin/python3")


def run(tool, *words, folder):
    """Run the tool with that Python, without the variables of an environment."""
    command = [FOREIGN, os.path.relpath(tool, folder), *words]
    env = {"PATH": os.environ["PATH"], "COLUMNS": "80"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [(), ("up",), ("images",)])
def test_help_is_that_of_the_projects_python_when_another_one_is_used(words, tmp_path):
    """From another folder as well, with the tool's relative path."""
    shown = run(TOOL, *words, "--help", folder=tmp_path)

    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"usage: {' '.join(('python hack/cluster', *words))} [-h]")


def test_unknown_command_is_refused_when_another_python_is_used(tmp_path):
    """Exit code and message are those of the project's Python."""
    shown = run(TOOL, "upp", folder=tmp_path)

    assert (shown.returncode, "invalid choice: 'upp'" in shown.stderr) == (2, True)


def test_missing_environment_is_reported_with_the_command_that_creates_it(tmp_path):
    """In a fresh clone, before `make setup`."""
    shutil.copytree(TOOL, tmp_path / "clone/hack/cluster", ignore=lambda *_: {"gomod"})
    shown = run(tmp_path / "clone/hack/cluster", "up", "--help", folder=tmp_path)

    assert shown.returncode == 1
    assert shown.stderr == (
        "cluster: No module named 'hack'; `make setup` creates the environment of this tool\n"
    )
