"""Launcher of a Python program whose modules have been imported before it is needed.

``python [options] preload.py MODULES FILE [ARGUMENT...]``, or ``-m MODULE [ARGUMENT...]`` in place
of the file. Without ``JOBSET_STANDBY_FD`` it only runs the program. With it, it imports the modules
(comma-separated names), reports that it is ready, and runs the program once it is released; see
``process``. ``MODULES`` may end with ``@PATH``: the program's imports are then recorded there, and
a standby process imports them as well; see ``learned``.

It is run by the worker image's own Python, 3.8 or newer, and needs nothing but its standard
library. It is invisible to the program.
"""

# ruff: noqa: PTH109, PTH112, PTH118, PTH120, PTH123, SIM105 - every module that is imported here is
# one that the program did not import, and it runs on older versions than the rest

from __future__ import annotations

import os
import sys
import time
from importlib import import_module
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType

TYPE_CHECKING = False
if TYPE_CHECKING:  # the module itself is one that the program may do without
    from typing import Any

MASTER_WAIT_S = 0.5
_PREPARE_S = 60.0
"""Seconds for learned imports before the process reports that it is ready; the rest follow."""

_STARTED_OVER = b"JOBSET_STANDBY_STARTED_OVER"
"""Variable of a process that has started over after it reported that it is ready."""

_FOLLOW_S = 5.0
"""Maximum seconds between looks at the list: a program that imports for minutes may fail soon."""

PREFIX = b"jobset standby: "
_HERE = __file__
_LAUNCHER = sys.modules[__name__]
"""Reference to this module: without one, its functions are lost."""


class _HeldOutput:
    """Buffer for standard output and error, until the process is released."""

    def __init__(self) -> None:
        self._real: tuple[int, int] | None = None
        self._file = -1
        try:
            real = os.dup(1), os.dup(2)
            self._file = os.memfd_create("standby")
        except (OSError, AttributeError):
            return
        self._real = real
        for number in (1, 2):
            os.dup2(self._file, number)

    def say(self, text: str) -> None:
        """Write a line of our own immediately: mistakes should be visible before a failure."""
        line = PREFIX + text.encode("utf-8", "replace") + b"\n"
        os.write(2 if self._real is None else self._real[1], line)

    def let_go(self) -> None:
        """Write the buffer to the real standard error, with a prefix, and stop buffering."""
        if self._real is None:
            return
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        for number, real in zip((1, 2), self._real):  # noqa: B905 - 3.8
            os.dup2(real, number)
            os.close(real)
        size = os.lseek(self._file, 0, os.SEEK_END)
        os.lseek(self._file, max(0, size - 65536), os.SEEK_SET)
        for line in os.read(self._file, 65536).splitlines():
            os.write(2, PREFIX + line + b"\n")
        os.close(self._file)
        self._real = None


def _say(text: str) -> None:
    os.write(2, f"{text}\n".encode("utf-8", "replace"))


def _import(names: str, held: _HeldOutput) -> None:
    wanted = [name for name in names.split(",") if name]
    for name in wanted:
        try:
            (_learned().load if name.startswith("jobsetpy.warm.") else import_module)(name)
        except BaseException as error:  # noqa: BLE001 - the program may not need it
            held.say(f"cannot preload {name!r}: {type(error).__name__}: {error}")
    if "torch" in wanted and _major_version("torch") >= 2:
        # Its first DistributedDataParallel imports this, for more than a second.
        _import("torch._dynamo", held)


def _major_version(name: str) -> int:
    version = str(getattr(sys.modules.get(name), "__version__", "")).partition(".")[0]
    return int(version) if version.isdigit() else 0


def _learned() -> Any:
    """Return the module ``learned`` next to this one, under a name of its own."""
    name = "_jobset_learned"
    if name not in sys.modules:
        module = sys.modules[name] = ModuleType(name)
        path = module.__file__ = os.path.join(os.path.dirname(_HERE), "learned.py")
        SourceFileLoader(name, path).exec_module(module)
    return sys.modules[name]


def _is_released(channel: int, seconds: float = 0.0) -> bool:
    """Return True if there is something to read, at the latest after a time."""
    import select

    return bool(select.select([channel], [], [], seconds)[0])


def _follow(channel: int, replay: Any) -> None:
    """Import modules that are added to the list, until there is something to read."""
    pause = 1.0
    while not _is_released(channel, pause):
        if replay.read():
            replay.run(lambda: _is_released(channel))
            pause = 1.0
        pause = min(pause * 1.5, _FOLLOW_S)


