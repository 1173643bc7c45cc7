"""Supervisor mode: the agent is the container's first process and runs the worker as its child.

A group restart then needs no kubelet, no new process of the agent and no new watch: the worker is
stopped, the next epoch is patched, and when the barrier lifts the command is started again. The
agent is invisible to the worker: standard streams, working directory, environment, signals and exit
codes are those of a container that runs the command itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from jobsetpy.agent.protocol.barrier import Action, Barrier, Foreign, Lift, PatchEpoch, Restart
from jobsetpy.agent.protocol.epoch_reporter import EpochReporter
from jobsetpy.agent.protocol.follower import Follower, connect
from jobsetpy.agent.protocol.log import JsonLog, Log
from jobsetpy.agent.protocol.settings import EXIT_USAGE, ConfigurationError, Settings, load
from jobsetpy.agent.protocol.signals import leave_on_signals
from jobsetpy.agent.protocol.wire_types import InPlaceRestart, JobSetStatus
from jobsetpy.agent.supervisor import epoch_file
from jobsetpy.agent.supervisor.processes import (
    Processes,
    exec_command,
    exit_code_of,
    original_environ,
)
from jobsetpy.agent.supervisor.progress import (
    VARIABLE,
    Progress,
    ProgressRules,
    load_progress_rules,
    memory_file,
    progress_file,
)
from jobsetpy.agent.supervisor.seat import (
    ENDING_S,
    HOSTS_VARIABLE,
    PARKED,
    READY,
    SAVING,
    SAVING_AFTER_S,
    SeatEnvirons,
    load_hosts,
    load_place,
)
from jobsetpy.agent.supervisor.timer import Timer
from jobsetpy.agent.supervisor.worker_rules import (
    ArmGrace,
    End,
    JoinNext,
    KillAll,
    Phase,
    Rules,
    Signal,
    Start,
    Worker,
    WorkerAction,
)
from jobsetpy.agent.supervisor.worker_settings import (
    MAX_CAUSE_TEXT,
    encoded,
    epoch_variables,
    load_rules,
    log_choice,
    own_environ,
    sets_master_port,
    split_command,
    worker_environs,
    workers_environ,
)
from jobsetpy.aio import LoopClock, supervise
from jobsetpy.api import keys
from jobsetpy.client import Client

if TYPE_CHECKING:
    from jobsetpy.agent.startup_group.wait import GroupWait
    from jobsetpy.agent.supervisor.health import Health, HealthRules
    from jobsetpy.agent.supervisor.last_words import LastWords
    from jobsetpy.agent.supervisor.ring import Ring
    from jobsetpy.agent.supervisor.ring_rules import RingRules
    from jobsetpy.agent.supervisor.self_fence import SelfFence
    from jobsetpy.agent.supervisor.standby.process import StandbyRules, Standbys

EXIT_STOPPED: Final = 128 + signal.SIGTERM
"""Exit code after a stop signal to the pod while there is no worker; not 0, see
:meth:`Worker.signalled`."""


LAST_REPORT_S: Final = 1.0
"""Maximum time in seconds for the report of a pod that its machine is unfit, before it ends."""


class Supervisor:
    """Runs a command once in each epoch of its group.

    Args:
        settings: names of the pod and of the JobSet to follow.
        client: client with the pod's own service account.
        command: the worker's program and arguments.
        environs: the environment of each of the worker's processes.
        with_port: True if they get a ``MASTER_PORT`` that depends on the epoch.
        rules: the user's settings for the worker.
        log: log for one line per transition.
        progress: file of the worker's progress, and limits for hangs.
        running: path of the file with the running epoch.
        standby: the user's settings for standby processes; ``None`` for none.
        group: startup group that the first start also waits for (KEP-498).
        health: the user's check of the machine before each epoch; ``None`` for none.
        seats: environments by seat, in a JobSet with spares; ``environs`` are then those of a
            parked pod.
        ring: the pod's part of the ring of heartbeats; ``None`` for none.
    """

    def __init__(  # noqa: PLR0913 - each of them a value of its own
        self,
        settings: Settings,
        client: Client,
        *,
        command: Sequence[str],
        environs: Sequence[Mapping[bytes, bytes]],
        rules: Rules,
        log: Log,
        progress: ProgressRules,
        running: str,
        with_port: bool = False,
        standby: StandbyRules | None = None,
        group: GroupWait | None = None,
        health: HealthRules | None = None,
        seats: SeatEnvirons | None = None,
        ring: RingRules | None = None,
    ) -> None:
        self._group = group
        self._seats = seats
        self._taken = InPlaceRestart()
        self._parked = False
        self._saves: asyncio.TimerHandle | None = None
        self._environs = environs
        self._with_port = with_port
        self._lifted = 0
        self._settings = settings
        self._log = log
        self._command = command
        self._barrier = Barrier(uid=settings.jobset_uid)
        self._reporter = EpochReporter(
            client, namespace=settings.namespace, pod_name=settings.pod_name, log=log
        )
        self._follower = Follower(
            settings,
            client,
            barrier=self._barrier,
            log=log,
            act=self._apply_action,
            may_outlive_pod=lambda: self._reporter.may_outlive_pod,
            on_status=self._see_status,
        )
        self._worker = Worker(rules)
        self._grace_s = rules.grace_s
        self._progress = Progress(progress, log=log, on_hung=self._hung)
        self._epoch_file = epoch_file.EpochFile(running, log)
        self._cause: str | None = None
        self._said = ""
        self._thread_said = ""
        self._processes = Processes(
            command,
            on_exit=self._exited,
            on_empty=lambda: self._do(self._worker.emptied()),
            on_unkillable=self._unkillable,
            on_stuck=self._stuck,
        )
        self._health = None if health is None else self._make_health(health)
        self._standbys = None if standby is None else self._make_standbys(standby)
        launched = standby is not None and standby.preloaded
        self._last_words = self._make_last_words() if launched else None
        self._ring = None if ring is None else self._make_ring(ring, progress.file)
        self._self_fence = self._make_self_fence(client, ring, progress.file)
        self._grace = Timer()
        self._end: asyncio.Future[int] | None = None

    async def run(self) -> int:
        """Run until the worker's work is done or the pod ends.

        Returns:
            The container's exit code.
        """
        self._end = asyncio.get_running_loop().create_future()
        self._processes.attach(self._signalled)
        self._epoch_file.remove()
        async with supervise() as tasks:
            if self._health is not None:
                self._health.begin()
            if self._ring is not None:
                self._ring.start(asyncio.get_running_loop())
            tasks.start(self._follower.run(), name="watch")
            tasks.start(self._reporter.run(), name="report")
            if self._group is not None:
                tasks.start(self._wait_for_group(self._group), name="group")
            self._log("started", pod=self._settings.pod_name, jobset=self._settings.jobset_name)
            return await self._end

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

    def _apply_action(self, action: Action) -> None:
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
                for step in self._barrier.next_round():
                    self._apply_action(step)
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
            case Foreign(uid):
                self._log(
                    "ignoring another JobSet of this name",
                    level="warning",
                    uid=uid,
                    own_uid=self._barrier.uid,
                )
            case _:
                assert_never(action)

    # ---- seats, in a JobSet with spares ----------------------------------------------------------

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

    def _use(self, environs: Sequence[Mapping[bytes, bytes]]) -> None:
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
            keys.PROGRESS_ANNOTATION: self._progress.report,
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
                    for step in self._barrier.next_round():
                        self._apply_action(step)
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
        assert self._end is not None
        if not self._end.done():
            self._end.set_result(code)

    def _make_standbys(self, rules: StandbyRules) -> Standbys:
        from jobsetpy.agent.supervisor.standby.process import Standbys  # most pods have none

        def worker_runs() -> bool:
            return self._worker.phase is Phase.RUNNING or self._parked

        return Standbys(
            self._processes,
            self._environs,
            rules,
            log=self._log,
            worker_runs=worker_runs,
            on_ready=self._standby_ready,
        )

    def _make_health(self, rules: HealthRules) -> Health:
        from jobsetpy.agent.supervisor.health import Health  # most pods have none

        def end() -> None:
            self._do(self._worker.unfit())

        def unfit(why: str) -> None:
            state = f"{keys.UNFIT_STATE}{why}"[:MAX_CAUSE_TEXT].rstrip()
            self._reporter.tell({keys.AGENT_STATE_ANNOTATION: state}, end)
            asyncio.get_running_loop().call_later(LAST_REPORT_S, end)

        return Health(
            self._processes,
            self._environs[0],
            rules,
            log=self._log,
            is_parked=lambda: self._parked,
            on_unfit=unfit,
        )

    def _make_ring(self, rules: RingRules, progress_file: str) -> Ring:
        from jobsetpy.agent.supervisor.ring import Ring, WorkerMotion  # most pods have none

        return Ring(
            rules,
            jobset_uid=self._settings.jobset_uid,
            log=self._log,
            motion=WorkerMotion(progress_file, lambda: self._worker.phase is Phase.RUNNING),
            on_report=lambda: self._reporter.tell(self._unheard()),
        )

    def _unheard(self) -> dict[str, str | None]:
        """Return the annotation about neighbours that are silent."""
        return {} if self._ring is None else {keys.UNHEARD_ANNOTATION: self._ring.report}

    def _make_self_fence(
        self, client: Client, rules: RingRules | None, progress_file: str
    ) -> SelfFence | None:
        ring = self._ring
        if rules is None or ring is None:
            return None
        from jobsetpy.agent.supervisor.self_fence import SelfFence, fence_after

        fence_s = fence_after(silent_s=rules.silent_s, interval_s=rules.interval_s)
        return SelfFence(client, progress_file, lambda: ring.heard_at, fence_s, self._cut_off)

    def _make_last_words(self) -> LastWords:
        from jobsetpy.agent.supervisor.last_words import LastWords  # most pods have none

        return LastWords(self._raised, self._thread_raised)

    def _start(self, epoch: int) -> None:
        """Run the worker's processes: release standby processes, start the others."""
        self._progress.started()
        self._epoch_file.write(epoch)
        if self._ring is not None:
            self._ring.worker_started()
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
        step = self._progress.step
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


