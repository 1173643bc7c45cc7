"""Drives restarts in place: writes ``syncedEpoch`` and ``deprecatedEpoch`` (KEP-467).

Pod events do not cause passes by themselves. Each one changes a few counts in the ledger, and only
when those counts ask for another status than the JobSet has, or a worker of the synced epoch has
failed, is a pass queued: two per restart, however many pods restart.

It writes its fields and conditions, and the end of a JobSet whose restarts are used up. The write
carries the resourceVersion that the decision was made on. Without it, a manager that has lost its
lease and does not know yet could put an older number over a newer one, and the numbers must never
go back. When something else of the JobSet has changed meanwhile (the other reconciler's counters,
most often), the decision is made again on the JobSet as it is now, at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock, LoopClock
from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, InPlaceRestartStatus, JobSet
from jobsetpy.api.meta import Condition
from jobsetpy.domain import conditions as cond
from jobsetpy.domain.epochs.decision import (
    EpochDecision,
    Histogram,
    crash_loop,
    decide_epochs,
    group_size,
    is_waiting,
    left_over,
    next_epoch,
    takes_part,
)
from jobsetpy.domain.epochs.laggards import laggards
from jobsetpy.domain.epochs.ledger import EpochLedger
from jobsetpy.domain.membership import AttemptKey, is_ours
from jobsetpy.domain.status import StatusDraft, condition_json
from jobsetpy.errors import ConflictError, NotFoundError
from jobsetpy.reconcilers import metrics
from jobsetpy.reconcilers._epoch_memory import EpochMemories, EpochMemory
from jobsetpy.reconcilers._epoch_watch import EpochWatch

CHILD_SELECTOR: Final = keys.JOBSET_NAME
"""Label selector of child Jobs and pods: the label exists."""

_TRIES: Final = 5
_LOOK_AGAIN_MAX_S: Final = 600.0


@attrs.frozen(kw_only=True)
class PodEpochsSettings:
    """How the pod epochs reconciler works.

    Args:
        workers: maximum concurrent reconciles.
        stalled_after_s: a barrier that is closed for longer is said to be stalled, with the names
            of the pods that hold it.
        own_writes_ttl_s: how long to wait for the cache to show own writes.
    """

    workers: int = 8
    stalled_after_s: float = 60.0
    own_writes_ttl_s: float = 30.0


class PodEpochsReconciler:
    """One pass over one JobSet.

    Args:
        client: writes.
        jobsets: cache of JobSets.
        jobs: cache of their Jobs, indexed by ``OWNER_UID``.
        pods: cache of their pods.
        ledger: counts of epochs.
        memories: what is remembered between passes.
        events: receives events about JobSets.
        settings: see there.
        clock: time.
    """

    def __init__(  # noqa: PLR0913 - one keyword for each cache that it reads
        self,
        client: rt.Client,
        *,
        jobsets: rt.Store[JobSet],
        jobs: rt.Store[Job],
        pods: rt.Store[ChildPod],
        ledger: EpochLedger,
        memories: EpochMemories,
        events: rt.EventRecorder,
        settings: PodEpochsSettings,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._jobsets = jobsets
        self._jobs = jobs
        self._pods = pods
        self._ledger = ledger
        self._memories = memories
        self._events = events
        self._stalled_after_s = settings.stalled_after_s
        self._clock = clock or LoopClock()
        self.own_status = rt.Expectations(
            "pod-epochs/status", ttl_s=settings.own_writes_ttl_s, clock=self._clock
        )

    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Write the epochs of one JobSet if the counts ask for others.

        Raises:
            ConflictError: the JobSet changes faster than it can be written.
        """
        key = request.key
        jobset = self._jobsets.get(key)
        if jobset is None:
            self._memories.forget(key)
            self.own_status.forget(key)
            return rt.Result.done()
        if not takes_part(jobset):
            self._memories.forget(key)
            return await self._leave(jobset)
        if not self.own_status.is_satisfied(key):
            return rt.Result.requeue_after(timedelta(seconds=self.own_status.seconds_left(key)))
        memory = self._memories.of(jobset)
        memory.saw_synced(
            jobset.status.synced_epoch, self._memories.newest_version, self._clock.monotonic()
        )
        self._tell_invalid(jobset, memory)
        for _ in range(_TRIES):
            pods = self._ledger.histogram(AttemptKey.of(jobset))
            decision = decide_epochs(jobset, pods, memory.cause)
            if decision.crashed:
                decision = self._name_crash(jobset, pods, decision)
            if decision.empty:
                return await self._wait(jobset, memory, pods)
            try:
                return await self._write(jobset, memory, decision)
            except NotFoundError:
                return rt.Result.done()
            except ConflictError:
                newer = await self._read_again(jobset)
                if newer is None:
                    return rt.Result.done()
                jobset = newer
        msg = f"{key} changed {_TRIES} times while its epochs were being written"
        raise ConflictError(409, "Conflict", msg, verb="patch", target=f"jobsets {key}")

    async def _read_again(self, jobset: JobSet) -> JobSet | None:
        """The JobSet as the API server has it now; ``None`` if it is another one or gone."""
        meta = jobset.metadata
        try:
            newer = await self._client.get(JobSet, meta.namespace, meta.name)
        except NotFoundError:
            return None
        return newer if newer.metadata.uid == meta.uid else None

    async def _write(
        self, jobset: JobSet, memory: EpochMemory, decision: EpochDecision
    ) -> rt.Result:
        version, now = self._memories.newest_version, self._clock.monotonic()
        if decision.synced is not None:
            memory.phases.gather(now)
        draft = StatusDraft(jobset.status, self._clock.now())
        if decision.failed is not None:
            draft.fail(decision.failed.reason, decision.failed.message)
        write = draft.change()
        patch: dict[str, Any] = dict(write.patch)
        ended = left_over(evolve(jobset, status=write.status))
        self._put(patch, write.status.conditions, (*decision.conditions, *ended))
        if decision.synced is not None:
            patch["syncedEpoch"] = decision.synced
        if decision.deprecated is not None:
            patch["deprecatedEpoch"] = decision.deprecated
        if decision.record is not None and decision.record != jobset.status.in_place_restart:
            patch["inPlaceRestart"] = _record_json(decision.record)
        stored = await self._patch(jobset, patch)
        for event in (*write.events, *decision.events):
            self._events.event(stored, event.type_, event.reason, event.message)
        if decision.synced is not None:
            memory.saw_synced(decision.synced, version, now)
        self._measure(jobset, memory, decision)
        if decision.deprecated is not None:
            return rt.Result.requeue_after(
                timedelta(seconds=self._stalled_after_s), summary=_summary(decision)
            )
        return rt.Result.done(summary=_summary(decision))

    async def _patch(self, jobset: JobSet, status: dict[str, Any]) -> JobSet:
        meta = jobset.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version}, "status": status}
        stored = await self._client.merge_patch(
            JobSet, meta.namespace, meta.name, body, subresource="status"
        )
        cached = self._jobsets.get(meta.key)
        if cached is not None and cached.metadata.uid == meta.uid:
            self.own_status.expect_version(
                meta.key,
                meta.uid,
                stored.metadata.resource_version,
                cached=cached.metadata.resource_version,
            )
        return stored

    def _put(
        self,
        patch: dict[str, Any],
        conditions: tuple[Condition, ...],
        wanted: Iterable[cond.DesiredCondition],
    ) -> None:
        """Bring conditions into a patch, where they change something."""
        changed = conditions
        for each in wanted:
            changed = cond.updated(changed, each, self._clock.now()) or changed
        if changed is not conditions:
            patch["conditions"] = [condition_json(item) for item in changed]

    async def _leave(self, jobset: JobSet) -> rt.Result:
        """Take back what is not true of a JobSet any more that was suspended or has ended."""
        meta = jobset.metadata
        if meta.deletion_timestamp is not None or not is_ours(jobset):
            return rt.Result.done()
        wanted = left_over(jobset)
        if not wanted:
            return rt.Result.done()
        patch: dict[str, Any] = {}
        self._put(patch, jobset.status.conditions, wanted)
        try:
            await self._patch(jobset, patch)
        except (ConflictError, NotFoundError):
            return rt.Result.done()  # the change itself causes the next pass
        return rt.Result.done(summary="no restart any more")

    # ---- barriers that stay closed ---------------------------------------------------------------

    async def _wait(self, jobset: JobSet, memory: EpochMemory, pods: Histogram) -> rt.Result:
        """Nothing is to be decided. If the barrier is closed, see for how long it has been."""
        now = self._clock.monotonic()
        expected = group_size(jobset, pods) - pods.succeeded
        if not is_waiting(jobset, pods) or (expected <= 0 and not pods.epochs):
            memory.waiting_since = None
            memory.stall_told = 0
            memory.phases.reset()  # a sign that came to nothing would lengthen the next restart
            self._memories.set_missing(memory, 0)
            return rt.Result.done()
        epoch = next_epoch(jobset, pods)
        self._memories.set_missing(memory, max(0, expected - pods.epochs.get(epoch, 0)))
        if memory.waiting_since is None:
            memory.wait(now, self._stalled_after_s)
        if now >= memory.look_at:
            if not await self._tell_stall(jobset, memory, epoch):
                return rt.Result.done()  # the JobSet has changed, which causes the next pass
            # The longer nothing happens, the less often it is worth a look at all pods.
            waited = now - (memory.waiting_since or now)
            memory.look_at = now + max(self._stalled_after_s, min(waited, _LOOK_AGAIN_MAX_S))
        return rt.Result.requeue_after(timedelta(seconds=memory.look_at - now))

    async def _tell_stall(self, jobset: JobSet, memory: EpochMemory, epoch: int) -> bool:
        """Say who holds the barrier, if that is not said already; false if it could not be."""
        jobs, pods = self._members(jobset)
        found = laggards(jobset, jobs, pods, epoch, self._stalled_after_s)
        self._memories.set_missing(memory, found.missing)
        self._memories.set_stalled(memory, stalled=found.missing > 0)
        wanted = cond.DesiredCondition(
            keys.BARRIER_STALLED_CONDITION, True, keys.PODS_MISSING_REASON, found.message
        )
        patch: dict[str, Any] = {}
        self._put(patch, jobset.status.conditions, (wanted,))
        if not patch:
            return True
        try:
            stored = await self._patch(jobset, patch)
        except (ConflictError, NotFoundError):
            return False
        if memory.stall_told != epoch:
            memory.stall_told = epoch
            self._events.event(stored, cond.WARNING, keys.BARRIER_STALLED_CONDITION, found.message)
        return True

    def _members(self, jobset: JobSet) -> tuple[list[Job], list[ChildPod]]:
        """Jobs of the present attempt and their pods; O(pods of the namespace)."""
        meta = jobset.metadata
        attempt = str(jobset.status.restarts)
        jobs = [
            job
            for job in self._jobs.by_index(rt.OWNER_UID, meta.uid)
            if job.metadata.labels.get(keys.RESTART_ATTEMPT) == attempt
        ]
        uids = {job.metadata.uid for job in jobs}
        return jobs, [
            pod
            for pod in self._pods.list(meta.namespace)
            # The label sorts most pods of others out at little cost; it proves nothing.
            if pod.metadata.labels.jobset_name == meta.name and pod.metadata.controller_uid in uids
        ]

    def _name_crash(
        self, jobset: JobSet, pods: Histogram, decision: EpochDecision
    ) -> EpochDecision:
        for pod in self._members(jobset)[1]:
            if pod.status.restarts == decision.crashed:
                failed = crash_loop(
                    pod.metadata.name,
                    pod.status.restarts_of,
                    decision.crashed,
                    next_epoch(jobset, pods),
                )
                return attrs.evolve(decision, failed=failed)
        return decision

    # ---- the rest --------------------------------------------------------------------------------

    def _measure(self, jobset: JobSet, memory: EpochMemory, decision: EpochDecision) -> None:
        now = self._clock.monotonic()
        phases = memory.phases
        key = jobset.metadata.key
        if decision.failed is not None:
            metrics.jobset_failed(key.namespace, key.name)
            phases.reset()
        elif decision.deprecated is not None:
            memory.wait(now, self._stalled_after_s)
            if not decision.restart:
                phases.reset()
                return
            phases.deprecate(decision.deprecated, now)
            cause = memory.cause
            if cause is not None and cause.epoch == decision.deprecated and cause.sign is not None:
                code = cause.container.exit_code if cause.container is not None else None
                metrics.in_place_restart_began(cause.sign.value, code)
            else:
                metrics.in_place_restart_began()
        elif decision.synced is not None:
            if decision.restart and phases.deprecated is None and phases.began is not None:
                metrics.in_place_restart_began()  # all pods came at once
            phases.end(now, restart=decision.restart)
            memory.waiting_since = None
            memory.stall_told = 0
            self._memories.set_missing(memory, 0)

    def _tell_invalid(self, jobset: JobSet, memory: EpochMemory) -> None:
        """One Warning for each pod and unusable value."""
        invalid = self._ledger.invalid(AttemptKey.of(jobset))
        if not invalid and not memory.told:
            return
        for item in invalid.values():
            if item in memory.told:
                continue
            pod = self._pods.get(rt.ObjectKey(jobset.metadata.namespace, item.pod_name))
            text = item.text if len(item.text) <= 40 else f"{item.text[:40]}..."
            self._events.event(
                jobset,
                cond.WARNING,
                keys.INVALID_EPOCH_REASON,
                f"pod {item.pod_name!r} is not counted: the annotation {keys.EPOCH_ANNOTATION} "
                f"has the unusable value {text!r}",
                related=pod,
            )
        memory.told = frozenset(invalid.values())


