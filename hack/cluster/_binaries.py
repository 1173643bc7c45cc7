"""Finds the programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from . import _state
from ._errors import ClusterError
from ._progress import Progress


class Binaries(dict[str, Path]):
    @classmethod
    def in_folder(cls, folder: Path, wanted: Sequence[str]) -> Binaries:
        missing = [name for name in wanted if not os.access(folder / name, os.X_OK)]
        if missing:
            raise ClusterError(f"{folder} has no {', '.join(missing)}")
        return cls({name: folder / name for name in wanted})

    @classmethod
    def find(cls, wanted: Sequence[str], _progress: Progress) -> Binaries:
        assets = os.environ.get("KUBEBUILDER_ASSETS")
        return cls.in_folder(Path(assets) if assets else _state.cache_dir() / "bin", wanted)
