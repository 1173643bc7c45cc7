"""Image archives that every engine can load: an OCI layout with Docker's manifest.

Archives are reproducible: entries are sorted, owned by root, dated 1970. So an image's id changes
only if its contents do. Layers can be compressed; the id is that of the configuration, and so the
same with and without compression.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

OCI = "application/vnd.oci.image"
INDEX = f"{OCI}.index.v1+json"
GZIP_LEVEL = 9
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture() -> str:
    """Return this machine's architecture, as images name it."""
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


def _names_its_registry(reference: str) -> bool:
    """Return True if a reference begins with a host.

    Engines do not complete the name in an OCI layout, and would not find ``busybox:1.37`` later;
    they complete names only in Docker's manifest.
    """
    first, slash, _ = reference.partition("/")
    return bool(slash) and (first == "localhost" or "." in first or ":" in first)


@dataclass(frozen=True)
class Entry:
    """One file, link or folder of a layer; `content` None means a folder."""

    mode: int
    content: bytes | Path | None = None
    link: str | None = None
    owner: int = 0


class Layer:
    """Files of an image, by path (without a leading slash)."""

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
        """Add `source` at `path`; `keep` gets paths relative to `source`, folders first."""
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
        """Size of all files in bytes."""
        return sum(_size(entry.content) for entry in self.entries.values())

    def write(self, out: Path) -> None:
        """Write the layer as a tar file; parent folders are added."""
        entries = dict(self.entries)
        for path in self.entries:
            for parent in PurePosixPath(path).parents:
                entries.setdefault(str(parent), Entry(0o755))
        entries.pop(".", None)
        with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
            for path in sorted(entries):
                _add(tar, path, entries[path])


