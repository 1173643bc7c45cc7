"""Step and speed of a running worker, once a minute, for ``kubectl jobset list`` and ``status``.

Only the first pod of a ReplicatedJob reports them: that is one small patch a minute for each
training, however many pods it has, and none while the step stays the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.supervisor.part import Part
from jobsetpy.agent.supervisor.progress.progress import Progress
from jobsetpy.aio import Timer
from jobsetpy.api import agent_keys

EVERY_S: Final = 60.0
"""Interval between reports, in seconds."""
NO_STEP_LOOKS: Final = 10
"""Number of intervals without any progress after which that is reported."""
NO_STEP: Final = (
    "no-step: no step in 10 minutes: hangs are not detected "
    "($JOBSET_PROGRESS_FILE, docs/how-to/progress.md#report-progress)"
)
"""Report in the form of a log rule's, which the manager makes an event of."""


def is_first(pod_name: str) -> bool:
    """Return True for a pod with index 0 of the first Job: ``JOBSET-REPLICATEDJOB-0-0-abcde``."""
    return pod_name.rsplit("-", 3)[1:3] == ["0", "0"]


class Pace(Part):
    """Reports of one pod while its worker runs.

    Args:
        progress: progress of the worker.
        log: log for a worker whose hangs are not detected.
        tell: stores annotations; ``None`` removes one.
    """

    def __init__(
        self, progress: Progress, log: Log, tell: Callable[[dict[str, str | None]], None]
    ) -> None:
        self._progress, self._log, self._tell = progress, log, tell
        self._timer = Timer()
        self._reported: dict[str, str | None] = {}
        self._looks = 0
        self._step = -1

    def worker_started(self) -> None:
        """Begin to look."""
        self._looks, self._step = 0, -1
        self._timer.start(EVERY_S, self._look, asyncio.get_running_loop().time())

    def annotations(self) -> dict[str, str | None]:
        """Remove what was reported of the last run."""
        self._timer.cancel()
        gone, self._reported = dict.fromkeys(self._reported), {}
        return gone

    def close(self) -> None:
        """Stop looking."""
        self._timer.cancel()

    def _look(self, since: float) -> None:
        progress, now = self._progress, asyncio.get_running_loop().time()
        shown, step = progress.report_now(), progress.steps.step
        found = dict(self._reported)
        self._looks += 1
        if self._step >= 0:
            rate = max(0, step - self._step) / (now - since)
            found[agent_keys.PACE_ANNOTATION] = f"{step} {min(rate, 9999999.0):.3f}"
        if shown is not None and found.get(agent_keys.LOG_REPORT_ANNOTATION):
            found[agent_keys.LOG_REPORT_ANNOTATION] = None
        elif shown is None and self._looks == NO_STEP_LOOKS and progress.is_off_without_steps:
            self._log("no step was reported: hangs are not detected", level="warning")
            found[agent_keys.LOG_REPORT_ANNOTATION] = NO_STEP
        self._step = step
        if found != self._reported:
            self._reported = found
            self._tell(found)
        self._timer.start(EVERY_S, self._look, now)
