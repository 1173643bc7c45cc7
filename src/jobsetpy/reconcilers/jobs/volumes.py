"""Volume claims shared by the pods of a JobSet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import owner_reference_to
from jobsetpy.reconcilers.rules.names import claim_name


def claim_bodies(jobset: JobSet) -> dict[str, dict[str, Any]]:
    """Return the claims by name.

    A claim that is to be deleted with the JobSet is owned by it; one that is to be retained has no
    owner, and is reused by a later JobSet of the same name.
    """
    out: dict[str, dict[str, Any]] = {}
    for policy in jobset.spec.volume_claim_policies:
        retention = policy.retention_policy
        # A policy object without a value has the schema's default; no policy object means retain.
        owned = retention is not None and (retention.when_deleted or "Delete") == "Delete"
        for template in policy.templates:
            source = template.get("metadata") or {}
            name = claim_name(jobset.metadata.name, source.get("name", ""))
            metadata: dict[str, Any] = {
                "name": name,
                "namespace": jobset.metadata.namespace,
                "labels": {
                    **(source.get("labels") or {}),
                    keys.JOBSET_NAME: jobset.metadata.name,
                },
            }
            if source.get("annotations"):
                metadata["annotations"] = dict(source["annotations"])
            if owned:
                metadata["ownerReferences"] = [owner_reference_to(jobset)]
            out[name] = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": metadata,
                "spec": template.get("spec") or {},
            }
    return out


def template_places(jobset: JobSet) -> dict[str, int]:
    """Return the names of the claims' templates, each with its index in the spec."""
    names = (
        (template.get("metadata") or {}).get("name", "")
        for policy in jobset.spec.volume_claim_policies
        for template in policy.templates
    )
    return {name: at for at, name in enumerate(names)}


def pod_volumes(
    jobset: JobSet, pod_spec: Mapping[str, Any], templates: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Return volumes for the claims that some container of a pod mounts by the template's name.

    Args:
        jobset: parent JobSet.
        pod_spec: pod spec of a template.
        templates: result of :func:`template_places`; computed once for all ReplicatedJobs.
    """
    if not templates:
        return []
    mounted = {
        mount.get("name")
        for kind in ("initContainers", "containers")
        for container in pod_spec.get(kind) or ()
        for mount in container.get("volumeMounts") or ()
    }
    return [
        {
            "name": name,
            "persistentVolumeClaim": {"claimName": claim_name(jobset.metadata.name, name)},
        }
        for name in sorted(mounted & templates.keys(), key=templates.__getitem__)
    ]
