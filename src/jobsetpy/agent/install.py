"""``install FOLDER``: copies this agent and its interpreter, for containers of any image.

A worker's image may have another C library or none at all, and no Python. The copied files need
nothing from it: Python, the modules the supervisor imports, the shared libraries of both and their
dynamic linker, started by a static program. An init container copies them into an ``emptyDir``.

The files to copy are not listed anywhere: the modules are those that are loaded with the
supervisor, and the shared libraries those that are then mapped into this process.

::

    FOLDER/supervise the static launcher (hack/images/supervise.c) FOLDER/ld.so the dynamic linker
    FOLDER/bin/python3 the interpreter, which finds its library next to itself FOLDER/lib/ shared
    libraries, and the standard library's part in pythonX.Y FOLDER/app/ msgspec, h11, jobsetpy, and
    the program

The launcher of standby processes is among them; the worker image's own Python runs it.
"""

# ruff: noqa: PTH101, PTH103, PTH108, PTH110, PTH118, PTH119, PTH120, PTH123, PTH211 - what this
# process imports is what it copies, and pathlib would be copied for nothing

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Final

from jobsetpy.agent.protocol.settings import EXIT_USAGE

EXIT_FAILED: Final = 1

LATER: Final = (
    *("encodings.ascii", "encodings.idna", "encodings.latin_1", "encodings.utf_8"),
    *("base64", "inspect", "linecache", "locale", "platform", "subprocess", "textwrap", "tokenize"),
    *("runpy", "pkgutil", "traceback", "importlib.util", "concurrent.futures.thread"),
    *("jobsetpy.agent.__main__", "jobsetpy.agent.supervisor.supervisor", "jobsetpy.agent.install"),
    *(
        "jobsetpy.agent.supervisor.standby.process",
        "jobsetpy.agent.supervisor.standby.last_words",
        "jobsetpy.agent.supervisor.health",
        "jobsetpy.agent.supervisor.output.part",
        "jobsetpy.agent.supervisor.heartbeats.ring",
        "jobsetpy.agent.supervisor.heartbeats.self_fence",
        "jobsetpy.agent.supervisor.heartbeats.part",
        "jobsetpy.agent.supervisor.spare_pod",
        "jobsetpy.agent.supervisor.standby.starter",
    ),
)
"""Modules that the supervisor imports late or only when something fails."""

PROGRAM: Final = '''"""The supervisor; see jobsetpy.agent.supervisor.supervisor."""
import os

# The worker's image may have a configuration of OpenSSL, for a library that is not ours. The
# worker's environment is taken from elsewhere and does not have this.
os.environ["OPENSSL_CONF"] = "/dev/null"
from jobsetpy.agent.__main__ import _start

_start()
'''
LAUNCHER: Final = "supervise"
LINKERS: Final = ("ld-linux", "ld-musl", "ld64", "ld.so")


class InstallError(Exception):
    """A file cannot be copied; the message names it."""


def main(argv: Sequence[str]) -> int:
    """Copy everything into the folder given as the only argument and return the exit code."""
    start = time.monotonic()
    if len(argv) != 1 or argv[0].startswith("-"):
        _say("usage: install FOLDER")
        return EXIT_USAGE
    try:
        files, size = install(argv[0])
    except (InstallError, OSError) as error:
        _say(f"cannot install into {argv[0]}: {error}")
        return EXIT_FAILED
    took = round((time.monotonic() - start) * 1000)
    _say(f"installed {files} files, {size / 1e6:.1f} MB, into {argv[0]} in {took} ms")
    return 0


def install(folder: str) -> tuple[int, int]:
    """Copy the supervisor and everything it needs.

    Args:
        folder: created if it does not exist; files in it are overwritten.

    Returns:
        The number of files and their size in bytes.

    Raises:
        InstallError: this Python cannot be copied.
        OSError: a file cannot be read or written.
    """
    for name in LATER:
        if getattr(sys.modules.get(name), "__spec__", None) is None:
            sys.modules.pop(name, None)  # deferred by ``__main__``: import it now
        import_module(name)
    library = os.path.dirname(os.__file__)
    version = f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
    os.umask(0o022)  # workers may run as any user
    tree = _Tree(folder)
    own: set[str] = set()
    for module in list(sys.modules.values()):
        own |= _copy_module(tree, module, library, version)
    # Python looks for these two to find its library.
    tree.copy(f"{library}/os.py", f"{version}/os.py")
    tree.place(f"{version}/lib-dynload/")
    _copy_libraries(tree, own)
    tree.copy(os.path.realpath("/proc/self/exe"), "bin/python3", mode=0o755)
    tree.write(PROGRAM.encode(), "app/__main__.py")
    package = sys.modules["jobsetpy"].__path__[0]
    # Not modules of this Python: the worker image's own Python runs them.
    for file in sys.modules["jobsetpy.agent.supervisor.standby.process"].LAUNCHED:
        tree.copy(f"{package}/{file}", f"app/jobsetpy/{file}")
    launcher = os.path.join(os.path.dirname(package), LAUNCHER)
    if os.path.exists(launcher):
        tree.copy(launcher, LAUNCHER, mode=0o755)
    else:
        _say(f"no launcher next to {package}: start {folder}/ld.so yourself")
    return tree.files, tree.bytes