def _record_json(record: InPlaceRestartStatus) -> dict[str, Any]:
    """Every field, so that a merge patch leaves nothing of the record before."""
    at: datetime | None = record.resume_time
    return {
        "uncountedEpochs": record.uncounted_epochs,
        "lastUncountedEpoch": record.last_uncounted_epoch,
        "pods": record.pods,
        "restarts": record.restarts,
        "jobRestarts": record.job_restarts,
        "resumeTime": None if at is None else at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "containerRestarts": record.container_restarts,
    }


def _summary(decision: EpochDecision) -> str:
    if decision.failed is not None:
        return "failed: no restarts left"
    if decision.synced is not None:
        return f"synced {decision.synced}"
    if decision.deprecated is not None:
        return f"deprecated {decision.deprecated}"
    return "noted the group's size"


def setup(manager: rt.Manager, settings: PodEpochsSettings | None = None) -> rt.Controller:
    """Wire the pod epochs reconciler: its caches, ledger and controller.

    Args:
        manager: not started yet.
        settings: see there.
    """
    settings = settings or PodEpochsSettings()
    jobsets = manager.informer(JobSet)
    jobs = manager.informer(Job, label_selector=CHILD_SELECTOR, indexes=[rt.OWNER_UID])
    pods = manager.informer(ChildPod, label_selector=CHILD_SELECTOR)
    # Not a tally of the pod cache: membership is decided by two UIDs in a row, from pod to Job to
    # JobSet, which a tally over pods alone cannot see.
    ledger = EpochLedger()
    memories = EpochMemories()
    reconciler = PodEpochsReconciler(
        manager.client,
        jobsets=jobsets.store,
        jobs=jobs.store,
        pods=pods.store,
        ledger=ledger,
        memories=memories,
        events=manager.recorder("jobset"),
        settings=settings,
        clock=manager.clock,
    )
    watch = EpochWatch(
        jobsets=jobsets.store,
        jobs=jobs.store,
        ledger=ledger,
        memories=memories,
        clock=manager.clock,
    )
    controller = rt.Controller(
        name="pod-epochs",
        reconciler=reconciler,
        workers=settings.workers,
        watches=(
            rt.Watch(jobsets, reconciler.own_status.handler(rt.enqueue_self)),
            rt.Watch(jobsets, rt.enqueue_self),
            rt.Watch(jobs, watch.on_job, standby=True),
            rt.Watch(pods, watch.on_pod, standby=True),
        ),
        clock=manager.clock,
    )
    manager.add(controller)
    return controller