def _chosen(log: Log, choice: str) -> Log:
    """Return the log without unwanted lines: standard error is the worker's as well."""
    if choice == "on":
        return log

    def quieter(event: str, /, *, level: str = "info", **fields: object) -> None:
        if choice == "problems" and level != "info":
            log(event, level=level, **fields)

    return quieter


def _standby_rules(environ: Mapping[str, str]) -> StandbyRules | None:
    """Read the settings for standby processes; ``None`` for none."""
    if not environ.get("WORKER_STANDBY") and not environ.get("WORKER_PRELOAD"):
        return None
    from jobsetpy.agent.supervisor.standby import process as standby  # most pods have none

    return standby.load(environ)


def _health_rules(environ: Mapping[str, str]) -> HealthRules | None:
    """Read the settings for the health command; ``None`` for none."""
    times = environ.get("HEALTH_SECONDS") or environ.get("HEALTH_INTERVAL_SECONDS")
    if not environ.get("HEALTH_COMMAND") and not times:
        return None
    from jobsetpy.agent.supervisor import health  # most pods have none

    return health.load(environ)


def _ring_rules(environ: Mapping[str, str], jobset: str, log: Log) -> RingRules | None:
    """Read the settings for the ring of heartbeats; ``None`` for none."""
    if not environ.get("HEARTBEAT_SECONDS"):
        return None
    from jobsetpy.agent.supervisor import ring_rules  # most pods have none

    rules = ring_rules.load(environ, jobset)
    if rules is None:
        log("no heartbeats: the pod was added to the group later, and its ring has a fixed size")
    return rules


