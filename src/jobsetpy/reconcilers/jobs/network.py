"""Headless Service that gives pods their stable DNS names."""

from __future__ import annotations

from typing import Any

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import owner_reference_to
from jobsetpy.reconcilers.rules.names import subdomain


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
