"""Releases groups: writes the ConfigMap when all pods of a group have started (KEP-498).

Pod events do not cause passes by themselves. Each one changes a few counts in the ledger; a pass is
queued when the counts say that the last pod has started, and when the group's leader (completion
index 0 of job index 0) starts. While a group gathers, a pass comes by itself now and then: to tell
how far it is, and as a safety net.

It writes the ConfigMap's value once for each attempt of a group, however many pods. Beside it there
are a few writes of what is only told: the condition of the JobSet, and how many pods have started,
if the group has a timeout. Every write carries the resourceVersion it was decided on, so a manager
that has lost its lease cannot put an older value over a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock, LoopClock
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import ConfigMap
from jobsetpy.api.group_signal import config_map_name
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.domain import conditions as cond
from jobsetpy.domain.features import Features
from jobsetpy.domain.membership import AttemptKey, is_ours
from jobsetpy.domain.startup_groups import decision
from jobsetpy.domain.startup_groups.ledger import StartLedger
from jobsetpy.domain.startup_groups.spec import attempt, startup_group_size
from jobsetpy.reconcilers import metrics
from jobsetpy.reconcilers._group_writer import GroupWriter, lifted

CHILD_SELECTOR: Final = keys.JOBSET_NAME
"""Label selector of child Jobs, pods and ConfigMaps: the label exists."""

SAFETY_NET_S: Final = 30.0
"""A gathering group is looked at so often without any event."""


@attrs.frozen(kw_only=True)
class LeaderPodsSettings:
    """How the leader pods reconciler works.

    Args:
        features: the feature gates.
        workers: so many JobSets are handled at the same time.
    """

    features: Features = attrs.field(factory=Features)
    workers: int = 8


@attrs.define
class _Wait:
    """What is remembered of a group between passes; nothing that could not be lost.

    ``released`` was written by this process, but the cache shows version ``lagging`` still.
    """

    uid: str
    attempt: int
    began: float
    released: int = 0
    lagging: str = ""
    expected: tuple[int, int] = (-1, 0)
    next_progress: float | None = None
    next_complaint: float = decision.COMPLAIN_AFTER_S
    told: bool = False
    foreign: bool = False


class LeaderPodsReconciler:
    """One pass over one JobSet, and the check that tells whether one is needed.

    Args:
        client: writes.
        jobsets: cache of JobSets.
        jobs: cache of their Jobs, with the index ``OWNER_UID``.
        pods: cache of their pods.
        config_maps: cache of the groups' ConfigMaps.
        ledger: counts of started pods.
        events: receives events about JobSets.
        features: the feature gates.
        clock: time.
    """

    def __init__(
        self,
        client: rt.Client,
        *,
        jobsets: rt.Store[JobSet],
        jobs: rt.Store[Job],
        pods: rt.Store[ChildPod],
        config_maps: rt.Store[ConfigMap],
        ledger: StartLedger,
        events: rt.EventRecorder,
        features: Features | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._jobsets = jobsets
        self._jobs = jobs
        self._pods = pods
        self._config_maps = config_maps
        self._ledger = ledger
        self._events = events
        self._features = features or Features()
        self._clock = clock or LoopClock()
        self._writer = GroupWriter(client, events, self._clock)
        self._waits: dict[rt.ObjectKey, _Wait] = {}
        self._waiting: set[rt.ObjectKey] = set()

    def on_pod(self, event: rt.Event[ChildPod]) -> Iterable[rt.Request]:
        """Bring the ledger up to date with a pod; ask for a reconcile if that is needed."""
        group = self._ledger.pod_changed(event.old, event.new)
        if group is None:
            return ()
        needed = (event.new is not None and is_leader(event.new)) or self.needs_pass(group)
        return (rt.Request(group.jobset),) if needed else ()

    def on_job(self, event: rt.Event[Job]) -> Iterable[rt.Request]:
        """The same for a Job, which brings its pods into a group and out of it."""
        group = self._ledger.job_changed(event.old, event.new)
        return () if group is None else (rt.Request(group.jobset),)

    def needs_pass(self, group: AttemptKey) -> bool:
        """Whether so many pods have started that the group may be complete; O(1).

        The JobSet's own events cause passes too, so what cannot be known here yet is seen then.
        """
        if not self._jobsets.has_synced:
            return False
        key = rt.ObjectKey(group.namespace, group.name)
        jobset = self._jobsets.get(key)
        if jobset is None or AttemptKey.of(jobset) != group:
            return False
        wait = self._waits.get(key)
        if wait is not None and wait.released >= self._ledger.attempt(group):
            return False
        return self._ledger.started(group) >= self._expected(jobset, wait)

    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Release the group if all its pods have started; else tell how far it is.

        Raises:
            ConflictError: JobSet or ConfigMap change faster than they can be written.
        """
        key = request.key
        jobset = self._jobsets.get(key)
        group = None if jobset is None else AttemptKey.of(jobset)
        if jobset is None or group is None or not self._ledger.attempt(group):
            self._end(key)
            return rt.Result.done()
        meta = jobset.metadata
        if meta.deletion_timestamp is not None or not is_ours(jobset):
            self._end(key)
            return rt.Result.done()
        finished = cond.finished(jobset.status.conditions) is not None
        if finished or jobset.spec.suspend is True:
            self._end(key)
            # A group that gathered does so no longer; any other has no such condition to change.
            over = decision.FINISHED if finished else decision.SUSPENDED
            await self._writer.condition(jobset, over)
            return rt.Result.done()
        return await self._look(jobset, group)

    async def _look(self, jobset: JobSet, group: AttemptKey) -> rt.Result:
        key = jobset.metadata.key
        config_map = self._config_maps.get(_config_map_key(jobset))
        stored = lifted(jobset, config_map)
        newest = self._ledger.attempt(group)
        wait = self._remember(jobset, newest)
        if config_map is None or config_map.metadata.resource_version != wait.lagging:
            wait.released = stored
        expected = self._expected(jobset, wait)
        if wait.released >= newest:
            if not cond.is_true(jobset.status.conditions, keys.GROUP_COMPLETED_CONDITION):
                await self._tell_completed(jobset, expected)
            return rt.Result.done()
        started = self._ledger.started(group)
        if started >= expected:
            release = self._decide(jobset)
            if release and config_map is not None and self._is_own(jobset, config_map, wait):
                await self._writer.release(jobset, config_map, release)
                wait.released, wait.lagging = release, config_map.metadata.resource_version
                metrics.group_released(self._clock.monotonic() - wait.began)
                await self._tell_completed(jobset, expected)
                return rt.Result.done(summary=f"released attempt {release}")
        self._gauge(key, waits=True)
        return await self._wait(jobset, config_map, wait, min(started, expected), expected)

    def _decide(self, jobset: JobSet) -> int:
        jobs = self._jobs.by_index(rt.OWNER_UID, jobset.metadata.uid)
        if jobset.spec.group_scheduling_config is None:
            # It was taken out of the spec: nobody has to wait any longer.
            return attempt(jobset)
        return decision.released_attempt(jobset, jobs, self._ledger, self._features)

    # -- gathering ----------------------------------------------------------------------------

    async def _wait(
        self,
        jobset: JobSet,
        config_map: ConfigMap | None,
        wait: _Wait,
        started: int,
        expected: int,
    ) -> rt.Result:
        elapsed = self._clock.monotonic() - wait.began
        config = jobset.spec.group_scheduling_config
        timeout_s = None if config is None else config.timeout_after_seconds
        if wait.next_progress is None:
            wait.next_progress = decision.next_progress(0.0, timeout_s)
        if wait.next_progress is not None and elapsed >= wait.next_progress:
            if config_map is not None and self._is_own(jobset, config_map, wait):
                await self._writer.progress(jobset, config_map, wait.attempt, started, expected)
            wait.next_progress = decision.next_progress(elapsed, timeout_s) or float("inf")
        if elapsed >= wait.next_complaint:
            wait.next_complaint = decision.next_complaint(elapsed)
            jobs = self._jobs.by_index(rt.OWNER_UID, jobset.metadata.uid)
            pods = self._pods.list(jobset.metadata.namespace)
            missing = decision.missing_pods(jobset, jobs, pods)
            await self._writer.condition(
                jobset, decision.complaint(started, expected, missing, elapsed)
            )
            wait.told = True
        elif not wait.told and elapsed >= decision.TELL_AFTER_S:
            wait.told = True
            await self._writer.condition(jobset, decision.starting(started, expected))
        moments = [wait.next_complaint, elapsed + SAFETY_NET_S]
        if not wait.told:
            moments.append(decision.TELL_AFTER_S)
        if wait.next_progress is not None:
            moments.append(wait.next_progress)
        return rt.Result.requeue_after(timedelta(seconds=max(0.01, min(moments) - elapsed)))

    def _is_own(self, jobset: JobSet, config_map: ConfigMap, wait: _Wait) -> bool:
        """Whether the ConfigMap is this JobSet's; someone else's is left alone."""
        owner = config_map.metadata.controller
        if owner is not None and owner.uid == jobset.metadata.uid:
            return True
        # What a JobSet of the same name has left behind goes by itself.
        if not wait.foreign and (owner is None or owner.kind != JobSet.RESOURCE.kind):
            wait.foreign = True
            self._events.event(
                jobset,
                cond.WARNING,
                keys.GROUP_FOREIGN_REASON,
                f"pods wait for the ConfigMap {config_map.metadata.name}, which belongs to "
                "something else; delete it, and it is made anew",
            )
        return False

    # -- writing ------------------------------------------------------------------------------

    async def _tell_completed(self, jobset: JobSet, expected: int) -> None:
        self._gauge(jobset.metadata.key, waits=False)
        if jobset.spec.group_scheduling_config is not None:
            await self._writer.condition(jobset, decision.completed(expected))

    # -- memory -------------------------------------------------------------------------------

    def _remember(self, jobset: JobSet, newest: int) -> _Wait:
        key, uid = jobset.metadata.key, jobset.metadata.uid
        wait = self._waits.get(key)
        if wait is None or wait.uid != uid:
            wait = self._waits[key] = _Wait(uid, newest, self._clock.monotonic())
        elif wait.attempt != newest:
            began, before = self._clock.monotonic(), wait
            wait = _Wait(uid, newest, began, before.released, before.lagging)
            self._waits[key] = wait
        return wait

    def _expected(self, jobset: JobSet, wait: _Wait | None) -> int:
        """Remembered, since a spec may have thousands of templates."""
        generation = jobset.metadata.generation
        if wait is None:
            return startup_group_size(jobset)
        if wait.expected[0] != generation or not generation:
            wait.expected = (generation, startup_group_size(jobset))
        return wait.expected[1]

    def _end(self, key: rt.ObjectKey) -> None:
        self._gauge(key, waits=False)
        self._waits.pop(key, None)

    def _gauge(self, key: rt.ObjectKey, *, waits: bool) -> None:
        before = len(self._waiting)
        (self._waiting.add if waits else self._waiting.discard)(key)
        if len(self._waiting) != before:
            metrics.groups_waiting(len(self._waiting))


