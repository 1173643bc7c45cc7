"""Writer of a JobSet's status for reconcilers.

A write carries the resourceVersion that it was decided on, so nothing is decided twice on a stale
cache, and a manager that has lost its lease overwrites nothing. Events and metrics of a change
follow the write and never occur without it.
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
from jobsetpy.api.jobset import JobSet, JobSetStatus
from jobsetpy.api.meta import version_number
from jobsetpy.errors import ConflictError, NotFoundError
from jobsetpy.reconcilers.execution import metrics as execution_metrics
from jobsetpy.reconcilers.execution.definition import Definition
from jobsetpy.reconcilers.execution.owners import OWNERS
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import history, time_spent
from jobsetpy.reconcilers.rules.history import Over
from jobsetpy.reconcilers.rules.plan import EmitEvent, StatusChange
from jobsetpy.reconcilers.rules.summary import state
from jobsetpy.reconcilers.rules.times import Now

_EPOCHS: Final = frozenset({"status.syncedEpoch", "status.deprecatedEpoch"})
_KINDS: Final[Mapping[str, execution_metrics.RestartKind]] = {
    history.IN_PLACE: "in_place",
    history.RECREATE: "recreate",
    history.REPLICATED_JOB: "replicated_job",
    history.JOB: "job",
}
TRIES: Final = 5
"""Maximum number of decisions in one reconcile, if the JobSet changes before each write."""


def moment(clock: Clock) -> Now:
    """Return the current time on both clocks, for a plan."""
    return Now(clock.now(), clock.monotonic())


class StatusWriter:
    """Writer of the status of JobSets for one reconciler.

    Args:
        client: sends the writes.
        jobsets: cache of JobSets.
        events: receives events about JobSets.
        own_writes: expectations of the writes, by key of the JobSet, if the reconciler waits for
            them.
        jobs: cache of Jobs, which events may name.
        pods: cache of pods, which events may name.
        clock: measures the writes.
        definition: fields that the CRD does not have, which are not written.
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
        definition: Definition | None = None,
    ) -> None:
        self._client = client
        self._definition = definition
        self._clock = clock or LoopClock()
        self._jobsets = jobsets
        self._events = events
        self._jobs = jobs
        self._pods = pods
        self._ahead: dict[
            rt.ObjectKey, tuple[JobSet, JobSet]
        ] = {}  # and the cached one at that time
        self._gone: dict[rt.ObjectKey, str] = {}
        self._own_writes = own_writes

    def latest(self, key: rt.ObjectKey) -> JobSet | None:
        """Return the newest known state: that of the cache, or the one read or stored here.

        ``None`` if the JobSet is deleted, even while the cache still has it.
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
        newer, then = ahead
        # A cached state that is another one, but not newer, comes from a restored etcd, in which
        # the state read or stored here does not exist.
        moved = cached is then or _version(then) < _version(cached)
        if uid == newer.metadata.uid and moved and _version(cached) < _version(newer):
            return newer
        del self._ahead[key]
        return cached

    async def store(self, jobset: JobSet, change: StatusChange) -> JobSet | None:
        """Store a change by one patch of ``/status``, then record its events and metrics.

        Args:
            jobset: the JobSet on which the change was decided.
            change: the change; without a patch, nothing is done.

        Returns:
            The JobSet after the write, ``jobset`` itself without one, or ``None`` if it is deleted.

        Raises:
            ConflictError: the JobSet has changed since the decision.
        """
        meta, patch = jobset.metadata, await self._kept(change.patch)
        if not patch:
            return jobset
        word = state(evolve(jobset, status=change.status))
        derived: dict[str, Any] = {} if word == jobset.status.state else {"state": word}
        spent = time_spent.accounted(jobset, change, self._clock.now())
        if spent is not None:
            derived["timeSpent"] = time_spent.spent_json(spent)
        patch = {**patch, **await self._kept(derived)}
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
            self._ahead[meta.key] = (stored, cached)
            if self._own_writes is not None:
                self._own_writes.expect_version(
                    meta.key,
                    meta.uid,
                    stored.metadata.resource_version,
                    cached=cached.metadata.resource_version,
                )
        if self._definition is not None and _dropped(stored.status, change.status):
            await self._definition.check()  # the CRD was replaced by an older one
        self.record_events(stored, change.events, series=_occasion(stored))
        _count(jobset, change, self._clock.monotonic() - begun)
        return stored

    async def read(self, key: rt.ObjectKey) -> JobSet | None:
        """Read a JobSet from the API server, for ``latest``; ``None`` if it is deleted."""
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
            self._ahead[key] = (newer, self._jobsets.get(key) or cached)
        return self.latest(key)

    def record_events(
        self, jobset: JobSet, events: Iterable[EmitEvent], *, series: str = ""
    ) -> None:
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
        """Forget a deleted JobSet; its deletion is remembered while the cache still has it."""
        self._ahead.pop(key, None)
        if self._own_writes is not None:
            self._own_writes.forget(key)

    async def _kept(self, patch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields of a patch that the API server stores.

        It drops the others each time, and the next plan would write them again.
        """
        definition, paths = self._definition, {f"status.{each}": each for each in patch}
        if definition is None or definition.missing.isdisjoint(paths):
            return patch
        await definition.check()
        if _EPOCHS & definition.missing & paths.keys():
            # The rest of a decision on epochs follows from them: stored alone, it would be decided
            # again immediately, and a restart counted each time.
            return {}
        return {each: patch[each] for path, each in paths.items() if path not in definition.missing}

    def _ended(self, key: rt.ObjectKey, uid: str) -> None:
        self._gone[key] = uid
        self._ahead.pop(key, None)


