"""Removes files of installed libraries that an image does not need, and adds bytecode.

Used here and by the Containerfile, which copies only this file and runs it with the image's Python.
So it uses only the standard library, and both kinds of images have the same files:

    python [-OO] trim.py FOLDER --at WHERE-IT-WILL-BE

The level of optimisation is the interpreter's own.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

DROPPED_FOLDERS = {"__pycache__", "test", "tests"}
# Sources that are not compiled here, and stubs.
DROPPED_SUFFIXES = {".pyi", ".c", ".h", ".pyx", ".pxd", ".pxi", ".a", ".md", ".rst", ".pyc"}
# Written by the installer, and different on each machine. Licences and METADATA are kept.
DROPPED_METADATA = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"}
# Modules for each class of the API and for each language to highlight, which the manager does not
# import: 20 MB of bytecode. Their sources are kept for custom controllers.
WITHOUT_BYTECODE = re.compile(
    r"/kubernetes_asyncio/client/(models|api)/|/pygments/(lexers|styles)/[a-z]"
)
ELF = b"\x7fELF"


def main() -> int:
    """Trim the folder of the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Remove files that an image does not need.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--at", required=True, help="path of the folder in the image")
    parser.add_argument("--strip", default="strip", help="strip program for compiled modules")
    options = parser.parse_args()
    trim(options.folder)
    strip_symbols(options.folder, options.strip)
    return 0 if compile_folder(options.folder, options.at) else 1


def trim(folder: Path) -> None:
    """Delete unneeded files; scripts are for the installer's Python, not the image's."""
    shutil.rmtree(folder / "bin", ignore_errors=True)
    for here, folders, files in os.walk(folder):
        metadata = ".dist-info" in here
        for name in [name for name in folders if not metadata and name in DROPPED_FOLDERS]:
            shutil.rmtree(Path(here, name))
            folders.remove(name)
        for name in files:
            dropped = name in DROPPED_METADATA if metadata else not kept(name)
            if dropped:
                Path(here, name).unlink()


def kept(name: str) -> bool:
    """Return True for a file that a running program may use, or a licence."""
    return Path(name).suffix not in DROPPED_SUFFIXES


def elf_files(folder: Path) -> list[Path]:
    """Programs and shared libraries in `folder`, recognized by their first bytes."""
    found = []
    for here, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(here, name)
            if path.is_symlink() or not (".so" in name or path.stat().st_mode & stat.S_IXUSR):
                continue
            with path.open("rb") as file:
                if file.read(4) == ELF:
                    found.append(path)
    return found


def strip_symbols(folder: Path, program: str = "strip") -> None:
    """Remove debugging symbols, which are most of some modules; do nothing without binutils."""
    files = [str(file) for file in elf_files(folder) if ".so" in file.name]
    if files and (strip := shutil.which(program)):
        subprocess.run(
            [strip, "--strip-unneeded", *files], capture_output=True, check=False, timeout=300
        )


def compile_folder(folder: Path, at: str) -> bool:
    """Add bytecode that is never checked against its source: the file system is read-only."""
    return bool(
        compileall.compile_dir(
            folder,
            maxlevels=50,
            quiet=1,
            rx=WITHOUT_BYTECODE,
            # Use the path in the image, not the build path: for tracebacks and reproducibility.
            stripdir=str(folder),
            prependdir=at,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
