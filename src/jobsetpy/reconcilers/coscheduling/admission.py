"""What happens to a new pod that carries the labels of a group, whoever made it.

Groups are not only JobSets': the two labels are all there is to it (the proposal knows nothing
else). Pods of JobSets have their marks from their template, so they pass as they are, unless their
Job was made for another backend.

What one pod shows by itself to be wrong is refused, so that whoever makes it hears of it. That a
group has fewer pods than its minimum, or that its pods do not agree, shows only to the coscheduler.
"""

from __future__ import annotations

from typing import Final

from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.backends import (
    GATE,
    SchedulerFields,
    chooses_no_scheduler,
    resources_of_member,
)
from jobsetpy.reconcilers.coscheduling.gangs import positive
from jobsetpy.reconcilers.rules.field_errors import FieldError, invalid, required
from jobsetpy.reconcilers.rules.json_tree import (
    Json,
    Patch,
    child,
    items,
    objects,
    text,
)

_GATES: Final = "/spec/schedulingGates"


def is_member(pod: Json) -> bool:
    """Whether a pod is of a group, and a scheduler has still to find a node for it."""
    named = text(child(pod, "metadata", "labels"), keys.POD_GROUP_NAME)
    return bool(named) and not text(child(pod, "spec"), "nodeName")


def add_marks(
    pod: Json,
    marks: SchedulerFields,
    *,
    before: Patch | None = None,
    queue_is_empty: bool = False,
) -> Patch:
    """A JSON patch that gives a new pod of a group its marks; empty if it has them or needs none.

    Args:
        pod: as it is to be created; not changed.
        marks: the backend's. Only those of the coscheduler can be added to pods.
        before: what is added to the pod ahead of this; it may put gates of its own on.
        queue_is_empty: no gang waits, so the pod needs no gate unless others hold it back.

    Guarantees: gates of others stay, a pod that has chosen a scheduler keeps it, and added twice,
    the second patch is empty.
    """
    if not marks.gates or not is_member(pod):
        return []
    spec = child(pod, "spec")
    patch: Patch = []
    gated = any(gate.get("name") == GATE["name"] for _, gate in objects(spec, "schedulingGates"))
    held_back = bool(before) or bool(items(spec, "schedulingGates"))
    if not gated and (held_back or not queue_is_empty):
        others = items(spec, "schedulingGates") or any(
            each["path"] == _GATES for each in before or ()
        )
        where, value = (f"{_GATES}/-", dict(GATE)) if others else (_GATES, [dict(GATE)])
        patch.append({"op": "add", "path": where, "value": value})
    if marks.scheduler_name and chooses_no_scheduler(spec):
        scheduler = {"op": "add", "path": "/spec/schedulerName", "value": marks.scheduler_name}
        patch.append(scheduler)
    containers = objects(spec, "containers")
    if marks.member_resource and containers and not any(map(_asks, containers)):
        _, first = containers[0]
        resources = resources_of_member(first.get("resources"))
        patch.append({"op": "add", "path": "/spec/containers/0/resources", "value": resources})
    return patch


def _asks(container: tuple[int, Json]) -> bool:
    return keys.POD_GROUP_MEMBER_RESOURCE in child(container[1], "resources", "requests")


def member_problem(pod: Json) -> FieldError | None:
    """What is wrong with the labels of a new pod; ``None`` if nothing is.

    Args:
        pod: as it is to be created.
    """
    labels = child(pod, "metadata", "labels")
    if not text(labels, keys.POD_GROUP_NAME):
        return None
    field = f"metadata.labels[{keys.POD_GROUP_MIN_AVAILABLE}]"
    given = labels.get(keys.POD_GROUP_MIN_AVAILABLE)
    if given is None:
        why = f"says how many pods of the group {text(labels, keys.POD_GROUP_NAME)!r} it takes"
        return required(field, why)
    if positive(given if isinstance(given, str) else None) is None:
        return invalid(field, given, f"must be a number from 1 to {keys.INT32_MAX}")
    return None
