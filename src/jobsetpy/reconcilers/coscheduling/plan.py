"""Plan of one reconcile of a JobSet's gangs: labels, gates, ``PodGroup`` objects and conditions.

Pods get their labels from the templates of their Jobs (``reconcilers.jobs.child_jobs``), which are
immutable while a Job runs. Three things make labels wrong: the JobSet is resized or requests
another minimum, a user edits them, or pods end and are not created again, so that a gang must not
wait for them.

Admission of gangs in the coscheduler is decided by ``coscheduler.gang_scheduler``, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.api.meta import ObjectKey
from jobsetpy.api.reconcile import Result
from jobsetpy.reconcilers.coscheduling import status as messages
from jobsetpy.reconcilers.coscheduling.backends import COSCHEDULER
from jobsetpy.reconcilers.coscheduling.gangs import LABELS as GANG_LABELS
from jobsetpy.reconcilers.coscheduling.gangs import Gangs, gangs_of, is_true, minimum, possible
from jobsetpy.reconcilers.coscheduling.pod_groups import (
    NativeObjects,
    PatchSpec,
    ReplaceObject,
    counts,
    min_count,
    object_changes,
    pod_groups,
    resizing,
    workload,
)
from jobsetpy.reconcilers.coscheduling.requests import SCOPES
from jobsetpy.reconcilers.coscheduling.status import GangStanding
from jobsetpy.reconcilers.coscheduling.tally import GangCounts, GangKey
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.buckets import sort_jobs
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.in_place_record import is_starting
from jobsetpy.reconcilers.rules.membership import is_handled, parse_count
from jobsetpy.reconcilers.rules.plan import EmitEvent, Plan
from jobsetpy.reconcilers.rules.status_draft import StatusDraft, condition_change
from jobsetpy.reconcilers.rules.times import Now


@attrs.frozen(kw_only=True)
class ObservedGangs:
    """Input of one plan: a JobSet and its gangs.

    Args:
        key: namespace and name of the JobSet.
        jobset: current JobSet; ``None`` if it is gone.
        jobs: all Jobs controlled by it.
        counts: lookup of the pod counts of a gang.
        open_pods: names of the pods in gangs that have no node yet.
        suspects: names of pods that may need corrections.
        pod: lookup of a pod in the namespace by its name.
        pods: lookup of all pods with the JobSet's label, called only when all have to be checked.
        native: ``PodGroup`` and ``Workload`` objects of the JobSet; ``None`` with another backend.
        features: the feature gates.
        scheduler: scheduler of gangs, for users; "" if none is known.
        not_served: reason for which pods only get labels, if more was requested.
    """

    key: ObjectKey
    jobset: JobSet | None
    jobs: Collection[Job] = ()
    counts: Callable[[GangKey], GangCounts] = lambda _: GangCounts()
    open_pods: Callable[[], Iterable[str]] = tuple
    suspects: Collection[str] = ()
    pod: Callable[[str], ChildPod | None] = lambda _: None
    pods: Callable[[], Iterable[ChildPod]] = tuple
    native: NativeObjects | None = None
    features: Features = attrs.field(factory=Features)
    scheduler: str = ""
    not_served: str = ""


@attrs.frozen(kw_only=True)
class GangMemory:
    """State kept of a JobSet between reconciles; all of it may be lost.

    Args:
        uid: UID of the JobSet.
        stamp: inputs of its gangs; while they are equal, so are the gangs.
        gangs: gangs of the JobSet; ``None`` if it requests none.
        standings: last observed state of each gang, by its name.
        waits: some gang was incomplete then.
        incomplete: names of the gangs that are incomplete now, kept by events of pods.
        above: names of the gangs whose ``PodGroup`` has a higher minimum than they need.
        complained: an invalid annotation was reported.
        next_report: time at which the state of the gangs is written, monotonic; ``None``
            if no gang is incomplete.
        pause: interval until the next write, in seconds.
    """

    uid: str = ""
    stamp: object = None
    gangs: Gangs | None = None
    standings: Mapping[str, GangStanding] = attrs.field(factory=dict)
    waits: bool = False
    incomplete: set[str] = attrs.field(factory=set)
    above: frozenset[str] = frozenset()
    complained: bool = False
    next_report: float | None = None
    pause: float = 0.0


@attrs.frozen
class FixPod:
    """Correction of a pod's labels, and removal of the coscheduler's gate.

    Args:
        pod: pod to be corrected.
        labels: labels to be set, or removed (``None``); ``None`` if they are correct.
        gate: remove the gate.
    """

    pod: ChildPod
    labels: Mapping[str, str | None] | None
    gate: bool


Action = FixPod | ReplaceObject | PatchSpec


@attrs.frozen(kw_only=True)
class CoschedulingPlan(Plan[GangMemory]):
    """Actions for a JobSet's gangs.

    Args:
        interim: memory until the status is stored: events of pods meanwhile are compared with this
            observation.
        stages: writes before the status; those of one stage are independent, and each stage waits
            for the one before.
    """

    interim: GangMemory | None = None
    stages: tuple[tuple[Action, ...], ...] = ()

    @property
    def fixed(self) -> list[str]:
        """Names of the pods that are corrected."""
        actions = (action for stage in self.stages for action in stage)
        return [action.pod.metadata.name for action in actions if isinstance(action, FixPod)]


# -- between reconciles, O(1) ---------------------------------------------------------------------


def pod_fix(memory: GangMemory, pod: ChildPod) -> FixPod | None:
    """Return the correction of a pod; ``None`` if it needs none."""
    meta = pod.metadata
    if memory.gangs is None or not pod.live:
        return None
    gang = memory.gangs.of(meta.labels.replicated_job_name, meta.labels.job_index)
    if gang is None:
        return None
    stranded = _is_stranded(pod)
    if memory.gangs.has_left(meta.labels):
        return FixPod(pod, dict.fromkeys(GANG_LABELS), stranded) if meta.labels.pod_group else None
    standing = memory.standings.get(gang.name)
    least = gang.min_available if standing is None else standing.minimum
    labelled = meta.labels.pod_group == gang.name and is_true(
        meta.labels.pod_group_minimum, gang, least, bound=bool(pod.spec.node_name)
    )
    # Pods of another attempt belong to its gang, and are being deleted.
    attempt = parse_count(meta.labels.restart_attempt)
    other = attempt is not None and attempt != memory.gangs.attempt
    if labelled or other or meta.annotations.jobset_uid not in {"", memory.uid}:
        return FixPod(pod, None, gate=True) if stranded else None
    labels = {keys.POD_GROUP_NAME: gang.name, keys.POD_GROUP_MIN_AVAILABLE: str(least)}
    return FixPod(pod, labels, stranded)


def _is_stranded(pod: ChildPod) -> bool:
    """Return whether a pod has the scheduling gate of version 0.2, which coschedulers removed."""
    return pod.metadata.annotations.coscheduling_backend == COSCHEDULER and any(
        gate.name == keys.COSCHEDULING_GATE for gate in pod.spec.scheduling_gates
    )


def has_turned(
    memory: GangMemory, counts_of: Callable[[GangKey], GangCounts], gang: GangKey
) -> bool:
    """Record whether a gang is complete; return whether a plan is due.

    It is when all gangs are complete, unlike in the last plan: while some are incomplete, it has
    nothing to do for one more or less. It is as well when a pod needs a lower minimum.
    """
    before = memory.standings.get(gang.name)
    if before is None:
        return False
    after = attrs.evolve(before, counts=counts_of(gang))
    if after.complete:
        memory.incomplete.discard(gang.name)
    else:
        memory.incomplete.add(gang.name)
    lowered = gang.name in memory.above and after.counts.open > 0
    return lowered or memory.waits != bool(memory.incomplete)


def job_matters(old: Job | None, new: Job | None) -> bool:
    """Return whether the amount of work left in a Job, or its size, has changed."""
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
    """Correct the pods of a JobSet's gangs, and report the state of the gangs."""
    jobset = observed.jobset
    if not is_handled(jobset):
        return CoschedulingPlan()
    before = memory if memory.uid == jobset.metadata.uid else GangMemory()
    stamp = _stamp(jobset)
    gangs = before.gangs if before.stamp == stamp else gangs_of(jobset)
    if gangs is None:
        return _without_gangs(jobset, before, stamp)
    finished = cond.finished(jobset.status.conditions) is not None
    if finished or jobset.spec.suspend is True:
        over = [messages.FINISHED] if finished else [messages.SUSPENDED, messages.UNBOUND]
        status = condition_change(jobset, now, *over)
        return CoschedulingPlan(stages=_removals(observed), status=status)
    standings = _standings(observed, jobset, gangs, before)
    incomplete = {name for name, each in standings.items() if not each.complete}
    pod_group_stages, above = _pod_groups(observed, jobset, gangs, standings)
    memory = attrs.evolve(
        before,
        uid=jobset.metadata.uid,
        stamp=stamp,
        gangs=gangs,
        standings=standings,
        waits=bool(incomplete),
        incomplete=incomplete,
        above=above,
    )
    fixes = _fixes(observed, before, memory)
    return attrs.evolve(
        _report_gangs(observed, jobset, memory, now, fixed=len(fixes)),
        interim=memory,
        notices=_notices(before, memory),
        stages=(*pod_group_stages, fixes),
    )


