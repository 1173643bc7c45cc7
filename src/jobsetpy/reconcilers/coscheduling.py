"""Keeps the labels of coscheduling's groups true on pods, and tells where each group stands.

Pods get their labels from their Jobs' templates (``domain.children.jobs``), which cannot change
while a Job runs. Three things make labels untrue: the JobSet is resized or asks for another
minimum, somebody edits them, and pods that end and do not come again, for which a group must not
wait.

A pod's event costs the same however large its group is: some counts, a comparison of its labels,
and a pass only if they are wrong or the group has just become, or ceased to be, complete.

With the backend ``podgroup`` the API server's own groups are made and kept as well. Pods that were
made for the coscheduler are let go when another backend is chosen: nobody else might.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock, LoopClock
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.domain import conditions as cond
from jobsetpy.domain.coscheduling import gangs as domain
from jobsetpy.domain.coscheduling import status as told
from jobsetpy.domain.coscheduling.backends import COSCHEDULER, PODGROUP, PodMarkers
from jobsetpy.domain.coscheduling.ledger import GATED, GangKey, GangLedger, is_live
from jobsetpy.domain.coscheduling.podgroups import counts, resizing
from jobsetpy.domain.features import Features
from jobsetpy.domain.jobs.buckets import sort_jobs
from jobsetpy.domain.membership import is_ours
from jobsetpy.errors import NotFoundError
from jobsetpy.reconcilers._gates import take_gate_off
from jobsetpy.reconcilers._group_writer import GroupWriter
from jobsetpy.reconcilers._parallel import in_parallel
from jobsetpy.reconcilers._pod_groups import PodGroupWriter, wire_pod_groups
from jobsetpy.reconcilers._pod_groups import are_served as pod_groups_are_served

__all__ = [
    "CoschedulingReconciler",
    "CoschedulingSettings",
    "pod_groups_are_served",
    "setup",
]

CHILD_SELECTOR: Final = keys.JOBSET_NAME
"""Label selector of child Jobs and pods: the label exists."""

_SHOWN_ERRORS: Final = 5


@attrs.frozen(kw_only=True)
class CoschedulingSettings:
    """How the coscheduling reconciler works.

    Args:
        features: the feature gates.
        workers: maximum concurrent reconciles.
        parallel_writes: maximum concurrent writes of labels for one JobSet.
        marks: what pods of groups are given.
        not_served: why pods are only labelled, if more was asked for; JobSets are told.
    """

    features: Features = attrs.field(factory=Features)
    workers: int = 4
    parallel_writes: int = 16
    marks: PodMarkers = attrs.field(factory=PodMarkers)
    not_served: str = ""


@attrs.define
class _Memory:
    """What is remembered of a JobSet between passes; nothing that could not be lost.

    ``left`` and ``least`` are by name of a group; ``suspects`` are pods whose labels were wrong.
    """

    uid: str
    stamp: object
    groups: domain.Gangs
    by_name: dict[str, domain.Gang]
    left: dict[str, int] = attrs.field(factory=dict)
    least: dict[str, int] = attrs.field(factory=dict)
    incomplete: set[str] = attrs.field(factory=set)
    suspects: set[str] = attrs.field(factory=set)
    all_suspect: bool = True
    waits_since: float | None = None
    next_tell: float = 0.0
    pause: float = 0.0
    mixed: dict[str, tuple[int, ...]] = attrs.field(factory=dict)


class CoschedulingReconciler:
    """One pass over one JobSet, and what pod and Job events do between passes.

    Args:
        client: writes.
        jobsets: cache of JobSets.
        jobs: cache of their Jobs, with the index ``OWNER_UID``.
        pods: cache of their pods.
        events: receives events about JobSets.
        settings: see there.
        clock: time.
        pod_groups: keeps the API server's own groups, with the backend of that name.
    """

    def __init__(
        self,
        client: rt.Client,
        *,
        jobsets: rt.Store[JobSet],
        jobs: rt.Store[Job],
        pods: rt.Store[ChildPod],
        events: rt.EventRecorder,
        settings: CoschedulingSettings | None = None,
        clock: Clock | None = None,
        pod_groups: PodGroupWriter | None = None,
    ) -> None:
        self._client = client
        self._pod_groups = pod_groups
        self._jobsets = jobsets
        self._jobs = jobs
        self._pods = pods
        self._events = events
        self._settings = settings or CoschedulingSettings()
        self._clock = clock or LoopClock()
        self._writer = GroupWriter(client, events, self._clock)
        self._ledger = GangLedger()
        self._memory: dict[rt.ObjectKey, _Memory] = {}
        self._complained: set[str] = set()

    # -- between passes -----------------------------------------------------------------------

    def on_pod(self, event: rt.Event[ChildPod]) -> Iterable[rt.Request]:
        """Take a pod's event into account, and ask for a reconcile if one is needed; O(1)."""
        new, pod = event.new, event.obj
        groups = self._ledger.pod_changed(event.old, new)
        key = rt.ObjectKey(pod.metadata.namespace, pod.metadata.labels.jobset_name)
        memory = self._memory.get(key)
        if memory is None:
            return ()  # it takes no part, or its first pass is yet to come and sees everything
        due = any(self._turned(memory, group) for group in groups if group.jobset == key)
        if new is not None and (
            self._wanted_labels(memory, new) is not None or self._is_stranded(memory, new)
        ):
            memory.suspects.add(new.metadata.name)
            due = True
        return (rt.Request(key),) if due else ()

    def on_job(self, event: rt.Event[Job]) -> Iterable[rt.Request]:
        """Ask for a reconcile of the owner, if its groups may have less to do."""
        meta = event.obj.metadata
        owner = meta.controller
        if owner is None:
            return ()
        key = rt.ObjectKey(meta.namespace, owner.name)
        needed = key in self._memory and _progress(event.old) != _progress(event.new)
        return (rt.Request(key),) if needed else ()

    def _turned(self, memory: _Memory, group: GangKey) -> bool:
        least = memory.least.get(group.name)
        if least is None or memory.left.get(group.name, 0) <= 0:
            return False
        complete = self._ledger.counts(group).bound >= least
        return complete == (group.name in memory.incomplete)

    def _wanted_labels(self, memory: _Memory, pod: ChildPod) -> dict[str, str] | None:
        """What a pod's labels should be, if they are not."""
        meta = pod.metadata
        if not is_live(pod) or meta.annotations.jobset_uid not in {"", memory.uid}:
            return None
        labels = meta.labels
        group = memory.groups.of(labels.replicated_job_name, labels.job_index)
        if group is None:
            return None
        least = memory.least.get(group.name, group.min_available)
        if labels.pod_group == group.name and domain.is_true(
            labels.pod_group_minimum, group, least, bound=bool(pod.spec.node_name)
        ):
            return None
        return {keys.POD_GROUP_NAME: group.name, keys.POD_GROUP_MIN_AVAILABLE: str(least)}

    def _is_stranded(self, memory: _Memory, pod: ChildPod) -> bool:
        """Whether a pod may wait for a coscheduler that is not in charge any more."""
        meta = pod.metadata
        return (
            meta.annotations.coscheduling_backend == COSCHEDULER
            and self._settings.marks.backend != COSCHEDULER
            and pod.status.waiting == GATED
            and not pod.spec.node_name
            and is_live(pod)
            and memory.groups.of(meta.labels.replicated_job_name, meta.labels.job_index) is not None
        )

    # -- the pass -----------------------------------------------------------------------------

    async def reconcile(self, request: rt.Request) -> rt.Result:
        """Mend labels, and tell where the groups stand.

        Raises:
            ConflictError: the JobSet changes faster than it can be written.
            ExceptionGroup: some labels could not be written; the others were.
        """
        key = request.key
        jobset = self._jobsets.get(key)
        if jobset is None or jobset.metadata.deletion_timestamp is not None or not is_ours(jobset):
            self._memory.pop(key, None)
            return rt.Result.done()
        groups = domain.gangs_of(jobset)
        if groups is None:
            self._memory.pop(key, None)
            self._complain(jobset)
            return rt.Result.done()
        finished = cond.finished(jobset.status.conditions) is not None
        if finished or jobset.spec.suspend is True:
            self._memory.pop(key, None)
            if finished and self._pod_groups is not None:
                await self._pod_groups.remove(jobset)
            await self._writer.condition(jobset, told.FINISHED if finished else told.SUSPENDED)
            return rt.Result.done()
        memory = self._remember(jobset, groups)
        if self._pod_groups is not None:
            await self._pod_groups.sync(jobset, groups, self._minima(jobset, groups))
        mended = await self._mend(jobset, memory)
        standings = self._standings(jobset, memory)
        self._tell_priorities(jobset, memory, standings)
        result = await self._tell(jobset, memory, standings)
        return attrs.evolve(result, summary=f"mended labels of {mended}") if mended else result

    def _remember(self, jobset: JobSet, groups: domain.Gangs) -> _Memory:
        meta = jobset.metadata
        stamp = (meta.uid, meta.generation, _notes(jobset))
        memory = self._memory.get(meta.key)
        if memory is None or memory.uid != meta.uid:
            by_name = {group.name: group for group in groups}
            memory = self._memory[meta.key] = _Memory(meta.uid, stamp, groups, by_name)
            if self._settings.not_served:
                reason = keys.POD_GROUPS_NOT_SERVED_REASON
                self._events.event(jobset, cond.WARNING, reason, self._settings.not_served)
        elif memory.stamp != stamp:
            memory.stamp, memory.groups = stamp, groups
            memory.by_name = {group.name: group for group in groups}
            memory.all_suspect = True
        jobs = self._jobs.by_index(rt.OWNER_UID, meta.uid)
        memory.left = domain.possible(jobset, memory.groups, jobs, self._settings.features)
        least = {
            name: domain.minimum(group, memory.left[name]) for name, group in memory.by_name.items()
        }
        if least != memory.least:
            memory.least = least
            memory.suspects.update(self._ledger.open_pods(meta.key))
        return memory

    async def _mend(self, jobset: JobSet, memory: _Memory) -> int:
        """Write the labels that are wrong; returns how many pods that were."""
        namespace = jobset.metadata.namespace
        pods: Iterable[ChildPod]
        if memory.all_suspect:
            name = jobset.metadata.name
            found = self._pods.list(namespace)
            pods = [pod for pod in found if pod.metadata.labels.jobset_name == name]
        else:
            named = [self._pods.get(rt.ObjectKey(namespace, name)) for name in memory.suspects]
            pods = [pod for pod in named if pod is not None]
        todo = [
            (pod, labels, stranded)
            for pod in pods
            for labels in (self._wanted_labels(memory, pod),)
            for stranded in (self._is_stranded(memory, pod),)
            if labels is not None or stranded
        ]

        async def write(item: tuple[ChildPod, dict[str, str] | None, bool]) -> None:
            pod, labels, stranded = item
            # The UID keeps it from another pod of that name.
            body = {"metadata": {"uid": pod.metadata.uid, "labels": labels}}
            with suppress(NotFoundError):
                if labels is not None:
                    await self._client.merge_patch(ChildPod, namespace, pod.metadata.name, body)
                if stranded:
                    await take_gate_off(self._client, pod)

        before, memory.suspects, memory.all_suspect = memory.suspects, set(), False
        failed = await in_parallel(self._settings.parallel_writes, todo, write)
        if failed:
            memory.suspects |= before | {pod.metadata.name for (pod, *_), _ in failed}
            msg = f"{len(failed)} pods could not be written: {failed[0][1]}"
            raise ExceptionGroup(msg, [error for _, error in failed[:_SHOWN_ERRORS]])
        return len(todo)

    def _minima(self, jobset: JobSet, groups: domain.Gangs) -> dict[str, int]:
        """Minima of the API server's groups; 0 for those that have to be away just now.

        A minimum is no more than there are pods that name the group: Jobs that were made for
        another backend have none of these until they are made anew.
        """
        jobs = list(self._jobs.by_index(rt.OWNER_UID, jobset.metadata.uid))
        left = domain.possible(
            jobset, groups, jobs, self._settings.features, lambda job: counts(jobset, job)
        )
        away: set[str] = set()
        if self._settings.features.elastic_jobset:
            active = sort_jobs(jobset, jobs, self._settings.features).active
            away = resizing(jobset, groups, active)
        return {
            group.name: 0 if group.name in away else domain.minimum(group, left[group.name])
            for group in groups
        }

    # -- what users hear ----------------------------------------------------------------------

    def _standings(self, jobset: JobSet, memory: _Memory) -> list[told.GangStanding]:
        key = jobset.metadata.key
        standings = [
            told.GangStanding(
                group,
                memory.left[name],
                memory.least[name],
                self._ledger.counts(GangKey(key, name)),
            )
            for name, group in memory.by_name.items()
        ]
        memory.incomplete = {each.group.name for each in standings if not each.complete}
        return standings

    async def _tell(
        self, jobset: JobSet, memory: _Memory, standings: list[told.GangStanding]
    ) -> rt.Result:
        if not memory.incomplete:
            memory.waits_since, memory.pause = None, 0.0
            if standings:
                await self._writer.condition(jobset, told.bound(len(standings)))
            return rt.Result.done()
        now = self._clock.monotonic()
        if memory.waits_since is None:
            memory.waits_since, memory.next_tell = now, now + told.TELL_AFTER_S
        elif now >= memory.next_tell:
            memory.pause = told.next_pause(memory.pause)
            memory.next_tell = now + memory.pause
            await self._writer.condition(jobset, told.waiting(standings))
        return rt.Result.requeue_after(timedelta(seconds=max(0.01, memory.next_tell - now)))

    def _tell_priorities(
        self, jobset: JobSet, memory: _Memory, standings: list[told.GangStanding]
    ) -> None:
        """Warn of each group whose pods differ in priority: the scheduler may take it apart."""
        mixed = {
            each.group.name: tuple(sorted(each.counts.priorities))
            for each in standings
            if len(each.counts.priorities) > 1
        }
        for name, priorities in mixed.items():
            if memory.mixed.get(name) == priorities:
                continue
            title = memory.by_name[name].title or "the group"
            self._events.event(
                jobset,
                cond.WARNING,
                keys.POD_GROUP_PRIORITIES_REASON,
                f"pods of {title} have different priorities "
                f"({', '.join(map(str, priorities))}): they may not be scheduled together",
            )
        memory.mixed = mixed

    def _complain(self, jobset: JobSet) -> None:
        """Say once that what a JobSet asks for means nothing; the webhook would have refused it."""
        value = jobset.metadata.annotations.get(keys.COSCHEDULING_ANNOTATION)
        uid = jobset.metadata.uid
        if value is None:
            self._complained.discard(uid)
        elif uid not in self._complained:
            self._complained.add(uid)
            scopes = ", ".join(domain.SCOPES)
            self._events.event(
                jobset,
                cond.WARNING,
                keys.COSCHEDULING_INVALID_REASON,
                f"annotation {keys.COSCHEDULING_ANNOTATION} is {value!r}, not one of {scopes}: "
                "its pods are not scheduled as groups",
            )


