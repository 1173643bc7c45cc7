"""Images of every node: the sandbox of pods (pause), and a shell for tests."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from hack.images.programs import run

from .archive import Image, Layer

PAUSE, SHELL = "localhost/pause:1", "localhost/shell:1"
ELF_INTERPRETER = 3  # type of the program header PT_INTERP
USER_ID = 65532  # the usual non-root user of images without a user database
PAUSE_SOURCE = Path(__file__).with_name("pause.c")


def base_files(layer: Layer) -> None:
    """Add the files that programs expect in every root folder."""
    layer.folder("tmp", mode=0o1777)
    for name in ("proc", "sys", "dev", "run"):
        layer.folder(name)
    layer.file(
        "etc/passwd",
        f"root:x:0:0:root:/:/bin/sh\nnonroot:x:{USER_ID}:{USER_ID}:nonroot:/:/bin/sh\n",
    )
    layer.file("etc/group", f"root:x:0:\nnonroot:x:{USER_ID}:\n")
    layer.file("etc/nsswitch.conf", "hosts: files dns\n")


def busybox() -> Path:
    """Return the static busybox of this machine.

    Raises:
        FileNotFoundError: it is not installed.
    """
    found = shutil.which("busybox", path="/bin:/usr/bin:/usr/local/bin")
    if found is None:
        raise FileNotFoundError(
            "busybox is needed for the shell image: apt-get install busybox-static"
        )
    path = Path(found)
    if needs_loader(path.read_bytes()):
        raise FileNotFoundError(f"{path} is not static: apt-get install busybox-static")
    return path


def needs_loader(elf: bytes) -> bool:
    """Return True if a 64-bit little-endian program has an interpreter (shared libraries)."""
    (offset,) = struct.unpack_from("<Q", elf, 0x20)
    size, count = struct.unpack_from("<HH", elf, 0x36)
    kinds = (struct.unpack_from("<I", elf, offset + index * size)[0] for index in range(count))
    return ELF_INTERPRETER in kinds


def pause_image() -> Image:
    """Return the image of a pod's first container, which waits and reaps orphans."""
    layer = Layer()
    compiler = shutil.which("gcc") or shutil.which("cc")
    program = _compiled(compiler) if compiler else None
    if program:
        layer.file("pause", program, mode=0o755)
        return Image(reference=PAUSE, layers=[layer], entrypoint=["/pause"], user="65535:65535")
    # Without a compiler: busybox as process 1, with a shell that waits until TERM.
    layer.file("bin/busybox", busybox(), mode=0o755)
    script = "trap 'exit 0' TERM INT; while :; do busybox sleep 86400 & wait $!; done"
    entrypoint = ["/bin/busybox", "sh", "-c", script]
    return Image(reference=PAUSE, layers=[layer], entrypoint=entrypoint, user="65535:65535")


def _compiled(compiler: str) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pause"
        done = subprocess.run(
            [compiler, "-static", "-Os", "-s", "-o", str(out), str(PAUSE_SOURCE)],
            capture_output=True,
            check=False,
            timeout=60,
        )
        # The compiler may be installed without the static C library.
        return out.read_bytes() if done.returncode == 0 else None


def shell_image() -> Image:
    """Return the image of busybox with all its commands, and a page for its web server."""
    program = busybox()
    layer = Layer()
    base_files(layer)
    layer.file("bin/busybox", program, mode=0o755)
    for name in run([program, "--list"]).split():
        if name != "busybox":
            layer.link(f"bin/{name}", "busybox")
    layer.file("www/healthz", "ok\n")
    return Image(reference=SHELL, layers=[layer])
