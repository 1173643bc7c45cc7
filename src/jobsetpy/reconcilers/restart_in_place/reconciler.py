"""Reconciler for restart in place: writes ``syncedEpoch`` and ``deprecatedEpoch`` (KEP-467).

Pod events do not cause reconciles by themselves. Each one changes a few counts in the ledger, and
the JobSet is queued only if those require another status, or a worker of the synced epoch seems to
have failed: two reconciles write per restart, regardless of the number of pods.

``plan_epochs`` plans the writes. A write carries the resourceVersion that it was planned on:
without it, a manager that has lost its lease unnoticed could replace a newer number by an older
one, and the numbers must never decrease.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet, JobSetStatus
from jobsetpy.reconcilers.execution import metrics as execution_metrics
from jobsetpy.reconcilers.execution.caches import (
    REPORTERS,
    CacheReader,
    SharedCaches,
    job_of,
    pods_of_job,
)
from jobsetpy.reconcilers.execution.definition import Definition
from jobsetpy.reconcilers.execution.memory import Memories
from jobsetpy.reconcilers.execution.owners import OWNERS
from jobsetpy.reconcilers.execution.status_writer import (
    decide_again_on_conflict,
    moment,
    same_epochs,
)
from jobsetpy.reconcilers.restart_in_place.history.measure import Measured
from jobsetpy.reconcilers.restart_in_place.history.restart import Restart
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.observed.ledger import EpochLedger
from jobsetpy.reconcilers.restart_in_place.plan import needs_plan, plan_epochs
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochPlan, EpochState
from jobsetpy.reconcilers.rules.backoff import RestartBackoff
from jobsetpy.reconcilers.rules.membership import AttemptKey
from jobsetpy.reconcilers.rules.time_accounting import Owner

_NOTHING: Final = EpochState()


@attrs.frozen(kw_only=True)
class RestartInPlaceSettings:
    """Settings of the reconciler for restart in place.

    Args:
        workers: maximum concurrent reconciles.
        stalled_after_s: time in seconds after which a closed barrier is reported as stalled, with
            the names of the pods that block it.
        missing_after_s: time in seconds after which a missing pod of a running group counts as
            failed; it must exceed the lag between caches.
        backoff: back-off of starts after restarts in quick succession.
        own_writes_ttl_s: maximum seconds to wait for the cache to show own writes.
    """

    workers: int = 8
    stalled_after_s: float = 60.0
    missing_after_s: float = 10.0
    backoff: RestartBackoff = attrs.field(factory=RestartBackoff)
    own_writes_ttl_s: float = 30.0


class RestartInPlaceReconciler(CacheReader):
    """Reconciler of the epochs of one JobSet.

    Args:
        caches: caches that it reads.
        settings: settings of the reconciler.

    Attributes:
        ledger: counts of epochs.
        expectations: its own status writes.
    """

    def __init__(self, caches: SharedCaches, settings: RestartInPlaceSettings) -> None:
        super().__init__(caches)
        self._nodes = caches.nodes.store
        self._settings = settings
        self.expectations = rt.Expectations(
            "restart-in-place/status", ttl_s=settings.own_writes_ttl_s, clock=self._clock
        )
        self._status = caches.status_writer(own_writes=self.expectations, pods=self._pods)
        self._memories = Memories(lambda: _NOTHING)
        self._missing = self._stalled = self._ready_spares = self._exhausted = 0
        self._missing_seats = 0
        self.ledger = EpochLedger()

    # ---- events ----------------------------------------------------------------------------------

    def on_pod(self, event: rt.Event[ChildPod]) -> Iterable[rt.Request]:
        """Count a pod's change; called for every event of thousands of pods, so it is O(1)."""
        changed = self.ledger.pod_changed(event.old, event.new, self._clock.monotonic())
        if event.new is not None and _reports(event.new) != _reports(event.old):
            group = self.ledger.group_of_pod(event.new)
            return () if group is None else (rt.Request(group.jobset),)
        return self._ask(changed)

    def on_job(self, event: rt.Event[Job]) -> Iterable[rt.Request]:
        """Count a Job's change, by which its pods may join a group or leave it."""
        return self._ask(self.ledger.job_changed(event.old, event.new, self._clock.monotonic()))

    def _ask(self, group: AttemptKey | None) -> Iterable[rt.Request]:
        if group is None or not self.needs_reconcile(group):
            return ()
        return (rt.Request(group.jobset),)

    def needs_reconcile(self, group: AttemptKey) -> bool:
        """Return True if a group needs a reconcile; O(1), and False for one that is not current."""
        if not self._jobsets.has_synced:
            return False
        key = group.jobset
        jobset = self._jobsets.get(key)
        if jobset is None or AttemptKey.of(jobset) != group:
            return False
        return needs_plan(jobset, self.ledger.histogram(group), self._memories.of(key))

    # ---- reconcile -------------------------------------------------------------------------------

    @decide_again_on_conflict
    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Write the epochs of one JobSet if the counts require others."""
        observed = self._observe(request.key)
        if observed is None:
            self._status.forget(request.key)
            self._keep(request.key, None)
            return rt.Result.done()
        plan = plan_epochs(observed, self._memories.of(request.key), moment(self._clock))
        await self._execute(request.key, observed, plan)
        return plan.result

    def _observe(self, key: rt.ObjectKey) -> ObservedEpochs | None:
        jobset = self._status.latest(key)
        if jobset is None:
            return None
        group, own = AttemptKey.of(jobset), self.expectations
        self._note_status(group, jobset.status)
        return ObservedEpochs(
            jobset=jobset,
            pods=self.ledger.histogram(group),
            notes=self.ledger.notes(group),
            job_of=partial(job_of, self._jobs),
            node_ready=self._node_ready,
            members=lambda: self._members(jobset),
            wait_s=0.0 if own.is_satisfied(key) else own.seconds_left(key),
            stalled_after_s=self._settings.stalled_after_s,
            missing_after_s=self._settings.missing_after_s,
            backoff=self._settings.backoff,
            reporters=self._pods.by_index(REPORTERS, str(key)),
        )

    async def _execute(self, key: rt.ObjectKey, observed: ObservedEpochs, plan: EpochPlan) -> None:
        jobset = observed.jobset
        group, version = AttemptKey.of(jobset), self.ledger.newest_version
        if plan.status is not None:
            stored = await self._status.store(jobset, plan.status)
            if stored is None or not same_epochs(stored.status, plan.status.status):
                return  # without epochs in the CRD, nothing has begun or ended
            self._note_status(group, plan.status.status, version)
            done = self._clock.monotonic()
            _count(plan.measured, OWNERS.of(jobset.metadata))
            plan = plan.stored(done)
        self._status.record_events(jobset, plan.notices)
        if plan.judged:
            self.ledger.forget_notes(group, observed.notes)
        self._keep(key, plan.memory)

    def _note_status(
        self, group: AttemptKey, status: JobSetStatus, version: int | None = None
    ) -> None:
        known = self.ledger.newest_version if version is None else version
        self.ledger.note_status(group, status, known, self._clock.monotonic())

    def _keep(self, key: rt.ObjectKey, memory: EpochState | None) -> None:
        old, new = self._memories.of(key), memory or _NOTHING
        self._memories.keep(key, memory)
        missing, stalled = new.waiting.missing, new.waiting.stalled
        if (old.waiting.missing, old.waiting.stalled) != (missing, stalled):
            self._missing += missing - old.waiting.missing
            self._stalled += stalled - old.waiting.stalled
            execution_metrics.in_place_missing_pods(self._missing)
            execution_metrics.in_place_stalled(self._stalled)
        execution_metrics.silent_pods(len(new.heard.silent - old.heard.silent))
        if old.spares != new.spares:
            self._ready_spares += new.spares.ready - old.spares.ready
            self._exhausted += new.spares.exhausted - old.spares.exhausted
            self._missing_seats += new.spares.missing - old.spares.missing
            execution_metrics.in_place_spares(
                self._ready_spares, self._exhausted, self._missing_seats
            )

    def _node_ready(self, name: str) -> bool:
        node = self._nodes.get(rt.ObjectKey("", name))
        return node is None or node.ready

    def _members(self, jobset: JobSet) -> tuple[list[Job], list[ChildPod]]:
        """Return the Jobs of the current attempt and their pods; O(pods of the JobSet)."""
        meta = jobset.metadata
        attempt = str(jobset.status.restarts)
        jobs = [
            job
            for job in self._jobs.by_index(rt.OWNER_UID, meta.uid)
            if job.metadata.labels.get(keys.RESTART_ATTEMPT) == attempt
        ]
        return jobs, [pod for job in jobs for pod in pods_of_job(self._pods, job)]


def _reports(pod: ChildPod | None) -> tuple[str | None, str | None]:
    notes = None if pod is None else pod.metadata.annotations
    return (None, None) if notes is None else (notes.unheard, notes.log_report)


def _count_begun(restart: Restart) -> None:
    cause = restart.cause
    if cause is None or cause.kind is None:
        execution_metrics.in_place_restart_began()
    else:
        code = None if cause.container is None else cause.container.exit_code
        execution_metrics.in_place_restart_began(cause.kind.value, code)


def _count(measured: Measured, owner: Owner) -> None:
    """Update metrics for a stored write."""
    begun, ended, run = measured.begun, measured.ended, measured.run
    if begun is not None and begun.charge.is_in_place_restart:
        _count_begun(begun)
    if ended is not None and ended.seats_taken:
        execution_metrics.in_place_seats_taken(ended.seats_taken)
    if run.lost_steps is not None:
        execution_metrics.in_place_lost_steps(run.lost_steps)
    if run.first_step_s is not None:
        execution_metrics.in_place_first_step(run.first_step_s)
    for use, seconds in run.spent.items():
        execution_metrics.in_place_time_spent(use, seconds, owner)


def setup(
    manager: rt.Manager,
    settings: RestartInPlaceSettings | None = None,
    definition: Definition | None = None,
) -> rt.Controller:
    """Wire the reconciler for restart in place: its caches and controller.

    Args:
        manager: manager that is not started yet.
        settings: settings of the reconciler.
        definition: observed CRD; ``None`` if it is not observed.
    """
    settings = settings or RestartInPlaceSettings()
    caches = SharedCaches(manager, definition)
    reconciler = RestartInPlaceReconciler(caches, settings)
    return caches.controller(
        "restart-in-place",
        reconciler,
        settings.workers,
        rt.Watch(caches.jobsets, reconciler.expectations.handler(rt.enqueue_self)),
        rt.Watch(caches.jobsets, rt.enqueue_self),
        rt.Watch(caches.jobs, reconciler.on_job, standby=True),
        rt.Watch(caches.pods, reconciler.on_pod, standby=True),
    )
