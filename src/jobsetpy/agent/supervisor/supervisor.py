"""Supervisor mode: the agent is the container's first process and runs the worker as its child.

A group restart then needs no kubelet, no new process of the agent and no new watch: the worker is
stopped, the next epoch is patched, and when the barrier lifts the command is started again. The
agent is invisible to the worker: standard streams, working directory, environment, signals and exit
codes are those of a container that runs the command itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from jobsetpy.agent.protocol.barrier import Lift, PatchEpoch, Restart
from jobsetpy.agent.protocol.follower import Follower, connect
from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.protocol.settings import load
from jobsetpy.agent.protocol.signals import EXIT_STOPPED, leave_on_signals
from jobsetpy.agent.protocol.wire_types import InPlaceRestart, JobSetStatus
from jobsetpy.agent.supervisor.progress import progress
from jobsetpy.agent.supervisor.ranks import (
    ENDING_S,
    HOSTS_VARIABLE,
    PARKED,
    READY,
    SAVING,
    SAVING_AFTER_S,
    SeatEnvirons,
    load_place,
)
from jobsetpy.agent.supervisor.timer import Timer
from jobsetpy.agent.supervisor.worker import epoch_file
from jobsetpy.agent.supervisor.worker.processes import (
    Processes,
    exec_command,
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
    MAX_CAUSE_TEXT,
    chosen_log,
    encoded,
    epoch_variables,
    load_rules,
    own_environ,
    sets_master_port,
    split_command,
    worker_environs,
    workers_environ,
)
from jobsetpy.aio import supervise
from jobsetpy.api import keys

if TYPE_CHECKING:
    from jobsetpy.agent.startup_group.wait import GroupWait
    from jobsetpy.agent.supervisor.health import Health
    from jobsetpy.agent.supervisor.heartbeats.ring import Ring
    from jobsetpy.agent.supervisor.heartbeats.self_fence import SelfFence
    from jobsetpy.agent.supervisor.standby.last_words import LastWords
    from jobsetpy.agent.supervisor.standby.process import StandbyRules, Standbys

LAST_REPORT_S: Final = 1.0
"""Maximum time in seconds for the report of a pod that its machine is unfit, before it ends."""


class Supervisor:
    """Runs a command once in each epoch of its group, as the environment configures it.

    Args:
        command: the worker's program and arguments.
        environ: the supervisor's own variables.
        log: log for one line per transition.
        start: time of the process's start on ``time.monotonic()``.

    Raises:
        ConfigurationError: a value is missing or cannot be used.
    """

    def __init__(
        self, command: list[str], environ: Mapping[str, str], *, log: Log, start: float
    ) -> None:
        self._log = log
        self._command, standby = _launched(command, environ, log)
        settings = self._settings = load(environ)
        rules = load_rules(environ)
        self._client = connect(settings)
        self._follower = Follower(
            settings, self._client, log=log, act=self._apply_action, on_status=self._see_status
        )
        self._reporter = self._follower.reporter
        self._worker = Worker(rules)
        self._grace_s = rules.grace_s
        progress_rules = progress.load(environ, self._memory_file(progress.VARIABLE, "progress"))
        self._progress = progress.Progress(progress_rules, log=log, on_hung=self._hung)
        running = self._memory_file(epoch_file.VARIABLE, "epoch")
        self._epoch_file = epoch_file.EpochFile(running, log)
        common = workers_environ(original_environ())
        common[progress.VARIABLE.encode()] = os.fsencode(progress_rules.file)
        common[epoch_file.VARIABLE.encode()] = os.fsencode(running)
        self._seats = self._make_seats(environ, common)
        self._environs = (
            worker_environs(common, environ) if self._seats is None else self._seats.parked
        )
        self._with_port = sets_master_port(common, environ)
        self._processes = Processes(
            self._command,
            on_exit=self._exited,
            on_empty=lambda: self._do(self._worker.emptied()),
            on_unkillable=self._unkillable,
            on_stuck=self._stuck,
        )
        self._health = self._make_health(environ)
        self._standbys, self._last_words = self._make_standbys(standby)
        self._ring, self._self_fence = self._make_ring(environ, progress_rules.file)
        self._group = self._make_group_wait(environ, start)
        self._taken = InPlaceRestart()
        self._parked = False
        self._saves: asyncio.TimerHandle | None = None
        self._lifted = 0
        self._cause: str | None = None
        self._said = self._thread_said = ""
        self._grace = Timer()
        self._end: asyncio.Queue[int] = asyncio.Queue()
        """Exit codes, of which the first ends the pod."""

    def _memory_file(self, variable: str, name: str) -> str:
        """Return the path of a file for agent and worker, from the container's environment."""
        settings = self._settings
        return progress.memory_file(
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
            if self._health is not None:
                self._health.begin()
            if self._ring is not None:
                self._ring.start()
            self._follower.start(tasks)
            if self._group is not None:
                tasks.start(self._wait_for_group(self._group), name="group")
            self._log("started", pod=self._settings.pod_name, jobset=self._settings.jobset_name)
            return await self._end.get()

    async def _wait_for_group(self, group: GroupWait) -> None:
        """Wait for the startup group, once; the epoch's barrier may have lifted before."""
        if code := await group.run():
            self._do([End(code)])
            return
        self._group = None
        if self._lifted:
            # The wait may have been long: the pod may be deleted by now.
            self._reporter.when_confirmed(self._lifted, partial(self._lift, self._lifted))

    def _lift(self, epoch: int) -> None:
        self._log("barrier lifted", epoch=epoch)
        self._lifted = epoch
        if self._group is None:
            self._do(self._worker.lifted(epoch))

    def _apply_action(self, action: PatchEpoch | Lift | Restart) -> None:
        """Execute an action of the barrier."""
        match action:
            case PatchEpoch(epoch):
                self._log("joining", epoch=epoch)
                last_run = self._last_run()

                def report() -> None:
                    self._reporter.report(epoch, last_run | self._waits() | self._unheard())

                if self._health is None:
                    report()
                else:
                    self._health.when_fit(report)
            case Lift(epoch) if not self._take_seat():
                self._log("parked: the pod has no seat", epoch=epoch)
                self._follower.next_round()
            case Lift(epoch):
                lift = partial(self._reporter.when_confirmed, epoch, partial(self._lift, epoch))
                if self._health is None:
                    lift()
                else:  # an earlier run of the pod may have reported this epoch
                    self._health.after(lift)
            case Restart(epoch, deprecated, replaced):
                self._lifted = 0
                if self._health is not None:
                    self._health.forget()
                    self._health.begin()
                if replaced:
                    self._log("the group runs without this pod", level="warning", epoch=epoch)
                self._log("epoch deprecated", epoch=epoch, deprecated=deprecated)
                self._do(self._worker.deprecated(replaced=replaced))
            case _:
                assert_never(action)

    # ---- seats, in a JobSet with spares ----------------------------------------------------------

    def _make_seats(
        self, environ: Mapping[str, str], common: dict[bytes, bytes]
    ) -> SeatEnvirons | None:
        """Return the environments by seat; ``None`` in a JobSet without spares."""
        place = load_place(environ)
        if place is None:
            return None
        hosts_file = self._memory_file(HOSTS_VARIABLE, "hosts")
        return SeatEnvirons(place, common, environ, hosts_file)

    def _see_status(self, status: JobSetStatus) -> None:
        self._taken = status.in_place_restart
        if self._ring is not None:
            self._ring.see(status.synced_epoch, status.deprecated_epoch)

    def _take_seat(self) -> bool:
        """Prepare for the worker of the pod's seat; return False if it has none."""
        if self._seats is None:
            return True
        seat = self._seats.place.seat(self._taken)
        if seat is None:
            return False
        self._parked = False
        if seat != self._seats.place.own:
            self._log("the pod takes another seat", seat=str(seat), own=str(self._seats.place.own))
        try:
            self._seats.write_hosts(self._taken)
        except OSError as error:
            self._log("the file of hosts cannot be written", level="warning", error=str(error))
        self._use(self._seats.of(seat, self._taken))
        return True

    def _use(self, environs: list[Mapping[bytes, bytes]]) -> None:
        self._environs = environs
        if self._standbys is not None:
            self._standbys.use(environs)

    def _waits(self) -> dict[str, str | None]:
        """Return the annotation about the pod's seat; a parked pod prepares a standby process."""
        if self._seats is None:
            return {}
        self._forget_saving()
        self._parked = self._seats.place.seat(self._taken) is None
        if not self._parked:
            return {keys.AGENT_STATE_ANNOTATION: None}
        self._use(self._seats.parked)
        if self._standbys is not None:
            self._standbys.parked()
        if self._health is not None:
            self._health.watch()
        return {keys.AGENT_STATE_ANNOTATION: self._state()}

    def _state(self) -> str:
        return READY if self._standbys is None or self._standbys.ready else PARKED

    def _standby_ready(self) -> None:
        if self._parked:
            self._reporter.tell({keys.AGENT_STATE_ANNOTATION: self._state()})

    def _report_saving(self, seconds: float) -> None:
        """Report, in a moment, that the worker uses its grace period, so that it keeps its seat."""
        if self._seats is None or self._saves is not None:
            return

        def report() -> None:
            if self._worker.phase in {Phase.STOPPING, Phase.ENDING} and self._processes.running:
                text = f"{SAVING}{ceil(seconds)}"
                self._reporter.tell({keys.AGENT_STATE_ANNOTATION: text})

        self._saves = asyncio.get_running_loop().call_later(SAVING_AFTER_S, report)

    def _forget_saving(self) -> None:
        if self._saves is not None:
            self._saves.cancel()
            self._saves = None

    def _last_run(self) -> dict[str, str | None]:
        """Return the annotations about the last run, which are stored with the next epoch."""
        cause, self._cause = self._cause, None
        return {
            keys.RESTART_CAUSE_ANNOTATION: cause,
            keys.PROGRESS_ANNOTATION: self._progress.steps.report,
            keys.FIRST_PROGRESS_ANNOTATION: self._progress.first,
        }

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
                        self._report_saving(seconds)
                    self._grace.start(seconds, self._grace_over)
                case KillAll():
                    self._epoch_file.remove()
                    self._grace.cancel()
                    if self._self_fence is not None:
                        self._self_fence.stop()
                    self._processes.kill_all()
                    if self._health is not None:
                        self._health.begin()
                case JoinNext():
                    self._follower.next_round()
                case End(code):
                    self._finish(code)
                case _:
                    assert_never(action)

    def _finish(self, code: int) -> None:
        """End the pod: everything is stopped, and :meth:`run` returns the exit code."""
        self._epoch_file.remove()
        self._grace.cancel()
        self._log("ending", exit_code=code)
        if self._standbys is not None:
            self._standbys.close(kill=True)
        if self._health is not None:
            self._health.close()
        if self._ring is not None:
            self._ring.close()
        if self._self_fence is not None:
            self._self_fence.stop()
        self._end.put_nowait(code)

    # ---- parts that most pods do without: imported here only -------------------------------------

    def _make_group_wait(self, environ: Mapping[str, str], start: float) -> GroupWait | None:
        """Return the wait of the first start if the pod is in a startup group (KEP-498)."""
        if not environ.get("GROUP_ATTEMPT"):
            return None
        from jobsetpy.agent.startup_group import wait

        return wait.GroupWait(wait.load(environ), self._client, log=self._log, start=start)

    def _make_standbys(
        self, rules: StandbyRules | None
    ) -> tuple[Standbys | None, LastWords | None]:
        """Return standby processes, and what reads the reports of programs under the launcher."""
        if rules is None:
            return None, None
        from jobsetpy.agent.supervisor.standby.last_words import LastWords
        from jobsetpy.agent.supervisor.standby.process import Standbys

        words = LastWords(self._raised, self._thread_raised) if rules.preloaded else None
        return Standbys(
            self._processes,
            self._environs,
            rules,
            log=self._log,
            worker_runs=lambda: self._worker.phase is Phase.RUNNING or self._parked,
            on_ready=self._standby_ready,
        ), words

    def _make_health(self, environ: Mapping[str, str]) -> Health | None:
        """Return the user's check of the machine before each epoch; ``None`` for none."""
        times = environ.get("HEALTH_SECONDS") or environ.get("HEALTH_INTERVAL_SECONDS")
        if not environ.get("HEALTH_COMMAND", "").strip() and not times:
            return None
        from jobsetpy.agent.supervisor import health

        def end() -> None:
            self._do(self._worker.unfit())

        def unfit(why: str) -> None:
            state = f"{keys.UNFIT_STATE}{why}"[:MAX_CAUSE_TEXT].rstrip()
            self._reporter.tell({keys.AGENT_STATE_ANNOTATION: state}, end)
            asyncio.get_running_loop().call_later(LAST_REPORT_S, end)

        return health.Health(
            self._processes,
            self._environs[0],
            health.load(environ),
            log=self._log,
            is_parked=lambda: self._parked,
            on_unfit=unfit,
        )

    def _make_ring(
        self, environ: Mapping[str, str], progress_file: str
    ) -> tuple[Ring | None, SelfFence | None]:
        """Return the pod's part of the ring of heartbeats, and the fence that relies on it."""
        if not environ.get("HEARTBEAT_SECONDS"):
            return None, None
        from jobsetpy.agent.supervisor.heartbeats import rules as ring_rules

        rules = ring_rules.load(environ, self._settings.jobset_name)
        if rules is None:
            self._log(
                "no heartbeats: the pod was added to the group later, and its ring has a fixed size"
            )
            return None, None
        from jobsetpy.agent.supervisor.heartbeats.ring import Ring
        from jobsetpy.agent.supervisor.heartbeats.self_fence import SelfFence, fence_after

        def motion() -> ring_rules.Motion:
            runs = self._worker.phase is Phase.RUNNING
            return ring_rules.motion_of(*self._progress.pace(), runs=runs)

        ring = Ring(
            rules,
            jobset_uid=self._settings.jobset_uid,
            log=self._log,
            motion=motion,
            on_report=lambda: self._reporter.tell(self._unheard()),
        )
        fence_s = fence_after(silent_s=rules.silent_s, interval_s=rules.interval_s)
        return ring, SelfFence(
            self._client, progress_file, lambda: ring.heard_at, fence_s, self._cut_off
        )

    def _unheard(self) -> dict[str, str | None]:
        """Return the annotation about neighbours that are silent."""
        return {} if self._ring is None else {keys.UNHEARD_ANNOTATION: self._ring.report}

    # ---- the worker ------------------------------------------------------------------------------

    def _start(self, epoch: int) -> None:
        """Run the worker's processes: release standby processes, start the others."""
        self._progress.started()
        self._epoch_file.write(epoch)
        if self._self_fence is not None:
            self._self_fence.started()
        self._said = self._thread_said = ""
        words = self._last_words
        if words is not None:
            words.close()
        variables = epoch_variables(epoch, with_port=self._with_port)
        failed: list[OSError] = []
        for number, environ in enumerate(self._environs):
            keep = None if words is None else words.follow
            pid = self._standbys.take(number, variables, keep) if self._standbys is not None else 0
            if pid:
                self._log("worker started", epoch=epoch, pid=pid, standby=True)
                continue
            own = {**environ, **encoded(variables)}
            start = self._processes.start
            try:
                pid = start(own) if words is None else words.start(start, own)
            except OSError as error:
                failed.append(error)
            else:
                self._log("worker started", epoch=epoch, pid=pid)
        if self._standbys is not None:
            self._standbys.worker_started()
        for why in failed:
            self._log(
                "the worker's command cannot be run",
                level="error",
                command=self._command[0],
                error=str(why),
            )
            self._exited(exit_code_of(why))

    def _raised(self, code: int, text: str) -> None:
        """Handle the reason that a failing process of the worker reports."""
        if self._worker.phase is not Phase.RUNNING or self._said:
            return
        self._said = f" {text}" if text else ""
        self._cause = f"exit-code={code}{self._said}"
        self._log("worker fails", level="warning", exit_code=code, why=text)
        self._do(self._worker.raised())

    def _thread_raised(self, text: str) -> None:
        """Remember the first error that ended a thread: the worker may fail or hang without it.

        It is no failure by itself. Python programs continue without the thread, and some can.
        """
        if self._worker.phase is not Phase.RUNNING or self._thread_said:
            return
        self._thread_said = text
        self._log("a thread of the worker has ended with an error", level="warning", why=text)

    def _because(self, text: str = "") -> str:
        """Return the text of a cause without one of its own, with a space before it, or ""."""
        thread = f"a thread had ended with {self._thread_said}" if self._thread_said else ""
        whole = "; ".join(filter(None, (text, thread)))[:MAX_CAUSE_TEXT].strip()
        return f" {whole}" if whole else ""

    def _exited(self, code: int) -> None:
        if self._last_words is not None:
            self._last_words.read()
        phase = self._worker.phase
        if code or not self._processes.running:
            self._progress.ended()
            if phase is Phase.RUNNING:
                self._cause = f"exit-code={code}{self._said or self._because()}"
        self._log("worker exited", exit_code=code, asked=phase is not Phase.RUNNING)
        self._do(self._worker.exited(code))

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
        self._cause = f"no-progress={seconds:.0f}{self._because(origin)}"
        self._epoch_file.remove()
        self._do(self._worker.hung())

    def _cut_off(self, seconds: float) -> None:
        """Kill a worker that is cut off from everything: its rank may be given to another pod."""
        text = "neither the API server nor a neighbour answers"
        self._log(
            "the pod is cut off, and its worker makes no progress: it is killed",
            level="error",
            seconds=round(seconds, 1),
            why=text,
        )
        self._cause = f"no-progress={seconds:.0f} {text}"
        self._do(self._worker.deprecated(replaced=True))

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

    def _signalled(self, number: int) -> None:
        self._do(self._worker.signalled(number))
        if self._worker.phase is not Phase.ENDING:
            return
        self._report_saving(max(ENDING_S, self._grace_s))
        if self._standbys is not None:
            self._standbys.close()


def _launched(
    command: list[str], environ: Mapping[str, str], log: Log
) -> tuple[list[str], StandbyRules | None]:
    """Return the worker's command, with the preloading launcher, and the standby settings."""
    if not environ.get("WORKER_STANDBY") and not environ.get("WORKER_PRELOAD"):
        return command, None
    from jobsetpy.agent.supervisor.standby import process as standby  # most pods have none

    rules = standby.load(environ)
    if rules is None or not rules.modules:
        return command, rules
    launched = standby.with_launcher(command, rules.modules, standby.learned_file(environ))
    if isinstance(launched, str) and rules.optional:
        return command, msgspec.structs.replace(rules, modules="")
    if isinstance(launched, str):
        log("nothing can be preloaded, and there is no standby", level="warning", why=launched)
        return command, None
    return launched, rules


def _hold(command: Sequence[str], environ: Mapping[str, str], *, log: Log, start: float) -> int:
    """Wait for the group, then become the command; return only if that fails."""
    from jobsetpy.agent.startup_group.wait import wait

    if code := wait(environ, log=log, start=start):
        return code
    error = exec_command(command, workers_environ(original_environ()))
    log("the command cannot be run", level="error", command=command[0], error=str(error))
    return exit_code_of(error)


def main(argv: Sequence[str], *, log: Log, start: float) -> int:
    """Run the supervisor as its environment configures it.

    Args:
        argv: ``-- COMMAND [ARGUMENT...]``.
        log: log for one line per transition.
        start: time of the process's start on ``time.monotonic()``.

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
    if environ.get("MODE") == "hold":
        return _hold(command, environ, log=log, start=start)
    return asyncio.run(Supervisor(command, environ, log=log, start=start).run())