@dataclass(frozen=True, kw_only=True)
class Written:
    """Identifiers of a written image."""

    image_id: str  # digest of its configuration, which does not depend on compression
    digest: str  # digest of its manifest, as in registries


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image to write: reference, layers from the lowest to the highest, and configuration."""

    reference: str
    layers: Sequence[Layer]
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    user: str = ""
    working_dir: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    created: int = 0  # Unix time, in the configuration; entries of layers are always dated 1970
    architecture: str = field(default_factory=architecture)
    compress: bool = False  # for distribution; images of tests are built faster without

    def write(self, out: Path) -> Written:
        """Write the archive to `out` atomically; layers are never in memory as a whole."""
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{out.name}.", dir=out.parent) as folder:
            tars = [Path(folder) / f"{number}.tar" for number in range(len(self.layers))]
            for layer, tar in zip(self.layers, tars, strict=True):
                layer.write(tar)
            config = self._config([_sha256(tar) for tar in tars])
            kind = f"{OCI}.layer.v1.tar"
            if self.compress:
                kind += "+gzip"
                tars = [_compressed(tar) for tar in tars]
            return self._write(out, kind, tars, config)

    def _write(self, out: Path, kind: str, tars: Sequence[Path], config: bytes) -> Written:
        layers = [_descriptor(kind, tar) for tar in tars]
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": _descriptor(f"{OCI}.config.v1+json", config),
            "layers": layers,
        }
        described = _json(manifest)
        blobs = [each["digest"].replace(":", "/") for each in layers]
        files: dict[str, bytes | Path] = {
            f"blobs/{blob}": tar for blob, tar in zip(blobs, tars, strict=True)
        }
        files |= {_blob(_sha256(data)): data for data in (config, described)}
        if _names_its_registry(self.reference):
            files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
            files["index.json"] = _json(self._index(described))
        old = {  # for engines that do not read layouts
            "Config": _blob(_sha256(config)),
            "RepoTags": [self.reference],
            "Layers": [f"blobs/{blob}" for blob in blobs],
        }
        files["manifest.json"] = _json([old])
        _pack(files, out)
        return Written(image_id=f"sha256:{_sha256(config)}", digest=f"sha256:{_sha256(described)}")

    def _index(self, manifest: bytes) -> object:
        entry = {
            **_descriptor(f"{OCI}.manifest.v1+json", manifest),
            "platform": {"architecture": self.architecture, "os": "linux"},
            "annotations": _names(self.reference),
        }
        return _index(entry)

    def _config(self, digests: Sequence[str]) -> bytes:
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        env = {"PATH": path, **self.env}
        created = datetime.fromtimestamp(self.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return _json(
            {
                "architecture": self.architecture,
                "os": "linux",
                "created": created,
                "config": {
                    "Entrypoint": list(self.entrypoint) or None,
                    "Cmd": list(self.command) or None,
                    "Env": [f"{key}={value}" for key, value in env.items()],
                    "Labels": dict(self.labels) or None,
                    "User": self.user,
                    "WorkingDir": self.working_dir,
                },
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{d}" for d in digests]},
                "history": [{"created": created} for _ in digests],
            }
        )


def join(archives: Sequence[Path], out: Path) -> str:
    """Combine images of several architectures in one OCI layout with an image index.

    Args:
        archives: archives of `Image.write`, with the same reference.
        out: archive to write; without Docker's manifest, which supports only one architecture.

    Returns:
        The index's digest, as in registries.
    """
    files: dict[str, bytes] = {}
    manifests, references = [], set()
    for archive in archives:
        with tarfile.open(archive) as tar:
            for member in tar:
                file = tar.extractfile(member)
                if file is not None and member.name != "manifest.json":
                    files[member.name] = file.read()
        for each in json.loads(files["index.json"])["manifests"]:
            references.add(each.pop("annotations")["io.containerd.image.name"])
            manifests.append(each)
    (reference,) = references
    inner = _json(_index(*manifests))
    digest = _sha256(inner)
    files[_blob(digest)] = inner
    entry = {**_descriptor(INDEX, inner), "annotations": _names(reference)}
    files["index.json"] = _json(_index(entry))
    _pack(files, out)
    return f"sha256:{digest}"


def read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the configuration of an image in an archive, and its files from all layers."""
    found: dict[str, bytes] = {}
    with tarfile.open(path) as archive:

        def blob(name: str) -> bytes:
            file = archive.extractfile(name)
            assert file is not None, f"{path}: {name} is not a file"
            return file.read()

        (manifest,) = json.loads(blob("manifest.json"))
        config = json.loads(blob(manifest["Config"]))
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(blob(name))) as layer:
                for member in layer:
                    file = layer.extractfile(member) if member.isfile() else None
                    if file is not None:
                        found[member.name.removeprefix("./")] = file.read()
    return config, found


def _pack(files: Mapping[str, bytes | Path], out: Path) -> None:
    """Write an archive atomically."""
    out.parent.mkdir(parents=True, exist_ok=True)
    new = out.with_name(f"{out.name}.{os.getpid()}.new")
    with tarfile.open(new, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(files):
            _add(tar, path, Entry(0o644, files[path]))
    new.rename(out)


def _index(*manifests: object) -> object:
    return {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}


def _names(reference: str) -> dict[str, str]:
    return {
        # The first one is the tag, as the OCI layout requires; engines use the second one.
        "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
        "io.containerd.image.name": reference,
    }


def _sha256(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _compressed(tar: Path) -> Path:
    """Compress reproducibly: neither time nor name is in the header."""
    out = tar.with_name(f"{tar.name}.gz")
    with (
        tar.open("rb") as source,
        out.open("wb") as file,
        gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) as target,
    ):
        shutil.copyfileobj(source, target, 1 << 20)
    return out


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _descriptor(kind: str, content: bytes | Path) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{_sha256(content)}", "size": _size(content)}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _size(content: bytes | Path | None) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content or b"")


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
        info.size = _size(entry.content)
        content = entry.content
        with content.open("rb") if isinstance(content, Path) else io.BytesIO(content) as file:
            tar.addfile(info, file)
