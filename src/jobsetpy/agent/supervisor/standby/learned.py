"""Modules that a program imports: recorded as it runs, preloaded by its next standby process.

``preload.py`` runs this in the worker image's own Python, 3.8 or newer; it needs nothing but the
standard library. The list is a file in the pod's memory, one for each process of the worker::

    torch<TAB>/usr/lib/python3/site-packages/torch/__init__.py
    =OMP_NUM_THREADS<TAB>1

that is, modules in the order of their import, each with its file, and the changes that the program
made to its environment in between: many modules read it once, when they are imported. A line
``-NAME`` withdraws a module whose import failed in the program.

Only installed modules are imported, none of the program's own. An import that fails, or that leaves
behind a device, a port, a Python thread, a file open for writing or a child process, is recorded in
a second file, and the process starts over without it, so that nothing of it stays.
"""

# ruff: noqa: PTH118, PTH120, PTH123, PTH208 - every module that is imported here is one that the
# program did not import, and it runs on older versions

from __future__ import annotations

import os
import stat
import sys
import time
from _thread import allocate_lock, get_ident
from importlib import import_module
from importlib.machinery import PathFinder, SourceFileLoader
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:  # the module itself is one that the program may do without
    from collections.abc import Callable, Iterator, Sequence

MAX_NAMES = 20000
MAX_BYTES = 4000000
MAX_STARTS_OVER = 16
"""Maximum number of unfit modules, each of which costs a start of the process."""

TRIES = 2
"""Imports of a module in which the process ended or was killed, before the module is left out."""

MEMORY_SHARE = 0.9
"""Share of the container's memory limit above which no more modules are imported."""

WARM = "jobsetpy.warm."
FRAMEWORKS = ("torch", "jax")

DENIED = frozenset(
    (
        *("__main__", "antigravity", "this", "idlelib", "tkinter", "turtle", "turtledemo"),
        *("readline", "rlcompleter", "pydevd", "debugpy", "memray", "viztracer"),
        *("mpi4py.MPI", "pycuda.autoinit", "torch_xla", "torch_neuronx", "torch_npu"),
        *("habana_frameworks", "libtpu", "jobsetpy"),
    )
)
"""Modules that open devices or ports, or take over the process, when they are imported."""

_HARMLESS = frozenset(
    ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx")
)
_SEARCHED = 64
"""Maximum number of modules remembered that were searched for and are not loaded yet."""


def own_path(path: str) -> str:
    """Return the path of this process's list; a worker may have several processes."""
    rank = os.environ.get("LOCAL_RANK", "")
    return f"{path}.{rank}" if rank.isdigit() else path


def _is_installed(origin: str | None) -> bool:
    """Return True if a module is the standard library's or a package's.

    Packages are in one of the usual folders, or in one where an installer left metadata, as ``pip
    install --target`` does. The first entry of ``sys.path`` is the program's own folder.
    """
    if not origin:
        return False
    if "/site-packages/" in origin or "/dist-packages/" in origin:
        return True
    if origin.startswith(os.path.dirname(os.__file__) + "/"):
        return True
    return any(origin.startswith(f"{folder}/") and _has_metadata(folder) for folder in sys.path[1:])


_metadata: dict[str, bool] = {}


def _has_metadata(folder: str) -> bool:
    if folder not in _metadata:
        try:
            names = os.listdir(folder)
        except OSError:
            names = []
        _metadata[folder] = any(name.endswith(".dist-info") for name in names)
    return _metadata[folder]


def _is_under(name: str, names: frozenset[str] | set[str]) -> bool:
    """Return True if a module, or a package that contains it, is in a set of names."""
    parts = name.split(".")
    return any(".".join(parts[:count]) in names for count in range(1, len(parts) + 1))


def _append(path: str, text: str) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and found.st_size < MAX_BYTES:
            os.write(fd, text.encode("utf-8", "surrogateescape"))
    finally:
        os.close(fd)


