"""Decisions of the supervisor about its worker, without processes, signals, clock or event loop.

``Barrier`` decides when the restart group may run; this module decides about the worker's processes
(one by default) and their descendants. They are connected by ``Lift`` (start it), ``Restart`` (stop
it) and :class:`JoinNext`.

The safety of the protocol depends on one rule: ``JoinNext`` is decided only when nothing of the old
worker is left. The epoch in the pod's annotation therefore means "no worker of an earlier epoch
runs here", which the controller relies on before it lets the next ones start.
"""

from __future__ import annotations

import enum

import msgspec

from jobsetpy.api import agent_keys

DUMP_S = 3.0
"""Seconds that a hung worker has to dump its stacks before it is killed."""

EXIT_UNKILLABLE = 137
"""Exit code when the container has to end because a part of the worker cannot be killed."""


_SIGCONT = 18


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """User's settings for the worker.

    Args:
        stop_signal: number of the signal that asks the worker to stop, sent at a group restart. It
            is also the container's own stop signal: when the agent receives it, the pod ends.
        grace_s: seconds between that signal and SIGKILL at a group restart, for a checkpoint.
        dump_signal: number of the signal that makes a hung worker dump its stacks.
        end_codes: exit codes (1 to 255; 128 + n for a worker ended by signal n) that end the pod
            instead of restarting the group. 0 always ends it.
        processes: number of the worker's processes. The worker fails when one of them fails, and
            succeeds when all have succeeded.
    """

    stop_signal: int = 15
    grace_s: float = 10.0
    dump_signal: int = 6
    end_codes: frozenset[int] = frozenset()
    processes: int = 1


class Start(msgspec.Struct, frozen=True):
    """Start the worker's command, for ``epoch``."""

    epoch: int


class Signal(msgspec.Struct, frozen=True):
    """Send signal ``number`` to the worker's process group."""

    number: int


class ArmGrace(msgspec.Struct, frozen=True):
    """Call :meth:`Worker.grace_over` after ``seconds``."""

    seconds: float


class KillAll(msgspec.Struct, frozen=True):
    """SIGKILL the rest of the worker, then call :meth:`Worker.emptied`."""


class JoinNext(msgspec.Struct, frozen=True):
    """Call :meth:`Barrier.next_round`: nothing of the worker is left."""


class End(msgspec.Struct, frozen=True):
    """End the agent, and with it the container, with exit code ``code`` (0 to 255)."""

    code: int


WorkerAction = Start | Signal | ArmGrace | KillAll | JoinNext | End


class Phase(enum.Enum):
    """Phase of the worker."""

    WAITING = "waiting"
    """No worker runs: the barrier is closed."""
    RUNNING = "running"
    HUNG = "hung"
    """Without progress for too long, or failing by its output: it may dump its stacks or say more,
    then it is killed."""
    STOPPING = "stopping"
    """Asked to stop for a group restart, within its grace period."""
    CLEARING = "clearing"
    """The rest of it has been killed and has not ended yet; the next epoch follows."""
    ENDING = "ending"
    """The pod ends: its stop signal has been passed on."""
    ENDED = "ended"