class _Tree:
    """Writer of files below a folder, with counters."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.files = 0
        self.bytes = 0

    def place(self, path: str) -> str:
        """Return the full path of a path below the root, whose folder is created."""
        place = f"{self._root}/{path}"
        os.makedirs(os.path.dirname(place), exist_ok=True)
        return place

    def write(self, data: bytes, path: str, *, mode: int = 0o644) -> str:
        """Write a file."""
        place = self.place(path)
        fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with open(fd, "wb", buffering=0) as file:
            file.write(data)
        self.files += 1
        self.bytes += len(data)
        return place

    def copy(self, source: str, path: str, *, mode: int = 0o644) -> None:
        """Copy a file with its modification time, with which Python validates bytecode."""
        with open(source, "rb", buffering=0) as file:
            place = self.write(file.read(), path, mode=mode)
            status = os.fstat(file.fileno())
        os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_module(tree: _Tree, module: ModuleType, library: str, version: str) -> set[str]:
    """Copy a module's file and bytecode and return the real paths of compiled modules."""
    spec = getattr(module, "__spec__", None)
    file = getattr(module, "__file__", None) or getattr(spec, "origin", None)
    if spec is None or not file or not file.startswith("/"):
        return set()  # built-in, or the program itself
    name = str(spec.name)
    if file.startswith(f"{library}/") and not file.startswith(f"{library}/site-packages/"):
        target = f"{version}{file[len(library) :]}"
    else:
        # As many folders up as the name has dots, from the package's own folder if it is one.
        depth = name.count(".") + hasattr(module, "__path__")
        target = "app/" + "/".join(file.split("/")[-1 - depth :])
    if not file.endswith(".py"):
        tree.copy(file, target, mode=0o755)
        return {os.path.realpath(file)}
    tree.copy(file, target)
    if cached := getattr(spec, "cached", None):
        place = f"{target.rpartition('/')[0]}/__pycache__/{cached.rpartition('/')[2]}"
        if os.path.exists(cached):
            tree.copy(cached, place)
        else:
            _compile(tree, file, place)
    return set()


def _compile(tree: _Tree, file: str, place: str) -> None:
    """Compile missing bytecode at this process's own optimisation level."""
    import py_compile

    compiled = tree.place(place)
    py_compile.compile(
        file,
        cfile=compiled,
        doraise=True,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    os.chmod(compiled, 0o644)  # regardless of the mode of the source
    tree.files += 1


def _copy_libraries(tree: _Tree, own: set[str]) -> None:
    """Copy the shared libraries of this process, with the links by whose names they are loaded."""
    paths = _mapped() - own - {os.path.realpath("/proc/self/exe")}
    names = _names_of(paths)
    linkers = [path for path in paths if any(each.startswith(LINKERS) for each in names[path])]
    if not linkers:
        raise InstallError("this Python has no dynamic linker of its own")
    tree.copy(linkers[0], "ld.so", mode=0o755)
    for path in sorted(paths - set(linkers)):
        name, *links = names[path]
        tree.copy(path, f"lib/{name}", mode=0o755)
        for link in links:
            place = tree.place(f"lib/{link}")
            with suppress(FileNotFoundError):  # from an earlier run, maybe of another version
                os.unlink(place)
            os.symlink(name, place)


def _names_of(paths: set[str]) -> dict[str, list[str]]:
    """Return the name of each file, and those of links to it in the folders of all."""
    names = {path: [os.path.basename(path)] for path in paths}
    for folder in {os.path.dirname(path) for path in paths}:
        for entry in os.scandir(folder):
            if entry.is_symlink() and (path := os.path.realpath(entry.path)) in paths:
                names[path].append(entry.name)
    return names


def _mapped() -> set[str]:
    """Return the real paths of all files that are mapped as executable into this process."""
    found = set()
    with open("/proc/self/maps") as lines:
        for line in lines:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/"):
                found.add(os.path.realpath(fields[5]))
    return found


def _say(text: str) -> None:
    os.write(2, f"jobsetpy.agent: {text}\n".encode())
