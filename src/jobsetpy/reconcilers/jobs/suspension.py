"""Suspension and resumption of child Jobs.

A queueing system suspends a JobSet, changes where its pods may run, and resumes it. Jobs already
exist then, so resuming copies those changes from the JobSet's templates. Nothing else in a template
can change while Jobs exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import ReplicatedJob
from jobsetpy.reconcilers.jobs.child_jobs import GENERATED_KEYS
from jobsetpy.reconcilers.lost_nodes.deadline import tolerations
from jobsetpy.reconcilers.rules.json_tree import child
from jobsetpy.reconcilers.rules.plan import ResumeJob, SuspendJob

_MAPS: Final = (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector"))
_LISTS: Final = (("tolerations", "key"), ("schedulingGates", "name"))
"""Lists of the pod spec, each with the field that identifies an item."""

_KEPT_DOMAINS: Final = frozenset(
    {
        "jobset.sigs.k8s.io",
        "alpha.jobset.sigs.k8s.io",
        "pod-group.scheduling.x-k8s.io",
        "batch.kubernetes.io",
    }
)
_KEPT_NAMES: Final = frozenset({"controller-uid", "job-name"})
"""Keys that this controller and the API server add to a Job's template; a resumption keeps them."""


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
) -> Iterator[ResumeJob]:
    """Return the suspended Jobs of a ReplicatedJob, with their new templates.

    The keys that the controller generates keep their value, except for ``annotations``, which are
    set with each resumption. Tolerations are those of a newly created Job.
    """
    suspended = [job for job in jobs if job.spec.suspend is True]
    if not suspended:
        return
    template = _scheduling_directives(replicated, lost_node_deadline_s)
    for job in suspended:
        yield ResumeJob(
            job.metadata.name,
            job.metadata.uid,
            clear_start_time=job.status.start_time is not None,
            template=template,
            annotations=annotations or {},
        )


def resume_patch(action: ResumeJob, present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that resumes a Job.

    Values that an earlier resumption copied and that are no longer in the JobSet's template are
    removed: node selectors of two queues would leave no node that fits.

    Args:
        action: resumption, with the desired template of the Job.
        present: current pod template of the Job.
    """
    template: dict[str, dict[str, Any]] = {}
    for parent, name in _MAPS:
        wanted = child(action.template, parent, name)
        if (parent, name) == ("metadata", "annotations"):
            wanted = {**wanted, **action.annotations}
        if change := _map_patch(child(present, parent, name), wanted):
            template.setdefault(parent, {})[name] = change
    for name, known_by in _LISTS:
        before = list(child(present, "spec").get(name) or ())
        after = _merged(before, list(child(action.template, "spec").get(name) or ()), known_by)
        if before != after:
            template.setdefault("spec", {})[name] = after
    metadata: dict[str, Any] = {"uid": action.uid}
    if action.annotations:
        metadata["annotations"] = dict(action.annotations)
    spec_patch: dict[str, Any] = {"suspend": False}
    if template:
        spec_patch["template"] = template
    return {"metadata": metadata, "spec": spec_patch}


def _map_patch(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    gone = {key: None for key in present if key not in wanted and not _is_kept(key)}
    return gone | {key: value for key, value in wanted.items() if present.get(key) != value}


def _merged(before: list[Any], wanted: list[Any], known_by: str) -> list[Any]:
    kept = [item for item in before if item in wanted or _is_kept(item.get(known_by))]
    after = kept + [item for item in wanted if item not in kept]
    if [item for item in after if item in wanted] == wanted:
        return after
    # The order matters: the first toleration that matches a taint decides.
    return [item for item in kept if item not in wanted] + wanted


def _is_kept(key: str | None) -> bool:
    domain = (key or "").rpartition("/")[0]
    return domain in _KEPT_DOMAINS or key in _KEPT_NAMES


def _scheduling_directives(
    replicated: ReplicatedJob, lost_node_deadline_s: float
) -> Mapping[str, Any]:
    pod_template = child(replicated.template, "spec", "template")
    metadata, spec = child(pod_template, "metadata"), child(pod_template, "spec")
    return {
        "metadata": {
            name: _without_generated(child(metadata, name)) for name in ("labels", "annotations")
        },
        "spec": {
            "nodeSelector": child(spec, "nodeSelector"),
            "tolerations": tuple(tolerations(spec, lost_node_deadline_s)),
            "schedulingGates": tuple(spec.get("schedulingGates") or ()),
        },
    }


def _without_generated(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key not in GENERATED_KEYS}