def _read(path: str, offset: int = 0) -> str:
    """Text of a file of ours from an offset on, whole lines; empty if there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        # The folder may be shared (hostIPC): names from anyone else are not imported.
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return ""
        file.seek(offset)
        data = file.read(MAX_BYTES)
    return data[: data.rfind(b"\n") + 1].decode("utf-8", "surrogateescape")


class Recorder:
    """Finder of modules that finds none, and records those that are loaded.

    It is the first of ``sys.meta_path``. A module is recorded at a later search, once it is loaded:
    many are only searched for, to check that they are installed.

    Args:
        path: path of the list; its entries are not recorded again.
        program: name of the program if it is a module.
    """

    def __init__(self, path: str, program: str) -> None:
        self._path = path
        self._program = program
        self._process = os.getpid()
        self._lock = allocate_lock()
        self._environ = _environ()
        self._searched: list[tuple[str, list[str]]] = []
        self._loading: list[str] = []
        self._known = {line.partition("\t")[0] for line in _read(path).splitlines()}
        self._full = False

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Record modules that have been loaded by now; find none."""
        if self._full or os.getpid() != self._process or not self._lock.acquire(blocking=False):
            return
        try:
            self._flush()
            if name not in self._known:
                self._searched = [*self._searched[1 - _SEARCHED :], (name, self._changes())]
        except Exception:  # noqa: BLE001 - an import of the program must not fail for this
            self._full = True
        finally:
            self._lock.release()

    def _flush(self) -> None:
        """Record the modules that were searched for and are loaded, and the environment of each."""
        lines = [f"-{name}\n" for name in self._loading if name not in sys.modules]
        self._known.difference_update(line[1:-1] for line in lines)
        self._loading = [name for name in self._loading if _is_loading(name)]
        changes: list[str] = []
        waiting: list[tuple[str, list[str]]] = []
        for name, own in self._searched:
            changes += own
            if name not in sys.modules:
                waiting.append((name, []))
                continue
            self._known.add(name)
            origin = getattr(vars(sys.modules[name]).get("__spec__"), "origin", None)
            if _is_installed(origin) and name != self._program:
                lines += [*changes, f"{name}\t{_escaped(str(origin))}\n"]
                changes = []
                if _is_loading(name):
                    self._loading.append(name)
        if waiting:
            waiting[-1][1].extend(changes)
        self._searched = waiting
        if lines:
            _append(self._path, "".join(lines))
        self._full = len(self._known) > MAX_NAMES

    def _changes(self) -> list[str]:
        """Return the changes of the environment since the last search, as lines."""
        old, new = self._environ, _environ()
        if new == old:
            return []
        self._environ = new
        changed = [name for name in new if new[name] != old.get(name)]
        lines = [f"={_text(name)}\t{_escaped(_text(new[name]))}\n" for name in changed]
        return [*lines, *(f"={_text(name)}\n" for name in old if name not in new)]


