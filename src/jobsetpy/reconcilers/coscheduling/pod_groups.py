"""``PodGroup`` and ``Workload`` objects of the API server for a JobSet's gangs.

A ``PodGroup`` stands for one gang. One of annotations stands for one attempt of the JobSet: the
scheduler also counts pods that are terminating, and those of an earlier attempt must not count
towards the next one's minimum. One of ``spec.scheduling`` stays, as KEP-969 says. Another minimum
is patched (:class:`PatchSpec`).

In ``v1alpha2`` specs are immutable, so another minimum replaces the object
(:class:`ReplaceObject`), and the API server rejects another parallelism for a Job whose
``PodGroup`` exists. So it is deleted until the Job is resized: pods with a node keep it, and the
others wait for it.

A ``Workload`` has the templates of the ``PodGroup`` objects, for tools that show what a JobSet
requests of the scheduler. It has at most 8; JobSets with more have no ``Workload``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet, ReplicatedJob
from jobsetpy.api.meta import owner_reference_to
from jobsetpy.api.scheduling import NativeApi, SchedulingPodGroup, SchedulingWorkload
from jobsetpy.reconcilers.coscheduling.backends import PODGROUP
from jobsetpy.reconcilers.coscheduling.gangs import Gang, Gangs
from jobsetpy.reconcilers.rules.elastic import resizes
from jobsetpy.reconcilers.rules.json_tree import child, text
from jobsetpy.reconcilers.rules.membership import parse_count, replicated_job_of

MAX_TEMPLATES: Final = 8
SCHEDULED: Final = "PodGroupInitiallyScheduled"
DISRUPTED: Final = "DisruptionTarget"
"""Conditions of a ``PodGroup``."""


@attrs.frozen
class NativeObjects:
    """Objects of a JobSet in the best version that the API server serves.

    Args:
        api: that version.
        pod_groups: ``PodGroup`` objects of the JobSet.
        workloads: its ``Workload`` objects.
    """

    api: NativeApi
    pod_groups: Collection[SchedulingPodGroup] = ()
    workloads: Collection[SchedulingWorkload] = ()


@attrs.frozen
class DesiredObject:
    """Desired object.

    Args:
        kind: kind of the object.
        name: name of the object.
        spec: desired spec, compared with that of the existing object.
        labels: labels in addition to the JobSet's name, by which the manager's cache selects it.
    """

    kind: type[SchedulingPodGroup | SchedulingWorkload]
    name: str
    spec: Mapping[str, Any]
    labels: Mapping[str, str] = attrs.field(factory=dict)

    def body(self, jobset: JobSet) -> dict[str, Any]:
        """Return the body for its creation; ``jobset`` is its owner."""
        return {
            "apiVersion": self.kind.RESOURCE.api_version,
            "kind": self.kind.RESOURCE.kind,
            "metadata": {
                "name": self.name,
                "namespace": jobset.metadata.namespace,
                "labels": {keys.JOBSET_NAME: jobset.metadata.name, **self.labels},
                "ownerReferences": [owner_reference_to(jobset)],
            },
            "spec": self.spec,
        }


@attrs.frozen
class ReplaceObject:
    """Deletion of the existing object, if any, and creation of the new one, if any.

    Args:
        old: existing object to be deleted.
        new: object to be created in its place.
        at_once: delete ``old`` without waiting for the pods that refer to it.
    """

    old: SchedulingPodGroup | SchedulingWorkload | None
    new: DesiredObject | None
    at_once: bool = True


@attrs.frozen
class PatchSpec:
    """Change of an existing object's minimum.

    Args:
        old: existing object.
        spec: changed part of its spec.
    """

    old: SchedulingPodGroup | SchedulingWorkload
    spec: Mapping[str, Any]


def object_changes(
    there: Iterable[SchedulingPodGroup | SchedulingWorkload],
    wanted: Iterable[DesiredObject],
    away: Collection[str] = (),
) -> tuple[ReplaceObject | PatchSpec, ...]:
    """Return the changes from the existing objects of one kind to the desired ones.

    Args:
        there: existing objects.
        wanted: desired objects.
        away: names of the objects to be deleted immediately.
    """
    found = {each.metadata.name: each for each in there}
    new = {each.name: each for each in wanted}
    changed = (_change(found.get(name), each) for name, each in new.items())
    changes = [each for each in changed if each is not None]
    changes += [
        ReplaceObject(each, None, at_once=name in away)
        for name, each in found.items()
        if name not in new and (name in away or each.metadata.deletion_timestamp is None)
    ]
    return tuple(changes)


def _change(
    old: SchedulingPodGroup | SchedulingWorkload | None, new: DesiredObject
) -> PatchSpec | ReplaceObject | None:
    """Return the patch of another minimum; the replacement if that is not possible."""
    if old is None or old.metadata.deletion_timestamp is not None:
        return ReplaceObject(old, new)
    if same_spec(old.spec, new.spec):
        return None
    if "v1alpha" in new.kind.RESOURCE.version:
        return ReplaceObject(old, new)
    ours, theirs = new.spec.get("podGroupTemplates"), old.spec.get("podGroupTemplates", ())
    if ours is None:
        if min_count(old.spec) is None:  # of another policy
            return ReplaceObject(old, new)
        return PatchSpec(old, {"schedulingPolicy": new.spec["schedulingPolicy"]})
    least = _minima(ours)
    if least.keys() != _minima(theirs).keys():
        return ReplaceObject(old, new)
    # A patch replaces the list: fields that the API server has filled in must stay.
    policies = {each["name"]: {"schedulingPolicy": each["schedulingPolicy"]} for each in ours}
    templates = [{**each, **policies[each["name"]]} for each in theirs]
    return PatchSpec(old, {"podGroupTemplates": templates})


def refers(job: Job) -> bool:
    """Return whether a Job's pods refer to a ``PodGroup``."""
    return job.metadata.annotations.get(keys.COSCHEDULING_BACKEND_ANNOTATION) == PODGROUP


