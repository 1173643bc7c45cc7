"""A node's part of the cgroup tree, on machines with version 1, version 2, or both ("hybrid")."""

from __future__ import annotations

from pathlib import Path

from ._errors import ClusterError

MOUNTS = Path("/proc/self/mounts")
NEEDED = {"cpu", "cpuset", "memory", "pids"}


def hierarchies(mounts: Path = MOUNTS) -> tuple[list[Path], Path | None]:
    """The mounted version 1 hierarchies, and the version 2 one (None where there is none)."""
    old: list[Path] = []
    new = None
    for line in mounts.read_text().splitlines():
        _, target, kind, *_ = line.split()
        if kind == "cgroup" and Path(target) not in old:
            old.append(Path(target))
        elif kind == "cgroup2" and new is None:
            new = Path(target)
    return old, new


def node_paths(name: str, mounts: Path = MOUNTS) -> list[Path]:
    """Every folder that a cgroup of `name` can have, for its removal."""
    old, new = hierarchies(mounts)
    return [root / name for root in (*old, *([new] if new else []))]


def create(name: str, mounts: Path = MOUNTS) -> None:
    """Create a kubelet's root cgroup.

    Raises:
        ClusterError: the machine does not offer the controllers that kubelet needs.
    """
    old, new = hierarchies(mounts)
    if old:
        for root in old:
            (root / name).mkdir(exist_ok=True)
            # A new cpuset has no processors and no memory, and accepts no process without them.
            for file in ("cpuset.cpus", "cpuset.mems"):
                if (root / file).exists():
                    (root / name / file).write_text((root / file).read_text())
        return
    if new is None:
        raise ClusterError("no cgroup file system is mounted; nodes need one")
    (new / name).mkdir(exist_ok=True)
    for folder in (new, new / name):
        offered = set((folder / "cgroup.controllers").read_text().split())
        for controller in sorted(offered):
            try:
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError as error:
                if controller in NEEDED:
                    raise ClusterError(
                        f"cgroup controller {controller!r} cannot be delegated in {folder}: {error}"
                    ) from error
        missing = NEEDED - set((folder / "cgroup.subtree_control").read_text().split())
        if missing:
            raise ClusterError(f"{folder} does not offer {', '.join(sorted(missing))} to nodes")