def _stamp(jobset: JobSet) -> object:
    """Return the inputs of the gangs; annotations do not change the generation."""
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
    """Report an invalid annotation once; the webhook would have rejected it."""
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
    starting = is_starting(jobset)
    same = gangs is before.gangs  # their names need not be computed again
    every = [each.gang for each in before.standings.values()] if same else gangs
    groups = () if observed.native is None else observed.native.pod_groups
    reported = {each.metadata.name: each.status.conditions for each in groups}
    return {
        gang.name: GangStanding(
            gang,
            left[gang.name],
            minimum(gang, left[gang.name], starting=starting),
            observed.counts(GangKey(observed.key, gang.name)),
            reported.get(gang.pod_group, ()),
        )
        for gang in every
    }


def _fixes(observed: ObservedGangs, before: GangMemory, memory: GangMemory) -> tuple[FixPod, ...]:
    """Return corrections; all pods are checked if the gangs have changed."""
    pods: Iterable[ChildPod | None]
    if memory.gangs is not before.gangs:
        pods = observed.pods()
    else:
        names = set(observed.suspects)
        if _minima(memory) != _minima(before):
            names.update(observed.open_pods())
        pods = map(observed.pod, names)
    found = (pod_fix(memory, pod) for pod in pods if pod is not None)
    return tuple(each for each in found if each is not None)


