"""kubectl, for other projects' kustomizations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hack.cluster._binaries import Binaries
from hack.cluster._progress import Shown
from support.commands import run

LIMIT_S = 120.0


class Kubectl:
    """kubectl for the cluster of a kubeconfig.

    Args:
        kubeconfig: of the cluster.
        home: folder for its cache.
    """

    def __init__(self, kubeconfig: str | Path, home: Path) -> None:
        self._program = str(Binaries.find(["kubectl"], Shown())["kubectl"])
        self._env = {"KUBECONFIG": str(kubeconfig), "HOME": str(home), "PATH": "/usr/bin:/bin"}

    def __call__(self, *words: str, documents: list[dict[str, Any]] | None = None) -> str:
        """Run a command; return its output.

        Args:
            words: its arguments.
            documents: objects for ``-f -``.

        Raises:
            AssertionError: it fails.
        """
        text = None if documents is None else yaml.safe_dump_all(documents)
        done = run(self._program, *words, timeout_s=LIMIT_S, env=self._env, input=text)
        assert done.returncode == 0, f"kubectl {' '.join(words)}:\n{done.stderr[-3000:]}"
        return done.stdout

    def rendered(self, folder: Path) -> list[dict[str, Any]]:
        """Return the objects of a kustomization."""
        text = self("kustomize", str(folder))
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return [each for each in yaml.load_all(text, loader) if each]

    def apply(self, documents: list[dict[str, Any]]) -> None:
        """Apply objects by server-side apply, which large definitions need."""
        self("apply", "--server-side", "--force-conflicts", "-f", "-", documents=documents)