class Worker:
    """Worker of one pod through all its epochs.

    All methods are synchronous and return the actions to take, in order. Events that do not matter
    in the current phase return none, so late timers and signals are harmless.

    Args:
        rules: the user's settings.
    """

    __slots__ = ("_code", "_raised", "_rules", "_running", "_stop_code", "phase")

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.phase = Phase.WAITING
        self._code = 0
        self._stop_code = 0
        self._running = 0
        self._raised = False

    def lifted(self, epoch: int) -> list[WorkerAction]:
        """Start the worker: the barrier is open."""
        if self.phase is not Phase.WAITING:
            return []
        self.phase = Phase.RUNNING
        self._running = self._rules.processes
        self._raised = False
        self._code = 0
        return [Start(epoch)]

    def deprecated(self, *, replaced: bool = False) -> list[WorkerAction]:
        """Stop the worker: the epoch is over. A worker that is cleared after a failure stays so.

        Args:
            replaced: True if another worker of the same rank runs by now, or soon may. This one
                gets no time for a checkpoint, which could overwrite one of the other's.
        """
        if self.phase is Phase.WAITING:
            return [JoinNext()]
        if replaced and self.phase in {Phase.HUNG, Phase.STOPPING}:
            self.phase = Phase.CLEARING
            return [KillAll()]
        if replaced and self.phase is Phase.ENDING:
            return [KillAll()]  # the pod ends nevertheless
        if self.phase is not Phase.RUNNING:
            return []
        if replaced:
            self.phase = Phase.CLEARING
            return [KillAll()]
        self.phase = Phase.STOPPING
        return [Signal(self._rules.stop_signal), ArmGrace(self._rules.grace_s)]

    def raised(self) -> list[WorkerAction]:
        """Handle a process's report of its failure; its end should follow.

        Handlers of ``atexit`` and the like have the time of a checkpoint.
        """
        if self.phase is not Phase.RUNNING or self._raised:
            return []
        self._raised = True
        return [ArmGrace(self._rules.grace_s)]

    def hung(self, *, dump: bool = True) -> list[WorkerAction]:
        """Fail a worker without progress for too long, regardless of its exit code.

        Even with 0: many programs handle the signal by saving and exiting normally, which does not
        complete their work. SIGCONT follows because a stopped process handles no other signal.

        Args:
            dump: False for a worker that was seen to fail, and is only given the time to end.
        """
        if self.phase is not Phase.RUNNING:
            return []
        self.phase = Phase.HUNG
        if not dump:
            return [ArmGrace(DUMP_S)]
        # The grace first: with it the epoch file goes, which a handler of the signal may look at.
        return [ArmGrace(DUMP_S), Signal(self._rules.dump_signal), Signal(_SIGCONT)]

    def exited(self, code: int) -> list[WorkerAction]:
        """Handle the end of one of the worker's processes, or of one that could not be started.

        Args:
            code: its exit code, 128 + n when signal n ended it. The first that is not 0 is the
                worker's.
        """
        self._running -= 1
        self._code = self._code or code
        if self.phase is Phase.ENDING:
            # Its children may still be working; the kubelet's grace period bounds both.
            return [] if self._running else [ArmGrace(self._rules.grace_s)]
        if self.phase is Phase.HUNG:
            if self._running:
                return []  # each of them may dump its stacks
        elif self.phase is not Phase.RUNNING:
            return []
        elif code in self._rules.end_codes:
            return self._end(code)
        elif code == 0:
            return [] if self._running else self._end(0)
        self.phase = Phase.CLEARING
        return [KillAll()]

    def emptied(self) -> list[WorkerAction]:
        """Handle the end of the worker's process groups; after ``KillAll``, of everything."""
        if self._running:
            return []
        match self.phase:
            case Phase.STOPPING:
                # Processes that left the group got no signal. In a container without the agent they
                # would have ended with its first process.
                self.phase = Phase.CLEARING
                return [KillAll()]
            case Phase.CLEARING:
                self.phase = Phase.WAITING
                return [JoinNext()]
            case Phase.ENDING:
                return self._end(self._code or self._stop_code)
            case _:
                return []

    def unkillable(self) -> list[WorkerAction]:
        """End the container: after ``KillAll`` a process is left that cannot be signalled.

        It must not run next to the next epoch's worker. The end of the container ends it, too.
        """
        return self._end(EXIT_UNKILLABLE) if self.phase is Phase.CLEARING else []

    def unfit(self) -> list[WorkerAction]:
        """End the pod: its machine is unfit for another epoch, and no worker runs."""
        return self._end(agent_keys.UNFIT_EXIT_CODE) if self.phase is Phase.WAITING else []

    def dispensable(self) -> list[WorkerAction]:
        """End the pod, in which no worker runs: the work is done without it."""
        return self._end(0) if self.phase is Phase.WAITING else []

    def end_pod(self, *, unfit: bool) -> list[WorkerAction]:
        """End the pod, whose worker runs or has failed: a rule on its output says so."""
        if self.phase not in {Phase.RUNNING, Phase.CLEARING, Phase.WAITING}:
            return []
        code = agent_keys.UNFIT_EXIT_CODE if unfit else agent_keys.LOG_RULE_EXIT_CODE
        return [*([KillAll()] if self.phase is Phase.RUNNING else ()), *self._end(code)]

    def grace_over(self) -> list[WorkerAction]:
        """Handle the end of the grace period of the last ``ArmGrace``."""
        failing = self.phase is Phase.RUNNING and self._raised
        if failing or self.phase in {Phase.STOPPING, Phase.HUNG}:
            self.phase = Phase.CLEARING
            return [KillAll()]
        if self.phase is Phase.ENDING and not self._running:
            return self._end(self._code or self._stop_code)
        return []

    def signalled(self, number: int) -> list[WorkerAction]:
        """Forward a signal that the agent got to the worker, as if it were the first process.

        The stop signal (and SIGTERM always) means that the pod ends. Then the worker's exit code is
        the container's, but never 0: a worker that saves and exits with 0 after a stop signal has
        not completed its work. The kubelet would report the pod as succeeded, and its Job would
        count the index as complete and never replace the pod. The code is 128 + n in that case, and
        also when there is no worker.
        """
        stop = number in {15, self._rules.stop_signal}
        if stop:
            self._stop_code = self._stop_code or 128 + number
        match self.phase:
            case Phase.WAITING:
                return self._end(128 + number) if stop or number == 2 else []
            case Phase.RUNNING | Phase.HUNG:
                if stop:
                    self.phase = Phase.ENDING
                return [Signal(number)]
            case Phase.STOPPING:
                if stop:
                    self.phase = Phase.ENDING
                    # Once is enough: many programs handle a second one as "abort immediately".
                    again = [] if number == self._rules.stop_signal else [Signal(number)]
                    grace = [] if self._running else [ArmGrace(self._rules.grace_s)]
                    return [*again, *grace]
                return [Signal(number)]
            case Phase.CLEARING:
                return self._end(self._code or 128 + number) if stop else []
            case Phase.ENDING:
                return [Signal(number)]
            case Phase.ENDED:
                return []

    def _end(self, code: int) -> list[WorkerAction]:
        self.phase = Phase.ENDED
        return [End(code)]
