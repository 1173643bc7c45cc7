r"""Standby processes: processes of the worker's command that have prepared themselves and wait.

Imports take nine tenths of a supervised restart of a training job. A process that has done them
before the failure continues within milliseconds when the barrier lifts.

The contract, in any language: the variable ``JOBSET_STANDBY_FD`` names one end of a pair of
sockets. The program prepares, writes ``ready\n``, and reads one line. On ``run epoch=E NAME=VALUE
...\n`` it continues, in epoch ``E`` and with the variables of the words that follow, if there are
any; at the end of the file it exits with 0. ``preload.py`` keeps the contract for Python programs
that do not implement it.

:class:`Standby` decides, without processes and clock; :class:`Standbys` executes. A standby process
never fails its pod: its failures are logged, and the worker is started as if there were none.
"""

from __future__ import annotations

import asyncio
import enum
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, assert_never

import msgspec

from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.protocol.settings import ConfigurationError
from jobsetpy.agent.supervisor.worker.processes import Processes, start_with_channel
from jobsetpy.agent.supervisor.worker.settings import (
    EPOCH_VARIABLE,
    memory_file,
    seconds_of,
)
from jobsetpy.aio import Timer
from jobsetpy.api.python_command import module_names, split_python

FD_VARIABLE: Final = b"JOBSET_STANDBY_FD"
READY: Final = b"ready\n"
MAX_BACKOFF_S: Final = 600.0
"""Maximum seconds before the next standby process if one has ended by itself."""

LEAVE_S: Final = 1.0
"""Time between a standby process closing its descriptor and SIGKILL."""

DEFAULT_DELAY_S: Final = 30.0
DEFAULT_READY_S: Final = 120.0
LAUNCHER: Final = "preload.py"
LAUNCHED: Final = (
    "agent/supervisor/standby/preload.py",
    "agent/supervisor/standby/learned.py",
    "warm/torch.py",
    "warm/jax.py",
)
"""Files of this package that the worker image's own Python runs."""

AUTO: Final = "auto"
"""Entry in a list of modules for those that the program was seen to import."""

CGROUPS: Final = "/sys/fs/cgroup"


class StandbyRules(msgspec.Struct, frozen=True, kw_only=True):
    """User's settings for standby processes.

    Args:
        delay_s: seconds between a start of the worker and that of its standby process, which would
            compete with it.
        ready_s: timeout for preparing, in seconds. A standby process that takes longer is killed.
        modules: comma-separated modules for ``preload.py`` to import; it then keeps the contract.
            ``auto`` stands for those that the program imports. Without modules, a process that is
            not ready in time is assumed not to know the contract and to train: no other one is
            started.
        optional: True if the program keeps the contract when nothing can be preloaded for it.
    """

    delay_s: float = DEFAULT_DELAY_S
    ready_s: float = DEFAULT_READY_S
    modules: str = ""
    optional: bool = False

    @property
    def preloaded(self) -> bool:
        """Return True if ``preload.py`` keeps the contract."""
        return bool(self.modules)


def load(environ: Mapping[str, str]) -> StandbyRules | None:
    """Read ``WORKER_STANDBY``, ``WORKER_PRELOAD`` and the two times; ``None`` for no standby.

    Raises:
        ConfigurationError: a value cannot be used; the message names the variable.
    """
    choice, given = environ.get("WORKER_STANDBY", ""), environ.get("WORKER_PRELOAD", "")
    if choice not in {"", "on", "off", "program"}:
        raise ConfigurationError(f'WORKER_STANDBY must be "on", "off" or "program": {choice!r}')
    modules = module_names(given) if given else []
    if modules is None:
        raise ConfigurationError(f"WORKER_PRELOAD must be modules, with commas: {given!r}")
    if choice == "off":
        return None
    if choice == "program":
        modules = []
    return StandbyRules(
        delay_s=seconds_of(environ, "WORKER_STANDBY_DELAY_SECONDS", DEFAULT_DELAY_S),
        ready_s=seconds_of(environ, "WORKER_STANDBY_READY_SECONDS", DEFAULT_READY_S),
        modules=",".join(modules) if modules or choice == "program" else AUTO,
        optional=not modules and choice != "program",
    )


