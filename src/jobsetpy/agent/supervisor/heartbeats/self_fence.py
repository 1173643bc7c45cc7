"""Self-fence: an agent that is cut off kills a worker that makes no progress.

Only together with the ring of heartbeats, which notices a pod that is cut off and has it replaced.

Safety, in three lines:

* A worker that makes progress is never killed, nor is one whose agent hears a neighbour or gets any
  answer from the API server: an outage of the API server alone ends nothing.
* A worker that is cut off cannot complete a step with the others, so little is lost.
* The worker is dead before another pod can have its seat, by the times below.

Times, with the default interval of 0.5 s between beats:

* Other side: neighbours suspect the pod 2 s after its last beat (``silent_s``), and the last call
  for it takes ``LAST_CALL_S``. The next holder is released 3 s after that beat, or later.
* Own side: the last beat that this agent heard is at most one interval later than that beat. From
  there it waits :func:`fence_after` seconds, which is the difference less the interval and
  ``SLACK_S``: 3 - 0.5 - 0.5 = 2 s. It notices within ``CHECK_S``: 2.7 s after that beat, or sooner.
* A step may end after the last beat. The agent then waits longer, by less than a step; so do the
  others, where three steps without progress confirm a suspicion.

This assumes that the agent runs at least every ``2 * CHECK_S``. A machine that was paused breaks
the assumption: what protects storage then is the epoch (see ``epoch_file``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from jobsetpy.agent.supervisor.progress.progress import file_state_or_none
from jobsetpy.aio import Timer
from jobsetpy.client import Client, HttpRequest
from jobsetpy.errors import JobSetPyError

CHECK_S: Final = 0.2
SLACK_S: Final = 0.5
"""Seconds for a check and for the kill."""

LAST_CALL_S: Final = 1.0
"""Seconds for which the manager waits for a missing pod before its seat is given to a spare
(``reconcilers.restart_in_place.spares.assign_jobs``)."""

ASK_AFTER: Final = 0.5
ANSWER: Final = 0.35
"""Shares of the time: until the API server is asked for a sign of life, and for its answer."""

MAX_PAUSE_S: Final = 10.0


def fence_after(*, silent_s: float, interval_s: float) -> float:
    """Return the seconds without a neighbour, and without progress, until the worker is killed.

    Args:
        silent_s: seconds without a beat after which neighbours suspect this pod.
        interval_s: seconds between beats.
    """
    return silent_s + LAST_CALL_S - interval_s - SLACK_S


class Isolation:
    """Time without a neighbour and without progress, as far as the agent itself has run.

    Args:
        now: time on the monotonic clock, in seconds.
        heard_at: time of the last beat of any neighbour; ``None`` for none.
    """

    def __init__(self, now: float, heard_at: float | None) -> None:
        self._at = now
        self._heard_at = heard_at
        self._silent = 0.0
        self._stalled = 0.0
        self._has_progressed = False

    def look(self, now: float, *, heard_at: float | None, progress: bool) -> None:
        """Process one check.

        Args:
            now: time on the monotonic clock, in seconds.
            heard_at: time of the last beat of any neighbour; ``None`` for none.
            progress: True if the worker made progress since the last check.
        """
        passed, self._at = min(now - self._at, 2 * CHECK_S), now
        heard, self._heard_at = heard_at != self._heard_at, heard_at
        self._silent = 0.0 if heard or heard_at is None else self._silent + passed
        self._has_progressed = self._has_progressed or progress
        self._stalled = 0.0 if progress or not self._has_progressed else self._stalled + passed

    @property
    def seconds(self) -> float:
        """Seconds for which there was neither a neighbour nor progress.

        0 in a worker that has shown no progress yet, as for hangs.
        """
        return min(self._silent, self._stalled)


def is_cut_off(isolation: Isolation, unanswered_s: float, fence_s: float) -> bool:
    """Return True if the worker has to be killed.

    Args:
        isolation: signs from neighbours and of progress.
        unanswered_s: seconds since the API server was asked and has not answered.
        fence_s: as of :func:`fence_after`.
    """
    return isolation.seconds >= fence_s and unanswered_s >= ANSWER * fence_s


class SelfFence:
    """Checks of one worker after the other.

    Args:
        client: client that asks the API server for a sign of life.
        progress_file: file that changes when the worker makes progress.
        heard_at: returns the monotonic time of the last beat of any neighbour, or ``None``.
        fence_s: as of :func:`fence_after`.
        on_cut_off: called once for each worker that has to be killed, with the seconds without any
            sign.
    """

    def __init__(
        self,
        client: Client,
        progress_file: str,
        heard_at: Callable[[], float | None],
        fence_s: float,
        on_cut_off: Callable[[float], None],
    ) -> None:
        self._client = client
        self._path = progress_file
        self._heard_at = heard_at
        self._fence_s = fence_s
        self._on_cut_off = on_cut_off
        self._check = Timer()
        self._asking: asyncio.Task[None] | None = None
        self._asked_at: float | None = None
        self._pause_s = CHECK_S

    def started(self) -> None:
        """Watch a worker that is about to start, with its empty progress file."""
        self.stop()
        isolation = Isolation(asyncio.get_running_loop().time(), self._heard_at())
        self._check.start(CHECK_S, self._look, isolation, file_state_or_none(self._path))

    def stop(self) -> None:
        """Stop: no worker runs."""
        self._check.cancel()
        if self._asking is not None:
            self._asking.cancel()
        self._asking = self._asked_at = None

    def _look(self, isolation: Isolation, before: object) -> None:
        loop = asyncio.get_running_loop()
        state, now = file_state_or_none(self._path), loop.time()
        isolation.look(now, heard_at=self._heard_at(), progress=state != before)
        if isolation.seconds < ASK_AFTER * self._fence_s:
            self._asked_at, self._pause_s = None, CHECK_S
        elif self._asking is None:
            self._asking = loop.create_task(self._ask())
        unanswered_s = 0.0 if self._asked_at is None else now - self._asked_at
        if is_cut_off(isolation, unanswered_s, self._fence_s):
            self.stop()
            self._on_cut_off(isolation.seconds)
        else:
            self._check.start(CHECK_S, self._look, isolation, state)

    async def _ask(self) -> None:
        """Ask once for a sign of life: any answer is one, also a refusal."""
        if self._asked_at is None:
            self._asked_at = asyncio.get_running_loop().time()
        request = HttpRequest(method="GET", path="/version", timeout_s=ANSWER * self._fence_s)
        try:
            await self._client.transport.request(request)
        except JobSetPyError:
            await asyncio.sleep(CHECK_S)
        else:
            # A worker that stalls for long in a pod whose ring is broken must not cost much.
            self._asked_at = None
            self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
            await asyncio.sleep(self._pause_s)
        self._asking = None
