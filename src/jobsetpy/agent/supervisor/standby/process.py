r"""Standby workers: processes of the worker's command that have prepared themselves and wait.

Nine tenths of a supervised restart of a training job are its imports. A process that has done
them before the failure goes on within milliseconds when the barrier lifts.

The contract, in any language: the variable ``JOBSET_STANDBY_FD`` names one end of a pair of
sockets. The program prepares, writes ``ready\n``, and reads one line: ``run epoch=E\n``, and it
goes on; the end of the file, and it ends with 0. ``preload.py`` keeps it for Python programs that
know nothing of it.

:class:`Standby` decides, without processes and clock; :class:`Standbys` carries it out. A standby
never fails its pod: whatever goes wrong with it is a line in the log, and the worker is started as
if there were none.
"""

from __future__ import annotations

import asyncio
import enum
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, assert_never

import msgspec

from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.protocol.settings import ConfigurationError
from jobsetpy.agent.supervisor.processes import Processes
from jobsetpy.agent.supervisor.worker_settings import seconds_of
from jobsetpy.api.python_command import module_names, split_python

FD_VARIABLE: Final = b"JOBSET_STANDBY_FD"
READY: Final = b"ready\n"
MAX_BACKOFF_S: Final = 600.0
"""Between two standbys of which the first has ended by itself."""

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
"""In a list of modules: those that the program was seen to import."""

MEMORY: Final = "/dev/shm"  # noqa: S108 - in memory, and the container's own, mostly

