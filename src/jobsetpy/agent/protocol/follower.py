"""Part of a pod in the restart protocol, for both modes: watch of its JobSet, barrier, and report.

The watch has no other reader: a state is acted on completely before the next one is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, assert_never

from jobsetpy.agent.protocol.barrier import Action, Barrier, Foreign, Lift, PatchEpoch, Restart
from jobsetpy.agent.protocol.epoch_reporter import EpochReporter
from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.protocol.settings import ApiSettings, Settings
from jobsetpy.agent.protocol.wire_types import JobSet, JobSetStatus
from jobsetpy.aio import Supervisor
from jobsetpy.client import Client, H11Transport
from jobsetpy.errors import ForbiddenError, UnauthorizedError
from jobsetpy.informers._events import (
    Applied,
    Bookmark,
    Deleted,
    ListCompleted,
    Listed,
    ListStarted,
    Unreadable,
    WatchEvent,
)
from jobsetpy.informers._observer import NullObserver
from jobsetpy.informers._options import WatchOptions
from jobsetpy.informers._watcher import Watcher

IDLE_TIMEOUT_S: Final = 120.0
"""Longest silence of the watch, in seconds. It exceeds the interval of the API server's own
bookmarks (one a minute), so that thousands of waiting agents cost no requests; TCP keep-alive
detects a vanished peer sooner."""

REFUSED_S: Final = 180.0
"""Time for which the API server must refuse the token before the pod is presumed gone. The token is
bound to the pod, so it stays refused once the pod is deleted. But API servers also refuse tokens
while signing keys are rotated or an authenticator is down, for minutes, and those of all workers of
the cluster."""


def connect(settings: ApiSettings) -> Client:
    """Return a client with the pod's own service account; nothing is sent yet."""
    folder = settings.service_account_dir
    transport = H11Transport.in_cluster(
        token_file=f"{folder}/token",
        ca_file=f"{folder}/ca.crt",
        host=settings.api_host,
        port=settings.api_port,
    )
    return Client(transport)


def watch_one(
    client: Client,
    cls: type[Any],
    settings: ApiSettings,
    name: str,
    observer: NullObserver,
    **options: Any,
) -> Watcher[Any]:
    """Return a watch of one object in the pod's namespace.

    Its first state is a consistent one: a streaming list that asks for no resourceVersion, or a
    paged list without one if streaming is refused.
    """
    return Watcher(
        client,
        cls,
        WatchOptions(
            namespace=settings.namespace,
            field_selector=f"metadata.name={name}",
            page_limit=0,
            streaming=True,
            idle_timeout_s=IDLE_TIMEOUT_S,
            observer=observer,
            **options,
        ),
    )