class _WritesStatus(Protocol):
    _status: StatusWriter


S = TypeVar("S", bound=_WritesStatus)


def decide_again_on_conflict(
    reconcile: Callable[[S, rt.Request], Coroutine[Any, Any, rt.Result]],
) -> Callable[[S, rt.Request], Coroutine[Any, Any, rt.Result]]:
    """Have ``reconcile`` observe and plan again immediately if the JobSet has changed meanwhile.

    Other fields of the JobSet (mostly the counters of another reconciler) change often, and a
    restart must not wait for the queue because of that. Its ``_status.latest`` returns the JobSet
    that is read in between. After some tries the ``ConflictError`` goes to the queue.
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
    """Return the number of the JobSet's restarts so far: each restart has its own events."""
    status = jobset.status
    of_jobs = sum(sum(item.job_restarts) for item in status.replicated_jobs_status)
    opened = max(status.synced_epoch, status.deprecated_epoch)
    return f"{status.restarts} {of_jobs} {opened}"


def _dropped(stored: JobSetStatus, wanted: JobSetStatus) -> bool:
    """Return True if the API server has not stored a start or an epoch; O(1)."""
    return (stored.start_time is None) is not (wanted.start_time is None) or not same_epochs(
        stored, wanted
    )


def same_epochs(one: JobSetStatus, other: JobSetStatus) -> bool:
    """Return True if two statuses have the same epochs."""
    return (one.synced_epoch, one.deprecated_epoch) == (other.synced_epoch, other.deprecated_epoch)


def _version(jobset: JobSet | None) -> int:
    return 0 if jobset is None else version_number(jobset.metadata.resource_version)


def _count(jobset: JobSet, change: StatusChange, took_s: float) -> None:
    key = jobset.metadata.key
    if change.finished:
        execution_metrics.jobset_finished(change.finished, key.namespace, key.name)
        end = cond.finished(change.status.conditions)
        if end is not None and end.reason == keys.DEADLINE_EXCEEDED_REASON:
            execution_metrics.deadline_exceeded()
    if change.ready_s is not None:
        execution_metrics.jobset_ready(change.ready_s)
    for decision in change.decisions:
        execution_metrics.failure_decided[decision]()
    for kind, count in change.restarted.items():
        execution_metrics.restarted(_KINDS[kind], count)
    for each in change.restarts_over:
        _count_cost(jobset, each, took_s)


def _count_cost(jobset: JobSet, over: Over, took_s: float) -> None:
    """Record the cost of a completed restart.

    Args:
        jobset: JobSet that was restarted.
        over: the completed restart.
        took_s: duration in seconds of the write that ended it, for which pods at a barrier wait.
    """
    record = over.record
    kind = _KINDS.get(record.kind)
    if kind is None or (kind == "in_place" and not record.counted):
        return  # new pods without a failure: the group was resumed or resized
    measured: dict[execution_metrics.RestartPhase, int | None] = {
        "detect": record.detection_millis,
        "deprecate": record.deprecation_millis,
        "gather": record.gathering_millis,
    }
    phases = {phase: value / 1000 for phase, value in measured.items() if value is not None}
    seconds = over.seconds
    if kind == "in_place":
        # All have arrived; the rest of the time is back-off.
        phases["wait"] = max(0.0, seconds - sum(phases.values()))
        phases["lift"] = took_s
        seconds += took_s
    ready = record.outcome == history.COMPLETED
    pods = history.pods_of_restart(jobset, record)
    owner = OWNERS.of(jobset.metadata)
    execution_metrics.restart_over(kind, seconds, pods, phases if ready else None, owner)
