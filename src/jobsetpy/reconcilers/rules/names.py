"""Names in the JobSet API: users and their DNS lookups rely on each character."""

from __future__ import annotations

import hashlib

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.rules.json_tree import Json, text

GENERATED_BASE_MAX = 58
"""Maximum length of ``generateName`` that the API server keeps; it adds five characters."""
GENERATED_SUFFIX = "xxxxx"
"""Placeholder for the API server's five random characters, all of which are legal in a label."""
POD_SUFFIX = "abcde"
"""Placeholder for the five characters that the Job controller adds to a pod's name."""


def job_name(jobset: str, replicated_job: str, index: int | str) -> str:
    """Return the name of a child Job: ``<jobset>-<replicatedJob>-<index>``."""
    return f"{jobset}-{replicated_job}-{index}"


def job_key(namespace: str, name: str) -> str:
    """Return the ``job-key`` label: lower-case hex SHA-1 of ``namespace/name``, 40 characters.

    It only has to be unique and fit a label; it has no security purpose.
    """
    return hashlib.sha1(f"{namespace}/{name}".encode(), usedforsecurity=False).hexdigest()


def subdomain(jobset: JobSet) -> str:
    """Return the subdomain of the pods, which is the name of the headless Service.

    Resolved here and not at admission, where an object with ``generateName`` has no name yet.
    """
    network = jobset.spec.network
    if network is not None and network.subdomain:
        return network.subdomain
    return jobset.metadata.name


def coordinator_endpoint(jobset: JobSet) -> str | None:
    """Return the stable DNS name of the coordinator pod, or ``None`` without a coordinator."""
    chosen = jobset.spec.coordinator
    if chosen is None:
        return None
    job = job_name(jobset.metadata.name, chosen.replicated_job, chosen.job_index)
    return f"{job}-{chosen.pod_index}.{subdomain(jobset)}"


def claim_name(jobset: str, template: str) -> str:
    """Return the name of a volume claim: ``<template>-<jobset>``."""
    return f"{template}-{jobset}"


def namespaced_job(namespace: str, name: str) -> str:
    """Return the value of the node label that reserves a node for a Job (no slash is allowed)."""
    return f"{namespace}_{name}"


def effective_name(metadata: Json) -> str:
    """Return the name for computing lengths: given, or as the API server would generate it.

    A generated name has :data:`GENERATED_SUFFIX` in place of the random characters, which are not
    known yet; "" if there is neither a name nor a ``generateName``.
    """
    name = text(metadata, "name")
    if name:
        return name
    base = text(metadata, "generateName")
    return base[:GENERATED_BASE_MAX] + GENERATED_SUFFIX if base else ""