def _notes(jobset: JobSet) -> tuple[str | None, ...]:
    notes = jobset.metadata.annotations
    return tuple(
        notes.get(name)
        for name in (
            keys.COSCHEDULING_ANNOTATION,
            keys.COSCHEDULING_TARGETS_ANNOTATION,
            keys.COSCHEDULING_MIN_ANNOTATION,
        )
    )


def _progress(job: Job | None) -> object:
    """What of a Job decides for how many pods it has work left, and whether it is resized."""
    if job is None:
        return None
    finished = job.status.finished
    size = job.spec.parallelism, job.spec.completions
    end = None if finished is None else finished.type
    return job.metadata.uid, job.status.succeeded, size, end


def _asks(event: rt.Event[JobSet]) -> bool:
    """Whether coscheduling is, or just was, asked for."""
    return any(
        jobset is not None and keys.COSCHEDULING_ANNOTATION in jobset.metadata.annotations
        for jobset in (event.old, event.new)
    )


def setup(manager: rt.Manager, settings: CoschedulingSettings | None = None) -> rt.Controller:
    """Wire the coscheduling reconciler: its caches and controller.

    Args:
        manager: not started yet.
        settings: see there.
    """
    settings = settings or CoschedulingSettings()
    jobsets = manager.informer(JobSet)
    jobs = manager.informer(Job, label_selector=CHILD_SELECTOR, indexes=[rt.OWNER_UID])
    pods = manager.informer(ChildPod, label_selector=CHILD_SELECTOR)
    watches: list[rt.Watch[Any]] = [rt.Watch(jobsets, rt.enqueue_self, when=_asks)]
    writer = None
    if settings.marks.backend == PODGROUP:
        writer, more = wire_pod_groups(manager, parallel=settings.parallel_writes)
        watches += more
    reconciler = CoschedulingReconciler(
        manager.client,
        jobsets=jobsets.store,
        jobs=jobs.store,
        pods=pods.store,
        events=manager.recorder("jobset"),
        settings=settings,
        clock=manager.clock,
        pod_groups=writer,
    )
    watches += [
        rt.Watch(jobs, reconciler.on_job),
        rt.Watch(pods, reconciler.on_pod, standby=True),
    ]
    controller = rt.Controller(
        name="coscheduling",
        reconciler=reconciler,
        workers=settings.workers,
        watches=tuple(watches),
        clock=manager.clock,
    )
    manager.add(controller)
    return controller
