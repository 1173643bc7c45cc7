"""Process of the sidecar: settings, connection, and execution of the barrier's decisions.

Two requests make up a start: the streaming list of the one JobSet (which then stays open as the
watch) and the patch of its own pod. Everything else here is done before the first of them is
answered.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Final, assert_never

from jobsetpy.agent.protocol.barrier import Lift, PatchEpoch, Restart
from jobsetpy.agent.protocol.follower import Follower, connect
from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.protocol.saved_epoch import Arrival
from jobsetpy.agent.protocol.settings import Settings, load
from jobsetpy.agent.protocol.signals import leave_on_signals
from jobsetpy.agent.sidecar.probe import BarrierServer, listen
from jobsetpy.aio import supervise
from jobsetpy.api import agent_keys
from jobsetpy.client import Client

EXIT_LISTEN: Final = 1
"""Exit code if the barrier's port is not available, or something else failed before the barrier
lifted: the kubelet restarts the agent alone, with its back-off."""

REPORT_S: Final = 1.0
"""Maximum time in seconds for a report before the agent ends: the worker may run meanwhile."""


class Agent:
    """Agent in sidecar mode: reports the epoch, answers the probe, ends for a restart.

    Args:
        settings: names of the pod and of the JobSet to follow.
        client: client with the pod's own service account.
        log: log for one line per transition.
        on_open: called right before the first worker may be started.
    """

    def __init__(
        self,
        settings: Settings,
        client: Client,
        *,
        log: Log,
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._arrival = Arrival(settings.arrival_file)
        self._on_open = on_open
        self._log = log
        self._opened = False
        self._server = BarrierServer(
            settings.barrier_path, on_open=self._open, on_lost=self._end_unprobed
        )
        self._follower = Follower(
            settings, client, log=log, act=self._do, arrived=self._arrival.read()
        )
        self._restart: asyncio.Queue[int] = asyncio.Queue()
        """Exit codes, of which the first ends the agent."""

    async def run(self) -> int:
        """Run until the epoch is deprecated.

        Returns:
            The exit code that makes the kubelet restart the pod in place, or :data:`EXIT_LISTEN`.

        Raises:
            Exception: a defect, while the worker cannot run yet.
        """
        try:
            return await self._serve()
        except Exception as error:
            if not self._opened:
                raise
            # The kubelet would restart the agent alone, and its next run would join the next epoch
            # while a worker of this one runs.
            code = self._settings.exit_code
            self._log("failed", level="error", error=repr(error), exit_code=code)
            return code

    async def _serve(self) -> int:
        settings = self._settings
        async with supervise() as tasks:
            # First, because the answer takes as long as everything below.
            self._follower.start(tasks)
            try:
                sock = listen(settings.barrier_bind_address, settings.barrier_port)
            except OSError as error:
                self._log(
                    "cannot serve the barrier",
                    level="error",
                    error=str(error),
                    address=settings.barrier_bind_address or "all",
                    port=settings.barrier_port,
                )
                return EXIT_LISTEN
            async with self._server.listening(sock):
                self._log(
                    "started",
                    pod=settings.pod_name,
                    jobset=settings.jobset_name,
                    port=sock.getsockname()[1],
                )
                return await self._restart.get()

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            self._arrival.forget()
            self._on_open()

    def _end_unprobed(self) -> None:
        # The saved epoch stays: the worker, if it was started, ends with this pod's containers, and
        # has not run in a complete group. So the pod comes back at the same epoch.
        code = self._settings.exit_code
        self._log(
            "the kubelet has stopped probing the closed barrier",
            level="warning",
            exit_code=code,
            hint="a kubelet that restarts forgets the probe, and starts the worker too early; its "
            "gate ChangeContainerStatusOnKubeletRestart avoids it, and so does supervisor mode",
        )
        # The manager would take this end for a crash, and charge it to maxRestarts.
        loop, epoch = asyncio.get_running_loop(), self._follower.barrier.epoch
        about = {agent_keys.UNPROBED_ANNOTATION: f"{epoch} {loop.time():.0f}"}
        loop.call_later(REPORT_S, self._end_closed, code)
        self._follower.reporter.annotate(about, then=partial(self._end_closed, code))

    def _end_closed(self, code: int) -> None:
        if not self._opened:  # else the barrier has lifted meanwhile, and the worker may run
            self._restart.put_nowait(code)

    def _note(self, epoch: int) -> None:
        if problem := self._arrival.note(self._follower.barrier.uid, epoch):
            self._log(
                "the epoch cannot be noted for a next run of this container",
                level="warning",
                error=problem,
                hint="if this one is ended before the barrier lifts, all pods of the JobSet may "
                "restart; have ARRIVAL_FILE name a file in an emptyDir",
            )

    def _lift(self, epoch: int) -> None:
        self._server.lift()
        self._log("barrier lifted", epoch=epoch)

    def _do(self, action: PatchEpoch | Lift | Restart) -> None:
        match action:
            case PatchEpoch(epoch):
                self._log("joining", epoch=epoch)
                self._note(epoch)
                self._follower.reporter.report(epoch)
            case Lift(epoch):
                self._follower.reporter.when_confirmed(epoch, partial(self._lift, epoch))
            case Restart(epoch, deprecated, _):
                code = self._settings.exit_code
                self._log("epoch deprecated", epoch=epoch, deprecated=deprecated, exit_code=code)
                self._restart.put_nowait(code)
            case _:
                assert_never(action)


def main(*, log: Log) -> int:
    """Run the sidecar as its environment configures it; see ``jobsetpy.agent.main``."""
    leave_on_signals()
    settings = load(os.environ)

    def worker_starts() -> None:
        # From now on, an agent that is ended must not be restarted alone while the worker runs. If
        # the kubelet ends it with its pod, the code does not matter.
        leave_on_signals(settings.exit_code)

    agent = Agent(settings, connect(settings), log=log, on_open=worker_starts)
    # The client is not closed, because the process then ends.
    return asyncio.run(agent.run())
