"""What one reconcile of a JobSet's gangs does: labels, gates, ``PodGroup`` objects, what is told.

Pods get their labels from their Jobs' templates (``reconcilers.jobs.child_jobs``), which cannot
change while a Job runs. Three things make labels untrue: the JobSet is resized or asks for another
minimum, somebody edits them, and pods that end and do not come again, for which a gang must not
wait.

Not to be confused with ``planner``, which decides when the coscheduler lets gangs go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import ObjectKey
from jobsetpy.api.reconcile import Result
from jobsetpy.api.scheduling import SchedulingPodGroup, SchedulingWorkload
from jobsetpy.reconcilers.coscheduling import status as told
from jobsetpy.reconcilers.coscheduling.backends import COSCHEDULER, LABELS
from jobsetpy.reconcilers.coscheduling.gangs import LABELS as GANG_LABELS
from jobsetpy.reconcilers.coscheduling.gangs import (
    SCOPES,
    Gangs,
    gangs_of,
    is_true,
    minimum,
    possible,
)
from jobsetpy.reconcilers.coscheduling.pod_groups import (
    ReplaceObject,
    counts,
    object_changes,
    pod_group_name,
    pod_groups,
    resizing,
    workload,
)
from jobsetpy.reconcilers.coscheduling.status import GangStanding
from jobsetpy.reconcilers.coscheduling.tally import GATED, GangCounts, GangKey
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.buckets import sort_jobs
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.membership import is_ours, parse_count
from jobsetpy.reconcilers.rules.plan import EmitEvent, Now, Plan
from jobsetpy.reconcilers.rules.status_draft import StatusDraft, condition_change


@attrs.frozen(kw_only=True)
class ObservedGangs:
    """What is known of a JobSet and its gangs.

    Args:
        key: of the JobSet.
        jobset: as it is; ``None`` if it is gone.
        jobs: all Jobs that it controls.
        counts: the counts of a gang's pods.
        open_pods: names of the pods in gangs that have no node yet.
        suspects: names of pods that were seen to need mending.
        pod: finds a pod of the namespace by its name.
        pods: those that say that they are of the JobSet; asked for when all have to be looked at.
        pod_groups: those of the JobSet; ``None`` if the backend is another one.
        workloads: the same.
        features: the feature gates.
        backend: who schedules gangs.
        not_served: why pods are only labelled, if more was asked for.
    """

    key: ObjectKey
    jobset: JobSet | None
    jobs: Collection[Job] = ()
    counts: Callable[[GangKey], GangCounts] = lambda _: GangCounts()
    open_pods: Callable[[], Iterable[str]] = tuple
    suspects: Collection[str] = ()
    pod: Callable[[str], ChildPod | None] = lambda _: None
    pods: Callable[[], Iterable[ChildPod]] = tuple
    pod_groups: Collection[SchedulingPodGroup] | None = None
    workloads: Collection[SchedulingWorkload] = ()
    features: Features = attrs.field(factory=Features)
    backend: str = LABELS
    not_served: str = ""


@attrs.frozen(kw_only=True)
class GangMemory:
    """What is remembered of a JobSet between reconciles; nothing that could not be lost.

    Args:
        uid: of the JobSet.
        stamp: of what its gangs were made of; while it is the same, so are they.
        gangs: ``None`` if it takes no part.
        standings: where each gang stood when it was last looked at, by its name.
        backend: who schedules gangs.
        complained: whether it was told of an annotation that means nothing.
        next_tell: when to write where the gangs stand, on the monotonic clock; ``None`` if nothing
            is incomplete.
        pause: until the write after that, in seconds.
    """

    uid: str = ""
    stamp: object = None
    gangs: Gangs | None = None
    standings: Mapping[str, GangStanding] = attrs.field(factory=dict)
    backend: str = LABELS
    complained: bool = False
    next_tell: float | None = None
    pause: float = 0.0


@attrs.frozen
class MendPod:
    """Make a pod's labels true, and take the coscheduler's gate off it.

    Args:
        pod: which.
        labels: to be written, or taken off (``None``); ``None`` if they are true.
        gate: whether the gate has to go.
    """

    pod: ChildPod
    labels: Mapping[str, str | None] | None
    gate: bool


Action = MendPod | ReplaceObject


@attrs.frozen(kw_only=True)
class CoschedulingPlan(Plan[GangMemory]):
    """What to do for a JobSet's gangs.

    Args:
        interim: what to remember until the status is stored: events of pods that come meanwhile are
            compared with what was observed here.
        stages: writes before the status; those of one stage are independent of each other, and each
            stage waits for the one before.
    """

    interim: GangMemory | None = None
    stages: tuple[tuple[Action, ...], ...] = ()

    @property
    def mended(self) -> list[str]:
        """Names of the pods that are mended."""
        actions = (action for stage in self.stages for action in stage)
        return [action.pod.metadata.name for action in actions if isinstance(action, MendPod)]


# -- between reconciles, O(1) ---------------------------------------------------------------------


def mending(memory: GangMemory, pod: ChildPod) -> MendPod | None:
    """What is to be done about a pod; ``None`` if it is as it should be."""
    meta, spec = pod.metadata, pod.spec
    if memory.gangs is None or not pod.live:
        return None
    gang = memory.gangs.of(meta.labels.replicated_job_name, meta.labels.job_index)
    if gang is None:
        return None
    # It may wait for a coscheduler that is not in charge any more.
    stranded = (
        meta.annotations.coscheduling_backend == COSCHEDULER
        and memory.backend != COSCHEDULER
        and pod.status.waiting == GATED
        and not spec.node_name
    )
    if memory.gangs.has_left(meta.labels):
        return MendPod(pod, dict.fromkeys(GANG_LABELS), stranded) if meta.labels.pod_group else None
    standing = memory.standings.get(gang.name)
    least = gang.min_available if standing is None else standing.minimum
    labelled = meta.labels.pod_group == gang.name and is_true(
        meta.labels.pod_group_minimum, gang, least, bound=bool(spec.node_name)
    )
    # Pods of another attempt are in its gang, and go.
    attempt = parse_count(meta.labels.restart_attempt)
    other = attempt is not None and attempt != memory.gangs.attempt
    if labelled or other or meta.annotations.jobset_uid not in {"", memory.uid}:
        return MendPod(pod, None, gate=True) if stranded else None
    labels = {keys.POD_GROUP_NAME: gang.name, keys.POD_GROUP_MIN_AVAILABLE: str(least)}
    return MendPod(pod, labels, stranded)


def has_turned(
    memory: GangMemory, counts_of: Callable[[GangKey], GangCounts], gang: GangKey
) -> bool:
    """Whether a gang has become complete, or has ceased to be, since it was last looked at."""
    before = memory.standings.get(gang.name)
    if before is None:
        return False
    return attrs.evolve(before, counts=counts_of(gang)).complete != before.complete


def job_matters(old: Job | None, new: Job | None) -> bool:
    """Whether a Job has work left for another number of pods, or another size."""
    return _progress(old) != _progress(new)


def _progress(job: Job | None) -> object:
    if job is None:
        return None
    finished = job.status.finished
    size = job.spec.parallelism, job.spec.completions
    end = None if finished is None else finished.type
    return job.metadata.uid, job.status.succeeded, size, end


# -- the plan -------------------------------------------------------------------------------------


def plan_coscheduling(observed: ObservedGangs, memory: GangMemory, now: Now) -> CoschedulingPlan:
    """Mend what is wrong with the pods of a JobSet's gangs, and tell where the gangs stand."""
    jobset = observed.jobset
    if jobset is None or jobset.metadata.deletion_timestamp is not None or not is_ours(jobset):
        return CoschedulingPlan()
    before = memory if memory.uid == jobset.metadata.uid else GangMemory()
    stamp = _stamp(jobset)
    gangs = before.gangs if before.stamp == stamp else gangs_of(jobset)
    if gangs is None:
        return _without_gangs(jobset, before, stamp)
    finished = cond.finished(jobset.status.conditions) is not None
    if finished or jobset.spec.suspend is True:
        over = told.FINISHED if finished else told.SUSPENDED
        status = condition_change(jobset, over, now)
        return CoschedulingPlan(stages=_removals(observed) if finished else (), status=status)
    memory = attrs.evolve(
        before,
        uid=jobset.metadata.uid,
        stamp=stamp,
        gangs=gangs,
        standings=_standings(observed, jobset, gangs, before),
        backend=observed.backend,
    )
    mends = _mends(observed, before, memory)
    return attrs.evolve(
        _tell(observed, jobset, memory, now, mended=len(mends)),
        interim=memory,
        notices=_notices(before, memory),
        stages=(*_pod_groups(observed, jobset, gangs), mends),
    )


