"""Root folders with a copy of an installed Python.

Python finds its library relative to its program, so ``bin/python3.x`` and ``lib/python3.x`` can be
copied together to any folder. Shared libraries and their paths come from ``ldd``.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.images.programs import run

from .trim import elf_files

PREFIX = "usr/local"
# Folders and files of the library that our programs do not import.
NOT_NEEDED = {
    *("test", "tests", "idlelib", "idle_test", "tkinter", "turtledemo", "turtle.py", "ensurepip"),
    *("lib2to3", "pydoc_data", "venv", "site-packages", "dist-packages"),
    *("__pycache__", "sitecustomize.py", "usercustomize.py", "EXTERNALLY-MANAGED", "lib-tk"),
    *("antigravity.py", "this.py", "__phello__", "curses", "dbm", "sqlite3"),
}
# Kept for the manager, left out for the agent, whose image is pulled to every node.
NOT_FOR_AGENT = {
    *("pydoc.py", "distutils", "wsgiref", "xmlrpc"),
    *("unittest", "doctest.py", "pdb.py", "xml", "mailbox.py", "imaplib.py", "smtplib.py"),
    *("ftplib.py", "nntplib.py", "telnetlib.py", "poplib.py", "smtpd.py", "cgi.py", "cgitb.py"),
    *("turtle.py", "pickletools.py", "multiprocessing", "plistlib.py", "zoneinfo", "tomllib"),
    *("_pydecimal.py", "_pyio.py", "zipfile.py", "tarfile.py", "statistics.py", "ctypes"),
}
NO_EXTENSION = re.compile(
    r"(_test\w*|_ctypes_test|xx\w*|_tkinter|_curses\w*|_dbm|_gdbm|_sqlite3|audioop|nis|ossaudiodev"
    r"|readline|_xx\w*)\."
)


@dataclass(frozen=True)
class Interpreter:
    """A Python to copy: program and library folder."""

    program: Path
    library: Path

    @property
    def version(self) -> str:
        """Name of the program and of the library folder, such as ``python3.11``."""
        return self.library.name

    @classmethod
    def of(cls, program: Path) -> Interpreter:
        """Query the program."""
        code = (
            "import sys, sysconfig; v = sys.version_info; print(sys._base_executable, "
            "sysconfig.get_path('stdlib'), sep='\\n')"
        )
        base, library = run([program, "-I", "-S", "-c", code]).split("\n")[:2]
        return cls(Path(base).resolve(), Path(library))

    @classmethod
    def default(cls) -> Interpreter:
        """Return the system's Python of our minor version (Debian's is fast), else the running one.

        It must have the minor version of the environment, whose compiled modules are copied.
        """
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        system = Path("/usr/bin") / name
        return cls.of(system if system.exists() else Path(sys.executable))


def copy_python(interpreter: Interpreter, root: Path, *, not_needed: Iterable[str] = ()) -> None:
    """Copy the interpreter and the required parts of its library to `root`."""
    drop = NOT_NEEDED | set(not_needed)
    version = interpreter.version
    target = root / PREFIX / "lib" / version

    def ignore(folder: str, names: list[str]) -> set[str]:
        skipped = {name for name in names if name in drop or name.startswith("config-")}
        if Path(folder).name == "lib-dynload":
            skipped |= {name for name in names if NO_EXTENSION.match(name)}
        skipped |= {name for name in names if name.endswith((".a", ".pyc", ".exe"))}
        return skipped

    shutil.copytree(interpreter.library, target, ignore=ignore, symlinks=False)
    programs = root / PREFIX / "bin"
    programs.mkdir(parents=True)
    shutil.copyfile(interpreter.program, programs / version)
    (programs / version).chmod(0o755)
    for name in ("python3", "python"):
        (programs / name).symlink_to(version)


def copy_libraries(root: Path, folders: Sequence[Path] = ()) -> None:
    """Add to `root` the shared libraries of every program and compiled module under `folders`.

    Args:
        root: root folder.
        folders: folders with programs and modules; default: `root`.
    """
    places = [*folders] or [root]
    files = [str(file) for place in places for file in elf_files(place)]
    # One call for all, since ldd is a slow shell script. It fails if one of them is static.
    listed = run(["ldd", *files], check=False)
    own = tuple(map(str, places))
    wanted = {Path(path) for path in parse_ldd(listed) if not path.startswith(own)}
    for library in sorted(wanted):
        target = root / library.relative_to("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(library, target)  # the file itself if `library` is a link
            target.chmod(0o755)


def parse_ldd(text: str) -> list[str]:
    """Paths in the output of ldd, including the loader's.

    Raises:
        FileNotFoundError: a library is missing on this machine.
    """
    found = []
    for line in text.splitlines():
        if "not found" in line:
            raise FileNotFoundError(f"ldd: {line.strip()}")
        if path := re.search(r"(?:=>\s+)?(/\S+)\s+\(0x", line):
            found.append(path[1])
    return found


def compile_library(interpreter: Interpreter, root: Path, optimize: int) -> None:
    """Compile the standard library, at the entry point's level of optimisation."""
    switches = [f"-{'O' * optimize}"] if optimize else []
    words = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    library = str(root / PREFIX / "lib" / interpreter.version)
    run_python(interpreter, [*switches, *words, "-s", str(root), "-p", "/", library])


def run_python(interpreter: Interpreter, words: Sequence[str]) -> None:
    """Run the image's interpreter on this machine, with settings for reproducible bytecode.

    Raises:
        RuntimeError: it failed; the message has the end of its output.
    """
    environ = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}
    run([interpreter.program, "-s", *words], env=environ, cwd="/")
