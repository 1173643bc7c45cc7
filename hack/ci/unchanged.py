"""Tests that run only if something changed since they last passed.

They take minutes, and most changes do not affect them. The files that they depend on are hashed;
after a run without a failure the hash is kept in the user's cache, and ``make test`` skips the
tests while it stays the same. ``FORCE=1`` runs them anyway. As a program (``make test-clients``),
this module runs the tests with other projects' clients.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hack.cluster._state import cache_dir

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = ("JOBSETPY_KUBERNETES_VERSION", "JOBSETPY_ETCD_VERSION", "KUBEBUILDER_ASSETS")
LEFT_BY_PYTHON = "__pycache__"
PYTEST = (sys.executable, "-m", "pytest")
COMMON = ("hack/cluster", "hack/images", "requirements", "test/conftest.py", "pyproject.toml")


class Group(NamedTuple):
    """Tests that depend on the same files.

    Args:
        title: their name in messages.
        place: their folder.
        inputs: files and folders that they depend on.
        memory: name of the file in the cache with the hash of the last run without a failure.
    """

    title: str
    place: str
    inputs: tuple[str, ...]
    memory: str

    def fingerprint(self, root: Path = ROOT) -> str:
        """Hash of everything that these tests depend on."""
        digest = hashlib.sha256(sys.version.encode())
        for name in VARIABLES:
            digest.update(f"{name}={os.environ.get(name, '')}\n".encode())
        for path in self._files(root):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(root)} {content}\n".encode())
        return digest.hexdigest()

    def _files(self, root: Path) -> Iterator[Path]:
        for name in self.inputs:
            place = root / name
            found = sorted(place.rglob("*")) if place.is_dir() else [place]
            yield from (p for p in found if p.is_file() and LEFT_BY_PYTHON not in p.parts)

    def why_not(self, root: Path = ROOT) -> str:
        """Reason to skip them; empty if they have to run."""
        if os.environ.get("FORCE"):
            return ""
        try:
            passed = (cache_dir() / self.memory).read_text()
        except OSError:
            return ""
        if passed != self.fingerprint(root):
            return ""
        files = ", ".join(self.inputs)
        return f"skipped: they passed with exactly these files ({files}); FORCE=1 runs them"

    def remember(self, state: str, root: Path = ROOT) -> None:
        """Save the fingerprint of a run in which all passed, unless files changed meanwhile."""
        if state == self.fingerprint(root):
            cache_dir().mkdir(parents=True, exist_ok=True)
            (cache_dir() / self.memory).write_text(state)


CLIENTS: Final = Group(
    "tests with other projects' clients",
    "test/clients",
    ("src", "config", "hack/generate/kustomize.py", "test/clients", "test/support", *COMMON),
    "clients-passed",
)
"""The versions of the other projects are defined in ``hack/cluster``."""
CLUSTER: Final = Group(
    "tests of the tool that starts clusters",
    "test/unit/hack/cluster",
    ("test/unit/hack/cluster", "test/support", "src/jobsetpy/testing", *COMMON),
    "cluster-tool-passed",
)
"""All tests with servers use the tool; the tool uses one function of the project, to wait."""
GROUPS: Final = (CLIENTS, CLUSTER)


def run(argv: Sequence[str], root: Path = ROOT, pytest: Sequence[str] = PYTEST) -> int:
    """Run the tests with clients; return pytest's exit code. If all passed, that is saved."""
    begin, before = time.monotonic(), CLIENTS.fingerprint(root)
    code = subprocess.run([*pytest, "-m", "clients", *argv], cwd=root, check=False).returncode
    print(f"== {CLIENTS.title} took {time.monotonic() - begin:.0f} s", flush=True)
    if code == 0 and not argv:
        CLIENTS.remember(before, root)
    return code


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
