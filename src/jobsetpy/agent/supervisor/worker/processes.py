"""Processes of the worker: starting, signalling, reaping.

The agent is the container's first process, which becomes the parent of every orphan. All children
are reaped in one place, by ``waitpid(-1)`` at each SIGCHLD; ``asyncio.subprocess`` and its watcher
are not used, because two reapers would take each other's results.

In a pod with ``shareProcessNamespace`` the agent is not the first process. There it registers as a
"child subreaper" for orphans (the launcher has done so, if it is used) and kills its own
descendants only: the namespace has other containers' processes.

The worker has a process group of its own, so that processes started by a shell get the same
signals: a shell that is not the first process ends immediately on SIGTERM and forwards nothing.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

from jobsetpy.aio import Timer

EXIT_NOT_FOUND: Final = 127
EXIT_NOT_EXECUTABLE: Final = 126
"""Exit codes of shells for a command that cannot be run."""

POLL_S: Final = 0.02
"""Interval in seconds between checks of a process group with processes not our children."""

UNKILLABLE_AFTER_S: Final = 1.0
"""Seconds between killing everything and checking if the remaining processes can be killed at all:
a process of another user may end by itself, since its parent has ended."""

SPARED_FOR_S: Final = 5.0
"""Maximum time in seconds for which processes aside are spared while others do not end. Processes
that start others faster than they are found end only when all are killed."""

STUCK_AFTER_S: Final = 5.0
"""Seconds after a SIGKILL when processes that have not ended are first reported; the interval then
doubles."""

STUCK_EVERY_S: Final = 600.0
"""Maximum interval in seconds between two such reports."""

_GONE: Final = -1
"""Parent of a process that ended while it was inspected."""

MAX_NAMED: Final = 10
"""Maximum number of processes that a report names."""

_PR_SET_CHILD_SUBREAPER: Final = 36

FORWARDED: Final = tuple(
    number
    for number in sorted(signal.valid_signals())
    if number in {1, 2, 3, 10, 12, 14, 15, 18, 28, 30} or number >= signal.SIGRTMIN
)
"""HUP, INT, QUIT, USR1, USR2, ALRM, TERM, CONT, WINCH, PWR and the real-time signals: signals that
other processes send on purpose and that a process may catch."""

_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTOU)
"""Signals that Python (and this module) ignores; a started program would inherit that."""


class Processes:
    """Processes of at most one worker at a time, with all their descendants, and those aside.

    A process that is *aside* (a standby process) belongs to no worker: it gets none of its signals,
    and is spared when the rest of the worker is killed. Its descendants are spared as long as their
    parents live; others cannot be distinguished from the worker's.

    Args:
        command: the program, found in ``PATH`` unless it has a slash, and its arguments.
        on_exit: called with the exit code (128 + n for signal n) of each of the worker's processes.
        on_empty: called once, when all groups (after :meth:`kill_all` all processes) have ended.
        on_unkillable: called after :meth:`kill_all` if a remaining process has switched to another
            user, so that the agent cannot signal it.
        on_stuck: called with the seconds since :meth:`kill_all` and with the processes that have
            not ended since (number, program, state), at growing intervals. They wait in the kernel.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        on_exit: Callable[[int], None],
        on_empty: Callable[[], None],
        on_unkillable: Callable[[], None],
        on_stuck: Callable[[float, list[str]], None] = lambda _seconds, _processes: None,
    ) -> None:
        self._command = list(command)
        self._on_exit = on_exit
        self._on_empty = on_empty
        self._on_unkillable = on_unkillable
        self._on_stuck = on_stuck
        self._first = os.getpid() == 1
        self._running: set[int] = set()
        self._groups: set[int] = set()
        self._aside: dict[int, Callable[[int], None]] = {}
        self._killing = False
        self._killed_at = 0.0
        self._poll, self._stuck = Timer(), Timer()

    def attach(self, on_signal: Callable[[int], None]) -> None:
        """Install the process's signal handling on the running loop, permanently.

        Args:
            on_signal: called with the number of each signal to forward.
        """
        # Like the loop's add_signal_handler(), without the inspect module that it imports.
        if not self._first:
            _adopt_orphans()
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *FORWARDED):
            # Signals that the parent process ignored stay ignored, for the worker too.
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _wake)
        asyncio.get_running_loop().add_reader(reader, self._signals, reader, on_signal)
        self.collect()  # children that ended before

    def _signals(self, reader: int, on_signal: Callable[[int], None]) -> None:
        """Handle the received signals in order."""
        for number in os.read(reader, 4096):
            if number == signal.SIGCHLD:
                self.collect()
            else:
                on_signal(number)

    def start(self, environ: Mapping[bytes, bytes]) -> int:
        """Start a process of the worker with the agent's streams, working directory and limits.

        Args:
            environ: its whole environment.

        Returns:
            Its process id, which is its group's.

        Raises:
            OSError: it could not be started; ``on_exit`` is not called.
        """
        self._killing = False
        pid = self._spawn(environ, self._command)
        self._take(pid)
        return pid

    def start_aside(
        self,
        environ: Mapping[bytes, bytes],
        on_exit: Callable[[int], None],
        *,
        command: Sequence[str] = (),
        output: int | None = None,
    ) -> int:
        """Start a process that belongs to no worker until it is adopted.

        Args:
            environ: its whole environment.
            on_exit: called with its exit code if it ends before that.
            command: its program and arguments, if not those of the worker.
            output: descriptor for its standard output and standard error, if not the agent's; it
                then has no standard input.

        Raises:
            OSError: it could not be started.
        """
        pid = self._spawn(environ, command or self._command, output)
        self._aside[pid] = on_exit
        return pid

    def keep_aside(self, pid: int, on_exit: Callable[[int], None]) -> None:
        """Keep a child of the agent, in a group of its own, aside; ``on_exit`` as before."""
        self._aside[pid] = on_exit

    def adopt(self, pid: int) -> bool:
        """Make a process that was aside one of the worker's; return False if it has ended."""
        # It has ended since it was ready, and its end was not reaped yet.
        if self._aside.pop(pid, None) is None:
            return False
        self._killing = False
        self._take(pid)
        return True

    def kill_aside(self, pid: int) -> None:
        """SIGKILL a process that is aside and its descendants; ``on_exit`` is called."""
        if pid in self._aside:
            _send((-pid, *_descendants(_parents(), pid)), signal.SIGKILL)

    def _spawn(
        self, environ: Mapping[bytes, bytes], command: Sequence[str], output: int | None = None
    ) -> int:
        streams: list[tuple[int, ...] | tuple[int, int, str, int, int]] = []
        if output is not None:
            streams = [
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                *((os.POSIX_SPAWN_DUP2, output, number) for number in (1, 2)),
            ]
        pid = os.posix_spawnp(
            command[0],
            list(command),
            environ,
            file_actions=streams,
            # A group of its own: signals to the worker must not reach the agent, and kill what a
            # shell starts.
            setpgroup=0,
            setsigmask=(),
            # Python ignores these; a program that inherits that would, for example, never end on a
            # broken pipe.
            setsigdef=_IGNORED_BY_PYTHON,
        )
        self._groups.discard(pid)  # an older group of that number has ended
        return pid

    def _take(self, pid: int) -> None:
        self._running.add(pid)
        self._groups.add(pid)
        if len(self._running) == 1 and os.isatty(0):
            # As a background group it could not read from the terminal.
            with suppress(OSError):
                signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                os.tcsetpgrp(0, pid)

    @property
    def running(self) -> bool:
        """Return True if any of the worker's processes runs."""
        return bool(self._running)

    def send(self, number: int) -> None:
        """Send a signal to those of the worker's process groups that can be signalled."""
        self._forget_groups()
        _send([-group for group in self._groups], number)

    def kill_all(self) -> None:
        """SIGKILL the groups and all descendants; as a container's first process, all others.

        Processes aside are spared, for ``SPARED_FOR_S`` if the rest does not end.
        """
        self._killing = True
        self._killed_at = asyncio.get_running_loop().time()
        self.send(signal.SIGKILL)
        self._kill_others()
        asyncio.get_running_loop().call_soon(self.collect)
        self._stuck.start(STUCK_AFTER_S, self._report_stuck, STUCK_AFTER_S)

    def _report_stuck(self, pause: float) -> None:
        """Report processes that have not ended since they were killed."""
        left = self._running | set(self._others()[0])
        found = [text for pid in sorted(left) if (text := _description(pid))]
        seconds = asyncio.get_running_loop().time() - self._killed_at
        self._on_stuck(seconds, found[:MAX_NAMED])
        pause = min(2 * pause, STUCK_EVERY_S)
        self._stuck.start(pause, self._report_stuck, pause)

    def _disarm(self) -> None:
        self._poll.cancel()
        self._stuck.cancel()

    def _forget_groups(self) -> None:
        """Forget groups that have ended: the kernel may reuse their numbers for other processes.

        It cannot do so while the first process of a group has not been reaped, or while any other
        process is in the group. Such a process is in our session, which it could only have left by
        leaving the group, while a group of another container is in that container's.
        """
        errors = {group: _signal_error(-group) for group in self._groups - self._running}
        self._groups -= {group for group, error in errors.items() if error == errno.ESRCH}
        if signalled := {group for group, error in errors.items() if not error}:
            self._groups -= signalled - _groups_of_session(os.getsid(0))

    @property
    def _sparing(self) -> bool:
        """Return True while processes aside are spared; otherwise the kernel kills all."""
        late = asyncio.get_running_loop().time() > self._killed_at + SPARED_FOR_S
        return bool(self._aside) and not late

    def _kill_others(self) -> None:
        if self._sparing:
            others: Sequence[int] = self._others()[0]
        else:
            others = (-1,) if self._first else _descendants(_parents())
        _send(others, signal.SIGKILL)

    def _others(self) -> tuple[list[int], bool]:
        """Return all processes except ours and those aside; and True if these are certainly all.

        A descendant that is not aside is one of our children, or below one. We reap them ourselves,
        after the scan, so that child is seen, as a zombie at least. Processes of other containers
        may end during any scan and say nothing.

        As the first process we look for all others, those that were started from outside too. Each
        that exists when the scan begins is seen, or has started another one before it ended, whose
        number is higher: the kernel counts up, and /proc is read in ascending order. Only if the
        kernel's count wraps around meanwhile could one be missed, or one number stand for two
        processes; the last number shows that. For a process that was listed and has ended, its
        parent and any children that the scan has missed are unknown.
        """
        before = _last_number()
        parents = _parents()
        certain = _last_number() >= before and _GONE not in parents.values()
        spared = {each for pid in self._aside for each in (pid, *_descendants(parents, pid))}
        others = [pid for pid in parents if pid != 1] if self._first else _descendants(parents)
        return [pid for pid in others if pid not in spared], certain or not self._first

    def collect(self) -> None:
        """Collect every child that has ended; report each end and empty groups.

        Called at each SIGCHLD, and where one may still be pending.
        """
        childless = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                childless = True
                break
            if not pid:
                break
            self._ended(pid, os.waitstatus_to_exitcode(status))
        if self._running:
            return
        if self._gone(childless=childless):
            self._groups.clear()
            self._disarm()
            # Processes aside that end later, health commands for one, come here too: however late
            # that is, nothing of the worker is left that standby processes would have to die for.
            self._killed_at = float("inf")
            self._on_empty()
        elif self._killing and self._is_unkillable():
            self._killing = False
            self._disarm()
            self._on_unkillable()
        elif not self._poll.runs:
            self._poll.start(POLL_S, self._look_again)

    def _ended(self, pid: int, code: int) -> None:
        code = code if code >= 0 else 128 - code
        if pid in self._running:
            self._running.discard(pid)
            self._on_exit(code)
        elif pid in self._aside:
            self._aside.pop(pid)(code)

    def _gone(self, *, childless: bool) -> bool:
        if self._killing:  # before that, a remaining group is awaited for its grace period
            self._forget_groups()
        self._groups = {each for each in self._groups if _signal_error(-each) != errno.ESRCH}
        if self._groups:
            return False
        if not self._killing:
            return True
        return self._others() == ([], True) if self._sparing else childless

    def _is_unkillable(self) -> bool:
        """Return True if a process that should be killed now belongs to another user."""
        if asyncio.get_running_loop().time() < self._killed_at + UNKILLABLE_AFTER_S:
            return False
        left = [*(-group for group in self._groups), *self._others()[0]]
        return any(_signal_error(each) == errno.EPERM for each in left)

    def _look_again(self) -> None:
        if self._killing and (not self._first or self._aside):
            self._kill_others()  # processes that were started meanwhile
        self.collect()


