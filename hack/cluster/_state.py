"""Folders and loopback ports of clusters.

``$JOBSETPY_STATE_DIR``, else ``$XDG_STATE_HOME/jobsetpy`` (``~/.local/state/jobsetpy``), has one
folder per cluster under ``clusters/``, readable only by its owner. Programs, which take long to
get, are in the cache folder: ``$XDG_CACHE_HOME/jobsetpy`` (``~/.cache/jobsetpy``).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ._config import Ports
from ._errors import ClusterError

# Below the range of ports that the kernel uses for outgoing connections (32768 and up).
PORT_RANGE = range(20000, 32000)
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def _home(variable: str, fallback: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / fallback) / "jobsetpy"


def cache_dir() -> Path:
    return _home("XDG_CACHE_HOME", ".cache")


def state_dir() -> Path:
    own = os.environ.get("JOBSETPY_STATE_DIR")
    return Path(own) if own else _home("XDG_STATE_HOME", ".local/state")


def clusters_dir() -> Path:
    return state_dir() / "clusters"


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ClusterError(
            f"invalid name {name!r}: use up to 40 of a-z, 0-9 and '-', without '-' at either end"
        )
    return name


@contextlib.contextmanager
def file_lock(path: Path, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold an exclusive lock on `path`; `waiting` is called once if another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable only by its owner."""
    new = path.with_name(path.name + ".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    new.rename(path)


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return None
    return data if isinstance(data, dict) else None


def create_folder(name: str) -> tuple[Path, Ports]:
    """Create a new cluster's folder and assign ports that no other cluster here uses.

    Raises:
        ClusterError: a cluster with that name already exists.
    """
    folder = clusters_dir() / check_name(name)
    with file_lock(state_dir() / "lock"):
        try:
            folder.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            raise ClusterError(
                f"a cluster named {name!r} already exists ({folder}): "
                f"python hack/cluster down --name {name}"
            ) from None
        ports = _free_ports()
        write_private(
            folder / "ports.json",
            json.dumps({"api": ports.api, "etcd": ports.etcd, "etcd_peer": ports.etcd_peer}),
        )
    return folder, ports


def _free_ports() -> Ports:
    taken: set[int] = set()
    for file in clusters_dir().glob("*/ports.json"):
        taken.update((read_json(file) or {}).values())
    found: list[int] = []
    for port in random.sample(PORT_RANGE, len(PORT_RANGE)):
        if port not in taken and _can_bind(port):
            found.append(port)
            if len(found) == 3:
                return Ports(api=found[0], etcd=found[1], etcd_peer=found[2])
    raise ClusterError(f"no free loopback ports in {PORT_RANGE}")


def _can_bind(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def remove_folder(folder: Path, timeout_s: float = 5.0) -> None:
    """Remove a folder; retry briefly while an ending process still writes to it."""
    deadline = time.monotonic() + timeout_s
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=time.monotonic() < deadline)
        if folder.exists():
            time.sleep(0.05)