CGROUPS: Final = "/sys/fs/cgroup"
_V2: Final = ("memory.max", "memory.current", "memory.stat", "inactive_file")
_V1: Final = (
    *("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    "total_inactive_file",
)
UNLIMITED: Final = 1 << 60
"""A limit of memory that is none: of cgroups of version 1, which know no word for it."""


class StandbyRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the user decides about standbys.

    Args:
        delay_s: so long after a start of the worker its standby is started, so as not to compete.
        ready_s: so long it may prepare. One that takes longer is killed.
        modules: names that ``preload.py`` is to import, with commas; it keeps the contract then.
            ``auto`` among them stands for those that the program imports. Without modules, one
            that is not ready in time is taken for a program that does not know the contract and
            trains: there is no other one.
        optional: whether the program keeps the contract if nothing can be preloaded for it.
    """

    delay_s: float = DEFAULT_DELAY_S
    ready_s: float = DEFAULT_READY_S
    modules: str = ""
    optional: bool = False

    @property
    def preloaded(self) -> bool:
        """Whether ``preload.py`` keeps the contract."""
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
    """The command with ``preload.py`` before the program; as a text, why that cannot be.

    Args:
        command: the worker's.
        modules: names with commas; see :class:`StandbyRules`.
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
    """Path of the file of learned imports, by the supervisor's own environment.

    The pod is in its name because pods with ``hostIPC`` share the folder.
    """
    pod = f"{environ.get('NAMESPACE', '')}.{environ.get('POD_NAME', '')}"
    return environ.get("WORKER_IMPORTS_FILE") or f"{MEMORY}/jobset-imports.{pod[-200:]}"


class StandbyPhase(enum.Enum):
    """Where a standby is."""

    NONE = "none"
    PREPARING = "preparing"
    READY = "ready"
    LEAVING = "leaving"
    """It has closed its descriptor and can be told nothing: it has to end."""
    OFF = "off"
    """There is none, and there will be none: the program does not keep the contract."""


class Wait(msgspec.Struct, frozen=True):
    """Call :meth:`Standby.due` after ``seconds``, in place of whatever was waited for before."""

    seconds: float


class Spawn(msgspec.Struct, frozen=True):
    """Start the standby."""


class Kill(msgspec.Struct, frozen=True):
    """SIGKILL the standby."""


StandbyAction = Wait | Spawn | Kill


class Standby:
    """The standby of one process of the worker, through all its epochs.

    It is the standby until :meth:`take` says that it is to run. From then on it is the worker, and
    ended with it; so a process of an earlier epoch never counts as a standby.

    Args:
        rules: what the user decided.
    """

    __slots__ = ("_failures", "_rules", "phase")

    def __init__(self, rules: StandbyRules) -> None:
        self._rules = rules
        self._failures = 0
        self.phase = StandbyPhase.NONE

    def take(self) -> bool:
        """The barrier has lifted: whether there is one that is ready, which is the worker now."""
        if self.phase is not StandbyPhase.READY:
            return False
        self.phase = StandbyPhase.NONE
        self._failures = 0
        return True

    def closed(self) -> list[StandbyAction]:
        """It has closed its descriptor, or could not be told to run: its end should follow."""
        if self.phase is StandbyPhase.OFF:
            return []
        self.phase = StandbyPhase.LEAVING
        return [Wait(LEAVE_S)]

    def worker_started(self) -> list[StandbyAction]:
        """A worker runs."""
        return [Wait(self._rules.delay_s)] if self.phase is StandbyPhase.NONE else []

    def due(self, *, needed: bool) -> list[StandbyAction]:
        """The time that was waited for is over.

        Args:
            needed: whether a worker runs, and the memory holds another one.
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
        """It has prepared itself."""
        if self.phase is StandbyPhase.PREPARING:
            self.phase = StandbyPhase.READY

    def broke_contract(self) -> list[StandbyAction]:
        """It said something that is not in the contract."""
        self.phase = StandbyPhase.OFF
        return [Kill()]

    def ended(self) -> list[StandbyAction]:
        """It has ended by itself, or could not be started: another one comes later and later."""
        if self.phase is StandbyPhase.OFF:
            return []
        self.phase = StandbyPhase.NONE
        self._failures += 1
        pause = self._rules.delay_s * 2 ** min(self._failures, 20)
        return [Wait(min(max(pause, 1.0), MAX_BACKOFF_S))]


class Standbys:
    """One standby for each process of the worker.

    Args:
        processes: where they are started, beside the worker.
        environs: the environment of each of the worker's processes.
        rules: what the user decided.
        log: what goes wrong.
        worker_runs: whether a worker runs just now.
        cgroups: where the container's memory is accounted.
    """

    def __init__(
        self,
        processes: Processes,
        environs: Sequence[Mapping[bytes, bytes]],
        rules: StandbyRules,
        *,
        log: Log,
        worker_runs: Callable[[], bool],
        cgroups: str = CGROUPS,
    ) -> None:
        self._log = log
        self._worker_runs = worker_runs
        self._cgroups = cgroups
        self._closed = False
        self._small = False
        self._each = [
            StandbyProcess(processes, environ, rules, number=number, log=log, needed=self._needed)
            for number, environ in enumerate(environs)
        ]

    def worker_started(self) -> None:
        """The worker's processes run."""
        for each in self._each:
            each.worker_started()

    def take(
        self, number: int, epoch: int, keep: Callable[[socket.socket], None] | None = None
    ) -> int:
        """Have a standby go on as one of the worker's processes.

        Args:
            number: which of them, from 0.
            epoch: that it runs in.
            keep: called with its descriptor, which is closed otherwise.

        Returns:
            Its process id; 0 if none is ready, and the command is to be started.
        """
        return self._each[number].take(epoch, keep)

    def close(self, *, kill: bool = False) -> None:
        """The pod ends: have all of them end, and start no other one.

        Args:
            kill: at once, whatever they do.
        """
        self._closed = True
        for each in self._each:
            each.close(kill=kill)

    def _needed(self) -> bool:
        """Whether a standby is of use now, and there is room for it."""
        if self._closed or not self._worker_runs():
            return False
        limit, used = memory(self._cgroups)
        # What one will need is not known before; what each process uses now is at least as much.
        phases = [each.phase for each in self._each]
        share = used // (len(phases) + phases.count(StandbyPhase.READY))
        small = 0 < limit < used + share * (phases.count(StandbyPhase.PREPARING) + 1)
        if small and not self._small:
            self._log(
                "no standby: the container's limit of memory would not hold the worker twice",
                level="warning",
                limit=limit,
                used=used,
            )
        self._small = small
        return not small


class StandbyProcess:
    """Keeps one standby, as its rules say."""

    def __init__(
        self,
        processes: Processes,
        environ: Mapping[bytes, bytes],
        rules: StandbyRules,
        *,
        number: int,
        log: Log,
        needed: Callable[[], bool],
    ) -> None:
        self._processes = processes
        self._environ = environ
        self._standby = Standby(rules)
        self._ready_s = rules.ready_s
        self._number = number
        self._log = log
        self._needed = needed
        self._pid = 0
        self._socket: socket.socket | None = None
        self._said = b""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def phase(self) -> StandbyPhase:
        """Where it is."""
        return self._standby.phase

    def worker_started(self) -> None:
        """The worker's processes run."""
        self._do(self._standby.worker_started())

    def take(self, epoch: int, keep: Callable[[socket.socket], None] | None) -> int:
        """Have it go on; its process id, 0 if that cannot be."""
        pid, channel = self._pid, self._socket
        if channel is None or not self._standby.take():
            return 0
        try:
            channel.send(f"run epoch={epoch}\n".encode())
            gone = not self._processes.adopt(pid)
        except OSError:
            gone = True
            self._do(self._standby.closed())
        if keep is not None and not gone:
            asyncio.get_running_loop().remove_reader(channel)
            self._socket = None
            keep(channel)
        self._disconnect()
        if gone:
            return 0
        self._pid = 0
        return pid

    def close(self, *, kill: bool) -> None:
        """Have it end."""
        self._disarm()
        self._disconnect()
        if kill:
            self._processes.kill_aside(self._pid)

    def _do(self, actions: Sequence[StandbyAction]) -> None:
        for action in actions:
            match action:
                case Wait(seconds):
                    self._disarm()
                    self._timer = asyncio.get_running_loop().call_later(seconds, self._due)
                case Spawn():
                    self._spawn()
                case Kill():
                    self._processes.kill_aside(self._pid)
                case _:
                    assert_never(action)

    def _due(self) -> None:
        self._timer = None
        if self._standby.phase is StandbyPhase.PREPARING:
            self._log(
                "the standby was not ready in time and is killed",
                level="warning",
                process=self._number,
                seconds=self._ready_s,
            )
        elif self._standby.phase is StandbyPhase.LEAVING:
            self._log(
                "the standby has closed its descriptor and does not end: it is killed",
                level="warning",
                process=self._number,
            )
        self._do(self._standby.due(needed=self._needed()))

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            theirs.set_inheritable(True)
            environ = {**self._environ, FD_VARIABLE: str(theirs.fileno()).encode()}
            try:
                self._pid = self._processes.start_aside(environ, self._ended)
            except OSError as error:
                ours.close()
                self._log("the standby cannot be started", level="warning", error=str(error))
                asyncio.get_running_loop().call_soon(self._ended, 0)
                return
        self._said = b""
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours, self._hear, ours)
        self._log("standby started", process=self._number, pid=self._pid)

    def _hear(self, channel: socket.socket) -> None:
        """Read what it says; after a closed connection its end is expected."""
        with suppress(BlockingIOError):
            said = b""
            with suppress(ConnectionError):
                said = channel.recv(256)
            if not said:
                asyncio.get_running_loop().remove_reader(channel)
                self._do(self._standby.closed())
                return
            self._said += said
        if self._said == READY and self._standby.phase is StandbyPhase.PREPARING:
            self._disarm()
            self._standby.ready()
            self._log("standby ready", process=self._number, pid=self._pid)
        elif not READY.startswith(self._said):
            self._log(
                "the standby says something that is not in its contract, and is killed",
                level="warning",
                process=self._number,
                said=self._said[:64].decode("ascii", "replace"),
            )
            self._disarm()
            self._do(self._standby.broke_contract())

    def _ended(self, code: int) -> None:
        """It has ended without having run."""
        phase = self._standby.phase
        self._pid = 0
        self._disarm()
        self._disconnect()
        actions = self._standby.ended()
        if phase is StandbyPhase.OFF:
            why = "it does not keep the contract"
            self._log("no standby any more", level="warning", process=self._number, why=why)
        else:
            self._log(
                "the standby has ended", level="warning", process=self._number, exit_code=code
            )
        self._do(actions)

    def _disconnect(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def memory(cgroups: str = CGROUPS) -> tuple[int, int]:
    """The container's limit of memory (0 for none), and what it uses that cannot be given back.

    From its own cgroup, as container runtimes show it, of either version. A limit of the whole pod
    or of the node is not seen from here.
    """
    for names in _V2, _V1:
        limit, used, stat, cached = names
        most, now = _number(f"{cgroups}/{limit}"), _number(f"{cgroups}/{used}")
        if now:
            fields = dict(line.split(b" ", 1) for line in _read(f"{cgroups}/{stat}").splitlines())
            spare = int(fields.get(cached.encode(), b"0"))
            return (most if most < UNLIMITED else 0), max(0, now - spare)
    return 0, 0


def _number(path: str) -> int:
    text = _read(path).strip()
    return int(text) if text.isdigit() else 0


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs memory
            return file.read()
    except OSError:
        return b""
