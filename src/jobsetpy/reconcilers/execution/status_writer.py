"""How reconcilers store the status of a JobSet.

A write carries the resourceVersion that it was decided on, so nothing is decided twice, however
stale a cache may be, and a manager that has lost its lease overwrites nothing. Events and metrics
of a change come after the write and never without it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import wraps
from typing import Any, Final, Protocol, TypeVar

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock, LoopClock
from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import version_number
from jobsetpy.errors import ConflictError, NotFoundError
from jobsetpy.reconcilers.execution import metrics as execution_metrics
from jobsetpy.reconcilers.rules import history
from jobsetpy.reconcilers.rules.history import Over
from jobsetpy.reconcilers.rules.plan import EmitEvent, Now, StatusChange
from jobsetpy.reconcilers.rules.summary import state

_KINDS: Final[Mapping[str, execution_metrics.RestartKind]] = {
    history.IN_PLACE: "in_place",
    history.RECREATE: "recreate",
    history.REPLICATED_JOB: "replicated_job",
    history.JOB: "job",
}
TRIES: Final = 5
"""How often one reconcile decides, if the JobSet changes each time before the write."""


def moment(clock: Clock) -> Now:
    """Now, for a plan."""
    return Now(clock.now(), clock.monotonic())


class StatusWriter:
    """Writes the status of JobSets for one reconciler.

    Args:
        client: sends the writes.
        jobsets: cache of JobSets.
        events: receives events about JobSets.
        own_writes: expects the writes, by key of the JobSet, where the reconciler waits for them.
        jobs: cache of Jobs, which events may name.
        pods: cache of pods, which events may name.
        clock: measures the writes.
    """

    def __init__(
        self,
        client: rt.Client,
        jobsets: rt.Store[JobSet],
        events: rt.EventRecorder,
        *,
        own_writes: rt.Expectations | None = None,
        jobs: rt.Store[Job] | None = None,
        pods: rt.Store[Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._clock = clock or LoopClock()
        self._jobsets = jobsets
        self._events = events
        self._jobs = jobs
        self._pods = pods
        self._ahead: dict[rt.ObjectKey, JobSet] = {}
        self._gone: dict[rt.ObjectKey, str] = {}
        self._own_writes = own_writes

    def latest(self, key: rt.ObjectKey) -> JobSet | None:
        """The newest known state: that of the cache, or what was read or stored here.

        ``None`` if the JobSet is gone, even while the cache still shows it.
        """
        cached = self._jobsets.get(key)
        uid = "" if cached is None else cached.metadata.uid
        if key in self._gone:
            if self._gone[key] == uid:
                return None
            del self._gone[key]
        ahead = self._ahead.get(key)
        if ahead is None:
            return cached
        if uid == ahead.metadata.uid and _version(cached) < _version(ahead):
            return ahead
        del self._ahead[key]
        return cached

    async def store(self, jobset: JobSet, change: StatusChange) -> JobSet | None:
        """Store a change by one patch of ``/status``, then tell its events and count it.

        Args:
            jobset: what the change was decided on.
            change: without a patch, nothing is done.

        Returns:
            The JobSet as it is now, or ``None`` if it is gone.

        Raises:
            ConflictError: the JobSet is not any more what the change was decided on.
        """
        if not change.patch:
            return jobset
        meta, patch = jobset.metadata, change.patch
        word = state(evolve(jobset, status=change.status))
        if word != jobset.status.state:
            patch = {**patch, "state": word}
        body = {"metadata": {"resourceVersion": meta.resource_version}, "status": patch}
        begun = self._clock.monotonic()
        try:
            stored = await self._client.merge_patch(
                JobSet, meta.namespace, meta.name, body, subresource="status"
            )
        except NotFoundError:
            self._ended(meta.key, meta.uid)
            return None
        cached = self._jobsets.get(meta.key)
        if cached is not None and cached.metadata.uid == meta.uid:
            self._ahead[meta.key] = stored
            if self._own_writes is not None:
                self._own_writes.expect_version(
                    meta.key,
                    meta.uid,
                    stored.metadata.resource_version,
                    cached=cached.metadata.resource_version,
                )
        self.tell(stored, change.events, series=_occasion(stored))
        _count(jobset, change, self._clock.monotonic() - begun)
        return stored

    async def read(self, key: rt.ObjectKey) -> JobSet | None:
        """Read a JobSet past the cache, for ``latest``; ``None`` if it is gone."""
        cached = self._jobsets.get(key)
        if cached is None:
            return None
        try:
            newer = await self._client.get(JobSet, key.namespace, key.name)
        except NotFoundError:
            newer = None
        if newer is None or newer.metadata.uid != cached.metadata.uid:
            self._ended(key, cached.metadata.uid)
        else:
            self._ahead[key] = newer
        return self.latest(key)

    def tell(self, jobset: JobSet, events: Iterable[EmitEvent], *, series: str = "") -> None:
        """Record events about a JobSet; those of another ``series`` are no repeats of these."""
        namespace = jobset.metadata.namespace
        for event in events:
            related = None
            if event.job and self._jobs is not None:
                related = self._jobs.get(rt.ObjectKey(namespace, event.job))
            elif event.pod and self._pods is not None:
                related = self._pods.get(rt.ObjectKey(namespace, event.pod))
            self._events.event(
                jobset, event.type_, event.reason, event.message, related=related, series=series
            )

    def forget(self, key: rt.ObjectKey) -> None:
        """The JobSet is gone; if the cache does not say so yet, it is still known here."""
        self._ahead.pop(key, None)
        if self._own_writes is not None:
            self._own_writes.forget(key)

    def _ended(self, key: rt.ObjectKey, uid: str) -> None:
        self._gone[key] = uid
        self._ahead.pop(key, None)


class _WritesStatus(Protocol):
    _status: StatusWriter


S = TypeVar("S", bound=_WritesStatus)


def decide_again_on_conflict(
    reconcile: Callable[[S, rt.Request], Coroutine[Any, Any, rt.Result]],
) -> Callable[[S, rt.Request], Coroutine[Any, Any, rt.Result]]:
    """Have ``reconcile`` observe and plan afresh, at once, when the JobSet had changed meanwhile.

    Something else of the JobSet (the counters of another reconciler, most often) changes often, and
    a restart must not wait for the queue because of that. Its ``_status.latest`` shows what is read
    in between. After some tries the ``ConflictError`` goes to the queue.
    """

    @wraps(reconcile)
    async def persistent(self: S, request: rt.Request) -> rt.Result:
        for _ in range(TRIES - 1):
            try:
                return await reconcile(self, request)
            except ConflictError:
                await self._status.read(request.key)
        return await reconcile(self, request)

    return persistent


def _occasion(jobset: JobSet) -> str:
    """How often the JobSet was restarted so far: each restart has events of its own."""
    status = jobset.status
    of_jobs = sum(sum(item.job_restarts) for item in status.replicated_jobs_status)
    opened = max(status.synced_epoch, status.deprecated_epoch)
    return f"{status.restarts} {of_jobs} {opened}"


def _version(jobset: JobSet | None) -> int:
    return 0 if jobset is None else version_number(jobset.metadata.resource_version)


def _count(jobset: JobSet, change: StatusChange, took_s: float) -> None:
    key = jobset.metadata.key
    if change.finished == keys.FAILED_CONDITION:
        execution_metrics.jobset_failed(key.namespace, key.name)
    elif change.finished == keys.COMPLETED_CONDITION:
        execution_metrics.jobset_completed(key.namespace, key.name)
    if change.ready_s is not None:
        execution_metrics.jobset_ready(change.ready_s)
    for decision in change.decisions:
        execution_metrics.failure_decided(decision)
    if change.restarted:
        execution_metrics.restarted("recreate")
    for _ in range(change.jobs_restarted):
        execution_metrics.restarted("job")
    for _ in range(change.replicated_jobs_restarted):
        execution_metrics.restarted("replicated_job")
    for each in change.restarts_over:
        _count_cost(jobset, each, took_s)


def _count_cost(jobset: JobSet, over: Over, took_s: float) -> None:
    """Count what a restart that is over has cost.

    Args:
        jobset: of which it was one.
        over: the restart.
        took_s: how long the write took that ended it, which is what pods at a barrier wait for.
    """
    record = over.record
    kind = _KINDS.get(record.kind)
    if kind is None or (kind == "in_place" and not record.counted):
        return  # pods came anew that did not fail: the group was resumed or resized
    measured: dict[execution_metrics.RestartPhase, int | None] = {
        "detect": record.detection_millis,
        "deprecate": record.deprecation_millis,
        "gather": record.gathering_millis,
    }
    phases = {phase: value / 1000 for phase, value in measured.items() if value is not None}
    seconds = over.seconds
    if kind == "in_place":
        # All are there, and the rest of the time is the back-off's.
        phases["wait"] = max(0.0, seconds - sum(phases.values()))
        phases["lift"] = took_s
        seconds += took_s
    ready = record.outcome == history.COMPLETED
    pods = history.pods_of_restart(jobset, record)
    execution_metrics.restart_over(kind, seconds, pods, phases if ready else None)
