"""Watch of the agent's JobSet, which passes each of its states to the barrier; for both modes.

The watch has no other reader: a state is acted on completely before the next one is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, assert_never

from jobsetpy.agent.protocol.barrier import Action, Barrier
from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.protocol.settings import ApiSettings, Settings
from jobsetpy.agent.protocol.wire_types import JobSet, JobSetStatus
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
    """Watch of the JobSet, in front of a :class:`Barrier`.

    Args:
        settings: names the JobSet to follow.
        client: client with the pod's own service account.
        barrier: receives each state of the JobSet.
        log: log for failures.
        act: executes the barrier's actions; synchronous.
        may_outlive_pod: returns True if the pod may be deleted while the agent continues to run.
            Its token, which is bound to it, is then refused, and the JobSet cannot be read.
        on_status: called with each state of the pod's own JobSet before the barrier processes it.
    """

    def __init__(
        self,
        settings: Settings,
        client: Client,
        *,
        barrier: Barrier,
        log: Log,
        act: Callable[[Action], None],
        may_outlive_pod: Callable[[], bool],
        on_status: Callable[[JobSetStatus], None] = lambda _status: None,
    ) -> None:
        self._on_status = on_status
        self._may_be_given_up = may_outlive_pod
        self._barrier = barrier
        self._log = log
        self._act = act
        hint = (
            "the pod's service account needs the verbs list and watch on "
            f"jobsets.jobset.x-k8s.io in namespace {settings.namespace}"
        )
        observer = WatchLog(log, hint, self._refused)
        self._watcher = watch_one(client, JobSet, settings, settings.jobset_name, observer)
        self._listed: JobSet | None = None
        self._listing = False
        self._present = True

    async def run(self) -> None:
        """Watch until cancelled, regardless of errors from the API server."""
        await self._watcher.run(self.on_events)

    def on_events(self, events: Sequence[WatchEvent[JobSet]]) -> None:
        """Process a batch of watch events; synchronous, so that no state is seen half applied.

        During a list nothing is acted on: its objects may come from an API server's lagging cache,
        and only its end guarantees that they are as new as the request.
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
                case Bookmark() | Unreadable():
                    pass
                case _:
                    assert_never(event)

    def _refused(self) -> None:
        """Stop the worker if the pod, whose token has been refused for long, may be deleted."""
        if not self._may_be_given_up():
            return
        actions = self._barrier.pod_replaced()
        if actions:
            self._log(
                "the token is refused: the pod is presumed deleted, and its worker is stopped",
                level="error",
                seconds=REFUSED_S,
            )
        for action in actions:
            self._act(action)

    def _see(self, jobset: JobSet | None) -> None:
        """Process one complete state of the JobSet; ``None`` if it does not exist."""
        if jobset is None:
            if self._present:
                self._log("no JobSet of this name; waiting", level="warning")
            self._present = False
            return
        self._present = True
        status = jobset.status
        joined = bool(self._barrier.epoch)
        if self._barrier.uid in {"", jobset.metadata.uid}:
            self._on_status(status)
        for action in self._barrier.observe(
            jobset.metadata.uid, status.synced_epoch, status.deprecated_epoch
        ):
            self._act(action)
        if not joined and self._barrier.epoch and not jobset.restarts_in_place:
            self._log(
                "the JobSet does not restart in place: its barrier is never lifted",
                level="warning",
                hint="spec.failurePolicy.restartStrategy must be InPlaceRestart",
            )


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
