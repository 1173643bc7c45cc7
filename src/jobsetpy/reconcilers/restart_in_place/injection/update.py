"""Preservation of an injected agent through updates without it.

A user who applies the manifest again sends pod templates without the agent, and templates are
immutable. So the injected parts are restored from the stored JobSet, one by one, wherever the new
one does not have them; the user's own changes remain, for validation to check. Nothing is injected
again: a manager with another agent image, or with other injection rules, still restores the stored
parts, and running groups keep the agent they started with.
"""

from __future__ import annotations

from typing import Any

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.injection import agent
from jobsetpy.reconcilers.rules.agent_containers import restarting_sidecars, runs_agent
from jobsetpy.reconcilers.rules.json_tree import (
    Json,
    child,
    copied,
    items,
    job_spec,
    number,
    objects,
    pod_spec,
    text,
)
from jobsetpy.reconcilers.rules.replicated_jobs import replicas_of
from jobsetpy.reconcilers.rules.spares import SpareCounts, spares_in

_POD_FIELDS = ("restartPolicy", "serviceAccountName", "automountServiceAccountToken")
_JOB_FIELDS = ("completionMode",)
_WORKER_FIELDS = ("restartPolicy", "restartPolicyRules")


def restore(old: Json, new: Json) -> agent.Injection:
    """Return ``new`` with the agent of ``old``; never with errors.

    Nothing is restored unless both have the annotation with the same value, or if the JobSet is
    being deleted.

    Args:
        old: the stored JobSet.
        new: the JobSet that replaces it.
    """
    name = keys.IN_PLACE_AGENT_ANNOTATION
    before = child(old, "metadata", "annotations").get(name)
    metadata = child(new, "metadata")
    if (
        before is None
        or child(metadata, "annotations").get(name) != before
        or metadata.get("deletionTimestamp") is not None
    ):
        return agent.Injection(new)
    olds = {text(job, "name"): job for _, job in objects(child(old, "spec"), "replicatedJobs")}
    jobs = copied(list(items(child(new, "spec"), "replicatedJobs")))
    for at, template, pod in agent.templates(jobs):
        stored = olds.get(text(jobs[at], "name"), {})
        # Earlier releases treated a sidecar with such a rule as agent and filled in its Job's
        # fields.
        if not (runs_agent(pod_spec(stored)) or restarting_sidecars(pod_spec(stored))):
            continue
        _fill(template, job_spec(stored), _JOB_FIELDS)
        agent.fill_job_fields(template)
        _add_spares(jobs[at], stored, spares_in(stored, child(old, "metadata", "annotations")))
        _restore_pod(pod, pod_spec(stored))
    return agent.injected(new, jobs)


def _add_spares(job: dict[str, Any], stored: Json, spares: SpareCounts) -> None:
    """Add the spares again where a manifest states the pods and Jobs that work."""
    template, before = job["template"]["spec"], job_spec(stored)
    for field in ("parallelism", "completions"):
        pods = number(before, field) or 0
        if number(template, field) == pods - spares.pods:
            template[field] = pods
    if spares.jobs and replicas_of(job) == replicas_of(stored) - spares.jobs:
        job["replicas"] = replicas_of(stored)


def _restore_pod(pod: dict[str, Any], stored: Json) -> None:
    _fill(pod, stored, _POD_FIELDS)
    for kind in ("initContainers", "volumes"):
        _put_back(pod, stored, kind)
    _put_back_pull_secret(pod, stored)
    olds = {text(each, "name"): each for _, each in objects(stored, "containers")}
    for _, worker in objects(pod, "containers"):
        before = olds.get(text(worker, "name"))
        if before is None:
            continue
        assert isinstance(worker, dict), "the pod is a copy that may be changed"
        _fill(worker, before, _WORKER_FIELDS)
        _put_back(worker, before, "volumeMounts")
        _put_back(worker, before, "env")
        supervised = items(before, "command")[:1] == [keys.AGENT_PROGRAM]
        if supervised and items(worker, "command")[:1] != [keys.AGENT_PROGRAM]:
            worker["command"] = [keys.AGENT_PROGRAM, *items(worker, "command")]


def _fill(into: dict[str, Any], stored: Json, names: tuple[str, ...]) -> None:
    for name in names:
        if not into.get(name) and into.get(name) is not False and stored.get(name) is not None:
            into[name] = copied(stored[name])


def _put_back(into: dict[str, Any], stored: Json, kind: str) -> None:
    """Restore the agent's entries of a list at their positions."""
    present = {text(each, "name") for _, each in objects(into, kind)}
    entries = list(items(into, kind))
    for at, each in objects(stored, kind):
        if _is_agents(text(each, "name")) and text(each, "name") not in present:
            entries.insert(at, copied(each))
    if entries:
        into[kind] = entries


def _put_back_pull_secret(into: dict[str, Any], stored: Json) -> None:
    """Restore the agent's pull secret: the one after those that the user names.

    Its name comes from the configuration, which may have changed since. A user cannot remove a
    secret from a template anyway.
    """
    given, before = list(items(into, "imagePullSecrets")), list(items(stored, "imagePullSecrets"))
    if given and given == before[:-1]:
        into["imagePullSecrets"] = copied(before)


def _is_agents(name: str) -> bool:
    return name == keys.AGENT_NAME or name.startswith(keys.AGENT_VARIABLE_PREFIX)