def _launched(
    command: list[str], environ: Mapping[str, str], log: Log
) -> tuple[list[str], StandbyRules | None]:
    """Return the worker's command, with the preloading launcher, and the standby settings."""
    rules = _standby_rules(environ)
    if rules is None or not rules.modules:
        return command, rules
    from jobsetpy.agent.supervisor.standby import process as standby

    launched = standby.with_launcher(command, rules.modules, standby.learned_file(environ))
    if isinstance(launched, str) and rules.optional:
        return command, msgspec.structs.replace(rules, modules="")
    if isinstance(launched, str):
        log("nothing can be preloaded, and there is no standby", level="warning", why=launched)
        return command, None
    return launched, rules


def _group_wait(
    environ: Mapping[str, str], client: Client, *, log: Log, start: float
) -> GroupWait | None:
    """Return the wait of the first start if the pod is in a startup group."""
    if not environ.get("GROUP_ATTEMPT"):
        return None
    from jobsetpy.agent.startup_group import wait as startup_group_wait  # most pods have none

    return startup_group_wait.GroupWait(
        startup_group_wait.load(environ), client, log=log, elapsed=lambda: time.monotonic() - start
    )


def _hold(command: Sequence[str], environ: Mapping[str, str], *, log: Log, start: float) -> int:
    """Wait for the group, then become the command; return only if that fails."""
    from jobsetpy.agent.startup_group import wait as startup_group_wait

    code = startup_group_wait.wait(startup_group_wait.load(environ), log=log, start=start)
    if code:
        return code
    error = exec_command(command, workers_environ(original_environ()))
    log("the command cannot be run", level="error", command=command[0], error=str(error))
    return exit_code_of(error)


