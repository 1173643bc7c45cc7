"""Keeps the child Jobs, Service and volume claims of each JobSet as its spec and rules ask.

A pass looks at the caches, has ``domain.children.planner`` decide, and carries the plan out. It
never acts on a cache that does not show its own earlier writes yet, and its status write carries
the resourceVersion that the decision was made on, so a failure is counted once however stale a
cache may be.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock, LoopClock
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap, PersistentVolumeClaim, Service
from jobsetpy.api.group_signal import config_map_name
from jobsetpy.api.jobset import JobSet
from jobsetpy.domain import plan as p
from jobsetpy.domain.children.planner import ObservedJobSet, plan_jobs
from jobsetpy.domain.children.volumes import claim_bodies
from jobsetpy.domain.coscheduling.backends import PodMarkers
from jobsetpy.domain.features import Features
from jobsetpy.domain.jobs.counters import is_ready
from jobsetpy.domain.jobs.failure_policy import DECISIONS
from jobsetpy.domain.names import subdomain
from jobsetpy.errors import NotFoundError, TerminalError
from jobsetpy.reconcilers import metrics
from jobsetpy.reconcilers._child_writer import NAMED_FAILURES, ChildWriter
from jobsetpy.reconcilers.feature_gate_warnings import feature_gate_warnings

CHILD_SELECTOR: Final = keys.JOBSET_NAME
"""Label selector of child Jobs, claims and pods: the label exists."""

_SOON_S: Final = 0.001
"""Waits shorter than this are over: timers are not that exact, and would only be set again."""

_COUNTERS: Final = frozenset({"replicatedJobsStatus", "restarts"})


@attrs.frozen(kw_only=True)
class JobsSettings:
    """How the jobs reconciler works.

    Args:
        features: the feature gates.
        workers: maximum concurrent reconciles.
        parallel_writes: maximum concurrent requests for one JobSet.
        counters_every_s: a status write that changes nothing but counters waits until these
            seconds after the one before; all others are written at once.
        own_writes_ttl_s: how long to wait for the cache to show own writes.
        group_rbac: whether pods of a group are given the right to watch their ConfigMap.
        marks: what pods of coscheduling's groups are given.
        cooldown_factor: the minimum pause between two reconciles of a JobSet, as a multiple of
            the time that the first one took to decide. Bounds one JobSet's share of the event loop.
    """

    features: Features = attrs.field(factory=Features)
    workers: int = 8
    parallel_writes: int = 64
    counters_every_s: float = 0.2
    own_writes_ttl_s: float = 30.0
    cooldown_factor: float = 8.0
    group_rbac: bool = False
    marks: PodMarkers = attrs.field(factory=PodMarkers)


@attrs.define
class _Memory:
    """What a reconciler remembers of a JobSet between passes; nothing that it could not lose."""

    told: frozenset[p.EmitEvent] = frozenset()
    counters_at: float = float("-inf")
    not_before: float = float("-inf")


class JobsReconciler:
    """One pass over one JobSet.

    Args:
        client: writes.
        jobsets: cache of JobSets.
        jobs: cache of child Jobs, with the index ``OWNER_UID``.
        services: cache of Services.
        claims: cache of volume claims.
        config_maps: cache of the ConfigMaps of groups.
        events: receives events about JobSets.
        settings: see there.
        clock: time.
    """

    def __init__(
        self,
        client: rt.Client,
        *,
        jobsets: rt.Store[JobSet],
        jobs: rt.Store[Job],
        services: rt.Store[Service],
        claims: rt.Store[PersistentVolumeClaim],
        config_maps: rt.Store[ConfigMap],
        events: rt.EventRecorder,
        settings: JobsSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._jobsets = jobsets
        self._jobs = jobs
        self._services = services
        self._claims = claims
        self._config_maps = config_maps
        self._events = events
        self._settings = settings or JobsSettings()
        self._clock = clock or LoopClock()
        ttl_s = self._settings.own_writes_ttl_s
        self.own_jobs = rt.Expectations("jobset/jobs", ttl_s=ttl_s, clock=self._clock)
        self._writer = ChildWriter(
            client, jobs, events, self.own_jobs, parallel=self._settings.parallel_writes
        )
        self.own_status = rt.Expectations("jobset/status", ttl_s=ttl_s, clock=self._clock)
        self._memory: dict[rt.ObjectKey, _Memory] = {}

    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Bring one JobSet a step nearer to what it asks for.

        Raises:
            ConflictError: the status was written by someone else meanwhile; decide anew.
            ExceptionGroup: some writes failed; the others were made.
            TerminalError: a part of the JobSet cannot be handled until it is changed.
        """
        key = request.key
        jobset = self._jobsets.get(key)
        if jobset is None:
            self._forget(key)
            return rt.Result.done()
        memory = self._memory.setdefault(key, _Memory())
        wait_s = self._wait_s(key, memory)
        if wait_s > _SOON_S:
            return rt.Result.requeue_after(timedelta(seconds=wait_s))
        begin = self._clock.monotonic()
        plan = plan_jobs(self._observe(jobset), self._clock.now())
        end = self._clock.monotonic()
        memory.not_before = end + (end - begin) * self._settings.cooldown_factor
        return await self._execute(jobset, plan, memory)

    def _wait_s(self, key: rt.ObjectKey, memory: _Memory) -> float:
        """How long not to look at a JobSet yet, in seconds."""
        wait_s = memory.not_before - self._clock.monotonic()
        for own in (self.own_jobs, self.own_status):
            if not own.is_satisfied(key):
                wait_s = max(wait_s, own.seconds_left(key))
        return wait_s

    def _forget(self, key: rt.ObjectKey) -> None:
        if self._memory.pop(key, None) is not None:
            self.own_jobs.forget(key)
            self.own_status.forget(key)
            metrics.forget_jobset(key.namespace, key.name)

    def _observe(self, jobset: JobSet) -> ObservedJobSet:
        namespace = jobset.metadata.namespace
        jobs = self._jobs.by_index(rt.OWNER_UID, jobset.metadata.uid)
        name = subdomain(jobset)
        there = self._services.get(rt.ObjectKey(namespace, name)) is not None
        claims: frozenset[str] = frozenset()
        if jobset.spec.volume_claim_policies:
            claims = frozenset(
                claim
                for claim in claim_bodies(jobset)
                if self._claims.get(rt.ObjectKey(namespace, claim)) is not None
            )
        group = rt.ObjectKey(namespace, config_map_name(jobset.metadata.name))
        return ObservedJobSet(
            jobset,
            [job for job in jobs if job.metadata.namespace == namespace],
            frozenset({name}) if there else frozenset(),
            claims,
            self._settings.features,
            frozenset({group.name} if self._config_maps.get(group) is not None else ()),
            self._settings.group_rbac,
            self._settings.marks,
        )

    # -- carrying a plan out ------------------------------------------------------------------

    async def _execute(self, jobset: JobSet, plan: p.JobsPlan, memory: _Memory) -> rt.Result:
        self._tell_notices(jobset, plan, memory)
        failures = await self._writer.carry_out(jobset, plan.actions)
        status = plan.partial_status if failures else plan.status
        again = plan.requeue_after
        written = False
        if status is not None and status.patch:
            wait_s = self._counters_wait_s(jobset, status, memory)
            if wait_s > _SOON_S:
                left = timedelta(seconds=wait_s)
                again = left if again is None else min(again, left)
            else:
                written = await self._write_status(jobset, status, memory)
        if failures:
            errors = [error for _, error in failures]
            msg = f"{len(errors)} of {len(plan.actions)} writes failed: {errors[0]}"
            raise ExceptionGroup(msg, errors[:NAMED_FAILURES])
        if plan.problem:
            raise TerminalError(plan.problem)
        summary = _summary(plan.actions, written=written)
        if again is None:
            return rt.Result.done(summary=summary)
        return rt.Result.requeue_after(again, summary=summary)

    def _tell_notices(self, jobset: JobSet, plan: p.JobsPlan, memory: _Memory) -> None:
        """Tell what is new since the pass before."""
        for notice in plan.notices:
            if notice not in memory.told:
                self._event(jobset, notice)
        memory.told = frozenset(plan.notices)

    # -- status and events --------------------------------------------------------------------

    def _counters_wait_s(self, jobset: JobSet, status: p.StatusChange, memory: _Memory) -> float:
        """How long a write that only changes counters has to wait, in seconds."""
        same_restarts = status.status.restarts == jobset.status.restarts
        if not (same_restarts and status.patch.keys() <= _COUNTERS) or status.events:
            return 0.0
        return memory.counters_at + self._settings.counters_every_s - self._clock.monotonic()

    async def _write_status(self, jobset: JobSet, status: p.StatusChange, memory: _Memory) -> bool:
        """Store a status if the JobSet is still the one it was decided on; whether it was.

        Raises:
            ConflictError: it is not.
        """
        meta = jobset.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version}, "status": status.patch}
        try:
            stored = await self._client.merge_patch(
                JobSet, meta.namespace, meta.name, body, subresource="status"
            )
        except NotFoundError:
            return False
        memory.counters_at = self._clock.monotonic()
        cached = self._jobsets.get(meta.key)
        if cached is not None and cached.metadata.uid == meta.uid:
            self.own_status.expect_version(
                meta.key,
                meta.uid,
                stored.metadata.resource_version,
                cached=cached.metadata.resource_version,
            )
        for event in status.events:
            self._event(stored, event)
        _count(meta.key, status)
        return True

    def _event(self, jobset: JobSet, event: p.EmitEvent) -> None:
        related = None
        if event.job:
            related = self._jobs.get(rt.ObjectKey(jobset.metadata.namespace, event.job))
        self._events.event(jobset, event.type_, event.reason, event.message, related=related)


