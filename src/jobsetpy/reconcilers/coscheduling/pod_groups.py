"""The API server's own groups for a JobSet's pods: ``PodGroup`` and ``Workload`` (alpha in 1.36).

A ``PodGroup`` stands for one group in one attempt of the JobSet: the scheduler counts pods that
are still ending, and those of the attempt before must not help the next one over its minimum. Its
spec cannot change, so a group whose minimum changes is replaced (:class:`ReplaceObject`).

The API server refuses another parallelism for a Job whose group is there. So while a Job has yet to
be resized its group is not: pods that have a node keep it, and the others wait for the group.

A ``Workload`` has the templates that the groups were made from, for tools that look from the
JobSet at what it asks of the scheduler. It has at most 8; JobSets with more go without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet, ReplicatedJob
from jobsetpy.api.meta import owner_reference_to
from jobsetpy.api.scheduling import SchedulingPodGroup, SchedulingWorkload
from jobsetpy.reconcilers.coscheduling.backends import PODGROUP
from jobsetpy.reconcilers.coscheduling.gangs import JOBSET, Gang, Gangs
from jobsetpy.reconcilers.rules.elastic import resizes
from jobsetpy.reconcilers.rules.membership import parse_count, replicated_job_of

API_VERSION: Final = "scheduling.k8s.io/v1alpha2"
MAX_TEMPLATES: Final = 8
_WHOLE: Final = "jobset"
"""Name of the template of a group that spans ReplicatedJobs."""


@attrs.frozen
class DesiredObject:
    """An object as it should be.

    Args:
        kind: of the object.
        name: of the object.
        spec: compared as a whole with what is there.
        body: to make it with.
    """

    kind: type[SchedulingPodGroup | SchedulingWorkload]
    name: str
    spec: Mapping[str, Any]
    body: Mapping[str, Any]


@attrs.frozen
class ReplaceObject:
    """Delete the object that is there, if any, and make the new one, if any.

    Args:
        old: what is there and has to go.
        new: what has to come in its place.
        at_once: whether ``old`` does not wait for the pods that name it.
    """

    old: SchedulingPodGroup | SchedulingWorkload | None
    new: DesiredObject | None
    at_once: bool = True


def object_changes(
    there: Iterable[SchedulingPodGroup | SchedulingWorkload],
    wanted: Iterable[DesiredObject],
    away: Collection[str] = (),
) -> tuple[ReplaceObject, ...]:
    """What makes the objects of one kind those that are wanted.

    Args:
        there: what there is.
        wanted: what there should be.
        away: names of those that have to go at once.
    """
    found = {each.metadata.name: each for each in there}
    new = {each.name: each for each in wanted}
    changes = [
        ReplaceObject(found.get(name), each)
        for name, each in new.items()
        if name not in found or not same_spec(found[name].spec, each.spec)
    ]
    changes += [
        ReplaceObject(each, None, at_once=name in away)
        for name, each in found.items()
        if name not in new and (name in away or each.metadata.deletion_timestamp is None)
    ]
    return tuple(changes)


def pod_group_name(gang: Gang, attempt: int) -> str:
    """Name of the ``PodGroup`` of a group's pods.

    Args:
        gang: the group.
        attempt: how often the whole JobSet has been restarted.
    """
    return f"{gang.stem}-{attempt}"


def refers(job: Job) -> bool:
    """Whether a Job's pods name a ``PodGroup``."""
    return job.metadata.annotations.get(keys.COSCHEDULING_BACKEND_ANNOTATION) == PODGROUP


def counts(jobset: JobSet, job: Job) -> bool:
    """Whether a Job's pods name the ``PodGroup`` of the present attempt, or will once it is remade.

    A Job that is going will be made anew for the present backend, as will one of an older attempt.
    """
    meta = job.metadata
    stays = (
        parse_count(meta.labels.get(keys.RESTART_ATTEMPT)) == jobset.status.restarts
        and meta.deletion_timestamp is None
        and keys.RESTART_ANNOTATION not in meta.annotations
    )
    return refers(job) or not stays