class Follower:
    """Watch of the JobSet in front of a :class:`Barrier`, and the reporter of the pod's epoch.

    Args:
        settings: names of the pod and of the JobSet to follow.
        client: client with the pod's own service account.
        log: log for failures, and for JobSets that are not the pod's own.
        act: executes the barrier's other actions; synchronous.
        arrived: as for :class:`Barrier`.
        on_status: called with each state of the pod's own JobSet before the barrier processes it.
    """

    def __init__(
        self,
        settings: Settings,
        client: Client,
        *,
        log: Log,
        act: Callable[[PatchEpoch | Lift | Restart], None],
        arrived: tuple[str, int] = ("", 0),
        on_status: Callable[[JobSetStatus], None] = lambda _status: None,
    ) -> None:
        self.barrier = Barrier(uid=settings.jobset_uid, arrived=arrived)
        self.reporter = EpochReporter(settings, client, log=log)
        self._on_status = on_status
        self._log = log
        self._act = act
        hint = (
            "the pod's service account needs the verbs list and watch on "
            f"jobsets.jobset.x-k8s.io in namespace {settings.namespace}"
        )
        observer = WatchLog(log, hint, self._refused)
        self._watcher = watch_one(client, JobSet, settings, settings.jobset_name, observer)
        self._jobset: JobSet | None = None
        self._listing = False
        self._present = True

    def start(self, tasks: Supervisor) -> None:
        """Watch and report until cancelled, regardless of errors from the API server."""
        tasks.start(self._watcher.run(self.on_events), name="watch")
        tasks.start(self.reporter.run(), name="report")

    def next_round(self) -> None:
        """Join the next epoch; see :meth:`Barrier.next_round`."""
        self._perform(self.barrier.next_round())

    def on_events(self, events: Sequence[WatchEvent[JobSet]]) -> None:
        """Process a batch of watch events; synchronous, so that no state is seen half applied.

        During a list nothing is acted on: its objects may come from an API server's lagging cache,
        and only its end guarantees that they are as new as the request.
        """
        for event in events:
            match event:
                case ListStarted():
                    self._listing, self._jobset = True, None
                case ListCompleted():
                    self._listing = False
                case Listed(jobset) | Applied(jobset):
                    self._jobset = jobset
                case Deleted():
                    self._jobset = None
                case Bookmark() | Unreadable():
                    continue
                case _:
                    assert_never(event)
            if not self._listing:
                self._see(self._jobset)
            if isinstance(event, ListCompleted) and not self.barrier.lifted:
                # etcd may have been restored from a backup that is older than the report. Running
                # workers need no report, and a whole cluster of agents must not patch after each
                # outage.
                self.reporter.repeat()

    def _refused(self) -> None:
        """Stop the worker if the pod may be deleted: its token has been refused for long.

        The token is bound to the pod. Without it the JobSet cannot be read.
        """
        if not self.reporter.may_outlive_pod:
            return
        actions = self.barrier.pod_replaced()
        if actions:
            self._log(
                "the token is refused: the pod is presumed deleted, and its worker is stopped",
                level="error",
                seconds=REFUSED_S,
            )
        self._perform(actions)

    def _see(self, jobset: JobSet | None) -> None:
        """Process one complete state of the JobSet; ``None`` if it does not exist."""
        if jobset is None:
            if self._present:
                self._log("no JobSet of this name; waiting", level="warning")
            self._present = False
            return
        self._present = True
        status = jobset.status
        uid, barrier = jobset.metadata.uid, self.barrier
        joined = bool(barrier.epoch)
        if barrier.uid in {"", uid}:
            self._on_status(status)
        self._perform(barrier.observe(uid, status.synced_epoch, status.deprecated_epoch))
        if barrier.lifted and uid == barrier.uid and status.synced_epoch < barrier.epoch:
            # Within one history of etcd the synced epoch never decreases: it was restored from a
            # backup, and this epoch was lost. If no agent reported it, a pod that starts now would
            # join it while the others run.
            self.reporter.repeat()
        if not joined and barrier.epoch and not jobset.restarts_in_place:
            self._log(
                "the JobSet does not restart in place: its barrier is never lifted",
                level="warning",
                hint="spec.failurePolicy.restartStrategy must be InPlaceRestart",
            )

    def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Foreign):
                self._log(
                    "ignoring another JobSet of this name",
                    level="warning",
                    uid=action.uid,
                    own_uid=self.barrier.uid,
                )
            else:
                self._act(action)


class WatchLog(NullObserver):
    """Logger of a watch's failures; a missing permission is logged once.

    Args:
        log: log to write to.
        hint: permission that the pod's account needs.
        refused: called when the token has been refused for ``REFUSED_S``, and at each later
            refusal.
    """

    def __init__(self, log: Log, hint: str, refused: Callable[[], None] = lambda: None) -> None:
        self._log = log
        self._hint = hint
        self._refused = refused
        self._refused_since: float | None = None
        self._forbidden = False

    def on_watch_open(self, kind: str, resource_version: str) -> None:  # noqa: ARG002 - a protocol's
        """Record that the token is accepted."""
        self._refused_since = None

    def on_failure(self, kind: str, error: Exception, retry_in_s: float) -> None:
        """Log a list or watch request that failed."""
        if not isinstance(error, UnauthorizedError):
            self._refused_since = None
        else:
            now = asyncio.get_running_loop().time()
            if self._refused_since is None:
                self._refused_since = now
            elif now - self._refused_since >= REFUSED_S:
                self._refused()
        known, self._forbidden = self._forbidden, isinstance(error, ForbiddenError)
        if known and self._forbidden:
            return
        fields: dict[str, object] = {"error": str(error), "retry_s": round(retry_in_s, 3)}
        if self._forbidden:
            fields["hint"] = self._hint
        self._log(f"cannot watch the {kind}", level="warning", **fields)

    def on_silence(self, kind: str, seconds: float) -> None:
        """Log a watch that has become silent."""
        self._log(f"watch of the {kind} is silent", level="warning", seconds=round(seconds))

    def on_decode_error(self, kind: str, error: Exception, namespace: str, name: str) -> None:
        """Log a JobSet that cannot be decoded."""
        key = f"{namespace}/{name}"
        self._log(f"cannot read the {kind}", level="error", error=str(error), object=key)
