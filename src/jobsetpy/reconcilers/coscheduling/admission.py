"""Admission of new pods with the labels of a gang, created by any controller.

Gangs are not limited to JobSets: as in the proposal, the two labels define them. Pods of JobSets
have the scheduler fields from their template, so they are not changed, unless their Job was created
for another backend.

A pod whose own fields are invalid is rejected, so that its creator gets the error. A gang with
fewer pods than its minimum, or with inconsistent pods, is detected by the coscheduler.
"""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.backends import (
    SchedulerFields,
    chooses_no_scheduler,
    resources_of_member,
)
from jobsetpy.reconcilers.coscheduling.requests import positive
from jobsetpy.reconcilers.rules.field_errors import FieldError, invalid, required
from jobsetpy.reconcilers.rules.json_tree import Json, Patch, child, objects, text


def is_member(pod: Json) -> bool:
    """Return whether a pod belongs to a gang of labels and still has to be scheduled."""
    named = text(child(pod, "metadata", "labels"), keys.POD_GROUP_NAME)
    spec = child(pod, "spec")
    return bool(named) and not text(spec, "nodeName") and not child(spec, "schedulingGroup")


def add_marks(pod: Json, marks: SchedulerFields) -> Patch:
    """Return a JSON patch with missing scheduler fields of a gang's pod; empty if none are needed.

    Args:
        pod: pod to be created; not changed.
        marks: scheduler fields of the backend. Only those of the coscheduler can be added to pods.

    Guarantees: a scheduler chosen by the pod stays, and a second application is an empty patch.
    """
    if not marks.coscheduled or not is_member(pod):
        return []
    patch: Patch = []
    if marks.scheduler_name and chooses_no_scheduler(child(pod, "spec")):
        scheduler = {"op": "add", "path": "/spec/schedulerName", "value": marks.scheduler_name}
        patch.append(scheduler)
    containers = objects(child(pod, "spec"), "containers")
    if marks.member_resource and containers and not any(map(_asks, containers)):
        _, first = containers[0]
        resources = resources_of_member(first.get("resources"))
        patch.append({"op": "add", "path": "/spec/containers/0/resources", "value": resources})
    return patch


def _asks(container: tuple[int, Json]) -> bool:
    return keys.POD_GROUP_MEMBER_RESOURCE in child(container[1], "resources", "requests")


def member_problem(pod: Json) -> FieldError | None:
    """Return the error in the labels of a new pod; ``None`` if they are valid.

    Args:
        pod: pod to be created.
    """
    labels = child(pod, "metadata", "labels")
    if not text(labels, keys.POD_GROUP_NAME):
        return None
    field = f"metadata.labels[{keys.POD_GROUP_MIN_AVAILABLE}]"
    given = labels.get(keys.POD_GROUP_MIN_AVAILABLE)
    if given is None:
        why = f"says how many pods of the group {text(labels, keys.POD_GROUP_NAME)!r} it takes"
        return required(field, why)
    if positive(given) is None:
        return invalid(field, given, f"must be a number from 1 to {keys.INT32_MAX}")
    return None
