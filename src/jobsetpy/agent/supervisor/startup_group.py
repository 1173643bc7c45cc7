"""Wait for the startup group (KEP-498), once, before the worker's first start."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from jobsetpy.agent.startup_group import wait
from jobsetpy.agent.supervisor.part import Part, Services, Then
from jobsetpy.agent.supervisor.worker.rules import End

if TYPE_CHECKING:
    from jobsetpy.aio import Supervisor as Tasks


class StartupGroup(Part):
    """Delays the first start until the group is complete.

    Args:
        services: what the supervisor's parts share.
        start: time of the process's start on ``time.monotonic()``.
    """

    def __init__(self, services: Services, start: float) -> None:
        self._services = services
        settings = wait.load(services.environ)
        self._wait = wait.GroupWait(settings, services.client, log=services.log, start=start)
        self._complete = False
        self._start: Then | None = None

    def begin(self, tasks: Tasks) -> None:
        """Start to wait; the epoch's barrier may lift meanwhile."""
        tasks.start(self._run(), name="group")

    async def _run(self) -> None:
        if code := await self._wait.run():
            self._services.act([End(code)])
            return
        self._complete = True
        if self._start is not None:
            self._start()

    def before_start(self, epoch: int, then: Then) -> None:
        """Wait for the group at the first start."""
        if self._complete:
            then()
            return
        # The wait may be long, and the pod may be deleted at its end: that is asked again.
        self._start = partial(self._services.reporter.when_confirmed, epoch, then)

    def epoch_over(self) -> None:
        """Drop the start that waits: its epoch is over."""
        self._start = None
