"""Objects that a JobSet's pods need besides their Jobs: Service, volume claims, those of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import owner_reference_to
from jobsetpy.reconcilers.rules.names import claim_name, subdomain
from jobsetpy.reconcilers.rules.plan import CreateObject
from jobsetpy.reconcilers.startup_groups import spec as group_scheduling


def surroundings(
    jobset: JobSet, present: AbstractSet[tuple[str, str]] = frozenset(), *, rbac: bool = False
) -> Iterator[CreateObject]:
    """Yield the missing objects, in the order of their creation.

    Args:
        jobset: parent JobSet.
        present: kinds and names of the objects of its namespace that are known to exist.
        rbac: True to let pods of a startup group watch its ConfigMap.
    """
    service = "Service", subdomain(jobset)
    if dns_hostnames(jobset) and service not in present:
        yield CreateObject(*service, service_body(jobset))
    for name, body in claim_bodies(jobset).items():
        if ("PersistentVolumeClaim", name) not in present:
            yield CreateObject("PersistentVolumeClaim", name, body)
    yield from group_scheduling.objects(jobset, present, rbac=rbac)


def dns_hostnames(jobset: JobSet) -> bool:
    """Return whether pods get DNS names; without ``network`` they do not."""
    network = jobset.spec.network
    return network is not None and network.enable_dns_hostnames is True


def service_body(jobset: JobSet) -> dict[str, Any]:
    """Return the Service: headless, without ports, selecting all pods of the JobSet.

    Pods are published before they are ready unless the spec says otherwise, because workers resolve
    each other's names while they start.
    """
    network = jobset.spec.network
    publish = network.publish_not_ready_addresses if network is not None else None
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": subdomain(jobset),
            "namespace": jobset.metadata.namespace,
            "ownerReferences": [owner_reference_to(jobset)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {keys.JOBSET_NAME: jobset.metadata.name},
            "publishNotReadyAddresses": True if publish is None else publish,
        },
    }


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
