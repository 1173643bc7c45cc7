"""Cause of a restart: why the worker has failed, for the pod's annotation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.supervisor.worker.rules import Phase, Worker, WorkerAction
from jobsetpy.api.agent_reports import MAX_CAUSE_TEXT, EndKind


class Cause:
    """Reason for which the current worker fails; all parts of the text meet here.

    Args:
        worker: rules of the worker.
        act: executes their actions.
        log: log for reported errors.
    """

    def __init__(
        self, worker: Worker, act: Callable[[Sequence[WorkerAction]], None], log: Log
    ) -> None:
        self._worker = worker
        self._act = act
        self._log = log
        self._cause: str | None = None
        self._reported_error = ""

    def worker_starting(self) -> None:
        """Forget the errors of the last worker; its cause stays until it is reported."""
        self._reported_error = ""

    def take(self) -> str | None:
        """Return the cause for the next report, and forget it; ``None`` for none."""
        cause, self._cause = self._cause, None
        return cause

    def raised(self, code: int, text: str) -> None:
        """Handle the reason that a failing process of the worker reports."""
        # The first error counts: the others of a group often follow from it.
        if self._worker.phase is not Phase.RUNNING or self._reported_error:
            return
        self._reported_error = f" {text}" if text else ""
        self._cause = f"{EndKind.EXIT_CODE}={code}{self._reported_error}"
        self._log("worker fails", level="warning", exit_code=code, why=text)
        self._act(self._worker.raised())

    def exited(self, code: int) -> None:
        """Set the cause: a process of the worker has ended."""
        # A process that was asked to stop, or hangs, has its cause already, whatever its code.
        if self._worker.phase is Phase.RUNNING:
            self._cause = f"{EndKind.EXIT_CODE}={code}{self._reported_error}"

    def no_progress(self, seconds: float, why: str = "") -> None:
        """Set the cause: the worker is stopped because it makes no progress.

        Args:
            seconds: time without progress.
            why: what that follows from, in a few words.
        """
        text = why[:MAX_CAUSE_TEXT].strip()
        self._cause = f"{EndKind.NO_PROGRESS}={seconds:.0f} {text}".rstrip()

    def log_rule(self, text: str) -> None:
        """Set the cause: a rule on the worker's output is broken, as the text says."""
        self._cause = f"{EndKind.LOG_RULE}=1 {text}"


def printable(text: str) -> str:
    """Return a text as one short line: no control characters, single spaces."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[
        :MAX_CAUSE_TEXT
    ].strip()
