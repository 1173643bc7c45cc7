"""Drives restarts in place: writes ``syncedEpoch`` and ``deprecatedEpoch`` (KEP-467).

Pod events do not cause passes by themselves. Each one changes a few counts in the ledger, and only
when those counts ask for another status than the JobSet has is a pass queued: two per restart,
however many pods restart.

It writes nothing but its two fields, save for the end of a JobSet whose restarts are used up. The
write carries the resourceVersion that the decision was made on. Without it, a manager that has lost
its lease and does not know yet could put an older number over a newer one, and the numbers must
never go back. When something else of the JobSet has changed meanwhile (the other reconciler's
counters, most often), the decision is made again on the JobSet as it is now, at once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock, LoopClock
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.domain.conditions import WARNING
from jobsetpy.domain.epoch_ledger import EpochLedger, GroupKey
from jobsetpy.domain.epochs import EpochDecision, InvalidEpoch, decide_epochs, takes_part
from jobsetpy.domain.plan import EmitEvent
from jobsetpy.domain.status import StatusDraft
from jobsetpy.errors import ConflictError, NotFoundError
from jobsetpy.observability import metrics

CHILD_SELECTOR: Final = keys.JOBSET_NAME
"""Label selector of child Jobs and pods: the label exists."""

_TRIES: Final = 5


@attrs.frozen(kw_only=True)
class PodEpochsSettings:
    """How the pod epochs reconciler works.

    Args:
        workers: so many JobSets are handled at the same time.
        own_writes_ttl_s: how long to wait for the cache to show own writes.
    """

    workers: int = 8
    own_writes_ttl_s: float = 30.0


@attrs.define
class _Memory:
    """What is remembered of a JobSet between passes; nothing that could not be lost."""

    uid: str
    told: frozenset[InvalidEpoch] = frozenset()
    restart_began: float | None = None


class PodEpochsReconciler:
    """One pass over one JobSet, and the check that tells whether one is needed.

    Args:
        client: writes.
        jobsets: cache of JobSets.
        pods: cache of their pods.
        ledger: counts of epochs.
        events: receives events about JobSets.
        own_writes_ttl_s: how long to wait for the cache to show own writes.
        clock: time.
    """

    def __init__(
        self,
        client: rt.Client,
        *,
        jobsets: rt.Store[JobSet],
        pods: rt.Store[ChildPod],
        ledger: EpochLedger,
        events: rt.EventRecorder,
        own_writes_ttl_s: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._jobsets = jobsets
        self._pods = pods
        self._ledger = ledger
        self._events = events
        self._clock = clock or LoopClock()
        self.own_status = rt.Expectations(
            "pod-epochs/status", ttl_s=own_writes_ttl_s, clock=self._clock
        )
        self._memory: dict[rt.ObjectKey, _Memory] = {}

    def needs_pass(self, group: GroupKey, pod_uid: str = "") -> bool:
        """Whether the counts ask for a pass; O(1), and false for a group that is not current.

        The JobSet's own events cause passes too, so what cannot be known here yet is seen then.

        Args:
            group: whose counts changed.
            pod_uid: the pod that changed them; "" if a whole Job did.
        """
        if not self._jobsets.has_synced:
            return False
        key = rt.ObjectKey(group.namespace, group.name)
        jobset = self._jobsets.get(key)
        if jobset is None or GroupKey.of(jobset) != group:
            return False
        invalid = self._ledger.invalid(group)
        if invalid and (not pod_uid or pod_uid in invalid):
            return takes_part(jobset)
        return not decide_epochs(jobset, self._ledger.histogram(group)).empty

    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Write the epochs of one JobSet if the counts ask for others.

        Raises:
            ConflictError: the JobSet changes faster than it can be written.
        """
        key = request.key
        jobset = self._jobsets.get(key)
        if jobset is None:
            self._memory.pop(key, None)
            self.own_status.forget(key)
            return rt.Result.done()
        if not takes_part(jobset):
            self._memory.pop(key, None)
            return rt.Result.done()
        if not self.own_status.is_satisfied(key):
            return rt.Result.requeue_after(timedelta(seconds=self.own_status.seconds_left(key)))
        self._tell_invalid(jobset)
        for _ in range(_TRIES):
            decision = decide_epochs(jobset, self._ledger.histogram(GroupKey.of(jobset)))
            if decision.empty:
                return rt.Result.done()
            try:
                return await self._write(jobset, decision)
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

    async def _write(self, jobset: JobSet, decision: EpochDecision) -> rt.Result:
        meta = jobset.metadata
        patch: dict[str, Any] = {}
        events = decision.events
        if decision.failed is not None:
            draft = StatusDraft(jobset.status, self._clock.now())
            draft.fail(decision.failed.reason, decision.failed.message)
            write = draft.write()
            patch, events = dict(write.patch), write.events
        if decision.synced is not None:
            patch["syncedEpoch"] = decision.synced
        if decision.deprecated is not None:
            patch["deprecatedEpoch"] = decision.deprecated
        body = {"metadata": {"resourceVersion": meta.resource_version}, "status": patch}
        stored = await self._client.merge_patch(
            JobSet, meta.namespace, meta.name, body, subresource="status"
        )
        self._expect(stored)
        for event in events:
            self._events.event(stored, event.type_, event.reason, event.message)
        self._measure(meta.key, meta.uid, decision, events)
        return rt.Result.done(summary=_summary(decision))

    def _expect(self, stored: JobSet) -> None:
        meta = stored.metadata
        cached = self._jobsets.get(meta.key)
        if cached is not None and cached.metadata.uid == meta.uid:
            self.own_status.expect_version(
                meta.key, meta.uid, meta.resource_version, cached=cached.metadata.resource_version
            )

    def _measure(
        self, key: rt.ObjectKey, uid: str, decision: EpochDecision, events: tuple[EmitEvent, ...]
    ) -> None:
        memory = self._remember(key, uid)
        if decision.failed is not None:
            metrics.jobset_failed(key.namespace, key.name)
        if decision.deprecated is not None and events:
            metrics.in_place_restart_began()
            if memory.restart_began is None:
                memory.restart_began = self._clock.monotonic()
        if decision.synced is not None and memory.restart_began is not None:
            metrics.in_place_restart_ended(self._clock.monotonic() - memory.restart_began)
            memory.restart_began = None

    def _tell_invalid(self, jobset: JobSet) -> None:
        """One Warning for each pod and unusable value."""
        invalid = self._ledger.invalid(GroupKey.of(jobset))
        key = jobset.metadata.key
        if not invalid and key not in self._memory:
            return
        memory = self._remember(key, jobset.metadata.uid)
        for item in invalid.values():
            if item in memory.told:
                continue
            pod = self._pods.get(rt.ObjectKey(key.namespace, item.pod_name))
            text = item.text if len(item.text) <= 40 else f"{item.text[:40]}..."
            self._events.event(
                jobset,
                WARNING,
                keys.INVALID_EPOCH_REASON,
                f"pod {item.pod_name!r} is not counted: the annotation {keys.EPOCH_ANNOTATION} "
                f"has the unusable value {text!r}",
                related=pod,
            )
        memory.told = frozenset(invalid.values())

    def _remember(self, key: rt.ObjectKey, uid: str) -> _Memory:
        memory = self._memory.get(key)
        if memory is None or memory.uid != uid:
            memory = self._memory[key] = _Memory(uid)
        return memory