def counts(jobset: JobSet, job: Job) -> bool:
    """Return whether a Job's pods refer to a ``PodGroup`` of this attempt, or will once recreated.

    A Job that is being deleted is recreated for the current backend, as is one of an older attempt.
    """
    meta = job.metadata
    stays = (
        parse_count(meta.labels.get(keys.RESTART_ATTEMPT)) == jobset.status.restarts
        and meta.deletion_timestamp is None
        and keys.RESTART_ANNOTATION not in meta.annotations
    )
    return refers(job) or not stays


def resizing(jobset: JobSet, gangs: Gangs, jobs: Iterable[Job]) -> set[str]:
    """Return the names of the gangs without ``PodGroup`` for now, because their Jobs are resized.

    Args:
        jobset: JobSet from the cache.
        gangs: its gangs.
        jobs: its active Jobs.
    """
    mine = {job.metadata.name: job for job in jobs if refers(job)}
    out = set()
    for resize in resizes(jobset.spec, mine.values()):
        job = mine[resize.name]
        gang = gangs.of(replicated_job_of(job), job.metadata.labels.get(keys.JOB_INDEX, ""))
        if gang is not None:
            out.add(gang.name)
    return out


def workload(api: NativeApi, jobset: JobSet, gangs: Gangs) -> DesiredObject | None:
    """Return the ``Workload`` of a JobSet; ``None`` if it would have too many templates."""
    templates: dict[str, dict[str, Any]] = {}
    for item in gangs.targets:
        for index in range(min(item.replicas, MAX_TEMPLATES + 1)):
            gang = gangs.of(item.name, index)
            if gang is not None and gang.size:
                templates.setdefault(gang.template, _policy(gang, gang.min_available, item))
    if not 0 < len(templates) <= MAX_TEMPLATES:
        return None
    spec = {
        "controllerRef": {
            "apiGroup": keys.GROUP,
            "kind": JobSet.RESOURCE.kind,
            "name": jobset.metadata.name,
        },
        "podGroupTemplates": [{"name": name, **each} for name, each in templates.items()],
    }
    return DesiredObject(api.workload, gangs.common_name, spec)


def pod_groups(
    api: NativeApi,
    gangs: Gangs,
    minima: Mapping[str, int],
    template_of: DesiredObject | None,
) -> list[DesiredObject]:
    """Return the ``PodGroup`` of each gang.

    Args:
        api: version of the objects.
        gangs: gangs of the JobSet.
        minima: minimum number of pods by name of a gang; 0 for no ``PodGroup``.
        template_of: ``Workload`` of the JobSet, if there is one.
    """
    out: dict[str, DesiredObject] = {}
    for item, gang in gangs.each():
        if gang.name in out or not minima.get(gang.name):
            continue
        spec = _policy(gang, minima[gang.name], item)
        if template_of is not None:
            if api.alpha:
                reference = {
                    "workloadName": template_of.name,
                    "podGroupTemplateName": gang.template,
                }
                spec["podGroupTemplateRef"] = {"workload": reference}
            else:
                spec["workloadRef"] = {
                    "workloadName": template_of.name,
                    "templateName": gang.template,
                }
        labels = {keys.POD_GROUP_NAME: gang.name}
        out[gang.name] = DesiredObject(api.pod_group, gang.pod_group, spec, labels)
    return list(out.values())


def _policy(gang: Gang, least: int, item: ReplicatedJob) -> dict[str, Any]:
    """Return the part of the spec that is common to a template and its ``PodGroup`` objects.

    The priority class matters only if the scheduler preempts whole gangs; otherwise the API server
    drops it, so it is not compared (see :func:`same_spec`).
    """
    policy = {"schedulingPolicy": {"gang": {"minCount": max(1, least)}}}
    out: dict[str, Any] = {**policy, **gang.native}
    name = text(child(item.template, "spec", "template", "spec"), "priorityClassName")
    return {**out, "priorityClassName": name} if name else out


def same_spec(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether an existing object has the desired spec.

    Fields that the API server defaults or drops are ignored.
    """
    ours, theirs = (each.get("podGroupTemplates") for each in (wanted, there))
    if ours is not None:
        return _minima(ours) == _minima(theirs or ())
    return bool(min_count(there) == min_count(wanted))


def _minima(templates: Iterable[Mapping[str, Any]]) -> dict[Any, Any]:
    return {each.get("name"): min_count(each) for each in templates}


def min_count(spec: Mapping[str, Any]) -> Any:
    """Return the minimum in the spec of a ``PodGroup``, or of one of a ``Workload``'s templates."""
    return child(spec, "schedulingPolicy", "gang").get("minCount")
