"""The worker's processes: starting, signalling, reaping.

The agent is the container's first process, to which the kernel gives every orphan. All children are
reaped in one place, by ``waitpid(-1)`` at each SIGCHLD; ``asyncio.subprocess`` and its watcher are
not used, because two reapers steal each other's results.

In a pod with ``shareProcessNamespace`` the agent is not the first process. There it asks the kernel
for the orphans (as a "child subreaper"; the launcher has done so, where it is used), and kills its
own descendants only: the namespace has other containers' processes.

The worker has a process group of its own, so that what a shell started on its behalf gets the same
signals: a shell that is not the first process dies of SIGTERM at once and passes nothing on.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

EXIT_NOT_FOUND: Final = 127
EXIT_NOT_EXECUTABLE: Final = 126
"""What shells give for a command that cannot be run."""

POLL_S: Final = 0.02
"""Between two looks at a process group that has processes which are not our children."""

UNKILLABLE_AFTER_S: Final = 1.0
"""Between killing everything and asking whether what is left can be killed at all: a process of
another user may be about to end by itself, since its parent has gone."""

_PR_SET_CHILD_SUBREAPER: Final = 36

FORWARDED: Final = tuple(
    number
    for number in sorted(signal.valid_signals())
    if number in {1, 2, 3, 10, 12, 14, 15, 18, 28, 30} or number >= signal.SIGRTMIN
)
"""HUP, INT, QUIT, USR1, USR2, ALRM, TERM, CONT, WINCH, PWR and the real-time signals: those that
other processes send on purpose, and that a process may catch."""

_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTOU)
"""Python's own dispositions (and one of ours), which a program it starts would inherit."""


