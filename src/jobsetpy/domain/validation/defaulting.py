"""What admission fills in on creation: a pure function from an object to a JSON patch.

The patch only ever adds. Whatever the user wrote, an explicit zero or a field of a newer version
included, is neither read through a typed model nor written back. Values of the definition's own
defaults (``replicas``, ``groupName``, ``restartStrategy``) are the API server's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobsetpy.domain.json_tree import Json, Patch, child, objects


def default_jobset(jobset: Json) -> Patch:
    """The defaults that ``jobset`` lacks.

    Guarantees: it never fails; applied twice, the second patch is empty; every operation is an
    ``add`` at a place where nothing (or, for texts, an empty one) was. A part of the wrong type
    is left for the schema to refuse.
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


def _default_replicated_job(patch: Patch, job: Json, path: str) -> None:
    template = job.get("template")
    if not isinstance(template, Mapping):
        return  # required by the schema
    spec = template.get("spec")
    if not isinstance(spec, Mapping):
        return  # a Job without pods is refused by the schema
    _fill(patch, spec, f"{path}/template/spec", "completionMode", "Indexed")
    pod = spec.get("template")
    if isinstance(pod, Mapping) and isinstance(pod.get("spec"), Mapping):
        pod_spec = pod["spec"]
        if not pod_spec.get("restartPolicy"):
            where = f"{path}/template/spec/template/spec/restartPolicy"
            patch.append(_add(where, "OnFailure"))


def _fill(patch: Patch, parent: Json, path: str, name: str, value: Any) -> None:
    if parent.get(name) is None:
        patch.append(_add(f"{path}/{name}", value))


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}
