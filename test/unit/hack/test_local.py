"""Installation on the cluster of another tool, which is a script here that writes down its arguments."""

import io
import subprocess
import time
from pathlib import Path

import pytest

from hack import local
from hack.cluster import ClusterError
from hack.cluster._progress import Shown


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Return a function that makes programs of this name, and one that returns their calls."""
    log = tmp_path / "calls"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(local, "ROOT", tmp_path)
    (tmp_path / "build").mkdir()

    def made(*names):
        for name in names:
            program = tmp_path / name
            program.write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n')
            program.chmod(0o755)
        return lambda: log.read_text().splitlines()

    return made


@pytest.mark.parametrize(
    ("tool", "load"),
    [
        ("kind", "kind load image-archive manager.tar --name mine"),
        ("k3d", "k3d image import manager.tar --cluster mine"),
    ],
)
def test_images_are_loaded_and_the_context_is_chosen_for(tool, load, calls, tmp_path):
    """Then the local overlay is applied, and the shell is told where the plugin is."""
    made = calls("kubectl", tool)
    local.other(tool, "mine", lambda: [Path("manager.tar")])

    assert made()[:3] == [
        f"kubectl config use-context {tool}-mine",
        load,
        "kubectl apply --server-side --force-conflicts -k config/local",
    ]
    assert "/.venv/bin" in (tmp_path / "build/env").read_text()


def test_missing_tool_is_named_before_images_are_built(calls):
    """With what else would work."""
    calls("kubectl")
    with pytest.raises(ClusterError, match="k9s is not in PATH; install it, or run make cluster"):
        local.other("k9s", "mine", lambda: pytest.fail("built"))


def test_unknown_cluster_is_refused_before_images_are_built(calls, tmp_path):
    """By kubectl, which has no context of that name."""
    calls("kubectl", "kind")
    (tmp_path / "kubectl").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(subprocess.CalledProcessError, match="use-context"):
        local.other("kind", "mine", lambda: pytest.fail("built"))


def test_interrupted_installation_says_how_to_continue(monkeypatch, capsys):
    """Instead of a traceback."""

    def interrupted(progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "own", interrupted)
    monkeypatch.setattr("sys.argv", ["local.py"])

    assert local.main() == 130
    assert "make cluster-down" in capsys.readouterr().err


def test_progress_counts_from_the_start_when_a_part_enters_it_again():
    """The start of a cluster is one part of ``make cluster``, and has the same progress."""
    out = io.StringIO()
    with Shown(out) as progress:
        time.sleep(0.2)
        with progress:
            progress.step("ready")

    assert float(out.getvalue().split("s")[0]) >= 0.2