def _stamp(jobset: JobSet) -> object:
    """What the gangs are made of; annotations do not change the generation."""
    meta = jobset.metadata
    names = (
        keys.COSCHEDULING_ANNOTATION,
        keys.COSCHEDULING_TARGETS_ANNOTATION,
        keys.COSCHEDULING_MIN_ANNOTATION,
    )
    every = jobset.status.replicated_jobs_status
    own = tuple((item.name, item.job_restarts) for item in every if any(item.job_restarts))
    restarts = jobset.status.restarts, own
    return meta.uid, meta.generation, restarts, *map(meta.annotations.get, names)


def _without_gangs(jobset: JobSet, before: GangMemory, stamp: object) -> CoschedulingPlan:
    """Say once that what a JobSet asks for means nothing; the webhook would have refused it."""
    value = jobset.metadata.annotations.get(keys.COSCHEDULING_ANNOTATION)
    if value is None:
        return CoschedulingPlan()
    message = (
        f"annotation {keys.COSCHEDULING_ANNOTATION} is {value!r}, not one of {', '.join(SCOPES)}: "
        "its pods are not scheduled as groups"
    )
    notice = EmitEvent(cond.WARNING, keys.COSCHEDULING_INVALID_REASON, message)
    memory = GangMemory(uid=jobset.metadata.uid, stamp=stamp, complained=True)
    return CoschedulingPlan(
        interim=memory, memory=memory, notices=() if before.complained else (notice,)
    )


