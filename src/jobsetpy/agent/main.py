"""The agent's process: settings, connection, and the tasks that carry out the barrier's decisions.

Two requests make up a start: the streaming list of the one JobSet (which then stays open as the
watch) and the patch of the own pod. Everything else that happens here is over before the first of
them is answered.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Final, assert_never

from jobsetpy.agent.barrier import Action, Barrier, Foreign, Lift, PatchEpoch, Restart
from jobsetpy.agent.epoch_reporter import EpochReporter
from jobsetpy.agent.log import JsonLog, Log
from jobsetpy.agent.model import JobSet
from jobsetpy.agent.probe import BarrierServer, listen
from jobsetpy.agent.settings import EXIT_USAGE, ConfigurationError, Settings, load
from jobsetpy.agent.signals import leave_on_signals
from jobsetpy.aio import LoopClock, supervise
from jobsetpy.client._kube import KubeClient
from jobsetpy.client._protocol import Client
from jobsetpy.client._slim import SlimTransport
from jobsetpy.errors import ForbiddenError
from jobsetpy.informers._events import (
    Applied,
    Bookmark,
    Deleted,
    ListCompleted,
    Listed,
    ListStarted,
    WatchEvent,
)
from jobsetpy.informers._observer import NullObserver
from jobsetpy.informers._watcher import Watcher

EXIT_LISTEN: Final = 1
"""The barrier's port cannot be had: the kubelet restarts the agent with its back-off."""

IDLE_TIMEOUT_S: Final = 120.0
"""Longest silence of the watch. Above it, the API server's own bookmarks (one a minute) are the
sign of life, so that thousands of waiting agents cost no requests; a peer that vanished is noticed
sooner, by TCP keep-alive."""


class Agent:
    """Sidecar mode: reports the epoch, answers the probe, ends with the restart's exit code.

    Args:
        settings: who we are and whom we obey.
        client: of the pod's own service account.
        log: one line for each transition.
    """

    def __init__(self, settings: Settings, client: Client, *, log: Log) -> None:
        self._settings = settings
        self._log = log
        self._barrier = Barrier(uid=settings.jobset_uid)
        self._server = BarrierServer(settings.barrier_path)
        self._reporter = EpochReporter(
            client, namespace=settings.namespace, pod_name=settings.pod_name, log=log
        )
        # Its first state is a consistent one, as ``Barrier`` demands: a streaming list that asks
        # for no resourceVersion, or a paged list that asks for none where streaming is refused.
        self._watcher = Watcher(
            client,
            JobSet,
            namespace=settings.namespace,
            field_selector=f"metadata.name={settings.jobset_name}",
            page_limit=0,
            streaming=True,
            idle_timeout_s=IDLE_TIMEOUT_S,
            observer=_WatchLog(log, settings),
        )
        self._listed: JobSet | None = None
        self._listing = False
        self._present = True
        self._restart: asyncio.Future[int] | None = None

    async def run(self) -> int:
        """Live until the epoch is deprecated.

        Returns:
            The exit code that has the pod restarted in place.

        Raises:
            OSError: the barrier's address or port cannot be had.
        """
        settings = self._settings
        self._restart = asyncio.get_running_loop().create_future()
        async with supervise() as tasks:
            # First of all, because the answer takes as long as everything below.
            tasks.start(self._watcher.run(self.on_events), name="watch")
            tasks.start(self._reporter.run(), name="report")
            sock = listen(settings.barrier_bind_address, settings.barrier_port)
            async with self._server.listening(sock):
                self._log(
                    "started",
                    pod=settings.pod_name,
                    jobset=settings.jobset_name,
                    port=sock.getsockname()[1],
                )
                return await self._restart

    def on_events(self, events: Sequence[WatchEvent[JobSet]]) -> None:
        """Take a batch of watch events; synchronous, so that no state is seen half applied.

        During a list nothing is acted upon: its objects may come from an API server's cache that
        lags behind, and only its end says that they are as new as the moment it was asked for.
        """
        for event in events:
            match event:
                case ListStarted():
                    self._listing, self._listed = True, None
                case Listed(jobset) | Applied(jobset) if self._listing:
                    self._listed = jobset
                case Deleted() if self._listing:
                    self._listed = None
                case ListCompleted():
                    self._listing = False
                    self._see(self._listed)
                case Listed(jobset) | Applied(jobset):
                    self._see(jobset)
                case Deleted():
                    self._see(None)
                case Bookmark():
                    pass
                case _:
                    assert_never(event)

    def _see(self, jobset: JobSet | None) -> None:
        """One complete state of the JobSet; ``None`` when there is none."""
        if jobset is None:
            if self._present:
                self._log("no JobSet of this name; waiting", level="warning")
            self._present = False
            return
        self._present = True
        status = jobset.status
        joined = bool(self._barrier.epoch)
        for action in self._barrier.observe(
            jobset.metadata.uid, status.synced_epoch, status.deprecated_epoch
        ):
            self._do(action)
        if not joined and self._barrier.epoch and not jobset.restarts_in_place:
            self._log(
                "the JobSet does not restart in place: nobody will lift the barrier",
                level="warning",
                hint="spec.failurePolicy.restartStrategy must be InPlaceRestart",
            )

    def _do(self, action: Action) -> None:
        match action:
            case PatchEpoch(epoch):
                self._log("joining", epoch=epoch)
                self._reporter.report(epoch)
            case Lift(epoch):
                self._server.lift()
                # Synced means that the controller saw our annotation.
                self._reporter.seen(epoch)
                self._log("barrier lifted", epoch=epoch)
            case Restart(epoch, deprecated):
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


