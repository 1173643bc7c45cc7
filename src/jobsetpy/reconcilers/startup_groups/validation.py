"""Validation of the group scheduling of a new JobSet (KEP-498)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.field_errors import FieldError, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, objects, pod_spec, text, texts
from jobsetpy.reconcilers.rules.replicated_jobs import order_problems

_PATH = "spec.groupSchedulingConfig"
_RESERVED = "is reserved for the barrier of groupSchedulingConfig"


def group_scheduling(jobset: Json) -> list[FieldError]:
    """Return errors in ``groupSchedulingConfig``.

    A group waits for all its pods, so none of them may wait for another one of the group to be
    ready first; and the barrier's names in pods have to be unused.

    Args:
        jobset: the JobSet after defaulting.
    """
    spec = child(jobset, "spec")
    names = {text(job, "name") for _, job in objects(spec, "replicatedJobs")}
    problems: list[FieldError] = []
    config = spec.get("groupSchedulingConfig")
    if not isinstance(config, Mapping):
        return [*problems, *_reserved_names(spec, set())]
    problems += [
        invalid(
            f"{_PATH}.targetReplicatedJobs[{at}]",
            target,
            "does not appear in .spec.replicatedJobs",
        )
        for at, target in enumerate(items(config, "targetReplicatedJobs"))
        if target not in names
    ]
    targets = set(texts(config, "targetReplicatedJobs")) & names or names
    why = "targets of groupSchedulingConfig wait for each other's pods"
    problems += order_problems(spec, targets, why)
    problems += _reserved_names(spec, targets)
    for at, policy in objects(spec, "volumeClaimPolicies"):
        for nth, template in objects(policy, "templates"):
            if text(child(template, "metadata"), "name") == keys.GROUP_VOLUME:
                # Pods would have its claim as a volume of that name.
                path = f"spec.volumeClaimPolicies[{at}].templates[{nth}].metadata.name"
                problems.append(invalid(path, keys.GROUP_VOLUME, _RESERVED))
    return problems


def _reserved_names(spec: Json, targets: set[str]) -> Iterator[FieldError]:
    """Return errors for the barrier's names in pods.

    KEP-498 reserves its container's name in every JobSet, also in ReplicatedJobs that are not
    targets: ``groupSchedulingConfig`` may be added later, and tools read the name as the barrier's.
    """
    for at, job in objects(spec, "replicatedJobs"):
        is_target = text(job, "name") in targets
        for kind, reserved in (
            ("initContainers", keys.GROUP_INIT_CONTAINER),
            ("containers", keys.GROUP_INIT_CONTAINER),
            ("volumes", keys.GROUP_VOLUME if is_target else None),
        ):
            path = f"spec.replicatedJobs[{at}].template.spec.template.spec.{kind}"
            for nth, each in objects(pod_spec(job), kind):
                if each.get("name") == reserved:
                    yield invalid(f"{path}[{nth}].name", text(each, "name"), _RESERVED)