def _minima(memory: GangMemory) -> list[int]:
    return [each.minimum for each in memory.standings.values()]


def _pod_groups(
    observed: ObservedGangs,
    jobset: JobSet,
    gangs: Gangs,
    standings: Mapping[str, GangStanding],
) -> tuple[tuple[tuple[Action, ...], ...], frozenset[str]]:
    """Create missing objects, change those with another minimum, and delete leftovers.

    A minimum is at most the number of pods that name the ``PodGroup``: Jobs that were created for
    another backend have none of these until they are recreated.

    Returns:
        Stages of the plan, and :attr:`GangMemory.above`.
    """
    native = observed.native
    if native is None:
        return (), frozenset()
    features, jobs = observed.features, observed.jobs
    left = possible(jobset, gangs, jobs, features, lambda job: counts(jobset, job))
    away: set[str] = set()
    if native.api.alpha and features.elastic_jobset:
        away = resizing(jobset, gangs, sort_jobs(jobset, jobs, features).active)
    starting = is_starting(jobset)
    needed = {
        name: 0 if name in away else minimum(each.gang, left[name], starting=starting)
        for name, each in standings.items()
    }
    names = {name: each.gang.pod_group for name, each in standings.items()}
    current = {each.metadata.name: min_count(each.spec) for each in native.pod_groups}
    there = {name: current.get(pod_group) or 0 for name, pod_group in names.items()}
    kept = _kept_minima(there, standings, needed)
    parent = workload(native.api, jobset, gangs)
    wanted = pod_groups(native.api, gangs, {**needed, **kept}, parent)
    gone = {pod_group for name, pod_group in names.items() if name in away}
    stages = (
        # The API server rejects a PodGroup while the Workload that it refers to does not exist.
        object_changes(native.workloads, [] if parent is None else [parent]),
        object_changes(native.pod_groups, wanted, gone),
    )
    return stages, frozenset(kept)


