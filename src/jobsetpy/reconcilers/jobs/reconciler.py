"""Reconciler that keeps the child Jobs, Service and volume claims of each JobSet as specified.

A reconcile reads the caches, calls ``reconcilers.jobs.plan``, and executes the plan. It never acts
on a cache that does not yet show its own earlier writes, and its status write carries the
resourceVersion that the plan was based on, so a failure is counted once even if a cache is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap, PersistentVolumeClaim, Service
from jobsetpy.api.jobset import JobSet
from jobsetpy.errors import ConflictError, TerminalError
from jobsetpy.reconcilers.coscheduling.backend_watch import BackendWatch
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.reconcilers.execution import metrics as execution_metrics
from jobsetpy.reconcilers.execution.caches import CHILD_SELECTOR, SharedCaches
from jobsetpy.reconcilers.execution.definition import Definition
from jobsetpy.reconcilers.execution.memory import Memories
from jobsetpy.reconcilers.execution.owners import OWNERS
from jobsetpy.reconcilers.execution.parallel import raise_failures
from jobsetpy.reconcilers.execution.status_writer import moment
from jobsetpy.reconcilers.jobs.counter_pace import CounterPace, is_restarting
from jobsetpy.reconcilers.jobs.counters import is_ready, lacks_pods
from jobsetpy.reconcilers.jobs.held import STALLED_AFTER_S
from jobsetpy.reconcilers.jobs.plan import ObservedJobSet, plan_jobs
from jobsetpy.reconcilers.jobs.recreation import SOON_S
from jobsetpy.reconcilers.jobs.surroundings import surroundings
from jobsetpy.reconcilers.jobs.writer import ChildWriter
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules import plan as p
from jobsetpy.reconcilers.rules.backoff import RestartBackoff
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.time_accounting import ActivityTimes, Totals

WORKERS: Final = 8
"""Maximum number of concurrent reconciles."""
OWN_WRITES_TTL_S: Final = 30.0
"""Maximum time in seconds to wait until the cache shows our own writes."""
COOLDOWN_FACTOR: Final = 8.0
"""Minimum pause between two reconciles of a JobSet, as a multiple of the time that planning the
first one took. Bounds one JobSet's share of the event loop."""


@attrs.frozen(kw_only=True)
class JobsSettings:
    """Settings of the jobs reconciler.

    Args:
        features: the feature gates.
        counters_every_s: minimum interval in seconds between a status write that changes only
            counters and the write before it; all other changes are written immediately.
        agent_events_per_s: maximum number of agents notified per second by such writes, which also
            wait for the end of a restart in place; 0 for no limit.
        group_rbac: grant pods of a startup group the permission to watch their ConfigMap.
        marks: scheduler fields of pods in gangs, if no scheduler of gangs is watched.
        backend: observed schedulers of gangs; ``None`` if none is watched.
        lost_node_deadline_s: deadline in seconds for pods on unreachable nodes, for JobSets that
            set none; 0 for never.
        deletion_stalled_after_s: time in seconds after which the deletion of a Job is reported as
            stalled; the grace period of its pods comes in addition.
        backoff: delay between restarts of all Jobs in quick succession.
        lost: predicate for JobSets with pods that are being deleted on unreachable nodes.
    """

    features: Features = attrs.field(factory=Features)
    counters_every_s: float = 0.2
    agent_events_per_s: float = 5000.0
    group_rbac: bool = False
    marks: SchedulerFields = attrs.field(factory=SchedulerFields)
    backend: BackendWatch | None = None
    lost_node_deadline_s: float = 0.0
    deletion_stalled_after_s: float = STALLED_AFTER_S
    backoff: RestartBackoff = attrs.field(factory=RestartBackoff)
    lost: Callable[[rt.ObjectKey], bool] | None = None


