"""ReplicatedJobs of a JobSet before validation, read from JSON."""

from __future__ import annotations

from jobsetpy.reconcilers.rules.json_tree import Json, number, objects, text


def replicas_of(replicated_job: Json) -> int:
    """Return its replicas; the CRD's default is 1."""
    replicas = number(replicated_job, "replicas")
    return 1 if replicas is None else replicas


def reached_targets(spec: Json, targets: set[str]) -> dict[str, str]:
    """Return the ReplicatedJobs that depend on a target, directly or not, each with one target.

    A dependency is earlier in the list (another rule requires that), so one pass finds them.
    """
    out: dict[str, str] = {}
    for _, job in objects(spec, "replicatedJobs"):
        names = {text(dependency, "name") for _, dependency in objects(job, "dependsOn")}
        found = (names & targets) | {out[name] for name in names if name in out}
        if found:
            out[text(job, "name")] = min(found)
    return out
