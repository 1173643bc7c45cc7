"""Tests with other projects' controllers, in full where something changed since they last passed.

They take minutes and say little about most changes. What they depend on is hashed; after a run
without a failure the hash is kept in the user's cache, and ``make test`` leaves them out for as
long as it stays the same. ``FORCE=1`` has them run anyway, as does ``make test-clients``.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hack.cluster._state import cache_dir

ROOT = Path(__file__).resolve().parents[2]
MARKS = "clients"
INPUTS = (
    *("src", "config", "hack/cluster", "hack/images", "hack/generate/kustomize.py", "requirements"),
    *("test/clients", "test/support", "test/conftest.py", "pyproject.toml"),
)
"""Versions of the other projects are in ``hack/cluster``."""
VARIABLES = ("JOBSETPY_KUBERNETES_VERSION", "JOBSETPY_ETCD_VERSION", "KUBEBUILDER_ASSETS")
LEFT_BY_PYTHON = "__pycache__"
PYTEST = (sys.executable, "-m", "pytest")


def fingerprint(root: Path = ROOT) -> str:
    """Hash of all that these tests depend on."""
    digest = hashlib.sha256(sys.version.encode())
    for name in VARIABLES:
        digest.update(f"{name}={os.environ.get(name, '')}\n".encode())
    for path in _files(root):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root)} {content}\n".encode())
    return digest.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for name in INPUTS:
        place = root / name
        found = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (p for p in found if p.is_file() and LEFT_BY_PYTHON not in p.parts)


def memory() -> Path:
    """The file with the fingerprint of the last run without a failure."""
    return cache_dir() / "clients-passed"


def why_not(root: Path = ROOT) -> str:
    """The reason to leave them out now; empty where they are to be run."""
    if os.environ.get("FORCE"):
        return ""
    try:
        passed = memory().read_text()
    except OSError:
        return ""
    if passed != fingerprint(root):
        return ""
    return (
        "skipped: they passed with exactly these files "
        f"({', '.join(INPUTS)}); FORCE=1 runs them, as does make test-clients"
    )


def run(argv: Sequence[str], root: Path = ROOT, pytest: Sequence[str] = PYTEST) -> int:
    """Run them; pytest's exit code. A pass of all of them is remembered."""
    begin, before = time.monotonic(), fingerprint(root)
    code = subprocess.run([*pytest, "-m", MARKS, *argv], cwd=root, check=False).returncode
    print(
        f"== tests with other projects' clients took {time.monotonic() - begin:.0f} s", flush=True
    )
    if code == 0 and not argv:
        remember(before, root)
    return code


def remember(state: str, root: Path = ROOT) -> None:
    """Keep the fingerprint of a run in which all passed, unless files changed meanwhile."""
    if state == fingerprint(root):
        memory().parent.mkdir(parents=True, exist_ok=True)
        memory().write_text(state)


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
