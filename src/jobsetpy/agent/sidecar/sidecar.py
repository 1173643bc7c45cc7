"""Process of the sidecar: settings, connection, and execution of the barrier's decisions.

Two requests make up a start: the streaming list of the one JobSet (which then stays open as the
watch) and the patch of its own pod. Everything else here is done before the first of them is
answered.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, assert_never

from jobsetpy.agent.protocol.barrier import Action, Barrier, Foreign, Lift, PatchEpoch, Restart
from jobsetpy.agent.protocol.epoch_reporter import EpochReporter
from jobsetpy.agent.protocol.follower import Follower, connect
from jobsetpy.agent.protocol.log import JsonLog, Log
from jobsetpy.agent.protocol.saved_epoch import Arrival
from jobsetpy.agent.protocol.settings import EXIT_USAGE, ConfigurationError, Settings, load
from jobsetpy.agent.protocol.signals import leave_on_signals
from jobsetpy.agent.sidecar.probe import BarrierServer, listen
from jobsetpy.aio import LoopClock, supervise
from jobsetpy.client import Client

EXIT_LISTEN: Final = 1
"""Exit code if the barrier's port is not available, or something else failed before the barrier
lifted: the kubelet restarts the agent alone, with its back-off."""


class ListenError(Exception):
    """The barrier's address or port is not available."""


class Agent:
    """Agent in sidecar mode: reports the epoch, answers the probe, ends for a restart.

    Args:
        settings: names of the pod and of the JobSet to follow.
        client: client with the pod's own service account.
        log: log for one line per transition.
        arrival: file with the saved epoch, read from the previous run and written for the next.
        on_open: called right before the first worker may be started.
    """

    def __init__(
        self,
        settings: Settings,
        client: Client,
        *,
        log: Log,
        arrival: Arrival | None = None,
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._arrival = arrival
        self._on_open = on_open
        self._log = log
        arrived = ("", 0) if arrival is None else arrival.read()
        self._barrier = Barrier(uid=settings.jobset_uid, arrived=arrived)
        self._opened = False
        self._server = BarrierServer(settings.barrier_path, on_open=self._open)
        self._reporter = EpochReporter(
            client, namespace=settings.namespace, pod_name=settings.pod_name, log=log
        )
        self._follower = Follower(
            settings,
            client,
            barrier=self._barrier,
            log=log,
            act=self._do,
            may_outlive_pod=lambda: self._reporter.may_outlive_pod,
        )
        self._restart: asyncio.Future[int] | None = None

    async def run(self) -> int:
        """Run until the epoch is deprecated.

        Returns:
            The exit code that makes the kubelet restart the pod in place.

        Raises:
            ListenError: the barrier's address or port is not available.
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
        self._restart = asyncio.get_running_loop().create_future()
        async with supervise() as tasks:
            # First, because the answer takes as long as everything below.
            tasks.start(self._follower.run(), name="watch")
            tasks.start(self._reporter.run(), name="report")
            try:
                sock = listen(settings.barrier_bind_address, settings.barrier_port)
            except OSError as error:
                raise ListenError(error) from error
            async with self._server.listening(sock):
                self._log(
                    "started",
                    pod=settings.pod_name,
                    jobset=settings.jobset_name,
                    port=sock.getsockname()[1],
                )
                return await self._restart

    def _open(self) -> None:
        self._opened = True
        if self._arrival is not None:
            self._arrival.forget()
        self._on_open()

    def _note(self, arrival: Arrival, epoch: int) -> None:
        if problem := arrival.note(self._barrier.uid, epoch):
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

    def _do(self, action: Action) -> None:
        match action:
            case PatchEpoch(epoch):
                self._log("joining", epoch=epoch)
                if self._arrival is not None:
                    self._note(self._arrival, epoch)
                self._reporter.report(epoch)
            case Lift(epoch):
                self._reporter.when_confirmed(epoch, partial(self._lift, epoch))
            case Restart(epoch, deprecated, _):
                code = self._settings.exit_code
                self._log("epoch deprecated", epoch=epoch, deprecated=deprecated, exit_code=code)
                assert self._restart is not None
                if not self._restart.done():
                    self._restart.set_result(code)
            case Foreign(uid):
                self._log(
                    "ignoring another JobSet of this name",
                    level="warning",
                    uid=uid,
                    own_uid=self._barrier.uid,
                )
            case _:
                assert_never(action)


async def _run(settings: Settings, log: Log) -> int:
    """Connect and run the agent; the client is not closed, because the process then ends."""

    def worker_starts() -> None:
        # From now on, an agent that is ended must not be restarted alone while the worker runs. If
        # the kubelet ends it with its pod, the code does not matter.
        leave_on_signals(settings.exit_code)

    arrival = Arrival(settings.arrival_file)
    client = connect(settings)
    return await Agent(settings, client, log=log, arrival=arrival, on_open=worker_starts).run()


def main(argv: Sequence[str] = (), *, start: float | None = None) -> int:
    """Run the sidecar as its environment configures it; see ``jobsetpy.agent.main``."""
    leave_on_signals()
    log = JsonLog(LoopClock(), start=time.monotonic() if start is None else start)
    try:
        settings = load(os.environ, argv)
    except ConfigurationError as error:
        log("wrong configuration", level="error", error=str(error))
        return EXIT_USAGE
    try:
        return asyncio.run(_run(settings, log))
    except ListenError as error:
        log(
            "cannot serve the barrier",
            level="error",
            error=str(error),
            address=settings.barrier_bind_address or "all",
            port=settings.barrier_port,
        )
        return EXIT_LISTEN