def resizing(jobset: JobSet, gangs: Gangs, jobs: Iterable[Job]) -> set[str]:
    """Names of the groups that have to be away for a moment, as Jobs of theirs are resized.

    Args:
        jobset: as the cache has it.
        gangs: of it.
        jobs: of it, those only that are at work.
    """
    mine = {job.metadata.name: job for job in jobs if refers(job)}
    out = set()
    for resize in resizes(jobset.spec, mine.values()):
        job = mine[resize.name]
        gang = gangs.of(replicated_job_of(job), job.metadata.labels.get(keys.JOB_INDEX, ""))
        if gang is not None:
            out.add(gang.name)
    return out


def workload(jobset: JobSet, gangs: Gangs) -> DesiredObject | None:
    """The ``Workload`` of a JobSet; ``None`` if it would have too many templates."""
    minima: dict[str, tuple[int, ReplicatedJob]] = {}
    for item in gangs.targets:
        gang = gangs.of(item.name, 0)
        if item.replicas and gang is not None and gang.size:
            minima.setdefault(_template_name(gangs, item), (gang.min_available, item))
    if not 0 < len(minima) <= MAX_TEMPLATES:
        return None
    spec = {
        "controllerRef": {
            "apiGroup": keys.GROUP,
            "kind": JobSet.RESOURCE.kind,
            "name": jobset.metadata.name,
        },
        "podGroupTemplates": [
            {"name": name, **_policy(least, item)} for name, (least, item) in minima.items()
        ],
    }
    name = gangs.common_name
    return DesiredObject(SchedulingWorkload, name, spec, _body(jobset, "Workload", name, spec))


def pod_groups(
    jobset: JobSet, gangs: Gangs, minima: Mapping[str, int], template_of: DesiredObject | None
) -> list[DesiredObject]:
    """The ``PodGroup`` of each group.

    Args:
        jobset: their owner.
        gangs: of it.
        minima: by name of a group, how many pods it has to have together; 0 if it is to be away.
        template_of: the ``Workload``, if there is one.
    """
    out: dict[str, DesiredObject] = {}
    for item, gang in _each(gangs):
        if gang.name in out or not minima.get(gang.name):
            continue
        spec: dict[str, Any] = _policy(minima[gang.name], item)
        if template_of is not None:
            reference = {
                "workloadName": template_of.name,
                "podGroupTemplateName": _template_name(gangs, item),
            }
            spec["podGroupTemplateRef"] = {"workload": reference}
        name = pod_group_name(gang, jobset.status.restarts)
        body = _body(jobset, "PodGroup", name, spec)
        body["metadata"]["labels"][keys.POD_GROUP_NAME] = gang.name
        out[gang.name] = DesiredObject(SchedulingPodGroup, name, spec, body)
    return list(out.values())


def _each(gangs: Gangs) -> Iterable[tuple[ReplicatedJob, Gang]]:
    for item in gangs.targets:
        for index in range(item.replicas if gangs.per_job else min(item.replicas, 1)):
            gang = gangs.of(item.name, index)
            if gang is not None and gang.size:
                yield item, gang


def _template_name(gangs: Gangs, item: ReplicatedJob) -> str:
    return _WHOLE if gangs.scope == JOBSET else item.name


def _policy(least: int, item: ReplicatedJob) -> dict[str, Any]:
    """The part of the spec that a template and its groups have in common.

    The priority class only counts where the scheduler preempts whole groups; elsewhere the API
    server leaves it out, so it is not compared (see :func:`same_spec`).
    """
    out: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": max(1, least)}}}
    pod = ((item.template.get("spec") or {}).get("template") or {}).get("spec") or {}
    if pod.get("priorityClassName"):
        out["priorityClassName"] = pod["priorityClassName"]
    return out


def same_spec(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether an object is as it should be, as far as it was said at all.

    Fields that the API server fills in or drops do not count.
    """
    ours, theirs = (each.get("podGroupTemplates") for each in (wanted, there))
    if ours is not None:
        return _minima(ours) == _minima(theirs or ())
    return bool(_least(there) == _least(wanted))


def _minima(templates: Iterable[Mapping[str, Any]]) -> dict[Any, Any]:
    return {each.get("name"): _least(each) for each in templates}


def _least(spec: Mapping[str, Any]) -> Any:
    gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    return gang.get("minCount")


def _body(jobset: JobSet, kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    meta = jobset.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            # By this label the manager's cache finds its own among all.
            "labels": {keys.JOBSET_NAME: meta.name},
            "ownerReferences": [owner_reference_to(jobset)],
        },
        "spec": dict(spec),
    }
