"""Mutations by admission: pure functions from objects to JSON patches.

Defaults only add values. Values of the user, including explicit zeros and fields of newer versions,
are neither read through a typed model nor written back. The CRD's own defaults (``replicas``,
``groupName``, ``restartStrategy``) are set by the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobsetpy.api import keys, shapes
from jobsetpy.reconcilers.rules import json_equality
from jobsetpy.reconcilers.rules.json_tree import Json, Patch, child, objects


def default_jobset(jobset: Json) -> Patch:
    """Return a patch with the missing defaults of ``jobset``.

    Guarantees: it never fails; applied twice, the second patch is empty; every operation is an
    ``add`` where the value was missing (or, for strings, empty). A part of the wrong type is left
    for the schema to reject.
    """
    spec = jobset.get("spec", {}) if "spec" in jobset else None
    patch: Patch = []
    if spec is None:
        patch.append(_add("/spec", {}))
        spec = {}
    if not isinstance(spec, Mapping):
        return []
    _fill(patch, spec, "/spec", "successPolicy", {"operator": "All"})
    _fill(patch, spec, "/spec", "startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    for at, job in objects(spec, "replicatedJobs"):
        _default_replicated_job(patch, job, f"/spec/replicatedJobs/{at}")
    network = spec.get("network")
    if network is None:
        both = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
        patch.append(_add("/spec/network", both))
    elif isinstance(network, Mapping):
        _fill(patch, network, "/spec/network", "enableDNSHostnames", True)
        _fill(patch, network, "/spec/network", "publishNotReadyAddresses", True)
    for at, rule in objects(child(spec, "failurePolicy"), "rules"):
        if not rule.get("name"):
            path = f"/spec/failurePolicy/rules/{at}/name"
            patch.append(_add(path, f"failurePolicyRule{at}"))
    for at, policy in objects(spec, "volumeClaimPolicies"):
        path = f"/spec/volumeClaimPolicies/{at}"
        _fill(patch, policy, path, "retentionPolicy", {"whenDeleted": "Delete"})
    return patch


def kept_defaults(new: Json, old: Json) -> Patch:
    """Return defaults that are missing in a changed JobSet and present in the stored one.

    They are missing when a manifest is applied again. Other defaults, which the stored JobSet never
    had because it was created without webhooks, or has changed, would be an unrequested change.
    """
    return [each for each in default_jobset(new) if _at(old, each["path"]) == each["value"]]


def _at(value: Any, path: str) -> Any:
    for name in path.split("/")[1:]:
        if isinstance(value, list):
            at = int(name)
            value = value[at] if at < len(value) else None
        else:
            value = value.get(name) if isinstance(value, Mapping) else None
    return value


def rewrite_jobset(new: Json, old: Json | None = None) -> tuple[Json, Patch]:
    """Return ``new`` in the form to be stored, and the patch to that form; its meaning stays.

    Quantities written as fractional numbers become strings, which the schema accepts. A JobSet
    whose Jobs are suspended by their queue has no ``suspend`` (KEP-1172). Values with the
    same meaning as in the stored object are written in its notation: typed clients rewrite a whole
    object in the notation of their types, and the API server compares immutable fields literally.

    Args:
        new: JobSet to be stored.
        old: stored JobSet, if there is one.
    """
    shape, spec = shapes.jobset_spec(), new.get("spec")
    if not isinstance(spec, Mapping):
        return new, []
    wanted = json_equality.with_text_quantities(spec, shape)
    if keys.SKIP_SUSPEND_ANNOTATION in child(new, "metadata", "annotations"):
        wanted = {name: value for name, value in wanted.items() if name != "suspend"}
    if old is not None and isinstance(old.get("spec"), Mapping):
        wanted = json_equality.rewritten(old["spec"], wanted, shape)
    patch: Patch = [
        {"op": "remove", "path": f"/spec/{name}"} for name in spec if name not in wanted
    ]
    patch += [
        {"op": "add", "path": f"/spec/{name}", "value": value}
        for name, value in wanted.items()
        if name not in spec or value != spec[name]
    ]
    return ({**new, "spec": wanted} if patch else new), patch


def _default_replicated_job(patch: Patch, job: Json, path: str) -> None:
    spec = child(job, "template").get("spec")
    if not isinstance(spec, Mapping):
        return  # a Job without pods is rejected by the schema
    _fill(patch, spec, f"{path}/template/spec", "completionMode", "Indexed")
    pod = child(spec, "template").get("spec")
    if isinstance(pod, Mapping) and not pod.get("restartPolicy"):
        patch.append(_add(f"{path}/template/spec/template/spec/restartPolicy", "OnFailure"))


def _fill(patch: Patch, parent: Json, path: str, name: str, value: Any) -> None:
    if parent.get(name) is None:
        patch.append(_add(f"{path}/{name}", value))


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}