def _wake(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the interpreter has written the number to the wake-up pipe."""


def _adopt_orphans() -> None:
    """Become the parent of all orphaned descendants, if this Python has ctypes."""
    try:
        import ctypes  # only here: it costs start-up time, and the agent's image has none

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return


def _send(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes, and to groups if negative, as far as we may and they exist."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _signal_error(pid: int) -> int | None:
    """Return the error number of a signal to a process, or to a group if negative.

    ``ESRCH`` if it has ended, ``EPERM`` if it belongs to another user; ``None`` if there is no
    error.
    """
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno
    return None


def _stat(pid: int) -> list[bytes]:
    """Return the fields of a process in /proc: its name, then state, parent, group, session etc.

    Returns:
        An empty list if it does not exist or may not be read.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - start-up
            # The name of the program, in parentheses, may contain anything.
            head, _, rest = file.read().rpartition(b")")
    except OSError:
        return []
    return [head.partition(b"(")[2], *rest.split()]


def _visible() -> dict[int, list[bytes]]:
    """Return the fields of each visible process, in ascending order of their numbers."""
    names = os.listdir("/proc")  # noqa: PTH208 - start-up
    return {int(name): _stat(int(name)) for name in names if name.isdigit()}


def _description(pid: int) -> str:
    """Return a process's description for the log, such as ``123 python3 D``; "" if it has ended."""
    fields = _stat(pid)
    return f"{pid} {fields[0].decode('ascii', 'replace')} {fields[1].decode()}" if fields else ""


def _groups_of_session(session: int) -> set[int]:
    """Return the process groups of a session, as far as its processes are visible."""
    known = filter(None, _visible().values())
    return {int(fields[3]) for fields in known if int(fields[4]) == session}


def _parents() -> dict[int, int]:
    """Return the parent of each visible process, or ``_GONE``."""
    return {pid: int(fields[2]) if fields else _GONE for pid, fields in _visible().items()}


def _last_number() -> int:
    """Return the number of the last started process; 0 if the kernel does not show it."""
    try:
        with open("/proc/loadavg", "rb") as file:  # noqa: PTH123 - start-up
            return int(file.read().split()[4])
    except (OSError, IndexError, ValueError):
        return 0


def _descendants(parents: Mapping[int, int], root: int = 0) -> list[int]:
    """Return all descendants of a process; of this one by default."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found = [root or os.getpid()]
    for pid in found:
        found += children.get(pid, ())
    return found[1:]


def start_with_channel(
    start: Callable[[Mapping[bytes, bytes]], int], environ: Mapping[bytes, bytes], variable: bytes
) -> tuple[int, socket.socket]:
    """Start a process that inherits one end of a pair of sockets, whose number a variable names.

    Returns:
        Its process id and the other end, which does not block.

    Raises:
        OSError: the process could not be started.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.set_inheritable(True)
        try:
            pid = start({**environ, variable: str(theirs.fileno()).encode()})
        except OSError:
            ours.close()
            raise
    ours.setblocking(False)
    return pid, ours


def exit_code_of(error: OSError) -> int:
    """Return the exit code for a command that could not be started."""
    return EXIT_NOT_FOUND if error.errno == errno.ENOENT else EXIT_NOT_EXECUTABLE


def original_environ() -> dict[bytes, bytes]:
    """Return the environment this process was started with, byte for byte.

    ``os.environ`` differs from it: in the C locale Python sets ``LC_CTYPE`` for itself, which the
    worker must not see. Variables that the launcher has hidden from the dynamic linker are
    restored.
    """
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - pathlib costs start-up time
            pairs = [entry.partition(b"=")[::2] for entry in file.read().split(b"\0") if entry]
    except OSError:
        pairs = list(os.environb.items())
    prefix = SET_ASIDE
    return {name.removeprefix(prefix): value for name, value in pairs}


SET_ASIDE: Final = b"JOBSETPY_SET_ASIDE_"
"""Prefix that the launcher gives to variables that our own dynamic linker must ignore."""