def _config_map_key(jobset: JobSet) -> rt.ObjectKey:
    meta = jobset.metadata
    return rt.ObjectKey(meta.namespace, config_map_name(meta.name))


def is_leader(pod: ChildPod) -> bool:
    """Whether it is the first pod of the first Job of a target (every pod of one without index)."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    if annotations.group_attempt is None or labels.job_index != "0":
        return False
    return annotations.completion_index in {None, "0"}


def _uses_groups(event: rt.Event[JobSet]) -> bool:
    """Whether group scheduling is, or just was, a part of the JobSet."""
    return any(
        jobset is not None and jobset.spec.group_scheduling_config is not None
        for jobset in (event.old, event.new)
    )


def setup(manager: rt.Manager, settings: LeaderPodsSettings | None = None) -> rt.Controller:
    """Wire the leader pods reconciler: its caches, ledger and controller.

    Args:
        manager: not started yet.
        settings: see there.
    """
    settings = settings or LeaderPodsSettings()
    jobsets = manager.informer(JobSet)
    jobs = manager.informer(Job, label_selector=CHILD_SELECTOR, indexes=[rt.OWNER_UID])
    pods = manager.informer(ChildPod, label_selector=CHILD_SELECTOR)
    config_maps = manager.informer(ConfigMap, label_selector=CHILD_SELECTOR)
    ledger = StartLedger()
    reconciler = LeaderPodsReconciler(
        manager.client,
        jobsets=jobsets.store,
        jobs=jobs.store,
        pods=pods.store,
        config_maps=config_maps.store,
        ledger=ledger,
        events=manager.recorder("jobset"),
        features=settings.features,
        clock=manager.clock,
    )
    controller = rt.Controller(
        name="leader-pods",
        reconciler=reconciler,
        workers=settings.workers,
        watches=(
            rt.Watch(jobsets, rt.enqueue_self, when=_uses_groups),
            rt.Watch(config_maps, rt.enqueue_owner(JobSet)),
            rt.Watch(jobs, reconciler.on_job, standby=True),
            rt.Watch(pods, reconciler.on_pod, standby=True),
        ),
        clock=manager.clock,
    )
    manager.add(controller)
    return controller
