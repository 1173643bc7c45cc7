"""Unpacked images for another architecture, and their interpreter in qemu-user."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

from hack.images import project
from hack.images.foreign import Sysroot


def root_of(name: str, place: Path) -> Path:
    """Return the root folder of an image for arm64, which is built below ``place``."""
    built = project.build(name, place, project.Source(sysroot=Sysroot.of("arm64")))
    root = place / "root"
    with tarfile.open(built.path) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))
        assert json.load(archive.extractfile(manifest["Config"]))["architecture"] == "arm64"
        for layer_name in manifest["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(layer_name)) as layer:
                layer.extractall(root, filter="tar")
    return root


def emulated(root: Path, *switches: str) -> list[str]:
    """Return the command of the interpreter of an image for arm64 on this machine."""
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    assert qemu, "no qemu here: apt-get install qemu-user-static"
    return [qemu, "-L", str(root), str(root / "usr/local/bin/python3"), *switches]
