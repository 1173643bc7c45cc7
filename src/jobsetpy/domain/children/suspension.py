"""Suspending and resuming child Jobs.

A queueing system suspends a JobSet, changes where its pods may run, and resumes it. Jobs exist by
then, so resuming takes those changes over from the JobSet's templates. Nothing else of a template
can change while Jobs exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ReplicatedJob
from jobsetpy.domain.children.jobs import GENERATED_KEYS
from jobsetpy.domain.plan import ResumeJob, SuspendJob

_LISTS: Final = ("tolerations", "schedulingGates")


def suspensions(active: Iterable[Job]) -> Iterator[SuspendJob]:
    """The Jobs that have to be suspended."""
    for job in active:
        if job.spec.suspend is not True:
            yield SuspendJob(job.metadata.name, job.metadata.uid)


def resumptions(
    replicated: ReplicatedJob, jobs: Iterable[Job], annotations: Mapping[str, str] | None = None
) -> Iterator[ResumeJob]:
    """The suspended Jobs of a ReplicatedJob, with what their templates take over.

    Maps are merged, keys of the template winning and keys gone from it staying. The keys that the
    controller generates keep their value, except for ``annotations``: those that are new with each
    resumption.
    """
    template, lists = _scheduling_directives(replicated)
    for job in jobs:
        if job.spec.suspend is True:
            yield ResumeJob(
                job.metadata.name,
                job.metadata.uid,
                clear_start_time=job.status.start_time is not None,
                template=template,
                lists=lists,
                annotations=annotations or {},
            )


def joined(present: Sequence[Any] | None, added: Iterable[Any]) -> list[Any]:
    """All items of both lists, each value once: those present first, in their order."""
    out = list(present or ())
    out.extend(item for item in added if item not in out)
    return out


def resume_patch(action: ResumeJob, pod_spec: Mapping[str, Any] | None) -> dict[str, Any]:
    """The merge patch that resumes a Job.

    Args:
        action: what to take over.
        pod_spec: the Job's pod spec as it is, needed only if ``action.lists`` is not empty.
    """
    template = dict(action.template)
    if action.lists:
        present = pod_spec or {}
        spec = dict(template.get("spec", {}))
        for name, added in action.lists.items():
            spec[name] = joined(present.get(name), added)
        template["spec"] = spec
    metadata: dict[str, Any] = {"uid": action.uid}
    if action.annotations:
        metadata["annotations"] = dict(action.annotations)
        pods = dict(template.get("metadata", {}))
        pods["annotations"] = {**pods.get("annotations", {}), **action.annotations}
        template["metadata"] = pods
    spec_patch: dict[str, Any] = {"suspend": False}
    if template:
        spec_patch["template"] = template
    return {"metadata": metadata, "spec": spec_patch}


def _scheduling_directives(
    replicated: ReplicatedJob,
) -> tuple[Mapping[str, Any], Mapping[str, tuple[Any, ...]]]:
    pod_template = (replicated.template.get("spec") or {}).get("template") or {}
    source = pod_template.get("metadata") or {}
    metadata = {
        name: chosen
        for name in ("labels", "annotations")
        if (chosen := _without_generated(source.get(name) or {}))
    }
    pod_spec = pod_template.get("spec") or {}
    template: dict[str, Any] = {}
    if metadata:
        template["metadata"] = metadata
    if pod_spec.get("nodeSelector"):
        template["spec"] = {"nodeSelector": dict(pod_spec["nodeSelector"])}
    lists = {name: tuple(pod_spec[name]) for name in _LISTS if pod_spec.get(name)}
    return template, lists


def _without_generated(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key not in GENERATED_KEYS}