def _count(key: rt.ObjectKey, status: p.StatusChange) -> None:
    if status.finished == keys.FAILED_CONDITION:
        metrics.jobset_failed(key.namespace, key.name)
    elif status.finished == keys.COMPLETED_CONDITION:
        metrics.jobset_completed(key.namespace, key.name)
    for decision in status.decisions:
        metrics.failure_decided(decision)
    if status.restarted:
        metrics.restarted("recreate")
    for _ in range(status.jobs_restarted):
        metrics.restarted("job")
    for _ in range(status.replicated_jobs_restarted):
        metrics.restarted("replicated_job")


def _summary(actions: tuple[p.Action, ...], *, written: bool) -> str:
    """What was done, in a few words; "" if nothing."""
    counts: dict[str, int] = {}
    for action in actions:
        name = type(action).__name__
        counts[name] = counts.get(name, 0) + 1
    parts = [f"{name} {count}" for name, count in counts.items()]
    if written:
        parts.append("status")
    return ", ".join(parts)


def job_matters(event: rt.Event[Any]) -> bool:
    """Whether a Job's change can change any decision; most of its status updates cannot."""
    old, new = event.old, event.new
    if old is None or new is None:
        return True
    return _digest(old) != _digest(new)


def _digest(job: Job) -> tuple[Any, ...]:
    finished = job.status.finished
    return (
        job.metadata.uid,
        job.metadata.deletion_timestamp is None,
        job.metadata.labels,
        keys.RESTART_ANNOTATION in job.metadata.annotations,
        job.spec,
        is_ready(job),
        job.status.active > 0,
        job.status.start_time is None,
        finished.type if finished is not None else "",
    )


