"""Suspension and resumption of child Jobs.

A queueing system suspends a JobSet, changes where its pods may run, and resumes it. Jobs already
exist then, so resuming copies those changes from the JobSet's templates. Nothing else in a template
can change while Jobs exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ReplicatedJob
from jobsetpy.reconcilers.jobs.template_fields import (
    CONTAINERS,
    LISTS,
    MAPS,
    RESOURCES,
    container_resources,
    copied_fields,
    mutable_fields,
    record_of,
)
from jobsetpy.reconcilers.rules.json_tree import child
from jobsetpy.reconcilers.rules.plan import ResumeJob, SuspendJob


def suspensions(active: Iterable[Job]) -> Iterator[SuspendJob]:
    """Return the Jobs that have to be suspended."""
    for job in active:
        if job.spec.suspend is not True:
            yield SuspendJob(job.metadata.name, job.metadata.uid)


def resumptions(
    replicated: ReplicatedJob,
    jobs: Iterable[Job],
    annotations: Mapping[str, str] | None = None,
    *,
    lost_node_deadline_s: float = 0.0,
    resources: bool = True,
) -> Iterator[ResumeJob]:
    """Return the suspended Jobs of a ReplicatedJob, with their new templates.

    The keys that the controller generates keep their value, except for ``annotations``, which are
    set with each resumption. Tolerations are those of a newly created Job. With ``resources``, so
    are requests and limits of containers.
    """
    suspended = [job for job in jobs if job.spec.suspend is True]
    if not suspended:
        return
    template = mutable_fields(replicated, lost_node_deadline_s)
    if resources:
        template["spec"] |= container_resources(replicated)
    for job in suspended:
        yield ResumeJob(
            job.metadata.name,
            job.metadata.uid,
            clear_start_time=job.status.start_time is not None,
            template=template,
            annotations=annotations or {},
        )


def resume_patch(
    action: ResumeJob, present: Mapping[str, Any], annotations: Mapping[str, str]
) -> dict[str, Any]:
    """Return the merge patch that resumes a Job.

    Values that were copied at its creation or an earlier resumption and that are no longer in the
    JobSet's template are removed: node selectors of two queues would leave no node that fits. What
    others have added stays.

    Args:
        action: resumption, with the desired template of the Job.
        present: current pod template of the Job.
        annotations: current annotations of the Job.
    """
    copied = copied_fields(annotations)
    template: dict[str, dict[str, Any]] = {}
    for parent, name in MAPS:
        wanted = child(action.template, parent, name)
        if (parent, name) == ("metadata", "annotations"):
            wanted = {**wanted, **action.annotations}
        if change := _map_patch(child(present, parent, name), wanted, copied.of(name)):
            template.setdefault(parent, {})[name] = change
    for name in LISTS:
        before = list(child(present, "spec").get(name) or ())
        wanted_items = list(child(action.template, "spec").get(name) or ())
        after = _merged(before, wanted_items, copied.of(name))
        if before != after:
            template.setdefault("spec", {})[name] = after
    for kind in CONTAINERS:
        containers = list(child(present, "spec").get(kind) or ())
        wanted_resources = child(action.template, "spec", kind)
        changed = [_with_resources(each, wanted_resources) for each in containers]
        if changed != containers:
            template.setdefault("spec", {})[kind] = changed
    notes: dict[str, str | None] = {**action.annotations, **record_of(action.template)}
    if keys.COPIED_FIELDS_ANNOTATION in annotations:
        notes.setdefault(keys.COPIED_FIELDS_ANNOTATION, None)
    metadata: dict[str, Any] = {"uid": action.uid}
    if notes:
        metadata["annotations"] = notes
    spec_patch: dict[str, Any] = {"suspend": False}
    if template:
        spec_patch["template"] = template
    return {"metadata": metadata, "spec": spec_patch}


def changes_resources(patch: Mapping[str, Any]) -> bool:
    """Return whether the patch of a resumption has other resources of containers."""
    return not child(patch, "spec", "template", "spec").keys().isdisjoint(CONTAINERS)


def _with_resources(container: Mapping[str, Any], wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a container of a Job with the requests and limits of the JobSet's template."""
    if container.get("name") not in wanted:
        return container  # added to the Job by another program
    present, new = child(container, "resources"), wanted[container["name"]]
    member = keys.POD_GROUP_MEMBER_RESOURCE  # set by the controller, see coscheduling.backends
    out = {name: value for name, value in present.items() if name not in RESOURCES}
    for name in RESOURCES:
        own = {key: value for key, value in child(present, name).items() if key == member}
        if amounts := {**child(new, name), **own}:
            out[name] = amounts
    return container if out == present else {**container, "resources": out}


def _map_patch(
    present: Mapping[str, Any], wanted: Mapping[str, Any], copied: Collection[str]
) -> dict[str, Any]:
    gone = {key: None for key in present if key in copied and key not in wanted}
    return gone | {key: value for key, value in wanted.items() if present.get(key) != value}


def _merged(before: list[Any], wanted: list[Any], copied: list[Any]) -> list[Any]:
    kept = [item for item in before if item in wanted or item not in copied]
    there = [item for item in kept if item in wanted]
    if there == wanted[: len(there)]:
        return kept + wanted[len(there) :]
    # The order matters: the first toleration that matches a taint decides.
    return [item for item in kept if item not in wanted] + wanted