class JobsReconciler:
    """Reconciler of JobSets and their children.

    Args:
        caches: shared informers.
        services: cache of Services.
        claims: cache of volume claims.
        settings: settings of the reconciler.
    """

    def __init__(
        self,
        caches: SharedCaches,
        settings: JobsSettings,
        *,
        services: rt.Store[Service],
        claims: rt.Store[PersistentVolumeClaim],
    ) -> None:
        client, clock, events = caches.manager.client, caches.manager.clock, caches.events
        self._jobs = jobs = caches.jobs.store
        self._surroundings: Mapping[str, rt.Store[Any]] = {
            "Service": services,
            "PersistentVolumeClaim": claims,
            "ConfigMap": caches.config_maps.store,
        }
        self._settings = settings
        self._definition = caches.definition
        self._clock = clock
        self._pace = CounterPace(
            every_s=settings.counters_every_s, agent_events_per_s=settings.agent_events_per_s
        )
        self.own_jobs = rt.Expectations("jobset/jobs", ttl_s=OWN_WRITES_TTL_S, clock=clock)
        self._writer = ChildWriter(client, jobs, events, self.own_jobs)
        self.own_status = rt.Expectations("jobset/status", ttl_s=OWN_WRITES_TTL_S, clock=clock)
        self._status = caches.status_writer(own_writes=self.own_status, jobs=jobs)
        self._memory = Memories(p.JobsMemory)
        self._times = ActivityTimes()

    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Reconcile one JobSet.

        Raises:
            ConflictError: the status was changed by another client; plan again.
            ExceptionGroup: some writes failed; the others were made.
            TerminalError: a part of the JobSet cannot be handled until it is changed.
        """
        if self._definition is not None and self._definition.missing:
            await self._definition.check()  # its condition ends when the CRD is renewed
        observed = self._observe(request.key)
        plan = plan_jobs(observed, self._memory.of(request.key), moment(self._clock))
        await self._execute(observed, plan)
        return plan.result

    def _observe(self, key: rt.ObjectKey) -> ObservedJobSet:
        jobset = self._status.latest(key)
        wait_s = self._wait_s(key)
        if jobset is None or wait_s > SOON_S:
            return ObservedJobSet(key=key, jobset=jobset, wait_s=wait_s)
        settings = self._settings
        backend = settings.backend
        return ObservedJobSet(
            key=key,
            jobset=jobset,
            jobs=[
                job
                for job in self._jobs.by_index(rt.OWNER_UID, jobset.metadata.uid)
                if job.metadata.namespace == key.namespace
            ],
            surroundings=frozenset(
                (each.kind, each.name)
                for each in surroundings(jobset)
                if self._surroundings[each.kind].get(rt.ObjectKey(key.namespace, each.name))
                is not None
            ),
            features=settings.features,
            group_rbac=settings.group_rbac,
            marks=settings.marks if backend is None else backend.marks,
            pace=self._pace,
            lost_node_deadline_s=settings.lost_node_deadline_s,
            deletion_stalled_after_s=settings.deletion_stalled_after_s,
            backoff=settings.backoff,
            lost=settings.lost is not None and settings.lost(key),
            missing=frozenset() if self._definition is None else self._definition.missing,
        )

    def activity_totals(self) -> Totals:
        """Return the number and total time of each activity of JobSets so far."""
        return self._times.totals(self._clock.monotonic())

    def _wait_s(self, key: rt.ObjectKey) -> float:
        """Return the seconds until a JobSet may be planned."""
        wait_s = self._memory.of(key).not_before - self._clock.monotonic()
        for own in (self.own_jobs, self.own_status):
            if not own.is_satisfied(key):
                wait_s = max(wait_s, own.seconds_left(key))
        return wait_s

    async def _execute(self, observed: ObservedJobSet, plan: p.JobsPlan) -> None:
        before = self._memory.of(observed.key)
        jobset = observed.jobset
        self._remember(observed.key, plan, jobset)
        if jobset is None:
            return
        if plan.confirm and not await self._is_still(jobset, before):
            return
        self._status.record_events(jobset, plan.notices)
        failures = await self._writer.carry_out(jobset, plan.actions)
        change = plan.partial_status if failures else plan.status
        if change is not None:
            await self._store(jobset, change)
        if failures:
            self._remember_failures(observed.key, plan)
            raise_failures(failures, f"of {len(plan.actions)} writes failed")
        if plan.problem:
            raise TerminalError(plan.problem)

    async def _is_still(self, jobset: JobSet, before: p.JobsMemory) -> bool:
        """Check with the API server that a JobSet still exists.

        Args:
            jobset: JobSet that the plan is based on.
            before: state kept before that plan.

        Raises:
            ConflictError: it exists, but has changed; plan again.
        """
        meta = jobset.metadata
        newer = await self._status.read(meta.key)
        if newer is not None and newer.metadata.resource_version != meta.resource_version:
            self._memory.keep(meta.key, before)
            msg = f"{meta.key} is no longer what the cache shows"
            raise ConflictError(409, "Conflict", msg, verb="get", target=f"jobsets {meta.key}")
        return newer is not None

    async def _store(self, jobset: JobSet, change: p.StatusChange) -> None:
        try:
            await self._status.store(jobset, change)
        except ConflictError:
            # Either the cache is late, or the JobSet was deleted and its name reused.
            await self._status.read(jobset.metadata.key)
            raise

    def _remember_failures(self, key: rt.ObjectKey, plan: p.JobsPlan) -> None:
        """Forget children whose creation failed, so that they do not count as deleted by others."""
        memory = self._memory.of(key)
        made = [action.name for action in plan.actions if isinstance(action, p.CREATIONS)]
        self._memory.keep(key, attrs.evolve(memory, children=memory.children.difference(made)))

    def _remember(self, key: rt.ObjectKey, plan: p.JobsPlan, jobset: JobSet | None) -> None:
        """Keep the plan's memory, with the pause that follows from its planning time."""
        memory = plan.memory
        if memory is not None and plan.begun is not None:
            end = self._clock.monotonic()
            pause_s = (end - plan.begun) * COOLDOWN_FACTOR
            memory = attrs.evolve(memory, not_before=end + pause_s)
        if memory is None and key in self._memory:
            self.own_jobs.forget(key)
            self._status.forget(key)
            execution_metrics.forget_jobset(key.namespace, key.name)
            self._times.note(key, "", 0, self._clock.monotonic())
        if plan.activity is not None and jobset is not None:
            owner = OWNERS.of(jobset.metadata) if plan.activity else ()
            self._times.note(key, plan.activity, plan.pods, self._clock.monotonic(), owner)
        self._memory.keep(key, memory)