def _wait(channel: int, replay: Any, environ: dict[bytes, bytes]) -> dict[str, str]:
    """Report readiness, wait and return the variables that come with the release.

    The process ends if the supervisor has ended.

    Args:
        channel: descriptor to the supervisor.
        replay: importer of what is added to the list, if there is one.
        environ: environment of a process that replaces this one, which reports nothing again.
    """
    line = b""
    try:
        if _STARTED_OVER not in environ:
            os.write(channel, b"ready\n")
            environ[_STARTED_OVER] = b"1"
        if replay is not None:
            _follow(channel, replay)
        while not line.endswith(b"\n"):
            more = os.read(channel, 64)
            if not more:
                os._exit(0)
            line += more
    except OSError:
        os._exit(0)
    found = dict(word.split("=", 1) for word in line.decode().split() if "=" in word)
    found["JOBSET_EPOCH"] = found.pop("epoch", "")
    return found


def _look_up(host: str, port: int) -> list[tuple[int, tuple[object, ...]]]:
    """Return socket families and addresses of a host; none if DNS does not answer in time.

    In a thread, because ``getaddrinfo`` has no timeout: where DNS is down it takes many seconds.
    """
    import _thread
    import socket

    found: list[tuple[int, tuple[object, ...]]] = []
    done = _thread.allocate_lock()
    done.acquire()

    def ask() -> None:
        try:
            # As bytes: for text, Python first imports the codec of international names, which takes
            # longer than the answer and, on a busy node, longer than the wait.
            answers = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
            found.extend((kind, address) for kind, _, _, _, address in answers)
        except (OSError, ValueError, OverflowError):
            pass
        finally:
            done.release()

    _thread.start_new_thread(ask, ())
    done.acquire(timeout=MASTER_WAIT_S)
    return list(found)


def _await_first_rank() -> None:
    """Let rank 0 open its port first, if the environment has its address.

    Released processes are so quick that others may connect before it listens, and torch tries
    again only after a second.
    """
    host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if os.environ.get("RANK", "0") == "0" or not host or not port.isdigit():
        return
    import socket

    limit, pause = time.monotonic() + MASTER_WAIT_S, 0.005
    # Once: thousands of ranks must not ask the cluster's DNS at each try.
    found = _look_up(host, int(port))
    while found:
        for kind, address in found:
            try:
                with socket.socket(kind) as attempt:
                    attempt.settimeout(max(0.001, limit - time.monotonic()))
                    if not attempt.connect_ex(address):
                        return
            except (OSError, ValueError, OverflowError):
                return
        if time.monotonic() >= limit:  # after one try, although the lookup took the whole wait
            return
        time.sleep(pause)
        pause = min(pause * 1.3, 0.03)