class Processes:
    """At most one worker at a time, with all its descendants.

    Args:
        command: the program, looked up in ``PATH`` unless it has a slash, and its arguments.
        environ: the worker's whole environment.
        on_exit: called with the worker's exit code (128 + n for signal n).
        on_empty: called once, when the group (after :meth:`kill_all` everything) is gone.
        on_unkillable: called after :meth:`kill_all`, when a process is left that has taken on
            another user's identity, so that no signal of ours can ever end it.
    """

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[bytes, bytes],
        *,
        on_exit: Callable[[int], None],
        on_empty: Callable[[], None],
        on_unkillable: Callable[[], None],
    ) -> None:
        self._command = list(command)
        self._environ = environ
        self._on_exit = on_exit
        self._on_empty = on_empty
        self._on_unkillable = on_unkillable
        self._first = os.getpid() == 1
        self._pid = 0
        self._group = 0
        self._killing = False
        self._killed_at = 0.0
        self._poll: asyncio.TimerHandle | None = None

    def attach(self, on_signal: Callable[[int], None]) -> None:
        """Take over the process's signals, on the running loop, for good.

        Args:
            on_signal: called with the number of each signal that is to be forwarded.
        """
        # What the loop's add_signal_handler() does, without the inspect module that it imports.
        if not self._first:
            _adopt_orphans()
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *FORWARDED):
            # What whoever started us had ignored stays so, for the worker too.
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _wake)
        asyncio.get_running_loop().add_reader(reader, self._signals, reader, on_signal)
        self._reap()  # what ended before

    def _signals(self, reader: int, on_signal: Callable[[int], None]) -> None:
        """Act on the signals that have come, in order."""
        for number in os.read(reader, 4096):
            if number == signal.SIGCHLD:
                self._reap()
            else:
                on_signal(number)

    def start(self) -> OSError | None:
        """Start the worker with our standard streams, working directory and limits.

        Returns:
            Why it could not be started; then ``on_exit`` has to be thought of by the caller, and
            the group counts as empty.
        """
        self._killing = False
        try:
            self._pid = os.posix_spawnp(
                self._command[0],
                self._command,
                self._environ,
                setpgroup=0,
                setsigmask=(),
                setsigdef=_IGNORED_BY_PYTHON,
            )
        except OSError as error:
            self._pid = self._group = 0
            return error
        self._group = self._pid
        if os.isatty(0):
            # As a background group it could not read from the terminal.
            with suppress(OSError):
                signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                os.tcsetpgrp(0, self._group)
        return None

    @property
    def pid(self) -> int:
        """Of the worker's first process; 0 when there is none."""
        return self._pid

    def send(self, number: int) -> None:
        """Send a signal to the worker's group, if there still is one that may be sent to."""
        if self._group:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, number)

    def kill_all(self) -> None:
        """SIGKILL the group and all descendants; as a container's first process, all others."""
        self._killing = True
        self._killed_at = asyncio.get_running_loop().time()
        self.send(signal.SIGKILL)
        self._kill_others()
        asyncio.get_running_loop().call_soon(self._reap)

    def _kill_others(self) -> None:
        for pid in (-1,) if self._first else _descendants():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Collect every child that has ended; tell of the worker's end and of an empty group."""
        childless = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                childless = True
                break
            if not pid:
                break
            if pid == self._pid:
                self._pid = 0
                code = os.waitstatus_to_exitcode(status)
                self._on_exit(code if code >= 0 else 128 - code)
        if self._pid:
            return
        if self._gone(childless=childless):
            self._group = 0
            self._cancel_poll()
            self._on_empty()
        elif self._killing and self._is_unkillable():
            self._killing = False
            self._cancel_poll()
            self._on_unkillable()
        elif self._poll is None:
            self._poll = asyncio.get_running_loop().call_later(POLL_S, self._look_again)

    def _gone(self, *, childless: bool) -> bool:
        if self._group:
            try:
                os.killpg(self._group, 0)
            except ProcessLookupError:
                pass
            except PermissionError:
                return False  # still there, as another user
            else:
                return False
        return childless if self._killing else True

    def _is_unkillable(self) -> bool:
        """Whether a process that was to be killed belongs to another user by now."""
        if asyncio.get_running_loop().time() < self._killed_at + UNKILLABLE_AFTER_S:
            return False
        left = [-self._group] if self._group else []
        left += [pid for pid in _parents() if pid != 1] if self._first else _descendants()
        for pid in left:
            try:
                os.kill(pid, 0)
            except PermissionError:
                return True
            except ProcessLookupError:
                pass
        return False

    def _look_again(self) -> None:
        self._poll = None
        if self._killing and not self._first:
            self._kill_others()  # those that were started meanwhile
        self._reap()

    def _cancel_poll(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None


def _wake(_number: int, _frame: FrameType | None) -> None:
    """Nothing: the interpreter has written the number to the wake-up pipe."""


def _adopt_orphans() -> None:
    """Become the parent of all descendants whose own parents end, if this Python can ask for it."""
    try:
        import ctypes  # only here: it costs start-up time, and the agent's image has none

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return


def _parents() -> dict[int, int]:
    """The parent of each process that can be seen."""
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - start-up
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                # The name of the program, in parentheses, may hold anything.
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return parents


def _descendants() -> list[int]:
    """Our children, their children, and so on."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        children.setdefault(parent, []).append(pid)
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, ())
    return found[1:]


def become(command: Sequence[str], environ: Mapping[bytes, bytes]) -> OSError:
    """Replace this process by a command, which finds signals as the container's first program does.

    Returns:
        Why it could not be started.
    """
    for number in _IGNORED_BY_PYTHON:
        if number != signal.SIGTTOU:
            signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), environ)  # noqa: S606 - that is the worker's
    except OSError as error:
        return error


def exit_code_of(error: OSError) -> int:
    """The exit code for a command that could not be started."""
    return EXIT_NOT_FOUND if error.errno == errno.ENOENT else EXIT_NOT_EXECUTABLE


def original_environ() -> dict[bytes, bytes]:
    """The environment this process was started with, byte for byte.

    ``os.environ`` differs from it: in the C locale Python sets ``LC_CTYPE`` for itself, which the
    worker must not see. Variables that the launcher put aside from the dynamic linker are put back.
    """
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - pathlib costs start-up time
            pairs = [entry.partition(b"=")[::2] for entry in file.read().split(b"\0") if entry]
    except OSError:
        pairs = list(os.environb.items())
    prefix = SET_ASIDE
    return {name.removeprefix(prefix): value for name, value in pairs}


SET_ASIDE: Final = b"JOBSETPY_SET_ASIDE_"
"""Prefix that the launcher gives to the variables that our own dynamic linker must not obey."""
