"""Rules for the group scheduling of a new JobSet (KEP-498)."""

from __future__ import annotations

from collections.abc import Mapping

from jobsetpy.domain.field_errors import FieldError, invalid
from jobsetpy.domain.json_tree import Json, child, items, objects, pod_spec, text, texts

INIT_CONTAINER = "group-scheduling-init"
VOLUME = "group-scheduling"
_PATH = "spec.groupSchedulingConfig"


def group_scheduling(spec: Json, names: set[str]) -> list[FieldError]:
    """What is wrong with ``groupSchedulingConfig``.

    A group waits for all its pods, so none of them may wait for another one of the group to be
    ready first; and the names that pods get for the barrier have to be free.

    Args:
        spec: the JobSet's.
        names: of its ReplicatedJobs.
    """
    config = spec.get("groupSchedulingConfig")
    if not isinstance(config, Mapping):
        return []
    problems = [
        invalid(
            f"{_PATH}.targetReplicatedJobs[{at}]",
            target,
            "does not appear in .spec.replicatedJobs",
        )
        for at, target in enumerate(items(config, "targetReplicatedJobs"))
        if target not in names
    ]
    targets = set(texts(config, "targetReplicatedJobs")) & names or names
    if len(targets) > 1:
        problems += _order(spec, targets)
    for at, job in objects(spec, "replicatedJobs"):
        if text(job, "name") in targets:
            problems += _taken_names(job, f"spec.replicatedJobs[{at}].template.spec.template.spec")
    return problems


def _order(spec: Json, targets: set[str]) -> list[FieldError]:
    problems = []
    order = text(child(spec, "startupPolicy"), "startupPolicyOrder")
    if order == "InOrder":
        problems.append(
            invalid(
                "spec.startupPolicy.startupPolicyOrder",
                order,
                "must not be InOrder when groupSchedulingConfig spans more than one replicatedJob",
            )
        )
    for at, job in objects(spec, "replicatedJobs"):
        if text(job, "name") not in targets:
            continue
        problems += [
            invalid(
                f"spec.replicatedJobs[{at}].dependsOn[{nth}].name",
                text(dependency, "name"),
                "a target of groupSchedulingConfig must not depend on another one of the group",
            )
            for nth, dependency in objects(job, "dependsOn")
            if text(dependency, "name") in targets
        ]
    return problems


def _taken_names(job: Json, path: str) -> list[FieldError]:
    spec = pod_spec(job)
    taken = [
        (f"{path}.{kind}[{at}].name", INIT_CONTAINER)
        for kind in ("initContainers", "containers")
        for at, container in objects(spec, kind)
        if text(container, "name") == INIT_CONTAINER
    ]
    taken += [
        (f"{path}.volumes[{at}].name", VOLUME)
        for at, volume in objects(spec, "volumes")
        if text(volume, "name") == VOLUME
    ]
    return [
        invalid(field, name, "is reserved for the barrier of groupSchedulingConfig")
        for field, name in taken
    ]
