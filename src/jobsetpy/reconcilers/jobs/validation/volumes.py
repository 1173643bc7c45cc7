"""Rules for the volume claim policies of a new JobSet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobsetpy.api import shapes
from jobsetpy.api.name_rules import LABEL_MAX, dns1123_subdomain
from jobsetpy.reconcilers.rules.field_errors import FieldError, internal, invalid
from jobsetpy.reconcilers.rules.json_equality import states
from jobsetpy.reconcilers.rules.json_tree import Json, child, containers, objects, pod_spec, text
from jobsetpy.reconcilers.rules.names import claim_name

Claim = Json | Exception | None
"""Volume claim as JSON, ``None`` if it does not exist, or the error of a failed lookup."""


def claim_names(spec: Json, name: str) -> list[str]:
    """Return the claim names of the templates, in order, without duplicates."""
    return list(
        dict.fromkeys(
            claim_name(name, _name(template))
            for _, _, template in _templates(spec)
            if _name(template)
        )
    )


def volume_claims(spec: Json, name: str, claims: Mapping[str, Claim]) -> Iterator[FieldError]:
    """Validate the volume claim policies.

    Args:
        spec: spec of the JobSet.
        name: effective name of the JobSet.
        claims: existing claims by name.
    """
    used: set[str] = set()
    mounted, volumes = _pod_facts(spec)
    for path, policy, template in _templates(spec):
        own = _name(template)
        field = f"{path}.name"
        if own in used:
            yield invalid(field, own, "template name must be unique within the JobSet")
        used.add(own)
        for problem in dns1123_subdomain(own):
            yield invalid(field, own, problem)
        if len(own.encode()) + 1 + len(name.encode()) > LABEL_MAX:
            why = (
                "VolumeClaimPolicies template name is too long, the name of the claim "
                f"(<template>-<jobset>) must be no more than {LABEL_MAX} characters"
            )
            yield invalid(field, own, why)
        for where in volumes.get(own, ()):
            why = "volume name must not be that of a template in volumeClaimPolicies"
            yield invalid(where, own, why)
        if own not in mounted:
            why = f"no container or initContainer mounts the volume '{own}' of volumeClaimPolicies"
            yield invalid("spec.replicatedJobs", spec.get("replicatedJobs"), why)
        yield from _present_claim(path, policy, template, claims.get(claim_name(name, own)))


def _present_claim(path: str, policy: Json, template: Json, claim: Claim) -> Iterator[FieldError]:
    """Validate an existing claim: it is reused, so it has to match the template."""
    if claim is None:
        return
    if isinstance(claim, Exception):
        yield internal(path, f"failed to look up the volume claim: {claim}")
        return
    wanted = child(template, "spec")
    there = text(child(claim, "metadata"), "name")
    for _, owner in objects(child(claim, "metadata"), "ownerReferences"):
        name = f"{text(owner, 'kind')} {text(owner, 'name')}"
        why = f"a volume claim {there} exists and belongs to {name}, with which it will be deleted"
        yield invalid(f"{path}.name", _name(template), why)
    # The API server adds volumeMode, the default class and the volume's name.
    if not states(child(claim, "spec"), wanted, shapes.claim_spec()):
        yield invalid(f"{path}.spec", wanted, f"a volume claim {there} with another spec exists")
    kept = text(child(policy, "retentionPolicy"), "whenDeleted")
    if kept != "Retain":
        field = f"{path.rpartition('.')[0]}.retentionPolicy.whenDeleted"
        yield invalid(field, kept, "must be Retain for a volume claim that exists already")


def _templates(spec: Json) -> Iterator[tuple[str, Json, Json]]:
    """Return path, policy and template of each; the path says ``template`` for compatibility."""
    for at, policy in objects(spec, "volumeClaimPolicies"):
        for nth, template in objects(policy, "templates"):
            yield f"spec.volumeClaimPolicies[{at}].template[{nth}]", policy, template


def _name(template: Json) -> str:
    return text(child(template, "metadata"), "name")


def _pod_facts(spec: Json) -> tuple[set[str], dict[str, list[str]]]:
    """Return the names of all volume mounts, and the paths at which each pod volume is declared."""
    mounted: set[str] = set()
    volumes: dict[str, list[str]] = {}
    for at, job in objects(spec, "replicatedJobs"):
        pod = pod_spec(job)
        for container in containers(pod):
            mounted.update(text(mount, "name") for _, mount in objects(container, "volumeMounts"))
        for nth, volume in objects(pod, "volumes"):
            where = f"spec.replicatedJobs[{at}].template.spec.template.spec.volumes[{nth}].name"
            volumes.setdefault(text(volume, "name"), []).append(where)
    return mounted, volumes