def _is_loading(name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


def record(path: str, program: Sequence[str]) -> None:
    """Record imports from now on.

    Args:
        path: path of the list.
        program: its command line, ``-m MODULE`` or a file.
    """
    module = program[1] if program[0] == "-m" else ""
    sys.meta_path.insert(0, Recorder(path, module))


def _environ() -> dict[bytes, bytes]:
    """Return the environment, without decoding it at each search."""
    return dict(os.environ._data)  # type: ignore[attr-defined]  # noqa: SLF001


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _escaped(text: str) -> str:
    return text.encode("unicode_escape").decode("ascii")


def _plain(text: str) -> str:
    return text.encode("ascii").decode("unicode_escape")


class Replay:
    """Importer of the modules in a list, as far as it is safe, and of later additions.

    Args:
        path: path of the list.
        program: the command line of the program.
        say: writes a line to the log.
        start_over: replaces the process by a new one of the same command; does not return.
    """

    def __init__(
        self,
        path: str,
        program: Sequence[str],
        say: Callable[[str], None],
        start_over: Callable[[], None],
    ) -> None:
        self._path = path
        self._program = program[1] if program[0] == "-m" else ""
        self._say = say
        self._start_over = start_over
        self._offset = 0
        self._entries: list[tuple[str, str | None]] = []
        self._tops: dict[str, bool] = {}
        self._learned: set[str] = set()
        self._changed: dict[str, tuple[str | None, str | None]] = {}
        self._stopped = False
        self._before = _traces()
        tried = _read(f"{path}.tried").splitlines()
        self._denied = {name for name in tried if tried.count(name) >= TRIES}
        unfit = _read(f"{path}.unfit").splitlines()
        self._denied.update(unfit)
        if len(unfit) >= MAX_STARTS_OVER:
            self._stop(f"{len(unfit)} modules were unfit")
        if self._denied:
            say(f"found unfit before, and not preloaded: {', '.join(sorted(self._denied))}"[:300])

    def read(self) -> bool:
        """Read additions to the list; return True if there is something to import."""
        try:
            age = time.time() - os.lstat(self._path).st_mtime  # noqa: TID251 - a file's
        except OSError:
            return False
        text = _read(self._path, self._offset) if age > 1.0 or not self._offset else ""
        self._offset += len(text.encode("utf-8", "surrogateescape"))
        for line in text.splitlines():
            name, tab, value = line.partition("\t")
            if name.startswith("-"):
                self._entries = [each for each in self._entries if each[0] != name[1:]]
                continue
            self._entries.append((name, _plain(value) if tab else None))
        return bool(self._entries) and not self._stopped

    def run(self, until: Callable[[], bool]) -> None:
        """Import what is pending, in order.

        Args:
            until: asked before each import; true to leave the rest for later.
        """
        self._apply()
        try:
            while self._entries and not self._stopped and not until():
                name, value = self._entries.pop(0)
                if name.startswith("="):
                    self._change(name[1:], value)
                else:
                    self._learned.add(name)
                    if name not in sys.modules and self._is_wanted(name, value or ""):
                        self._try(name)
            for framework in () if self._entries else FRAMEWORKS:
                warm = WARM + framework
                if framework in self._learned and framework in sys.modules and not until():
                    self._learned.discard(framework)
                    if warm not in self._denied and not self._stopped:
                        self._try(warm)
        finally:
            self._restore()

    def _is_wanted(self, name: str, origin: str) -> bool:
        """Return True if it is found where the program found it and is not known to be unfit."""
        if _is_under(name, DENIED) or _is_under(name, self._denied) or name == self._program:
            return False
        top = name.partition(".")[0]
        if top not in self._tops:
            spec = PathFinder.find_spec(top)
            if spec is None:
                self._tops[top] = False
            elif top == name:
                self._tops[top] = spec.origin == origin
            else:  # a namespace, which is no file
                self._tops[top] = spec.origin is None
        return self._tops[top]

    def _try(self, name: str) -> None:
        """Import a module or run a warm-up, and check for side effects."""
        if _memory_is_short():
            self._stop("little is left of the container's memory")
            return
        tried = _read(f"{self._path}.tried")
        _append(f"{self._path}.tried", f"{name}\n")
        why = ""
        try:
            load(name)
        except BaseException as error:  # noqa: BLE001 - the program may not need it
            why = f"{type(error).__name__}: {error}"
        os.truncate(f"{self._path}.tried", len(tried.encode("utf-8", "surrogateescape")))
        if not why:
            left = _traces() - self._before
            why = f"it leaves behind {', '.join(sorted(left))}" if left else ""
        if why:
            self._say(f"cannot preload {name!r}: {why[:300]}")
            _append(f"{self._path}.unfit", f"{name}\n")
            self._start_over()

    def _stop(self, why: str) -> None:
        self._stopped = True
        self._say(f"preloads nothing more: {why}")

    def _change(self, name: str, value: str | None) -> None:
        """Set the environment as the program had it, unless a loaded module has done so."""
        before = os.environ.get(name)
        if before == value:
            return
        original = self._changed[name][0] if name in self._changed else before
        self._changed[name] = original, value
        _set(name, value)

    def _apply(self) -> None:
        for name, (_, value) in self._changed.items():
            _set(name, value)

    def _restore(self) -> None:
        """Restore the environment: the program makes its own changes."""
        for name, (original, value) in self._changed.items():
            if os.environ.get(name) == value:
                _set(name, original)


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def load(name: str) -> None:
    """Import a module, or run one of the agent's warm-ups, by its name."""
    if not name.startswith(WARM):
        import_module(name)
        return
    short = name[len(WARM) :]
    path = os.path.join(os.path.dirname(__file__), "../../../warm", f"{short}.py")
    module = ModuleType(f"_jobset_warm_{short}")
    SourceFileLoader(module.__name__, path).exec_module(module)
    module.warm(has_accelerator=_has_accelerator())


def _has_accelerator() -> bool:
    """Return True if the machine has an accelerator, without opening one."""
    kinds = ("nvidia", "kfd", "accel", "vfio", "neuron")
    return any(name.startswith(kinds) for name in os.listdir("/dev"))


def _memory_is_short() -> bool:
    """Return True if the container's memory, without cached files, is nearly used up."""
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            limit = file.read().strip()
        if not limit.isdigit():
            return False
        with open("/sys/fs/cgroup/memory.current") as file:
            used = int(file.read())
        with open("/sys/fs/cgroup/memory.stat") as file:
            cached = dict(line.split() for line in file).get("inactive_file", "0")
    except (OSError, ValueError):
        return False
    return used - int(cached) > MEMORY_SHARE * int(limit)


def _traces() -> set[str]:
    """Return visible side effects: Python threads, files, ports, children."""
    threads = sys._current_frames()  # noqa: SLF001
    found = {f"thread {number}" for number in threads if number != get_ident()}
    sockets = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            where = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115
            if where.startswith(("/memfd:", "/proc/", "/sys/")):
                continue
            if where.startswith("socket:["):
                sockets.add(where[8:-1])
            elif where.startswith("/dev/"):
                if where not in _HARMLESS and not where.startswith(("/dev/pts/", "/dev/shm/")):  # noqa: S108
                    found.add(where)
            elif where.startswith("/") and int(number) > 2 and _is_written(number):
                found.add(where)
        except OSError:
            continue
    if sockets:
        found |= {f"port, socket {each}" for each in sockets & set(_internet_sockets())}
    for number in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{number}/children") as file:
                found |= {f"process {each}" for each in file.read().split()}
        except OSError:
            continue
    return found


def _is_written(number: str) -> bool:
    with open(f"/proc/self/fdinfo/{number}") as file:
        for line in file:
            if line.startswith("flags:"):
                return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _internet_sockets() -> Iterator[str]:
    for kind in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        try:
            with open(f"/proc/self/net/{kind}") as file:
                for line in file:
                    fields = line.split()
                    if len(fields) > 9:
                        yield fields[9]
        except OSError:
            continue
