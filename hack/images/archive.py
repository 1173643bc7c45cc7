"""Writes an image as a ``docker-archive`` tar file, which containerd, podman and docker can load.

The same input gives the same bytes: entries are sorted, owned by root, dated 1970; so an image's id
says whether anything changed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import stat
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

EPOCH = "1970-01-01T00:00:00Z"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture() -> str:
    """This machine's, as images name it."""
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


@dataclass(frozen=True)
class Entry:
    """One file, link or folder of a layer; `content` None means a folder."""

    mode: int
    content: bytes | Path | None = None
    link: str | None = None
    owner: int = 0


class Layer:
    """Files to be put into an image, by path (without a leading slash)."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def folder(self, path: str, *, mode: int = 0o755, owner: int = 0) -> None:
        self.entries[path.strip("/")] = Entry(mode, owner=owner)

    def file(self, path: str, content: bytes | str | Path, *, mode: int = 0o644) -> None:
        data = content.encode() if isinstance(content, str) else content
        self.entries[path.strip("/")] = Entry(mode, data)

    def link(self, path: str, target: str) -> None:
        self.entries[path.strip("/")] = Entry(0o777, link=target)

    def tree(
        self, source: Path, path: str, *, keep: Callable[[PurePosixPath], bool] = lambda _: True
    ) -> None:
        """Put all below `source` at `path`; `keep` sees paths below `source`, folders first."""
        for folder, folders, files in os.walk(source):
            here = Path(folder)
            below = PurePosixPath(here.relative_to(source).as_posix())
            links = [name for name in folders if (here / name).is_symlink()]
            folders[:] = sorted(n for n in folders if n not in links and keep(below / n))
            for name in sorted(files + links):
                if not keep(below / name):
                    continue
                file, target = here / name, f"{path}/{below / name}".lstrip("/")
                if file.is_symlink():
                    self.link(target, str(file.readlink()))
                else:
                    runnable = file.stat().st_mode & stat.S_IXUSR
                    self.file(target, file, mode=0o755 if runnable else 0o644)

    def size(self) -> int:
        """Bytes of all files."""
        return sum(len(_read(entry)) for entry in self.entries.values())

    def tar(self) -> bytes:
        """The layer as a tar file; folders that were not named are added."""
        entries = dict(self.entries)
        for path in self.entries:
            for parent in PurePosixPath(path).parents:
                entries.setdefault(str(parent), Entry(0o755))
        entries.pop(".", None)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path in sorted(entries):
                _add(tar, path, entries[path])
        return buffer.getvalue()


@dataclass(frozen=True, kw_only=True)
class Image:
    """What is to be written: a reference, layers from the lowest up, and how to run it."""

    reference: str
    layers: Sequence[Layer]
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    user: str = ""
    working_dir: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)

    def write(self, out: Path) -> str:
        """Write the archive to `out`, all at once; returns the image's id."""
        blobs = [layer.tar() for layer in self.layers]
        digests = [hashlib.sha256(blob).hexdigest() for blob in blobs]
        config = self._config(digests)
        image_id = hashlib.sha256(config).hexdigest()
        manifest = [
            {
                "Config": f"{image_id}.json",
                "RepoTags": [self.reference],
                "Layers": [f"{digest}/layer.tar" for digest in digests],
            }
        ]
        out.parent.mkdir(parents=True, exist_ok=True)
        new = out.with_name(f"{out.name}.{os.getpid()}.new")
        with tarfile.open(new, "w", format=tarfile.GNU_FORMAT) as tar:
            _add(tar, f"{image_id}.json", Entry(0o644, config))
            for digest, blob in zip(digests, blobs, strict=True):
                _add(tar, f"{digest}/layer.tar", Entry(0o644, blob))
            _add(tar, "manifest.json", Entry(0o644, _json(manifest)))
        new.rename(out)
        return f"sha256:{image_id}"

    def _config(self, digests: Sequence[str]) -> bytes:
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        env = {"PATH": path, **self.env}
        return _json(
            {
                "architecture": architecture(),
                "os": "linux",
                "created": EPOCH,
                "config": {
                    "Entrypoint": list(self.entrypoint) or None,
                    "Cmd": list(self.command) or None,
                    "Env": [f"{key}={value}" for key, value in env.items()],
                    "User": self.user,
                    "WorkingDir": self.working_dir,
                },
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{d}" for d in digests]},
                "history": [{"created": EPOCH} for _ in digests],
            }
        )


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _read(entry: Entry) -> bytes:
    if isinstance(entry.content, Path):
        return entry.content.read_bytes()
    return entry.content or b""


def _add(tar: tarfile.TarFile, path: str, entry: Entry) -> None:
    info = tarfile.TarInfo(path)
    info.mode, info.uid, info.gid = entry.mode, entry.owner, entry.owner
    if entry.link is not None:
        info.type, info.linkname = tarfile.SYMTYPE, entry.link
        tar.addfile(info)
    elif entry.content is None:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    else:
        data = _read(entry)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