def _prepare(modules: str, learned: str, program: list[str], words: list[bytes]) -> int:
    """Run as standby process until released; return the descriptor to the supervisor."""
    environ = dict(os.environb)
    is_ready = os.environb.pop(_STARTED_OVER, None) is not None
    channel = int(os.environ.pop("JOBSET_STANDBY_FD"))
    held = _HeldOutput()

    def start_over() -> None:
        held.let_go()
        os.set_inheritable(channel, True)
        os.execve(sys.executable, words, environ)  # noqa: S606 - this program again

    try:
        limit = time.monotonic() + _PREPARE_S
        _import(modules, held)
        replay = None
        if learned:
            replay = _learned().Replay(learned, program, held.say, start_over)
            if replay.read():
                replay.run(lambda: time.monotonic() > limit or (is_ready and _is_released(channel)))
        released = _wait(channel, replay, environ)
    finally:
        held.let_go()
    os.environ.update(released)
    _await_first_rank()
    return channel


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show an error as the interpreter does, without our own frames."""
    while trace is not None and trace.tb_frame.f_code.co_filename == _HERE:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def _new_main() -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __annotations__={})
    sys.modules["__main__"] = main
    return main


def _whole(path: str) -> str:
    """Return a path as the interpreter resolves it on its command line."""
    return os.path.join(os.getcwd(), path) if sys.version_info >= (3, 9) else path


def _run_file(path: str) -> None:
    import pkgutil

    if pkgutil.get_importer(path) is not None:  # a folder or an archive with a __main__.py
        _run_module("__main__", alter_argv=False)
        return
    path = _whole(path)
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        _say(f"{sys.executable}: can't open file {path!r}: {reason}")
        sys.exit(2)
    main = _new_main()
    loader = SourceFileLoader("__main__", path)
    main.__dict__.update(__file__=path, __loader__=loader, __cached__=None)
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)  # noqa: S102


def _run_module(name: str, *, alter_argv: bool = True) -> None:
    """Run a module as the interpreter does for ``-m``, folders and archives."""
    import runpy

    _new_main()
    runpy._run_module_as_main(name, alter_argv)  # type: ignore[attr-defined]  # noqa: SLF001


def _become(program: list[str]) -> None:
    """Set up ``sys`` as the program expects it."""
    is_safe = bool(getattr(sys.flags, "safe_path", False) or sys.flags.isolated)
    if program[0] == "-m":
        folder, sys.argv[:] = os.getcwd(), ["-m", *program[2:]]
    else:
        folder, sys.argv[:] = os.path.dirname(os.path.realpath(program[0])), program
        is_whole = os.path.isdir(program[0]) or program[0].endswith((".zip", ".pyz"))
        if is_whole:
            folder = _whole(program[0])
            if is_safe:
                sys.path.insert(0, folder)
    if not is_safe:
        sys.path[0] = folder
    whole = getattr(sys, "orig_argv", None)
    if whole is not None:
        del whole[-len(program) - 2 : len(whole) - len(program)]


def _command_line() -> list[bytes]:
    with open("/proc/self/cmdline", "rb") as file:
        return file.read().split(b"\0")[:-1]


def main() -> None:
    """Prepare if configured; then run the program."""
    program = sys.argv[2:]
    modules, _, learned = sys.argv[1].partition("@")
    words = _command_line()
    _become(program)
    sys.excepthook = _show
    if learned:
        learned = _learned().own_path(learned)
    channel = int(os.environ.pop("JOBSET_REPORT_FD", "-1"))
    if "JOBSET_STANDBY_FD" in os.environ:
        channel = _prepare(modules, learned, program, words)
    if channel >= 0:
        os.set_inheritable(channel, False)
    if learned:
        _learned().record(learned, program)
    sys.modules["_jobset_preload"] = _LAUNCHER
    process = os.getpid()
    try:
        if program[0] == "-m":
            _run_module(program[1])
        else:
            _run_file(program[0])
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        code, text = _failure(error)
        if not code or channel < 0 or os.getpid() != process:
            raise
        _report(channel, f"failed {code} {text}")
        _end(error, code)
        raise


def _failure(error: BaseException) -> tuple[int, str]:
    """Return the exit code for an uncaught exception, and the last line of its traceback."""
    kind, value = type(error), error.code if isinstance(error, SystemExit) else error
    if isinstance(error, SystemExit):
        if value is None or isinstance(value, int):
            return int(value or 0) & 0xFF, ""
        name = ""
    else:
        prefix = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
        name = f"{prefix}{kind.__qualname__}: "
    try:
        lines = str(value).strip().splitlines()
    except Exception:  # noqa: BLE001 - it is the program's
        lines = []
    return 1, name + lines[0] if lines else name.rstrip(": ")


def _report(channel: int, text: str) -> None:
    try:
        os.write(channel, f"{text[:300]}\n".encode("utf-8", "replace"))
    except OSError:
        pass


def _end(error: BaseException, code: int) -> None:
    """Show an error and end without the interpreter's teardown, which takes torch 2 a second.

    Handlers of ``atexit`` run and the standard streams are flushed. If threads are left that the
    interpreter would wait for, this only returns.
    """
    threading = sys.modules.get("threading")
    if threading is not None:
        main = threading.main_thread()
        if any(each is not main and not each.daemon for each in threading.enumerate()):
            return
    try:
        if isinstance(error, SystemExit):
            if not isinstance(error.code, int):
                sys.stderr.write(f"{error.code}\n")
        else:
            sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:  # noqa: BLE001 - the interpreter does it in its own way
        return
    import atexit

    for step in (atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):  # noqa: SLF001
        try:
            step()
        except BaseException:  # noqa: BLE001, S110 - each by itself
            pass
    if "ctypes" in sys.modules:  # output of libraries through stdio
        sys.modules["ctypes"].CDLL(None).fflush(None)
    os._exit(code)


if __name__ == "__main__":
    main()