def _digest(job: Job) -> tuple[Any, ...]:
    finished = job.status.finished
    return (
        job.metadata.uid,
        job.metadata.deletion_timestamp is None,
        job.metadata.labels,
        keys.RESTART_ANNOTATION in job.metadata.annotations,
        job.spec,
        is_ready(job),
        lacks_pods(job),
        job.status.active > 0,
        job.status.start_time is None,
        finished.type if finished is not None else "",
    )


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
        status.start_time,
        status.replicated_jobs_status,
        is_restarting(jobset),
        cond.is_true(status.conditions, keys.BARRIER_STALLED_CONDITION),
    )


def _changes(digest: Callable[[Any], tuple[Any, ...]]) -> rt.Predicate:
    return lambda event: not event.is_update or digest(event.old) != digest(event.new)


job_matters = _changes(_digest)
"""Passes changes of Jobs that can affect a decision; most of their status updates cannot."""

jobset_matters = _changes(_jobset_digest)
"""Passes changes of JobSets that can affect a decision; most writes of epochs cannot.

Counters wait while a restart in place is in progress, so its end counts. This reconciler's own
writes always count: reconciles that were postponed until the cache shows them wait for them.
"""


def _jobset_by_label(child: PersistentVolumeClaim | ConfigMap) -> list[rt.ObjectKey]:
    meta = child.metadata
    name = meta.labels.get(keys.JOBSET_NAME)
    return [rt.ObjectKey(meta.namespace, name)] if name else []


def setup(
    manager: rt.Manager,
    settings: JobsSettings | None = None,
    definition: Definition | None = None,
) -> rt.Controller:
    """Wire the jobs reconciler: its caches, watches and controller.

    Args:
        manager: not started yet.
        settings: settings of the reconciler; defaults if ``None``.
        definition: observed CRD; ``None`` if it is not observed.
    """
    settings = settings or JobsSettings()
    caches = SharedCaches(manager, definition)
    services = manager.informer(Service, whole=True)  # others may own the one of that name
    claims = manager.informer(PersistentVolumeClaim, label_selector=CHILD_SELECTOR)
    reconciler = JobsReconciler(caches, settings, services=services.store, claims=claims.store)
    manager.add_metrics(execution_metrics.activity_registry(reconciler.activity_totals))
    of_owner, by_label = rt.enqueue_owner(JobSet), rt.enqueue_mapped(_jobset_by_label)
    appears_or_goes = rt.not_(rt.updated)
    return caches.controller(
        "jobset",
        reconciler,
        WORKERS,
        rt.Watch(caches.jobsets, reconciler.own_status.handler(rt.enqueue_self)),
        rt.Watch(caches.jobs, reconciler.own_jobs.handler(of_owner)),
        rt.Watch(caches.jobsets, rt.enqueue_self, when=jobset_matters),
        rt.Watch(caches.jobs, of_owner, when=job_matters),
        rt.Watch(services, of_owner, when=appears_or_goes),
        rt.Watch(claims, by_label, when=appears_or_goes),
        rt.Watch(caches.config_maps, by_label, when=appears_or_goes),
    )