def with_launcher(command: Sequence[str], modules: str, learned: str = "") -> list[str] | str:
    """Return the command with ``preload.py`` before the program; as a text, the reason against it.

    Args:
        command: the worker's command.
        modules: comma-separated names, as in :class:`StandbyRules`.
        learned: file in memory for the names that the program imports.
    """
    parts = split_python(command)
    if isinstance(parts, str):
        return parts
    launcher = f"{__file__.rpartition('/')[0]}/{LAUNCHER}"
    names = modules.split(",")
    given = ",".join(name for name in names if name != AUTO)
    if AUTO in names:
        given += f"@{learned}"
    return [*parts.interpreter, launcher, given, *parts.program]


def learned_file(environ: Mapping[str, str]) -> str:
    """Return the path of the file of learned imports, given the supervisor's own environment.

    Raises:
        ConfigurationError: the path is not absolute.
    """
    namespace, pod = environ.get("NAMESPACE", ""), environ.get("POD_NAME", "")
    return memory_file(environ, "WORKER_IMPORTS_FILE", "imports", namespace=namespace, pod=pod)


class StandbyPhase(enum.Enum):
    """Phase of a standby process."""

    NONE = "none"
    PREPARING = "preparing"
    READY = "ready"
    LEAVING = "leaving"
    """The process has closed its descriptor and cannot be released: it has to end."""
    OFF = "off"
    """No other process is started: the program does not keep the contract."""


class Wait(msgspec.Struct, frozen=True):
    """Call :meth:`Standby.due` after ``seconds``; replaces an earlier wait."""

    seconds: float


class Spawn(msgspec.Struct, frozen=True):
    """Start the standby process."""


class Kill(msgspec.Struct, frozen=True):
    """SIGKILL the standby process."""


StandbyAction = Wait | Spawn | Kill


class Standby:
    """Standby of one process of the worker, through all its epochs.

    It is a standby process until :meth:`take` releases it. From then on it is the worker and ends
    with it, so a process of an earlier epoch never counts as a standby process.

    Args:
        rules: the user's settings.
    """

    __slots__ = ("_failures", "_rules", "phase")

    def __init__(self, rules: StandbyRules) -> None:
        self._rules = rules
        self._failures = 0
        self.phase = StandbyPhase.NONE

    def take(self) -> bool:
        """Release the standby process as the worker; return False if none is ready."""
        if self.phase is not StandbyPhase.READY:
            return False
        self.phase = StandbyPhase.NONE
        self._failures = 0
        return True

    def closed(self) -> list[StandbyAction]:
        """Handle a closed descriptor, or a failed release: its end should follow."""
        if self.phase is StandbyPhase.OFF:
            return []
        self.phase = StandbyPhase.LEAVING
        return [Wait(LEAVE_S)]

    def worker_started(self) -> list[StandbyAction]:
        """Schedule a standby process: a worker runs."""
        return [Wait(self._rules.delay_s)] if self.phase is StandbyPhase.NONE else []

    def parked(self) -> list[StandbyAction]:
        """Schedule a standby process: no worker runs that it would compete with."""
        return [Wait(0)] if self.phase is StandbyPhase.NONE and not self._failures else []

    def due(self, *, needed: bool) -> list[StandbyAction]:
        """Handle the end of the last ``Wait``.

        Args:
            needed: True if a worker runs and there is memory for another one.
        """
        if self.phase is StandbyPhase.PREPARING:
            if not self._rules.preloaded:
                self.phase = StandbyPhase.OFF
            return [Kill()]
        if self.phase is StandbyPhase.LEAVING:
            return [Kill()]
        if self.phase is not StandbyPhase.NONE or not needed:
            return []
        self.phase = StandbyPhase.PREPARING
        return [Spawn(), Wait(self._rules.ready_s)]

    def ready(self) -> None:
        """Record that the standby process has prepared itself."""
        if self.phase is StandbyPhase.PREPARING:
            self.phase = StandbyPhase.READY

    def broke_contract(self) -> list[StandbyAction]:
        """Kill a process that wrote something outside the contract."""
        self.phase = StandbyPhase.OFF
        return [Kill()]

    def ended(self) -> list[StandbyAction]:
        """Schedule another one with growing delays: it has ended, or could not be started."""
        if self.phase is StandbyPhase.OFF:
            return []
        self.phase = StandbyPhase.NONE
        self._failures += 1
        pause = self._rules.delay_s * 2 ** min(self._failures, 20)
        return [Wait(min(max(pause, 1.0), MAX_BACKOFF_S))]