def _summary(decision: EpochDecision) -> str:
    if decision.failed is not None:
        return "failed: no restarts left"
    if decision.synced is not None:
        return f"synced {decision.synced}"
    return f"deprecated {decision.deprecated}"


@attrs.frozen
class _PodHandler:
    """Keeps the ledger up to date with pods, and has a JobSet reconciled if that is needed."""

    ledger: EpochLedger
    reconciler: PodEpochsReconciler
    controller: rt.Controller

    def on_add(self, obj: ChildPod, *, initial: bool) -> None:  # noqa: ARG002 - protocol
        self._changed(None, obj)

    def on_update(self, old: ChildPod, new: ChildPod) -> None:
        self._changed(old, new)

    def on_delete(self, obj: ChildPod, *, final_state_known: bool) -> None:  # noqa: ARG002
        self._changed(obj, None)

    def _changed(self, old: ChildPod | None, new: ChildPod | None) -> None:
        group = self.ledger.pod_changed(old, new)
        if group is None:
            return
        pod = new or old
        if self.reconciler.needs_pass(group, pod.metadata.uid if pod is not None else ""):
            self.controller.enqueue(rt.Request(rt.ObjectKey(group.namespace, group.name)))


@attrs.frozen
class _JobHandler:
    """The same for Jobs, which bring their pods into a group and out of it."""

    ledger: EpochLedger
    reconciler: PodEpochsReconciler
    controller: rt.Controller

    def on_add(self, obj: Job, *, initial: bool) -> None:  # noqa: ARG002 - protocol
        self._changed(None, obj)

    def on_update(self, old: Job, new: Job) -> None:
        self._changed(old, new)

    def on_delete(self, obj: Job, *, final_state_known: bool) -> None:  # noqa: ARG002 - protocol
        self._changed(obj, None)

    def _changed(self, old: Job | None, new: Job | None) -> None:
        group = self.ledger.job_changed(old, new)
        if group is not None and self.reconciler.needs_pass(group):
            self.controller.enqueue(rt.Request(rt.ObjectKey(group.namespace, group.name)))


def setup(manager: rt.Manager, settings: PodEpochsSettings | None = None) -> rt.Controller:
    """Wire the pod epochs reconciler: its caches, ledger and controller.

    Args:
        manager: not started yet.
        settings: see there.
    """
    settings = settings or PodEpochsSettings()
    jobsets = manager.informer(JobSet)
    jobs = manager.informer(Job, label_selector=CHILD_SELECTOR)
    pods = manager.informer(ChildPod, label_selector=CHILD_SELECTOR)
    # Not a tally of the pod cache: membership is decided by two UIDs in a row, from pod to Job to
    # JobSet, which a tally over pods alone cannot see.
    ledger = EpochLedger()
    reconciler = PodEpochsReconciler(
        manager.client,
        jobsets=jobsets.store,
        pods=pods.store,
        ledger=ledger,
        events=manager.recorder("jobset"),
        own_writes_ttl_s=settings.own_writes_ttl_s,
        clock=manager.clock,
    )
    jobsets.add_handler(reconciler.own_status.handler(rt.enqueue_self))
    controller = rt.Controller(
        name="pod-epochs",
        reconciler=reconciler,
        workers=settings.workers,
        watches=(rt.Watch(jobsets, rt.enqueue_self),),
        clock=manager.clock,
    )
    jobs.add_handler(_JobHandler(ledger, reconciler, controller))
    pods.add_handler(_PodHandler(ledger, reconciler, controller))
    manager.add(controller)
    return controller
