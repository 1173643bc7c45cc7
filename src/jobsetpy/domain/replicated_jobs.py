"""ReplicatedJobs of a JobSet before validation, read from JSON."""

from __future__ import annotations

from jobsetpy.domain.json_tree import Json, number, objects, text


def replicas_of(replicated_job: Json) -> int:
    """Return its replicas; the CRD's default is 1."""
    replicas = number(replicated_job, "replicas")
    return 1 if replicas is None else replicas


def dependencies(spec: Json) -> dict[str, set[str]]:
    """Return, for each name of a ReplicatedJob, all ReplicatedJobs that come before it.

    A dependency stands earlier in the list (another rule requires that), so one pass finds them.
    """
    out: dict[str, set[str]] = {}
    for _, job in objects(spec, "replicatedJobs"):
        names = {text(dependency, "name") for _, dependency in objects(job, "dependsOn")}
        out[text(job, "name")] = names.union(*(out.get(name, set()) for name in names))
    return out
