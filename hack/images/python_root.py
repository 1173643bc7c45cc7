"""Makes a root folder with a Python in it, from the one that is installed here.

Python finds its library beside its own program, so ``bin/python3.x`` and ``lib/python3.x`` may
be put anywhere together. Shared libraries are those that ``ldd`` names, at the paths it names.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PREFIX = "usr/local"
# Folders and files of the library that no program of ours imports.
NOT_NEEDED = {
    *("test", "tests", "idlelib", "idle_test", "tkinter", "turtledemo", "turtle.py", "ensurepip"),
    *("lib2to3", "pydoc_data", "venv", "site-packages", "dist-packages"),
    *("__pycache__", "sitecustomize.py", "usercustomize.py", "EXTERNALLY-MANAGED", "lib-tk"),
    *("antigravity.py", "this.py", "__phello__", "curses", "dbm", "sqlite3"),
}
# Kept for the manager, of no use to the agent, whose every megabyte is pulled to every node.
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
ELF = b"\x7fELF"


@dataclass(frozen=True)
class Interpreter:
    """A Python to copy: its program and its library folder."""

    program: Path
    library: Path

    @property
    def version(self) -> str:
        """Such as ``python3.11``: the name of the program and of the library folder."""
        return self.library.name

    @classmethod
    def of(cls, program: Path) -> Interpreter:
        """Ask the program itself."""
        code = (
            "import sys, sysconfig; v = sys.version_info; print(sys._base_executable, "
            "sysconfig.get_path('stdlib'), sep='\\n')"
        )
        done = subprocess.run(
            [program, "-I", "-S", "-c", code],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        base, library = done.stdout.split("\n")[:2]
        return cls(Path(base).resolve(), Path(library))

    @classmethod
    def default(cls) -> Interpreter:
        """The system's of our own minor version (Debian builds it for speed), else the running one.

        The minor version has to be that of the environment, whose compiled modules are copied.
        """
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        system = Path("/usr/bin") / name
        return cls.of(system if system.exists() else Path(sys.executable))


def copy_python(interpreter: Interpreter, root: Path, *, not_needed: Iterable[str] = ()) -> None:
    """Put the interpreter and what it needs of its library under `root`."""
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


def copy_libraries(root: Path) -> None:
    """Add the shared libraries of every program and compiled module under `root`."""
    wanted: set[Path] = set()
    for file in elf_files(root):
        done = subprocess.run(
            ["ldd", str(file)], capture_output=True, text=True, check=False, timeout=60
        )
        wanted.update(Path(p) for p in parse_ldd(done.stdout) if not p.startswith(str(root)))
    for library in sorted(wanted):
        target = root / library.relative_to("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(library, target)  # the file itself, where `library` is a link
            target.chmod(0o755)


def parse_ldd(text: str) -> list[str]:
    """The paths in the output of ldd, the loader's own included.

    Raises:
        FileNotFoundError: a library is missing on this machine.
    """
    found = []
    for line in text.splitlines():
        if "not found" in line:
            raise FileNotFoundError(f"ldd: {line.strip()}")
        path = re.search(r"(?:=>\s+)?(/\S+)\s+\(0x", line)
        if path:
            found.append(path[1])
    return found


def elf_files(root: Path) -> list[Path]:
    """Programs and shared libraries below `root`, by their first bytes."""
    found = []
    for folder, _, files in os.walk(root):
        for name in sorted(files):
            path = Path(folder) / name
            if path.is_symlink() or not (".so" in name or path.stat().st_mode & stat.S_IXUSR):
                continue
            with path.open("rb") as file:
                if file.read(4) == ELF:
                    found.append(path)
    return found


def strip_symbols(root: Path) -> None:
    """Drop debugging symbols, most of some compiled modules; nothing is done without binutils."""
    if strip := shutil.which("strip"):
        files = [str(file) for file in elf_files(root) if ".so" in file.name]
        subprocess.run(
            [strip, "--strip-unneeded", *files], capture_output=True, check=False, timeout=300
        )


def compile_all(
    interpreter: Interpreter, root: Path, folders: Sequence[str], optimize: int
) -> None:
    """Add bytecode that is never compared with its source: the root file system is read-only."""
    switches = ["-" + "O" * optimize] if optimize else []
    words = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    # Tracebacks and reproducibility want the path in the image, not the one it is built at.
    words += ["-s", str(root), "-p", "/"]
    env = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}
    for folder in folders:
        done = subprocess.run(
            [interpreter.program, "-s", *switches, *words, str(root / folder)],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            env=env,
            cwd="/",
        )
        if done.returncode:
            raise RuntimeError(f"compileall {folder}: {(done.stdout or done.stderr)[-2000:]}")


def keep_source(path: PurePosixPath) -> bool:
    """What goes into an image: no leftovers of building, but every licence."""
    if any(part.endswith(".dist-info") for part in path.parts):
        return True
    return path.suffix not in {".pyi", ".c", ".h", ".pyx", ".pxd", ".pxi", ".a", ".md", ".rst"}