class Standbys:
    """Standby processes, one for each process of the worker.

    Args:
        processes: starts them, aside from the worker.
        environs: the environment of each of the worker's processes.
        rules: the user's settings.
        log: log for failures.
        worker_runs: returns True while a worker runs, or the pod is parked.
        on_change: called when a standby process is ready or has ended, until the pod ends.
    """

    def __init__(
        self,
        processes: Processes,
        environs: Sequence[Mapping[bytes, bytes]],
        rules: StandbyRules,
        *,
        log: Log,
        worker_runs: Callable[[], bool],
        on_change: Callable[[], None],
    ) -> None:
        self.processes = processes
        self.rules = rules
        self.log = log
        self._on_change = on_change
        self._worker_runs = worker_runs
        self._closed = False
        self._small = False
        self._each = [
            StandbyProcess(self, number, environ) for number, environ in enumerate(environs)
        ]

    def worker_started(self) -> None:
        """Schedule standby processes: the worker's processes run."""
        for each in self._each:
            each.do(each.standby.worker_started())

    def parked(self) -> None:
        """Schedule standby processes: the pod has no seat, and waits for one."""
        for each in self._each:
            each.do(each.standby.parked())

    @property
    def ready(self) -> bool:
        """Return True if each process has a standby process that is ready, as far as it can."""
        settled = {StandbyPhase.READY, StandbyPhase.OFF}
        return all(each.standby.phase in settled for each in self._each)

    def changed(self) -> None:
        """Report a change of ``ready``; not while the pod ends, which thousands may do together."""
        if not self._closed:
            self._on_change()

    def use(self, environs: Sequence[Mapping[bytes, bytes]]) -> None:
        """Set the environment of each of the worker's processes, from now on."""
        for each, environ in zip(self._each, environs, strict=True):
            each.environ = environ

    def take(
        self,
        number: int,
        variables: Mapping[str, str],
        keep: Callable[[socket.socket], None] | None = None,
    ) -> int:
        """Release a standby process as one of the worker's processes.

        Args:
            number: index of that process, from 0.
            variables: variables that it gets now, the epoch among them; none has white space.
            keep: called with its descriptor, which is otherwise closed.

        Returns:
            Its process id; 0 if none is ready and the command has to be started.
        """
        return self._each[number].take(variables, keep)

    def close(self, *, kill: bool = False) -> None:
        """End all standby processes and start no other: the pod ends.

        Args:
            kill: True to end them immediately with SIGKILL.
        """
        self._closed = True
        for each in self._each:
            each.close(kill=kill)

    def needed(self) -> bool:
        """Return True if a standby process is useful now and there is memory for it."""
        if self._closed or not self._worker_runs():
            return False
        limit, used = memory()
        # Its memory is not known beforehand; each process now uses at least as much.
        phases = [each.standby.phase for each in self._each]
        share = used // (len(phases) + phases.count(StandbyPhase.READY))
        small = 0 < limit < used + share * (phases.count(StandbyPhase.PREPARING) + 1)
        if small and not self._small:
            self.log(
                "no standby: the container's limit of memory would not hold the worker twice",
                level="warning",
                limit=limit,
                used=used,
            )
        self._small = small
        return not small


