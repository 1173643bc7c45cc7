"""Search for the programs: in a given folder, in the cache, by download, by a build."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from . import _build, _state
from ._download import UnreachableError, download
from ._errors import ClusterError
from ._progress import Progress
from ._versions import CLIENTS, KUBERNETES_PARTS, Release

ASSETS = "KUBEBUILDER_ASSETS"


class Binaries(dict[str, Path]):
    """Path of each program, by name."""

    @classmethod
    def in_folder(cls, folder: Path, wanted: Sequence[str]) -> Binaries:
        """Return the programs of a folder.

        Raises:
            ClusterError: one is missing.
        """
        missing = [name for name in wanted if not _runnable(folder / name)]
        if missing:
            raise ClusterError(f"{folder} has no {', '.join(missing)}")
        return cls({name: folder / name for name in wanted})

    @classmethod
    def find(cls, wanted: Sequence[str], progress: Progress, *, kubernetes: str = "") -> Binaries:
        """Return the `wanted` programs; download or build missing ones.

        Order: the folder ``$KUBEBUILDER_ASSETS``, the cache, official releases, a build. Of two
        simultaneous runs, the second one waits for the first.

        Args:
            wanted: names of the programs.
            progress: receives each step.
            kubernetes: the release, also of kubelets; default: from the environment.

        Raises:
            ClusterError: a program cannot be obtained in any of these ways.
        """
        found = cls()
        if assets := os.environ.get(ASSETS):
            given = Path(assets)
            found.update({name: given / name for name in wanted if _runnable(given / name)})
        if len(found) < len(wanted):
            release, cache = Release.wanted(), _state.cache_dir()
            if kubernetes:
                release = replace(release, kubernetes=kubernetes, kubelet="")
            places = {name: cache / "bin" / release.folder(name) / name for name in wanted}
            missing = [name for name in wanted if name not in found]
            if not all(_runnable(places[name]) for name in missing):
                for each in dict.fromkeys(release.of(name) for name in missing):
                    own = [name for name in missing if release.of(name) == each]
                    _obtain(own, each, places, cache, progress)
            found.update({name: places[name] for name in missing})
        if assets:
            found.check_versions()
        return found

    def check_versions(self) -> None:
        """Refuse a mix of Kubernetes releases.

        Raises:
            ClusterError: the programs are of different minor releases.
        """
        minors = {name: minor_version(self[name]) for name in self if name in KUBERNETES_PARTS}
        if len(set(minors.values())) > 1:
            listed = ", ".join(f"{self[name]} is {minor}" for name, minor in minors.items())
            raise ClusterError(
                f"{ASSETS} does not contain all programs, and the others are of another "
                f"release: {listed}. Complete that folder, or set JOBSETPY_KUBERNETES_VERSION."
            )


def minor_version(program: Path) -> str:
    """Return the minor release of a program, such as ``1.36``."""
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False, timeout=30
    )
    found = re.search(r"v(\d+\.\d+)", done.stdout)
    return found[1] if found else "unknown"


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _obtain(
    wanted: Sequence[str],
    release: Release,
    places: dict[str, Path],
    cache: Path,
    progress: Progress,
) -> None:
    with _state.file_lock(
        cache / "bin.lock", waiting=lambda: progress.note("waiting for another run to get them")
    ):
        missing = [name for name in wanted if not _runnable(places[name])]
        for name in missing:
            places[name].parent.mkdir(parents=True, exist_ok=True)
        why = "JOBSETPY_NO_DOWNLOAD is set"
        if not os.environ.get("JOBSETPY_NO_DOWNLOAD"):
            try:
                for name in [name for name in missing if name not in CLIENTS]:
                    download(name, release, places[name], progress)
                    progress.step(f"downloaded {name}")
                    missing.remove(name)
            except UnreachableError as error:
                why = str(error)
        if missing:
            if set(missing) <= set(CLIENTS):
                why = "these are published only as images"
            progress.note(f"no release files ({why}); building {', '.join(missing)}")
            _build.build(missing, release, places, cache, progress)