class _WatchLog(NullObserver):
    """Says what goes wrong with the watch, and which permission is missing."""

    def __init__(self, log: Log, settings: Settings) -> None:
        self._log = log
        self._settings = settings

    def on_failure(self, kind: str, error: Exception, retry_in_s: float) -> None:
        """A list or watch request failed."""
        fields: dict[str, object] = {"error": str(error), "retry_s": round(retry_in_s, 3)}
        if isinstance(error, ForbiddenError):
            fields["hint"] = (
                "the pod's service account needs the verbs list and watch on "
                f"jobsets.jobset.x-k8s.io in namespace {self._settings.namespace}"
            )
        self._log(f"cannot watch the {kind}", level="warning", **fields)

    def on_silence(self, kind: str, seconds: float) -> None:
        """The watch died without a word."""
        self._log(f"watch of the {kind} is silent", level="warning", seconds=round(seconds))

    def on_decode_error(self, kind: str, error: Exception, namespace: str, name: str) -> None:
        """The JobSet is not what we think a JobSet is."""
        key = f"{namespace}/{name}"
        self._log(f"cannot read the {kind}", level="error", error=str(error), object=key)


async def _run(settings: Settings, log: Log) -> int:
    """Connect and live; the client is not closed, because the process ends right after."""
    folder = settings.service_account_dir
    transport = SlimTransport.in_cluster(
        token_file=f"{folder}/token",
        ca_file=f"{folder}/ca.crt",
        host=settings.api_host,
        port=settings.api_port,
    )
    return await Agent(settings, KubeClient(transport), log=log).run()


def main(argv: Sequence[str] = (), *, start: float | None = None) -> int:
    """Run the agent by its environment.

    Args:
        argv: flags, without the program's name.
        start: when the process started, on ``time.monotonic()``.

    Returns:
        The exit code: the configured one for a restart in place, 2 for a configuration that cannot
        work, 1 when the barrier's port cannot be had. SIGTERM and SIGINT end the process with 0
        before this returns (see ``signals``).
    """
    leave_on_signals()
    log = JsonLog(LoopClock(), start=time.monotonic() if start is None else start)
    try:
        settings = load(os.environ, argv)
    except ConfigurationError as error:
        log("wrong configuration", level="error", error=str(error))
        return EXIT_USAGE
    try:
        return asyncio.run(_run(settings, log))
    except OSError as error:
        log(
            "cannot serve the barrier",
            level="error",
            error=str(error),
            address=settings.barrier_bind_address or "all",
            port=settings.barrier_port,
        )
        return EXIT_LISTEN
