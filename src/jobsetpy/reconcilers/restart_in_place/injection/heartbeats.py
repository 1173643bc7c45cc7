"""User's annotation for the ring of heartbeats, as variables of all supervisors of a JobSet."""

from __future__ import annotations

from collections.abc import Iterable

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.field_errors import FieldError, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child, job_spec, number, text

_NAME = keys.IN_PLACE_HEARTBEAT_ANNOTATION


def ring_variables(
    spec: Json, notes: Json, members: Iterable[Json], problems: list[FieldError]
) -> dict[str, str]:
    """Return the supervisors' variables about their ring.

    Args:
        spec: spec of the JobSet.
        notes: annotations of the JobSet.
        members: its ReplicatedJobs with an injected supervisor; Jobs' counts are filled in.
        problems: errors so far, to which those in the annotation are added.
    """
    value = notes.get(_NAME)
    if value is None:
        return {}
    network = child(spec, "network")
    if network.get("enableDNSHostnames") is False:
        why = "agents find each other by the names of their pods: allow the names"
        problems.append(invalid("spec.network.enableDNSHostnames", False, why))
    group = [
        f"{text(job, 'name')}:{_count(number(job, 'replicas'))}:"
        f"{_count(number(job_spec(job), 'completions'))}"
        for job in members
    ]
    return {
        "HEARTBEAT_SECONDS": str(value),
        "HEARTBEAT_GROUP": ",".join(group),
        "HEARTBEAT_SUBDOMAIN": text(network, "subdomain"),
    }


def _count(value: int | None) -> int:
    return 1 if value is None else max(0, value)
