"""ReplicatedJobs of a JobSet before validation, read from JSON."""

from __future__ import annotations

from collections.abc import Iterator

from jobsetpy.reconcilers.rules.field_errors import FieldError, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child, number, objects, text


def replicas_of(replicated_job: Json) -> int:
    """Return its replicas; the CRD's default is 1."""
    replicas = number(replicated_job, "replicas")
    return 1 if replicas is None else replicas


def order_problems(spec: Json, names: set[str], why: str) -> Iterator[FieldError]:
    """Return errors for an order among ReplicatedJobs whose pods wait for each other.

    Args:
        spec: spec of the JobSet.
        names: names of these ReplicatedJobs; one alone may wait for others.
        why: reason, for messages.
    """
    if len(names) < 2:
        return
    order = text(child(spec, "startupPolicy"), "startupPolicyOrder")
    if order == "InOrder":
        path = "spec.startupPolicy.startupPolicyOrder"
        yield invalid(path, order, f"must not be InOrder: {why}")
    # A dependency is earlier in the list (another rule requires that), so one pass finds those
    # through others.
    reached = {name: name for name in names}
    for at, job in objects(spec, "replicatedJobs"):
        for nth, dependency in objects(job, "dependsOn"):
            name = text(dependency, "name")
            if name not in reached:
                continue
            reached.setdefault(text(job, "name"), reached[name])
            if text(job, "name") in names:
                path = f"spec.replicatedJobs[{at}].dependsOn[{nth}].name"
                through = "" if name in names else f" ({reached[name]} through it)"
                yield invalid(path, name, f"must not wait for another of its group{through}: {why}")
