"""Validation of the group scheduling of a new JobSet (KEP-498)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.field_errors import FieldError, forbidden, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, objects, pod_spec, text, texts
from jobsetpy.reconcilers.rules.replicated_jobs import reached_targets
from jobsetpy.reconcilers.startup_groups.injection import unholdable
from jobsetpy.reconcilers.startup_groups.spec import BARRIERS, INIT_CONTAINER, SUPERVISOR

_ANNOTATION = f"metadata.annotations[{keys.GROUP_BARRIER_ANNOTATION}]"
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
    wanted = child(jobset, "metadata", "annotations").get(keys.GROUP_BARRIER_ANNOTATION)
    problems = barrier(wanted)
    config = spec.get("groupSchedulingConfig")
    if not isinstance(config, Mapping):
        return problems + _reserved_name(spec, set())
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
    if len(targets) > 1:
        problems += _order(spec, targets)
    for at, job in objects(spec, "replicatedJobs"):
        if text(job, "name") in targets:
            path = f"spec.replicatedJobs[{at}].template.spec.template.spec"
            problems += _taken_names(job, path)
            if wanted == SUPERVISOR:
                problems += _unholdable(pod_spec(job), path)
    problems += _reserved_name(spec, targets)
    for at, policy in objects(spec, "volumeClaimPolicies"):
        for nth, template in objects(policy, "templates"):
            if text(child(template, "metadata"), "name") == keys.GROUP_VOLUME:
                # Pods would have its claim as a volume of that name.
                path = f"spec.volumeClaimPolicies[{at}].templates[{nth}].metadata.name"
                problems.append(invalid(path, keys.GROUP_VOLUME, _RESERVED))
    return problems


def barrier(wanted: object) -> list[FieldError]:
    """Return errors in the annotation for the kind of barrier."""
    if wanted is None or wanted in BARRIERS:
        return []
    said = " or ".join(f'"{each}"' for each in BARRIERS)
    return [invalid(_ANNOTATION, wanted, f"must be {said}")]


def _unholdable(spec: Json, path: str) -> list[FieldError]:
    """Return errors if the agent cannot hold a target's containers from within as requested."""
    found = unholdable(spec)
    if spec.get("automountServiceAccountToken") is False:
        found.append(("automountServiceAccountToken", "the agent watches with the pod's own token"))
    return [
        forbidden(
            f"{path}.{field}" if field else path,
            f'with the annotation {keys.GROUP_BARRIER_ANNOTATION} "{SUPERVISOR}", {why}: '
            f'change it, or take "{INIT_CONTAINER}"',
        )
        for field, why in found
    ]


def _order(spec: Json, targets: set[str]) -> Iterator[FieldError]:
    order = text(child(spec, "startupPolicy"), "startupPolicyOrder")
    if order == "InOrder":
        why = "must not be InOrder when groupSchedulingConfig spans more than one replicatedJob"
        yield invalid("spec.startupPolicy.startupPolicyOrder", order, why)
    through = reached_targets(spec, targets)
    for at, job in objects(spec, "replicatedJobs"):
        if text(job, "name") not in targets:
            continue
        for nth, dependency in objects(job, "dependsOn"):
            name = text(dependency, "name")
            if name not in targets and name not in through:
                continue
            how = "" if name in targets else f" ({through[name]}) through it"
            path = f"spec.replicatedJobs[{at}].dependsOn[{nth}].name"
            why = "a target of groupSchedulingConfig must not depend on another one of the group"
            yield invalid(path, name, f"{why}{how}")


def _reserved_name(spec: Json, targets: set[str]) -> list[FieldError]:
    """Return errors for the barrier's container name in ReplicatedJobs that are not targets.

    KEP-498 reserves the name in every JobSet: ``groupSchedulingConfig`` may be added later, and
    tools read the name as the barrier's.
    """
    return [
        invalid(f"{path}.name", keys.GROUP_INIT_CONTAINER, _RESERVED)
        for at, job in objects(spec, "replicatedJobs")
        if text(job, "name") not in targets
        for path, name in _containers(
            pod_spec(job), f"spec.replicatedJobs[{at}].template.spec.template.spec"
        )
        if name == keys.GROUP_INIT_CONTAINER
    ]


def _containers(spec: Json, path: str) -> list[tuple[str, str]]:
    return [
        (f"{path}.{kind}[{at}]", text(container, "name"))
        for kind in ("initContainers", "containers")
        for at, container in objects(spec, kind)
    ]


def _taken_names(job: Json, path: str) -> list[FieldError]:
    spec = pod_spec(job)
    taken = [
        (f"{container}.name", name)
        for container, name in _containers(spec, path)
        if name in {keys.GROUP_INIT_CONTAINER, keys.GROUP_AGENT}
    ]
    taken += [
        (f"{path}.volumes[{at}].name", name)
        for at, volume in objects(spec, "volumes")
        if (name := text(volume, "name")) in {keys.GROUP_VOLUME, keys.GROUP_AGENT}
    ]
    return [invalid(field, name, _RESERVED) for field, name in taken]
