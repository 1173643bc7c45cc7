"""The supervisor's decisions about its worker, without processes, signals, clock or event loop.

``Barrier`` says when the group may run; this says what is done with the worker's processes (one,
unless it is told to run more) and their descendants. The two meet in ``Lift`` (start it),
``Restart`` (stop it) and :class:`JoinNext`.

One law carries the safety of the protocol: ``JoinNext`` is decided only when nothing of the old
worker is left. The epoch in the pod's annotation therefore says "no worker of an earlier epoch runs
here", which is what the controller counts on before it lets the next ones start.
"""

from __future__ import annotations

import enum

import msgspec

DUMP_S = 3.0
"""So long a hung worker has to write where it is, before it is killed."""

EXIT_UNKILLABLE = 137
"""Exit code when the container has to end because a part of the worker cannot be killed."""


_SIGCONT = 18


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the user decides about the worker.

    Args:
        stop_signal: number of the signal that asks the worker to stop, sent at a group restart. The
            container's own stop signal, so that receiving it means that the pod ends.
        grace_s: seconds between that signal and SIGKILL at a group restart, for a checkpoint.
        dump_signal: number of the signal that a hung worker gets, to say where it is.
        end_codes: exit codes (1 to 255; 128 + n for a worker ended by signal n) that end the pod
            in place of restarting the group. 0 always ends it.
        processes: how many processes the worker is. One that fails is the worker's failure, and it
            has succeeded when all of them have.
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
    """SIGKILL whatever is left of the worker, then report it with :meth:`Worker.emptied`."""


class JoinNext(msgspec.Struct, frozen=True):
    """Nothing of the worker is left: call :meth:`Barrier.next_round`."""


class End(msgspec.Struct, frozen=True):
    """End the agent, and with it the container, with exit code ``code`` (0 to 255)."""

    code: int


WorkerAction = Start | Signal | ArmGrace | KillAll | JoinNext | End


class Phase(enum.Enum):
    """Where the worker is."""

    WAITING = "waiting"
    """There is none: the barrier is closed."""
    RUNNING = "running"
    HUNG = "hung"
    """Found without progress for too long: it may say where it is, then it is killed."""
    STOPPING = "stopping"
    """Asked to stop for a group restart, within its grace period."""
    CLEARING = "clearing"
    """What is left of it has been killed and is not gone yet; the next epoch follows."""
    ENDING = "ending"
    """The pod ends: its stop signal has been passed on."""
    ENDED = "ended"


class Worker:
    """The worker of one pod through all its epochs.

    All methods are synchronous and return what is to be done, in order. Events that do not matter
    in the present phase give nothing, so that late timers and signals need no care.

    Args:
        rules: what the user decided.
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
        """The barrier is open."""
        if self.phase is not Phase.WAITING:
            return []
        self.phase = Phase.RUNNING
        self._running = self._rules.processes
        self._raised = False
        self._code = 0
        return [Start(epoch)]

    def deprecated(self, *, replaced: bool = False) -> list[WorkerAction]:
        """The epoch is over. A worker that is being cleared away after its failure is so anyway.

        Args:
            replaced: another worker of the same rank runs by now. Ours gets no time for a
                checkpoint, which would replace one of the other's.
        """
        if self.phase is Phase.WAITING:
            return [JoinNext()]
        if self.phase is Phase.HUNG and replaced:
            self.phase = Phase.CLEARING
            return [KillAll()]
        if self.phase is not Phase.RUNNING:
            return []
        if replaced:
            self.phase = Phase.CLEARING
            return [KillAll()]
        self.phase = Phase.STOPPING
        return [Signal(self._rules.stop_signal), ArmGrace(self._rules.grace_s)]

    def raised(self) -> list[WorkerAction]:
        """A process of the worker has reported that it fails; its end should follow.

        What it does before, such as handlers of ``atexit``, has the time of a checkpoint.
        """
        if self.phase is not Phase.RUNNING or self._raised:
            return []
        self._raised = True
        return [ArmGrace(self._rules.grace_s)]

    def hung(self) -> list[WorkerAction]:
        """The worker has shown no progress for too long: it fails, whatever it exits with.

        Also with 0: many programs handle the signal by saving and ending in order, which does not
        complete their work. It may be stopped, and a stopped process takes no signal but SIGCONT.
        """
        if self.phase is not Phase.RUNNING:
            return []
        self.phase = Phase.HUNG
        return [Signal(self._rules.dump_signal), Signal(_SIGCONT), ArmGrace(DUMP_S)]

    def exited(self, code: int) -> list[WorkerAction]:
        """One of the worker's processes has ended, or could not be started.

        Args:
            code: its exit code, 128 + n when signal n ended it. The first that is not 0 is the
                worker's.
        """
        self._running -= 1
        self._code = self._code or code
        if self.phase is Phase.ENDING:
            # Its children may still be at work; the kubelet's patience bounds both.
            return [] if self._running else [ArmGrace(self._rules.grace_s)]
        if self.phase is Phase.HUNG and self._running:
            return []  # each of them may say where it is
        if self.phase is Phase.HUNG:
            self.phase = Phase.CLEARING
            return [KillAll()]
        if self.phase is not Phase.RUNNING:
            return []
        if code in self._rules.end_codes:
            return self._end(code)
        if code == 0:
            return [] if self._running else self._end(0)
        self.phase = Phase.CLEARING
        return [KillAll()]

    def emptied(self) -> list[WorkerAction]:
        """Nothing is left: of the worker's process group, or after ``KillAll`` of anything."""
        if self._running:
            return []
        match self.phase:
            case Phase.STOPPING:
                # Processes that left the group got no signal. With the container's first process
                # they would have died too.
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
        """After ``KillAll`` something is left that we may not signal, so it would stay for ever.

        It must not run beside the next epoch's worker. The end of the container takes it along.
        """
        return self._end(EXIT_UNKILLABLE) if self.phase is Phase.CLEARING else []

    def grace_over(self) -> list[WorkerAction]:
        """The grace period of the last ``ArmGrace`` is over."""
        failing = self.phase is Phase.RUNNING and self._raised
        if failing or self.phase in {Phase.STOPPING, Phase.HUNG}:
            self.phase = Phase.CLEARING
            return [KillAll()]
        if self.phase is Phase.ENDING and not self._running:
            return self._end(self._code or self._stop_code)
        return []

    def signalled(self, number: int) -> list[WorkerAction]:
        """The agent itself got a signal: the worker gets it, as the container's first process.

        The stop signal (and SIGTERM always) means that the pod ends. Then the worker's exit code is
        the container's, but never 0: a worker that saves and exits 0 because it was told to stop
        has not completed its work. The kubelet would report the pod as succeeded, and its Job would
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
                    # Once is enough: many programs take a second one for "give up at once".
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