class StandbyProcess:
    """Process of one standby, kept according to its rules.

    Args:
        standbys: what it shares with those of the other processes.
        number: index of the worker's process, from 0.
        environ: environment of that process.
    """

    def __init__(self, standbys: Standbys, number: int, environ: Mapping[bytes, bytes]) -> None:
        self._standbys = standbys
        self._processes = standbys.processes
        self._log = standbys.log
        self._number = number
        self.environ = environ
        self._began_with = environ
        self.standby = Standby(standbys.rules)
        self._pid = 0
        self._socket: socket.socket | None = None
        self._said = b""
        self._timer = Timer()

    def take(
        self, variables: Mapping[str, str], keep: Callable[[socket.socket], None] | None
    ) -> int:
        """Release it and return its process id; 0 if that is not possible."""
        pid, channel = self._pid, self._socket
        if channel is None or not self.standby.take():
            return 0
        try:
            channel.send(release_line({**self._changed(), **variables}))
            gone = not self._processes.adopt(pid)
        except OSError:
            gone = True
            self.do(self.standby.closed())
        if keep is not None and not gone:
            asyncio.get_running_loop().remove_reader(channel)
            self._socket = None
            keep(channel)
        self._disconnect()
        if gone:
            return 0
        self._pid = 0
        return pid

    def _changed(self) -> dict[str, str]:
        """Return variables that have changed since it was started, with its pod's seat."""
        return {
            os.fsdecode(name): os.fsdecode(value)
            for name, value in self.environ.items()
            if self._began_with.get(name) != value
        }

    def close(self, *, kill: bool) -> None:
        """End the standby process."""
        self._timer.cancel()
        self._disconnect()
        if kill:
            self._processes.kill_aside(self._pid)

    def do(self, actions: Sequence[StandbyAction]) -> None:
        """Execute actions of its rules."""
        for action in actions:
            match action:
                case Wait(seconds):
                    self._timer.start(seconds, self._due)
                case Spawn():
                    self._spawn()
                case Kill():
                    self._processes.kill_aside(self._pid)
                case _:
                    assert_never(action)

    def _due(self) -> None:
        if self.standby.phase is StandbyPhase.PREPARING:
            self._log(
                "the standby was not ready in time and is killed",
                level="warning",
                process=self._number,
                seconds=self._standbys.rules.ready_s,
            )
        elif self.standby.phase is StandbyPhase.LEAVING:
            self._log(
                "the standby has closed its descriptor and does not end: it is killed",
                level="warning",
                process=self._number,
            )
        self.do(self.standby.due(needed=self._standbys.needed()))

    def _spawn(self) -> None:
        start = partial(self._processes.start_aside, on_exit=self._ended)
        self._began_with = self.environ
        try:
            self._pid, channel = start_with_channel(start, self.environ, FD_VARIABLE)
        except OSError as error:
            self._log("the standby cannot be started", level="warning", error=str(error))
            asyncio.get_running_loop().call_soon(self._ended, 0)
            return
        self._said = b""
        self._socket = channel
        asyncio.get_running_loop().add_reader(channel, self._hear, channel)
        self._log("standby started", process=self._number, pid=self._pid)

    def _hear(self, channel: socket.socket) -> None:
        """Read its messages; after a closed connection its end is expected."""
        with suppress(BlockingIOError):
            said = b""
            with suppress(ConnectionError):
                said = channel.recv(256)
            if not said:
                asyncio.get_running_loop().remove_reader(channel)
                self.do(self.standby.closed())
                return
            self._said += said
        if self._said == READY and self.standby.phase is StandbyPhase.PREPARING:
            self._timer.cancel()
            self.standby.ready()
            self._log("standby ready", process=self._number, pid=self._pid)
            self._standbys.changed()
        elif not READY.startswith(self._said):
            self._log(
                "the standby says something that is not in its contract, and is killed",
                level="warning",
                process=self._number,
                said=self._said[:64].decode("ascii", "replace"),
            )
            self._timer.cancel()
            self.do(self.standby.broke_contract())

    def _ended(self, code: int) -> None:
        """Handle its end without a release."""
        phase = self.standby.phase
        self._pid = 0
        self._timer.cancel()
        self._disconnect()
        actions = self.standby.ended()
        if phase is StandbyPhase.OFF:
            why = "it does not keep the contract"
            self._log("no other standby is started", level="warning", process=self._number, why=why)
        else:
            self._log(
                "the standby has ended", level="warning", process=self._number, exit_code=code
            )
        self.do(actions)
        self._standbys.changed()

    def _disconnect(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None


def release_line(variables: Mapping[str, str]) -> bytes:
    """Return the line that releases a standby process.

    Args:
        variables: its variables, the epoch among them, which comes first and has a name of its own.
    """
    words = {"epoch": variables[EPOCH_VARIABLE], **variables}
    del words[EPOCH_VARIABLE]
    return " ".join(["run", *(f"{name}={value}" for name, value in words.items())]).encode() + b"\n"


def memory(cgroups: str = CGROUPS) -> tuple[int, int]:
    """Return the container's memory limit (0 for none) and its memory that cannot be reclaimed.

    Both in bytes, from its own cgroup (version 2, as kubelets of Kubernetes 1.35 and later require
    by default). Limits of the whole pod or of the node are not visible from here.
    """
    used = _number(f"{cgroups}/memory.current")
    fields = dict(line.split(b" ", 1) for line in _read(f"{cgroups}/memory.stat").splitlines())
    cached = int(fields.get(b"inactive_file", b"0"))
    return _number(f"{cgroups}/memory.max"), max(0, used - cached)


def _number(path: str) -> int:
    text = _read(path).strip()
    return int(text) if text.isdigit() else 0


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs memory
            return file.read()
    except OSError:
        return b""
