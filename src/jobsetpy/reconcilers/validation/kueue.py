"""Rules for JobSets queued by Kueue: combinations that never run, and a zero that Kueue drops."""

from __future__ import annotations

from typing import Final

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.field_errors import FieldWarning
from jobsetpy.reconcilers.rules.json_tree import Json, Patch, child, items, job_spec, objects, text

TOPOLOGY: Final = (
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
)
"""Annotations of pod templates that request Kueue's topology-aware scheduling."""


def kueue_warnings(jobset: Json) -> list[FieldWarning]:
    """Return warnings about combinations that may leave pods pending."""
    notes = child(jobset, "metadata", "annotations")
    found = []
    for at, job in objects(child(jobset, "spec"), "replicatedJobs"):
        own = child(job, "template", "metadata", "annotations")
        key = own.get(
            keys.EXCLUSIVE_TOPOLOGY_ANNOTATION, notes.get(keys.EXCLUSIVE_TOPOLOGY_ANNOTATION)
        )
        asked = child(job_spec(job), "template", "metadata", "annotations")
        name = next((each for each in TOPOLOGY if each in asked), None)
        if key is None or name is None:
            continue
        path = f"spec.replicatedJobs[{at}].template.spec.template.metadata.annotations[{name}]"
        why = (
            "Kueue chooses nodes without regard to the annotation "
            f"{keys.EXCLUSIVE_TOPOLOGY_ANNOTATION}: pods of a Job to which it gives the domain "
            "of another Job stay pending; remove that annotation; for one domain per Job use "
            f"Kueue's podset-slice-required-topology: {str(key)[:63]}, with podset-slice-size"
        )
        found.append(FieldWarning(path, why))
    return found


def keep_zero_replicas(new: Json, old: Json) -> tuple[Json, Patch, list[FieldWarning]]:
    """Return ``new`` with the ``replicas: 0`` of the stored JobSet, as a patch, and warnings.

    Kueue's types omit a zero and the CRD's default makes it 1, which would change an immutable
    field: a JobSet with a ReplicatedJob without Jobs could never be resumed.

    Args:
        new: changed JobSet, with the defaults of the CRD.
        old: stored JobSet.
    """
    if keys.KUEUE_QUEUE_LABEL not in child(old, "metadata", "labels"):
        return new, [], []
    zero = {
        text(job, "name")
        for _, job in objects(child(old, "spec"), "replicatedJobs")
        if job.get("replicas") == 0
    }
    jobs = list(items(child(new, "spec"), "replicatedJobs"))
    patch: Patch = []
    warned = []
    for at, job in objects(child(new, "spec"), "replicatedJobs") if zero else ():
        if text(job, "name") in zero and job.get("replicas") in (None, 1):
            jobs[at] = {**job, "replicas": 0}
            path = f"spec.replicatedJobs[{at}].replicas"
            patch.append({"op": "add", "path": f"/{path.translate(_POINTER)}", "value": 0})
            why = "stays 0: it is immutable, and Kueue leaves a zero out"
            warned.append(FieldWarning(path, why))
    if not patch:
        return new, [], []
    return {**new, "spec": {**new["spec"], "replicatedJobs": jobs}}, patch, warned


_POINTER: Final = str.maketrans({".": "/", "[": "/", "]": None})
"""Translation of a field path into a JSON pointer."""
