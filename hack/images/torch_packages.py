"""PyTorch (CPU, gloo) from Debian's packages, without installing them.

They are downloaded once and unpacked into the cache folder; this machine stays as it is. The
system's Python finds them by two variables.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from hack.cluster._state import cache_dir

PACKAGE = "python3-torch"
PYTHON = "/usr/bin/python3"


def torch_environment() -> dict[str, str]:
    """Variables with which the system's Python imports torch; some 150 MB are fetched, once.

    Raises:
        FileNotFoundError: this machine is no Debian that has the package for its own Python.
    """
    root = cache_dir() / "training" / "packages"
    if not root.is_dir():
        _unpack(root)
    folders = {str(path.parent) for path in root.rglob("*.so*")}
    return {
        "PYTHONPATH": str(root / "usr/lib/python3/dist-packages"),
        "LD_LIBRARY_PATH": ":".join(sorted(each for each in folders if "python3" not in each)),
    }


def _unpack(target: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise FileNotFoundError(f"{PACKAGE} comes from Debian: there is no apt-get here")
    archives = target.with_name("archives")
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    words = ("install", "--download-only", "--no-install-recommends", "-y", PACKAGE)
    for command in (["update", "-qq"], [*words, "-o", f"Dir::Cache::archives={archives}"]):
        subprocess.run(
            ["apt-get", *command],
            check=True,
            timeout=900,
            capture_output=True,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
    half = target.with_name("unpacking")
    half.mkdir(exist_ok=True)
    for package in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(half)], check=True, timeout=300)
    half.rename(target)
