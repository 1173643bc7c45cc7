"""Supervisor mode: the agent is the container's first process and runs the worker as its child.

A group restart then needs no kubelet, no new process of the agent and no new watch: the worker is
stopped, the next epoch is patched, and when the barrier lifts the command is started again. The
agent is invisible to the worker: standard streams, working directory, environment, signals and exit
codes are those of a container that runs the command itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import assert_never

from jobsetpy.agent.protocol.barrier import Lift, PatchEpoch, Restart
from jobsetpy.agent.protocol.follower import Follower, connect
from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.protocol.settings import load
from jobsetpy.agent.protocol.signals import EXIT_STOPPED, leave_on_signals
from jobsetpy.agent.protocol.wire_types import JobSetStatus
from jobsetpy.agent.supervisor.cause import Cause
from jobsetpy.agent.supervisor.part import Services, Then, in_order
from jobsetpy.agent.supervisor.parts import launched, make_parts
from jobsetpy.agent.supervisor.progress import progress
from jobsetpy.agent.supervisor.worker import epoch_file
from jobsetpy.agent.supervisor.worker.processes import (
    Processes,
    exit_code_of,
    original_environ,
)
from jobsetpy.agent.supervisor.worker.rules import (
    ArmGrace,
    End,
    JoinNext,
    KillAll,
    Phase,
    Signal,
    Start,
    Worker,
    WorkerAction,
)
from jobsetpy.agent.supervisor.worker.settings import (
    chosen_log,
    epoch_variables,
    load_rules,
    memory_file,
    own_environ,
    sets_master_port,
    split_command,
    workers_environ,
)
from jobsetpy.aio import Timer, supervise
from jobsetpy.api import agent_keys


class Supervisor:
    """Runs a command once in each epoch of its group, as the environment configures it.

    Args:
        command: the worker's program and arguments.
        environ: the supervisor's own variables.
        log: log for one line per transition.

    Raises:
        ConfigurationError: a value is missing or cannot be used.
    """

    def __init__(self, command: list[str], environ: Mapping[str, str], *, log: Log) -> None:
        self._log = log
        self._command, standby = launched(command, environ, log)
        self._settings = load(environ)
        rules = load_rules(environ)
        self._grace_s = rules.grace_s
        client = connect(self._settings)
        self._follower = Follower(
            self._settings, client, log=log, act=self._apply_action, on_status=self._see_status
        )
        self._reporter = self._follower.reporter
        self._worker = Worker(rules)
        self._cause = Cause(self._worker, self._do, log)
        progress_rules = progress.load(environ, self._memory_file(progress.VARIABLE, "progress"))
        self._progress = progress.Progress(progress_rules, log=log, on_hung=self._hung)
        running = self._memory_file(epoch_file.VARIABLE, "epoch")
        self._epoch_file = epoch_file.EpochFile(running, log)
        self._processes = Processes(
            self._command,
            on_exit=self._exited,
            on_empty=lambda: self._do(self._worker.emptied()),
            on_unkillable=self._unkillable,
            on_stuck=self._stuck,
        )
        common = workers_environ(original_environ())
        common[progress.VARIABLE.encode()] = os.fsencode(progress_rules.file)
        common[epoch_file.VARIABLE.encode()] = os.fsencode(running)
        self._with_port = sets_master_port(common, environ)
        services = Services(
            environ=environ,
            settings=self._settings,
            log=log,
            client=client,
            reporter=self._reporter,
            worker=self._worker,
            act=self._do,
            processes=self._processes,
            progress=self._progress,
            cause=self._cause,
        )
        self._starter, self._parts = make_parts(
            services, common, standby, memory_file=self._memory_file
        )
        self._grace = Timer()
        self._end: asyncio.Queue[int] = asyncio.Queue()
        """Exit codes, of which the first ends the pod."""

    def _memory_file(self, variable: str, name: str) -> str:
        """Return the path of a file for agent and worker, from the container's environment."""
        settings = self._settings
        return memory_file(
            os.environ, variable, name, namespace=settings.namespace, pod=settings.pod_name
        )

    async def run(self) -> int:
        """Run until the worker's work is done or the pod ends.

        Returns:
            The container's exit code.
        """
        self._processes.attach(self._signalled)
        self._epoch_file.remove()
        async with supervise() as tasks:
            for part in self._parts:
                part.begin(tasks)
            self._follower.start(tasks)
            self._log("started", pod=self._settings.pod_name, jobset=self._settings.jobset_name)
            return await self._end.get()

    # ---- the group: reports, lifts, restarts -----------------------------------------------------

    def _see_status(self, status: JobSetStatus) -> None:
        for part in self._parts:
            part.see_status(status)

    def _apply_action(self, action: PatchEpoch | Lift | Restart) -> None:
        """Execute an action of the barrier."""
        match action:
            case PatchEpoch(epoch):
                self._report(epoch)
            case Lift(epoch):
                self._lift(epoch)
            case Restart(epoch, deprecated, replaced):
                for part in self._parts:
                    part.epoch_over()
                if replaced:
                    self._log("the group runs without this pod", level="warning", epoch=epoch)
                self._log("epoch deprecated", epoch=epoch, deprecated=deprecated)
                self._do(self._worker.deprecated(replaced=replaced))
            case _:
                assert_never(action)

    def _report(self, epoch: int) -> None:
        """Report the next epoch, with what is known of the last run, once all parts are ready."""
        self._log("joining", epoch=epoch)

        def report() -> None:
            # Last: the end of the worker's output may be known only now.
            about = {
                agent_keys.RESTART_CAUSE_ANNOTATION: self._cause.take(),
                agent_keys.PROGRESS_ANNOTATION: self._progress.steps.report,
                agent_keys.FIRST_PROGRESS_ANNOTATION: self._progress.first,
            }
            for part in self._parts:
                about |= part.annotations()
            self._reporter.report(epoch, about)

        in_order([part.before_report for part in self._parts], report)

    def _lift(self, epoch: int) -> None:
        """Start the worker: the whole way from the lift of the barrier to its processes."""

        def lifted(then: Then) -> None:
            self._log("barrier lifted", epoch=epoch)
            then()

        steps: list[Callable[[Then], None]] = [
            # The pod has a seat, and no check of its machine runs.
            *(partial(part.before_lift, epoch) for part in self._parts),
            # It exists and stays: a worker of a pod that was given up could run next to another.
            partial(self._reporter.when_confirmed, epoch),
            lifted,
        ]
        in_order(steps, lambda: self._do(self._worker.lifted(epoch)))

    # ---- the worker ------------------------------------------------------------------------------

    def _do(self, actions: Sequence[WorkerAction]) -> None:
        """Execute actions of the worker's rules."""
        for action in actions:
            match action:
                case Start(epoch):
                    self._start(epoch)
                case Signal(number):
                    self._processes.send(number)
                case ArmGrace(seconds):
                    if self._worker.phase is Phase.STOPPING:
                        self._stopping(seconds, pod_ends=False)
                    elif self._worker.phase is Phase.HUNG:
                        self._epoch_file.remove()
                    self._grace.start(seconds, self._grace_over)
                case KillAll():
                    # First: a program that looks at the file must not save as it is killed.
                    self._epoch_file.remove()
                    self._grace.cancel()
                    self._processes.kill_all()
                    for part in self._parts:
                        part.worker_killed()
                case JoinNext():
                    self._follower.next_round()
                case End(code):
                    self._finish(code)
                case _:
                    assert_never(action)

    def _start(self, epoch: int) -> None:
        """Run the worker's processes: release standby processes, start the others."""
        self._progress.started()
        self._epoch_file.write(epoch)
        self._cause.worker_starting()
        for part in self._parts:
            part.worker_starting()
        variables = epoch_variables(epoch, with_port=self._with_port)
        failed: list[OSError] = []
        for number in range(self._starter.count):
            try:
                pid, standby = self._starter.start(number, variables)
            except OSError as error:
                failed.append(error)
            else:
                about: dict[str, object] = {"standby": True} if standby else {}
                self._log("worker started", level="info", epoch=epoch, pid=pid, **about)
        for part in self._parts:
            part.worker_started()
        for why in failed:
            self._log(
                "the worker's command cannot be run",
                level="error",
                command=self._command[0],
                error=str(why),
            )
            self._exited(exit_code_of(why))

    def _exited(self, code: int) -> None:
        for part in self._parts:
            part.process_exited()
        asked = self._worker.phase is not Phase.RUNNING
        if code or not self._processes.running:
            self._progress.ended()
            self._cause.exited(code)
        self._log("worker exited", exit_code=code, asked=asked)
        self._do(self._worker.exited(code))

    def _stopping(self, seconds: float, *, pod_ends: bool) -> None:
        for part in self._parts:
            part.stopping(seconds, pod_ends=pod_ends)

    def _signalled(self, number: int) -> None:
        self._do(self._worker.signalled(number))
        if self._worker.phase is Phase.ENDING:
            self._stopping(self._grace_s, pod_ends=True)

    def _finish(self, code: int) -> None:
        """End the pod: everything is stopped, and :meth:`run` returns the exit code."""
        self._epoch_file.remove()
        self._grace.cancel()
        self._log("ending", exit_code=code)
        for part in self._parts:
            part.close()
        self._end.put_nowait(code)

    def _hung(self, seconds: float, origin: str) -> None:
        """Stop a worker that has exceeded its limit without progress.

        Args:
            seconds: the limit.
            origin: what an automatic limit follows from.
        """
        self._processes.collect()  # one that has exited with 0 by now has succeeded
        if self._worker.phase is not Phase.RUNNING:
            return
        step = self._progress.steps.step
        where: dict[str, object] = {} if step < 0 else {"step": step}
        if origin:
            where["why"] = origin
        self._log("no progress: the worker hangs", level="error", seconds=seconds, **where)
        self._cause.no_progress(seconds, origin)
        self._do(self._worker.hung())

    def _unkillable(self) -> None:
        self._log(
            "a process of the worker belongs to another user and cannot be killed: "
            "the container ends, and takes it along",
            level="error",
        )
        self._do(self._worker.unkillable())

    def _stuck(self, seconds: float, processes: list[str]) -> None:
        self._log(
            "killed processes do not end, and the next epoch waits for them",
            level="warning",
            seconds=round(seconds),
            processes=processes,
            hint="state D waits in the kernel, in most cases for a file system or a device; "
            "a debugger may hold others",
        )

    def _grace_over(self) -> None:
        if self._worker.phase is Phase.STOPPING:
            self._log("the worker did not stop within its grace period", level="warning")
        self._do(self._worker.grace_over())


def main(argv: Sequence[str], *, log: Log) -> int:
    """Run the supervisor as its environment configures it.

    Args:
        argv: ``-- COMMAND [ARGUMENT...]``.
        log: log for one line per transition.

    Returns:
        The exit code: the worker's (128 + n when a signal ended it) if that ends the pod, 143 when
        the pod gets its stop signal and no worker runs or the worker then exits with 0.

    Raises:
        ConfigurationError: the environment or the arguments cannot be used.
    """
    leave_on_signals(EXIT_STOPPED)
    command = split_command(argv)
    environ = own_environ(os.environ)
    log = chosen_log(environ, log)
    return asyncio.run(Supervisor(command, environ, log=log).run())