def jobset_matters(event: rt.Event[Any]) -> bool:
    """Whether a JobSet's change can change any decision; writes of the epochs cannot.

    What this reconciler writes itself always counts: passes turned away until it shows wait for it.
    """
    old, new = event.old, event.new
    if old is None or new is None:
        return True
    return _jobset_digest(old) != _jobset_digest(new)


def _jobset_digest(jobset: JobSet) -> tuple[Any, ...]:
    meta, status = jobset.metadata, jobset.status
    return (
        meta.uid,
        meta.generation,  # the API server counts changes of the spec
        meta.deletion_timestamp is None,
        meta.labels,
        meta.annotations,
        tuple(c for c in status.conditions if c.type not in keys.IN_PLACE_CONDITIONS),
        status.restarts,
        status.restarts_count_towards_max,
        status.terminal_state,
        status.replicated_jobs_status,
    )


def _appears_or_goes(event: rt.Event[Any]) -> bool:
    return event.old is None or event.new is None


def _jobset_by_label(child: PersistentVolumeClaim | ConfigMap) -> list[rt.ObjectKey]:
    meta = child.metadata
    name = meta.labels.get(keys.JOBSET_NAME)
    return [rt.ObjectKey(meta.namespace, name)] if name else []


def setup(manager: rt.Manager, settings: JobsSettings | None = None) -> rt.Controller:
    """Wire the jobs reconciler: its caches, watches and controller.

    Args:
        manager: not started yet.
        settings: see there.
    """
    settings = settings or JobsSettings()
    jobsets = manager.informer(JobSet)
    jobs = manager.informer(Job, label_selector=CHILD_SELECTOR, indexes=[rt.OWNER_UID])
    services = manager.informer(Service)
    claims = manager.informer(PersistentVolumeClaim, label_selector=CHILD_SELECTOR)
    config_maps = manager.informer(ConfigMap, label_selector=CHILD_SELECTOR)
    reconciler = JobsReconciler(
        manager.client,
        jobsets=jobsets.store,
        jobs=jobs.store,
        services=services.store,
        claims=claims.store,
        config_maps=config_maps.store,
        events=manager.recorder("jobset"),
        settings=settings,
        clock=manager.clock,
    )
    metrics.failure_decisions(DECISIONS)
    of_owner = rt.enqueue_owner(JobSet)
    controller = rt.Controller(
        name="jobset",
        reconciler=reconciler,
        workers=settings.workers,
        watches=(
            *feature_gate_warnings(jobsets, settings.features),
            rt.Watch(jobsets, reconciler.own_status.handler(rt.enqueue_self)),
            rt.Watch(jobs, reconciler.own_jobs.handler(of_owner)),
            rt.Watch(jobsets, rt.enqueue_self, when=jobset_matters),
            rt.Watch(jobs, of_owner, when=job_matters),
            rt.Watch(services, of_owner, when=_appears_or_goes),
            rt.Watch(claims, rt.enqueue_mapped(_jobset_by_label), when=_appears_or_goes),
            rt.Watch(config_maps, rt.enqueue_mapped(_jobset_by_label), when=_appears_or_goes),
        ),
        clock=manager.clock,
    )
    manager.add(controller)
    return controller
