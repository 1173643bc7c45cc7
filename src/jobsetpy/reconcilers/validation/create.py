"""Validation of a new JobSet: every rule beyond the schema of the CRD, in order.

All problems are collected, so that users see them in one attempt. The functions are pure and read
plain JSON; the cluster state that they need (volume claims of the same names) is listed by
:func:`claims_to_look_up` and passed in. Changes of existing JobSets are validated by
``reconcilers.validation.update``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobsetpy.api import keys
from jobsetpy.api.name_rules import (
    LABEL_MAX,
    dns1035_label,
    dns1123_subdomain,
    domain_prefixed_path,
    label_value,
)
from jobsetpy.reconcilers.coscheduling import validation as validation_coscheduling
from jobsetpy.reconcilers.failure_policy import validation as validation_failure
from jobsetpy.reconcilers.jobs.validation import replicated_jobs as validation_jobs
from jobsetpy.reconcilers.jobs.validation import volumes as validation_volumes
from jobsetpy.reconcilers.jobs.validation.volumes import Claim
from jobsetpy.reconcilers.placement.validation import exclusive_placement
from jobsetpy.reconcilers.restart_in_place.validation.heartbeats import heartbeats
from jobsetpy.reconcilers.restart_in_place.validation.restart_settings import restart_settings
from jobsetpy.reconcilers.restart_in_place.validation.spares import spares
from jobsetpy.reconcilers.rules.agent_containers import restarts_in_place
from jobsetpy.reconcilers.rules.annotations import check_annotations
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.field_errors import (
    FieldError,
    forbidden,
    invalid,
    invalid_label,
    plain,
    required,
    too_long,
)
from jobsetpy.reconcilers.rules.json_tree import Json, child, job_spec, number, objects, text, texts
from jobsetpy.reconcilers.rules.names import effective_name
from jobsetpy.reconcilers.rules.replicated_jobs import order_problems, replicas_of
from jobsetpy.reconcilers.startup_groups import validation as validation_groups


def claims_to_look_up(jobset: Json) -> list[str]:
    """Return the names of the volume claims that :func:`validate_create` needs.

    Empty with ``generateName``: a claim with a name that is not known yet cannot be found.
    """
    if not text(child(jobset, "metadata"), "name"):
        return []
    return validation_volumes.claim_names(child(jobset, "spec"), effective_name(jobset["metadata"]))


def validate_create(
    jobset: Json,
    *,
    features: Features | None = None,
    claims: Mapping[str, Claim] | None = None,
) -> list[FieldError]:
    """Return all errors of a new JobSet; empty if it is accepted.

    Args:
        jobset: JobSet as JSON, after defaulting.
        features: enabled feature gates; the defaults if ``None``.
        claims: existing claims by the names of :func:`claims_to_look_up`; a missing entry or
            ``None`` means no such claim.
    """
    features = features or Features()
    spec = child(jobset, "spec")
    name = effective_name(child(jobset, "metadata"))
    names = {text(job, "name") for _, job in objects(spec, "replicatedJobs")}
    return [
        *gated_fields(spec, features),
        *in_place_restart(spec, features),
        *_first_depends_on(spec),
        *_subdomain(spec),
        *_managed_by(spec),
        *validation_jobs.replicated_jobs(spec, name, features),
        *_success_policy(spec, names),
        *validation_failure.failure_policy(spec, names, features),
        *coordinator(spec, name),
        *validation_volumes.volume_claims(spec, name, claims or {}),
        *validation_groups.group_scheduling(jobset),
        *exclusive_placement(jobset),
        *(check_annotations(jobset).errors or _annotations(jobset, features)),
    ]


def _annotations(jobset: Json, features: Features) -> Iterator[FieldError]:
    """Validate annotations in their context; each of them has a valid value."""
    yield from validation_coscheduling.coscheduling(jobset, features)
    yield from restart_settings(jobset)
    yield from spares(jobset)
    yield from heartbeats(jobset)


def gated_fields(spec: Json, features: Features, old: Json | None = None) -> Iterator[FieldError]:
    """Reject fields whose feature gate is off, unless the stored spec has the same value."""
    for name, (enabled, gate) in {
        "activeDeadlineSeconds": (features.active_deadline, "JobSetActiveDeadlineSeconds"),
        "scheduling": (features.scheduling, "JobSetWorkloadAwareSchedulingAPI"),
    }.items():
        value = spec.get(name)
        if not enabled and value is not None and value != (old or {}).get(name):
            yield forbidden(f"spec.{name}", f"the feature gate {gate} is disabled")


def in_place_restart(spec: Json, features: Features) -> Iterator[FieldError]:
    """Validate the restart strategy ``InPlaceRestart``.

    Start orders are rejected: workers wait at one barrier, so none can wait for another to run.
    """
    if not restarts_in_place(spec):
        return
    if not features.in_place_restart:
        yield plain(
            f"restart strategy {keys.IN_PLACE_RESTART} is not allowed while the feature gate "
            "InPlaceRestart is disabled"
        )
        return
    names = {text(job, "name") for _, job in objects(spec, "replicatedJobs")}
    why = f"workers of all replicatedJobs start together with {keys.IN_PLACE_RESTART}"
    yield from order_problems(spec, names, why)


def _first_depends_on(spec: Json) -> Iterator[FieldError]:
    # Presence counts: an empty list is rejected as well.
    for _, first in objects(spec, "replicatedJobs")[:1]:
        if first.get("dependsOn") is not None:
            yield plain("DependsOn can't be set for the first ReplicatedJob")


def _subdomain(spec: Json) -> list[FieldError]:
    subdomain = text(child(spec, "network"), "subdomain")
    if not subdomain:
        return []
    # It is the name of a Service and part of host names, and has to be valid as both.
    problems = [*dns1123_subdomain(subdomain), *dns1035_label(subdomain)]
    too_long = ".spec.network.subdomain is too long, must be less than 63 characters"
    return invalid_label("spec.network.subdomain", subdomain, problems, too_long)


def _managed_by(spec: Json) -> list[FieldError]:
    value = spec.get("managedBy")
    if not isinstance(value, str):
        return []
    field = "spec.managedBy"
    if not value:
        return [required(field, "must be a domain-prefixed path (such as acme.io/foo)")]
    problems = [invalid(field, value, problem) for problem in domain_prefixed_path(value)]
    if len(value.encode()) > LABEL_MAX:
        problems.append(too_long(field, LABEL_MAX))
    return problems


def _success_policy(spec: Json, names: set[str]) -> list[FieldError]:
    return [
        plain(f"invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs")
        for target in texts(child(spec, "successPolicy"), "targetReplicatedJobs")
        if target not in names
    ]


def coordinator(spec: Json, name: str) -> Iterator[FieldError]:
    """Validate the coordinator of a JobSet of that name."""
    pod = spec.get("coordinator")
    if not isinstance(pod, Mapping):
        return
    job = text(pod, "replicatedJob")
    job_index, pod_index = number(pod, "jobIndex") or 0, number(pod, "podIndex") or 0
    refusal = _coordinator_refusal(spec, job, job_index, pod_index)
    if refusal:
        yield plain(refusal)
    subdomain = text(child(spec, "network"), "subdomain") or name
    endpoint = f"{name}-{job}-{job_index}-{pod_index}.{subdomain}"
    for problem in label_value(endpoint):
        yield plain(
            f"spec will lead to invalid label value {endpoint!r} for coordinator label "
            f"{keys.COORDINATOR}: {problem}"
        )


def _coordinator_refusal(spec: Json, name: str, job_index: int, pod_index: int) -> str:
    """Return why there is no such pod; "" if there is."""
    jobs = [job for _, job in objects(spec, "replicatedJobs") if text(job, "name") == name]
    if not jobs:
        return f"coordinator replicatedJob {name} does not exist"
    replicas = replicas_of(jobs[0])
    if not 0 <= job_index < replicas:
        return (
            f"coordinator job index {job_index} is invalid for replicatedJob {name} with "
            f"{replicas} replicas"
        )
    completions = number(job_spec(jobs[0]), "completions")
    if text(job_spec(jobs[0]), "completionMode") != "Indexed" or completions is None:
        return (
            "job for coordinator must be indexed completion mode, and completions number must "
            "be set"
        )
    if not 0 <= pod_index < completions:
        return f"coordinator pod index {pod_index} is invalid for {completions} completions"
    return ""
