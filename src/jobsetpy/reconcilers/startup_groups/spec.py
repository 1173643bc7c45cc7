"""Startup group of a JobSet: its pods, their attempt, and the objects it needs (KEP-498).

**Attempts.** A pod waits until its own attempt is released, and a released attempt stays released,
so each recreation of pods *as a group* has to be another attempt. The attempt of a JobSet is the
sum of three numbers that only increase: ``metadata.generation`` (resuming changes the spec),
``status.restarts`` and all ``jobRestarts``. It is set on each Job of a target when the Job is
created or resumed, and on its pods through the template. Pods that a Job replaces, or adds because
it was resized, are of the Job's attempt and pass immediately if that was released.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, Final

from jobsetpy.api import keys
from jobsetpy.api.group_signal import config_map_name
from jobsetpy.api.jobset import JobSet, ReplicatedJob
from jobsetpy.api.meta import owner_reference_to
from jobsetpy.reconcilers.rules.json_tree import child, text
from jobsetpy.reconcilers.rules.plan import CreateObject
from jobsetpy.reconcilers.rules.spares import jobs_to_start, pods_to_start, starts_without_spares

ANNOTATIONS: Final = frozenset(
    {
        *(keys.GROUP_ATTEMPT, keys.GROUP_SIZE, keys.GROUP_TIMEOUT),
        keys.START_WITHOUT_SPARES_ANNOTATION,
    }
)
"""Annotations of Jobs and pods that the controller sets, overriding the template."""

_RBAC: Final = "rbac.authorization.k8s.io"


def targets(jobset: JobSet) -> tuple[ReplicatedJob, ...]:
    """Return the ReplicatedJobs that start as a group, in the order of the spec."""
    config = jobset.spec.group_scheduling_config
    if config is None:
        return ()
    names = frozenset(config.target_replicated_jobs)
    return tuple(item for item in jobset.spec.replicated_jobs if not names or item.name in names)


def attempt(jobset: JobSet) -> int:
    """Return the group's current attempt; it increases with each restart and each resumption."""
    status = jobset.status
    jobs = sum(sum(item.job_restarts) for item in status.replicated_jobs_status)
    return jobset.metadata.generation + status.restarts + jobs


def startup_group_size(jobset: JobSet) -> int:
    """Return the number of pods that have to start before any of them may continue."""
    return sum(
        jobs_to_start(jobset, item) * pods_to_start(jobset, item) for item in targets(jobset)
    )


def job_annotations(jobset: JobSet) -> dict[str, dict[str, str]]:
    """Return the annotations of the targets' Jobs and pods, by name of the ReplicatedJob."""
    config = jobset.spec.group_scheduling_config
    if config is None:
        return {}
    out = {
        keys.GROUP_ATTEMPT: str(attempt(jobset)),
        keys.GROUP_SIZE: str(startup_group_size(jobset)),
    }
    if config.timeout_after_seconds is not None:
        out[keys.GROUP_TIMEOUT] = str(config.timeout_after_seconds)
    if starts_without_spares(jobset):
        out[keys.START_WITHOUT_SPARES_ANNOTATION] = "true"
    return {item.name: out | _injected_amounts(jobset, item) for item in targets(jobset)}


def _injected_amounts(jobset: JobSet, replicated: ReplicatedJob) -> dict[str, str]:
    """Return annotations about injected containers, for the admission of pods without a JobSet.

    Those of the pod template take precedence.
    """
    own = child(replicated.template, "spec", "template", "metadata", "annotations")
    notes = jobset.metadata.annotations
    wanted = [name for name in keys.INJECTED_ANNOTATIONS if name in notes and name not in own]
    return {name: notes[name] for name in wanted}


def objects(
    jobset: JobSet, present: AbstractSet[tuple[str, str]] = frozenset(), *, rbac: bool = False
) -> list[CreateObject]:
    """Return the objects to create before the first pod of the group; none if they exist.

    Args:
        jobset: JobSet, with a startup group or without.
        present: kinds and names of the objects that are known to exist.
        rbac: True to let pods watch the ConfigMap, which is empty until the group has started;
            created, and recreated, together with it.
    """
    name, namespace = config_map_name(jobset.metadata.name), jobset.metadata.namespace
    if jobset.spec.group_scheduling_config is None or ("ConfigMap", name) in present:
        return []
    metadata = {
        "name": name,
        "namespace": namespace,
        # The manager's cache selects its own ConfigMaps by this label.
        "labels": {keys.JOBSET_NAME: jobset.metadata.name},
        "ownerReferences": [owner_reference_to(jobset)],
    }
    bodies: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "ConfigMap"}]
    if rbac:
        rule = {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [name],
            "verbs": ["get", "list", "watch"],
        }
        accounts = sorted({_service_account(item) for item in targets(jobset)})
        binding = {
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": [
                {"kind": "ServiceAccount", "name": account, "namespace": namespace}
                for account in accounts
            ],
        }
        bodies += [
            {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "rules": [rule]},
            {"apiVersion": f"{_RBAC}/v1", "kind": "RoleBinding", **binding},
        ]
    return [CreateObject(body["kind"], name, {**body, "metadata": metadata}) for body in bodies]


def _service_account(replicated: ReplicatedJob) -> str:
    spec = child(replicated.template, "spec", "template", "spec")
    return text(spec, "serviceAccountName") or text(spec, "serviceAccount") or "default"
