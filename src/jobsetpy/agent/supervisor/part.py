"""Part: an optional feature of the supervisor, and what it may use.

The supervisor calls every part at the same moments and knows none of them. A pod without a feature
has no such part. Parts do not know each other, with one exception: that of a spare pod chooses the
environment of the worker's processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from jobsetpy.api.agent_reports import MAX_CAUSE_TEXT

if TYPE_CHECKING:
    from jobsetpy.agent.protocol.epoch_reporter import EpochReporter
    from jobsetpy.agent.protocol.log import Log
    from jobsetpy.agent.protocol.settings import Settings
    from jobsetpy.agent.protocol.wire_types import JobSetStatus
    from jobsetpy.agent.supervisor.cause import Cause
    from jobsetpy.agent.supervisor.progress.progress import Progress
    from jobsetpy.agent.supervisor.worker.processes import Processes
    from jobsetpy.agent.supervisor.worker.rules import Worker, WorkerAction
    from jobsetpy.aio import Supervisor as Tasks
    from jobsetpy.client import Client

Then = Callable[[], None]
"""Continuation of a step; a step that never calls it ends the sequence."""

LAST_REPORT_S: Final = 5.0
"""Maximum time in seconds for the report of a pod's reason to end, before it ends."""


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """Shared objects of the parts of a supervisor.

    Args:
        environ: the supervisor's own variables.
        settings: name and namespace of the pod, name and UID of its JobSet.
        log: log for one line per transition.
        client: client of the API server.
        reporter: writer of annotations into the pod.
        worker: rules of the worker, and its phase.
        act: executes actions of these rules.
        processes: the container's processes.
        progress: progress of the worker.
        cause: reason for which the worker fails.
    """

    environ: Mapping[str, str]
    settings: Settings
    log: Log
    client: Client
    reporter: EpochReporter
    worker: Worker
    act: Callable[[Sequence[WorkerAction]], None]
    processes: Processes
    progress: Progress
    cause: Cause

    def report_last(self, name: str, text: str | None, end: Then) -> None:
        """End the pod once its reason is stored, or a moment later: the server may be away.

        Args:
            name: annotation with the reason.
            text: the reason, of which `MAX_CAUSE_TEXT` characters are stored; ``None`` removes it.
            end: ends the pod; it may be called twice.
        """
        value = None if text is None else text[:MAX_CAUSE_TEXT].rstrip()
        self.reporter.annotate({name: value}, end)
        asyncio.get_running_loop().call_later(LAST_REPORT_S, end)


class Part:
    """Optional feature; each method does nothing unless the feature needs that moment."""

    def begin(self, tasks: Tasks) -> None:
        """Start: the supervisor begins, no worker runs.

        Args:
            tasks: starts tasks that end with the supervisor.
        """

    def see_status(self, status: JobSetStatus) -> None:
        """Look at a state of the JobSet, before the barrier does."""

    def before_report(self, then: Then) -> None:
        """Call ``then`` when the next epoch may be reported; nothing of the worker is left."""
        then()

    def annotations(self) -> dict[str, str | None]:
        """Return what is stored with the next epoch; ``None`` removes an annotation."""
        return {}

    def before_lift(self, epoch: int, then: Then) -> None:  # noqa: ARG002 - for those that log it
        """Call ``then`` when a worker may start as far as the pod is concerned."""
        then()

    def worker_starting(self) -> None:
        """Prepare: the worker's processes are started next."""

    def worker_started(self) -> None:
        """Note that the worker's processes run."""

    def process_exited(self) -> None:
        """Read what is pending: a process of the worker has ended, which is handled next."""

    def epoch_over(self) -> None:
        """Drop what waits for a start: the epoch is deprecated, and the worker stops next."""

    def stopping(self, seconds: float, *, pod_ends: bool) -> None:
        """Note that the worker was asked to stop.

        Args:
            seconds: its grace period.
            pod_ends: True if the pod ends with it.
        """

    def worker_killed(self) -> None:
        """Note that the rest of the worker was killed."""

    def parked(self) -> None:
        """Note that the pod has no seat: it reports its epoch, but starts no worker."""

    def close(self) -> None:
        """Stop: the pod ends."""


def in_order(steps: Iterable[Callable[[Then], None]], last: Then) -> None:
    """Execute steps, each when the one before has called what follows; then ``last``."""
    for step in reversed(list(steps)):
        last = partial(step, last)
    last()