def _kept_minima(
    there: Mapping[str, int], standings: Mapping[str, GangStanding], needed: Mapping[str, int]
) -> dict[str, int]:
    """Return minima of existing objects, by gang, that are higher than needed and yet stay.

    A gang has a lower minimum once it has worked (spares), and when its pods succeed. Only pods
    without a node depend on it, so nothing is written as long as there are none.
    """
    return {
        name: least
        for name, least in there.items()
        if 0 < needed[name] < least <= standings[name].gang.min_available
        and not standings[name].counts.open
    }


def _removals(observed: ObservedGangs) -> tuple[tuple[Action, ...], ...]:
    """Delete all objects of a JobSet that has no pods; a ``PodGroup`` stays while pods name it."""
    native = observed.native
    if native is None:
        return ()
    return (object_changes(native.pod_groups, []), object_changes(native.workloads, []))


def _report_gangs(
    observed: ObservedGangs, jobset: JobSet, memory: GangMemory, now: Now, *, fixed: int
) -> CoschedulingPlan:
    """Report that all gangs are bound, or the state of each at growing intervals."""
    summary = f"fixed labels of {fixed}" if fixed else ""
    standings = list(memory.standings.values())
    draft = StatusDraft(jobset.status, now.wall)
    draft.set(messages.not_served(observed.not_served) if observed.not_served else messages.SERVED)
    if all(each.complete for each in standings):
        if standings:
            draft.set(messages.bound(len(standings), observed.scheduler))
        memory = attrs.evolve(memory, next_report=None, pause=0.0)
        return CoschedulingPlan(
            memory=memory, status=draft.change(), result=Result.done(summary=summary)
        )
    next_report, pause = memory.next_report, memory.pause
    if next_report is None:
        next_report = now.monotonic + messages.TELL_AFTER_S
    elif now.monotonic >= next_report:
        pause = messages.next_pause(pause)
        next_report = now.monotonic + pause
        draft.set(messages.waiting(standings))
    delay_s = max(0.01, next_report - now.monotonic)
    return CoschedulingPlan(
        memory=attrs.evolve(memory, next_report=next_report, pause=pause),
        status=draft.change(),
        result=Result.requeue_after(delay_s, summary=summary),
    )


def _notices(before: GangMemory, memory: GangMemory) -> tuple[EmitEvent, ...]:
    """Return events to be sent immediately: preemption of a gang."""
    out = []
    for name, standing in memory.standings.items():
        old = before.standings.get(name)
        if standing.disrupted is not None and (old is None or old.disrupted is None):
            message = (
                f"{standing.gang.title or 'the group'} is preempted as a whole: "
                f"{standing.disrupted.message}"
            )
            out.append(EmitEvent(cond.WARNING, keys.POD_GROUP_DISRUPTED_REASON, message))
    return tuple(out)