def _standings(
    observed: ObservedGangs, jobset: JobSet, gangs: Gangs, before: GangMemory
) -> dict[str, GangStanding]:
    left = possible(jobset, gangs, observed.jobs, observed.features)
    same = gangs is before.gangs  # their names need not be computed again
    every = [each.gang for each in before.standings.values()] if same else gangs
    return {
        gang.name: GangStanding(
            gang,
            left[gang.name],
            minimum(gang, left[gang.name]),
            observed.counts(GangKey(observed.key, gang.name)),
        )
        for gang in every
    }


def _mends(observed: ObservedGangs, before: GangMemory, memory: GangMemory) -> tuple[MendPod, ...]:
    """The pods that are wrong; all are looked at if the gangs are not those of before."""
    pods: Iterable[ChildPod | None]
    if memory.gangs is not before.gangs or memory.backend != before.backend:
        pods = observed.pods()
    else:
        names = set(observed.suspects)
        if _minima(memory) != _minima(before):
            names.update(observed.open_pods())
        pods = map(observed.pod, names)
    found = (mending(memory, pod) for pod in pods if pod is not None)
    return tuple(each for each in found if each is not None)


def _minima(memory: GangMemory) -> list[int]:
    return [each.minimum for each in memory.standings.values()]


def _pod_groups(
    observed: ObservedGangs, jobset: JobSet, gangs: Gangs
) -> tuple[tuple[Action, ...], ...]:
    """Make what is missing, replace what has another minimum, delete what is left over.

    A minimum is no more than there are pods that name the group: Jobs that were made for another
    backend have none of these until they are made anew.
    """
    if observed.pod_groups is None:
        return ()
    features, jobs = observed.features, observed.jobs
    left = possible(jobset, gangs, jobs, features, lambda job: counts(jobset, job))
    away: set[str] = set()
    if features.elastic_jobset:
        away = resizing(jobset, gangs, sort_jobs(jobset, jobs, features).active)
    minima = {
        gang.name: 0 if gang.name in away else minimum(gang, left[gang.name]) for gang in gangs
    }
    above = workload(jobset, gangs)
    wanted = pod_groups(jobset, gangs, minima, above)
    gone = {pod_group_name(gang, gangs.attempt) for gang in gangs if gang.name in away}
    return (
        # A group is refused while the template that it names is not there.
        object_changes(observed.workloads, [] if above is None else [above]),
        object_changes(observed.pod_groups, wanted, gone),
    )


def _removals(observed: ObservedGangs) -> tuple[tuple[Action, ...], ...]:
    """Delete all objects; groups stay as long as pods name them."""
    return (object_changes(observed.pod_groups or (), []), object_changes(observed.workloads, []))


def _tell(
    observed: ObservedGangs, jobset: JobSet, memory: GangMemory, now: Now, *, mended: int
) -> CoschedulingPlan:
    """Tell that all gangs are bound; or where they stand, after pauses that grow."""
    summary = f"mended labels of {mended}" if mended else ""
    standings = list(memory.standings.values())
    draft = StatusDraft(jobset.status, now.wall)
    draft.set(told.not_served(observed.not_served) if observed.not_served else told.SERVED)
    if all(each.complete for each in standings):
        if standings:
            draft.set(told.bound(len(standings)))
        memory = attrs.evolve(memory, next_tell=None, pause=0.0)
        return CoschedulingPlan(
            memory=memory, status=draft.change(), result=Result.done(summary=summary)
        )
    next_tell, pause = memory.next_tell, memory.pause
    if next_tell is None:
        next_tell = now.monotonic + told.TELL_AFTER_S
    elif now.monotonic >= next_tell:
        pause = told.next_pause(pause)
        next_tell = now.monotonic + pause
        draft.set(told.waiting(standings))
    delay = timedelta(seconds=max(0.01, next_tell - now.monotonic))
    return CoschedulingPlan(
        memory=attrs.evolve(memory, next_tell=next_tell, pause=pause),
        status=draft.change(),
        result=Result.requeue_after(delay, summary=summary),
    )


def _notices(before: GangMemory, memory: GangMemory) -> tuple[EmitEvent, ...]:
    """What is told at once: pods that differ in priority."""
    out = []
    for name, standing in memory.standings.items():
        old = before.standings.get(name)
        if standing.mixed and (old is None or old.mixed != standing.mixed):
            message = (
                f"pods of {standing.gang.title or 'the group'} have different priorities "
                f"({', '.join(map(str, standing.mixed))}): they may not be scheduled together"
            )
            out.append(EmitEvent(cond.WARNING, keys.POD_GROUP_PRIORITIES_REASON, message))
    return tuple(out)