def _supervisor(
    command: list[str], environ: Mapping[str, str], *, log: Log, start: float
) -> Supervisor:
    """Return the supervisor that its environment describes.

    Raises:
        ConfigurationError: a value is missing or cannot be used.
    """
    command, standby = _launched(command, environ, log)
    settings, rules = load(environ), load_rules(environ)
    of_pod = {"namespace": settings.namespace, "pod": settings.pod_name}
    progress = load_progress_rules(environ, progress_file(os.environ, **of_pod))
    running = epoch_file.epoch_file(os.environ, **of_pod)
    common = workers_environ(original_environ())
    common[VARIABLE.encode()] = os.fsencode(progress.file)
    common[epoch_file.VARIABLE.encode()] = os.fsencode(running)
    seats = None
    if (place := load_place(environ)) is not None:
        file = memory_file(os.environ, HOSTS_VARIABLE, "hosts", **of_pod)
        hosts = load_hosts(environ, place, file)
        if hosts is not None:
            common[HOSTS_VARIABLE.encode()] = os.fsencode(file)
        seats = SeatEnvirons(place, common, environ, rules.processes, hosts)
    client = connect(settings)
    return Supervisor(
        settings,
        client,
        command=command,
        environs=worker_environs(common, environ, rules.processes)
        if seats is None
        else seats.parked,
        rules=rules,
        log=log,
        progress=progress,
        running=running,
        with_port=sets_master_port(common, environ),
        standby=standby,
        group=_group_wait(environ, client, log=log, start=start),
        health=_health_rules(environ),
        seats=seats,
        ring=_ring_rules(environ, settings.jobset_name, log),
    )


def main(argv: Sequence[str], *, start: float | None = None) -> int:
    """Run the supervisor as its environment configures it.

    Args:
        argv: ``-- COMMAND [ARGUMENT...]``.
        start: time of the process's start on ``time.monotonic()``.

    Returns:
        The exit code: the worker's (128 + n when a signal ended it) if that ends the pod, 143 when
        the pod gets its stop signal and no worker runs or the worker then exits with 0, 2 for a
        configuration that cannot work.
    """
    leave_on_signals(EXIT_STOPPED)
    began = time.monotonic() if start is None else start
    log: Log = JsonLog(LoopClock(), start=began)
    try:
        command = split_command(argv)
        environ = own_environ(os.environ)
        chosen = _chosen(log, log_choice(environ))
        if environ.get("MODE") == "hold":
            return _hold(command, environ, log=chosen, start=began)
        supervisor = _supervisor(command, environ, log=chosen, start=began)
    except ConfigurationError as error:
        log("wrong configuration", level="error", error=str(error))
        return EXIT_USAGE
    return asyncio.run(supervisor.run())
