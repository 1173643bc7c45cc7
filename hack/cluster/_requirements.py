"""Programs that nodes and images need, in addition to those of a control plane."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ._apt import apt_get
from ._errors import ClusterError
from ._progress import Progress
from ._state import file_lock, state_dir

# These are not on every user's PATH.
SEARCH = os.pathsep.join(
    [os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"]
)
PACKAGES: Mapping[str, str] = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "openssl": "openssl",
    "busybox": "busybox-static",
}
BUILD_PACKAGES: Mapping[str, str] = {"gcc": "gcc libc6-dev", "readelf": "binutils"}
MUSL_PACKAGES: Mapping[str, str] = {"musl-gcc": "musl-tools"}
CNI_PACKAGE = "containernetworking-plugins"
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
CNI_PLUGINS = ("bridge", "host-local", "loopback")


def program(name: str) -> Path:
    """Return the path of a program.

    Raises:
        ClusterError: it is not installed.
    """
    found = shutil.which(name, path=SEARCH)
    if found is None:
        raise ClusterError(f"{name} is not installed: apt-get install {PACKAGES.get(name, name)}")
    return Path(found)


def cni_folder() -> Path | None:
    """Return the folder with the network plugins of nodes."""
    for folder in CNI_FOLDERS:
        if all((folder / name).exists() for name in CNI_PLUGINS):
            return folder
    return None


def missing_packages() -> list[str]:
    """Return the Debian packages of missing programs."""
    cni = [] if cni_folder() else [CNI_PACKAGE]
    return sorted([*_missing(PACKAGES), *cni])


def _missing(packages: Mapping[str, str]) -> list[str]:
    missing = (names for name, names in packages.items() if not shutil.which(name, path=SEARCH))
    return sorted({package for names in missing for package in names.split()})


def require_nodes(progress: Progress) -> None:
    """Check that nodes can be started here; install missing packages if possible.

    Raises:
        ClusterError: nodes cannot be started; the message says what to do.
    """
    if sys.platform != "linux":
        raise ClusterError("nodes need Linux; a control plane (--nodes 0) does not")
    if os.geteuid() != 0:
        raise ClusterError(
            "nodes need root (namespaces, mounts, cgroups); a control plane (--nodes 0) does not"
        )
    _install(missing_packages, "nodes", progress)


def require_programs(packages: Mapping[str, str], progress: Progress | None = None) -> None:
    """Check that programs are installed; install their packages if possible.

    Args:
        packages: program to Debian packages, separated by spaces.
        progress: receives a line for each installation.

    Raises:
        ClusterError: one is missing and cannot be installed; the message says what to do.
    """
    _install(partial(_missing, packages), "this", progress or Progress())


def _install(look: Callable[[], list[str]], who: str, progress: Progress) -> None:
    missing = look()
    if not missing:
        return
    words = ["install", "-y", "--no-install-recommends", *missing]
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ClusterError(
            f"{who} needs programs of the Debian packages {', '.join(missing)}; as root: "
            f"apt-get {' '.join(words)}"
        )
    progress.begin(f"installing {' '.join(missing)}")
    with file_lock(state_dir() / "apt.lock"):
        try:
            apt_get(["update", "-q"])
            apt_get(words)
        except ClusterError as error:
            raise ClusterError(f"{who} needs: {' '.join(missing)}; {error}") from error
    progress.step(f"installed {' '.join(missing)}")
    if still := look():
        raise ClusterError(f"still missing after the installation: {' '.join(still)}")
