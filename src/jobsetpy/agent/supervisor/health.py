"""Health command: the user's own check that this machine is fit for the next epoch.

A shell command line that runs in the worker's container, between the stop of a worker and the
report of the next epoch, and before the first report of a pod. It exits with 0 if the machine is
fit: devices answer, their memory is free again, file systems respond.

The command starts when the worker is asked to stop, in parallel with its grace period. Once nothing
of the worker is left, it has a limited time to succeed, in which it is repeated: the memory of a
device is often released only after its process has ended. The report waits for it, and with it the
barrier, so neither a worker nor a standby process starts on a machine that is unfit.

A pod that is parked, as a spare, has no restarts of its own: while it waits, the command runs again
after each interval, never next to another run.

Decisions on commands that go wrong:

* One that fails or does not end within the time: the machine is unfit, and the pod ends.
* One that cannot be run (exit code 126 or 127, or no shell): that is a mistake in the command or
  the image and says nothing about the machine. It is logged as an error, and the worker starts.
* Its output is read to its end and discarded but for the last line, which is reported on failure.
* Processes that it leaves behind in its process group are killed when it ends; others with the rest
  of the worker.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from jobsetpy.agent.protocol.settings import ConfigurationError
from jobsetpy.agent.supervisor.cause import printable
from jobsetpy.agent.supervisor.part import Part, Services, Then
from jobsetpy.agent.supervisor.worker.processes import (
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
)
from jobsetpy.agent.supervisor.worker.settings import seconds_of
from jobsetpy.aio import Timer
from jobsetpy.api import agent_keys

if TYPE_CHECKING:
    from jobsetpy.aio import Supervisor as Tasks

DEFAULT_SECONDS: Final = 2.0
DEFAULT_INTERVAL_S: Final = 60.0
JITTER: Final = 0.25
"""Maximum part of the interval by which a check of a parked pod comes earlier or later: the spares
of a group use devices and file systems that they share at different times."""
FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 1.0
_KEPT: Final = 2048
"""Bytes of the end of the output that are kept."""
_HANGS: Final = "it did not end"


class HealthRules(msgspec.Struct, frozen=True, kw_only=True):
    """User's settings for the health command.

    Args:
        command: command line for ``/bin/sh``.
        seconds: time in which it must succeed once nothing of the worker is left.
        interval_s: mean time between two checks of a parked pod; 0 for none.
    """

    command: str
    seconds: float = DEFAULT_SECONDS
    interval_s: float = DEFAULT_INTERVAL_S


def load(environ: Mapping[str, str]) -> HealthRules:
    """Read ``HEALTH_COMMAND`` and its times, at least one of which is given.

    Raises:
        ConfigurationError: a time is not a number, or there is no command.
    """
    command = environ.get("HEALTH_COMMAND", "")
    if not command.strip():
        name = "HEALTH_SECONDS" if environ.get("HEALTH_SECONDS") else "HEALTH_INTERVAL_SECONDS"
        raise ConfigurationError(f"{name} has no effect without HEALTH_COMMAND")
    seconds = seconds_of(environ, "HEALTH_SECONDS", DEFAULT_SECONDS)
    if not seconds:
        raise ConfigurationError("HEALTH_SECONDS must be more than 0")
    interval_s = seconds_of(environ, "HEALTH_INTERVAL_SECONDS", DEFAULT_INTERVAL_S)
    return HealthRules(command=command, seconds=seconds, interval_s=interval_s)


class Health(Part):
    """Checks with the health command: one for each report, and more while the pod is parked.

    Args:
        services: what the supervisor's parts share; the command runs aside from the worker.
        environ: its environment.
        rules: the user's settings.
        is_parked: returns True while the pod has reported and has no seat.
    """

    def __init__(
        self,
        services: Services,
        environ: Mapping[bytes, bytes],
        rules: HealthRules,
        *,
        is_parked: Callable[[], bool],
    ) -> None:
        self._services = services
        self._processes = services.processes
        self._environ = environ
        self._rules = rules
        self._log = services.log
        self._is_parked = is_parked
        self._fit = False
        self._usable = True
        self._closed = False
        self._then: list[Then] = []
        self._deadline, self._next, self._watch = Timer(), Timer(), Timer()
        self._pause = FIRST_PAUSE_S
        self._pid = 0
        self._reader = -1
        self._output = b""
        self._result: dict[str, object] = {}

    def begin(self, tasks: Tasks) -> None:  # noqa: ARG002 - timers and processes serve
        """Start a check: the pod has just started."""
        self._check()

    def worker_killed(self) -> None:
        """Start a check, in parallel with the end of the last processes."""
        self._check()

    def epoch_over(self) -> None:
        """Start a check while the worker stops; what waits for one is outdated."""
        self._then.clear()
        self._check()

    def _check(self) -> None:
        if not self._closed and not self._fit and not self._pid and not self._next.runs:
            self._run()

    def before_report(self, then: Then) -> None:
        """Call ``then`` once the check has succeeded; nothing of the worker is left."""
        if self._closed:
            return
        self._then.append(then)
        if self._fit:
            self._finish()
        elif not self._deadline.runs:
            self._deadline.start(self._rules.seconds, self._over)
            self._check()

    def before_lift(self, epoch: int, then: Then) -> None:  # noqa: ARG002 - any epoch
        """Call ``then`` after the callbacks that wait for a check, or immediately if none does.

        One may run although the epoch is reported: an earlier run of the pod may have done that,
        and a spare is checked at intervals.
        """
        if self._then:
            self._then.append(then)
        elif not self._closed:
            then()

    def parked(self) -> None:
        """Check again after an interval, and so on, as long as the pod is parked."""
        self._watch.cancel()
        if not self._closed and self._usable and self._rules.interval_s and self._is_parked():
            pause = self._rules.interval_s * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
            self._watch.start(pause, self._check_parked)

    def _check_parked(self) -> None:
        # A pod that is about to report has a check of its own, and is parked again after it.
        if self._is_parked() and not self._then:
            self.before_report(self.parked)

    def close(self) -> None:
        """Kill the command and start no other: the pod ends."""
        self._closed = True
        self._watch.cancel()
        self._then.clear()
        self._disarm()
        self._processes.kill_aside(self._pid)

    def _run(self) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._output = b""
        self._usable = True
        try:
            os.set_blocking(writer, True)
            command = ["/bin/sh", "-c", self._rules.command]
            self._pid = self._processes.start_aside(
                self._environ, self._ended, command=command, output=writer
            )
        except OSError as error:
            os.close(reader)
            self._unusable(error=str(error))
            return
        finally:
            os.close(writer)
        self._reader = reader
        asyncio.get_running_loop().add_reader(reader, self._read)
        self._next.start(self._rules.seconds, self._late)

    def _read(self) -> bool:
        """Read a part of the output, keep its end; return False if there is none now."""
        try:
            data = os.read(self._reader, 65536)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._reader)
            return False
        self._output = (self._output + data)[-_KEPT:]
        return True

    def _late(self) -> None:
        """Kill a run that takes too long."""
        self._result = {"why": _HANGS, "said": self._last_line()}
        self._processes.kill_aside(self._pid)

    def _ended(self, code: int) -> None:
        late = not self._next.runs
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        self._pid = 0
        # At most what a pipe holds: a process that the command has left may write for ever.
        self._read()
        asyncio.get_running_loop().remove_reader(self._reader)
        os.close(self._reader)
        self._next.cancel()
        if self._closed:
            return
        if code in {EXIT_NOT_FOUND, EXIT_NOT_EXECUTABLE} and not late:
            self._unusable(exit_code=code, said=self._last_line())
        elif code == 0 and not late:
            self._succeeded()
        else:
            if not late:
                self._result = {"exit_code": code, "said": self._last_line()}
            if self._deadline.runs:
                self._next.start(self._pause, self._run)
                self._pause = min(2 * self._pause, MAX_PAUSE_S)

    def _last_line(self) -> str:
        lines = self._output.decode("utf-8", "replace").split("\n")
        return next((text for line in reversed(lines) if (text := printable(line))), "")

    def _unusable(self, **fields: object) -> None:
        self._log(
            "the health command cannot be run: this machine is not checked",
            level="error",
            command=printable(self._rules.command),
            **fields,
        )
        self._usable = False  # nor will it be the next time
        self._succeeded()

    def _succeeded(self) -> None:
        self._fit = True
        self._disarm()
        if self._then:
            self._finish()

    def _finish(self) -> None:
        """Call the callbacks that wait; the next report has a check of its own."""
        self._fit = False
        self._pause = FIRST_PAUSE_S
        self._result = {}
        then, self._then = self._then, []
        for each in then:
            each()

    def _over(self) -> None:
        self._result = self._result or {"why": _HANGS, "said": self._last_line()}
        self._log(
            "this machine is unfit: the health command did not succeed in time",
            level="error",
            command=printable(self._rules.command),
            seconds=self._rules.seconds,
            **self._result,
        )
        self.close()
        why = self._result.get("why") or f"exit code {self._result['exit_code']}"
        text = ": ".join(filter(None, (str(why), str(self._result.get("said", "")))))
        state = f"{agent_keys.UNFIT_STATE}{text}"
        self._services.report_last(agent_keys.AGENT_STATE_ANNOTATION, state, self._end)

    def _end(self) -> None:
        self._services.act(self._services.worker.unfit())

    def _disarm(self) -> None:
        self._deadline.cancel()
        self._next.cancel()
