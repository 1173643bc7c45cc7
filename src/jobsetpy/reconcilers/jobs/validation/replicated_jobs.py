"""Rules for each ReplicatedJob of a new JobSet: counts, names and their lengths, dependencies.

Names of Jobs and pods are made by appending to the JobSet's name, and must fit DNS labels of 63
characters; an error at creation is better than Jobs that never get pods.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobsetpy.api import keys
from jobsetpy.api.name_rules import LABEL_MAX, dns1035_label
from jobsetpy.reconcilers.restart_in_place.validation.agents import agent_problems
from jobsetpy.reconcilers.rules.agent_containers import jobs_in_place
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.field_errors import (
    FieldError,
    invalid,
    invalid_label,
    plain,
    too_many,
)
from jobsetpy.reconcilers.rules.json_tree import (
    Json,
    items,
    job_spec,
    number,
    objects,
    pod_spec,
    text,
)
from jobsetpy.reconcilers.rules.membership import MAX_JOBS, MAX_PARALLELISM
from jobsetpy.reconcilers.rules.names import POD_SUFFIX, job_name
from jobsetpy.reconcilers.rules.replicated_jobs import replicas_of

MAX_TOLERATIONS = 1000
"""Maximum number of tolerations of a pod. API servers compare each one with each other at every
change of a pod, which takes them 41 s with 30,000."""


def replicated_jobs(spec: Json, name: str, features: Features) -> list[FieldError]:
    """Validate each ReplicatedJob.

    Args:
        spec: spec of the JobSet.
        name: effective name of the JobSet.
        features: enabled feature gates.
    """
    problems: list[FieldError] = []
    seen: set[str] = set()
    for at, job in objects(spec, "replicatedJobs"):
        path = f"spec.replicatedJobs[{at}]"
        seen.add(text(job, "name"))
        problems += _pods_product(job, f"{path}.template.spec")
        problems += _group_name(job, path)
        problems += _generated_names(job, name, path)
        problems += _depends_on(job, seen)
        problems += too_many_tolerations(job, path)
    problems += in_place_jobs(spec, features)
    return problems or _too_many_jobs(spec)


def too_many_tolerations(job: Json, path: str) -> Iterator[FieldError]:
    """Return an error for pods with more tolerations than API servers can handle."""
    count = len(items(pod_spec(job), "tolerations"))
    if count > MAX_TOLERATIONS:
        field = f"{path}.template.spec.template.spec.tolerations"
        yield too_many(field, count, MAX_TOLERATIONS)


def _too_many_jobs(spec: Json) -> list[FieldError]:
    """Return an error at the first ReplicatedJob that exceeds the maximum number of Jobs."""
    total = 0
    for at, job in objects(spec, "replicatedJobs"):
        total += max(0, replicas_of(job))
        if total > MAX_JOBS:
            why = (
                f"with it the JobSet would have {total} Jobs; all replicas together must not "
                f"exceed {MAX_JOBS}"
            )
            return [invalid(f"spec.replicatedJobs[{at}].replicas", replicas_of(job), why)]
    return []


def in_place_jobs(spec: Json, features: Features) -> list[FieldError]:
    """Validate the ReplicatedJobs for a restart in place, if the JobSet requests it."""
    jobs = jobs_in_place(spec, features)
    return [problem for path, job in jobs for problem in _in_place(job, path)]


def _pods_product(job: Json, path: str) -> Iterator[FieldError]:
    template = job_spec(job)
    parallelism = number(template, "parallelism")
    if replicas_of(job) * (1 if parallelism is None else parallelism) > keys.INT32_MAX:
        yield plain(
            "the product of replicas and parallelism must not exceed "
            f"{keys.INT32_MAX} for replicatedJob '{text(job, 'name')}'"
        )
    elif (parallelism or 0) > MAX_PARALLELISM and text(template, "completionMode") == "Indexed":
        yield invalid(f"{path}.parallelism", parallelism, f"must be at most {MAX_PARALLELISM}")


def _group_name(job: Json, path: str) -> list[FieldError]:
    group = job.get("groupName", "default")
    if not isinstance(group, str):
        return []
    too_long = ".spec.replicatedJob[].groupName is too long, must be less than 63 characters"
    return invalid_label(f"{path}.groupName", group, dns1035_label(group), too_long)


def _generated_names(job: Json, name: str, path: str) -> Iterator[FieldError]:
    longest = job_name(name, text(job, "name"), replicas_of(job) - 1)
    generated, template = {"job": longest}, job_spec(job)
    completions = number(template, "completions")
    if text(template, "completionMode") == "Indexed" and completions is not None:
        # Also for a pod, the value is the name of its Job, which a user recognises.
        generated["pod"] = f"{longest}-{completions - 1}-{POD_SUFFIX}"
    for kind, each in generated.items():
        why = (
            f"JobSet name is too long, {kind} names generated for this JobSet will exceed 63 "
            f"characters: shorten it, or the replicatedJob's name, by {len(each) - LABEL_MAX}"
        )
        yield from invalid_label(f"{path}.name", longest, dns1035_label(each), why)


def _depends_on(job: Json, seen: set[str]) -> list[FieldError]:
    """Validate that dependencies refer to earlier entries; ``seen`` includes the job itself."""
    return [
        plain(
            f"replicatedJob: {text(job, 'name')} cannot depend on replicatedJob: "
            f"{text(dependency, 'name')}"
        )
        for _, dependency in objects(job, "dependsOn")
        if text(dependency, "name") not in seen
    ]


def _in_place(job: Json, path: str) -> Iterator[FieldError]:
    """Validate a Job whose pods restart in place: only the JobSet may give up, never the Job."""
    template = job_spec(job)
    prefix = f"replicatedJob {text(job, 'name')}:"
    where, when = f"{path}.template.spec", f"when restartStrategy is {keys.IN_PLACE_RESTART}"
    limit = number(template, "backoffLimit")
    if limit != keys.INT32_MAX:
        why = f"{prefix} backoffLimit must be set to {keys.INT32_MAX} (MaxInt32) {when}"
        yield invalid(f"{where}.backoffLimit", limit, why)
    replacement = text(template, "podReplacementPolicy")
    if replacement != "Failed":
        why = f"{prefix} podReplacementPolicy must be set to Failed {when}"
        yield invalid(f"{where}.podReplacementPolicy", replacement or None, why)
    completions = number(template, "completions")
    if completions is None or completions != number(template, "parallelism"):
        why = f"{prefix} completions and parallelism must be set and equal to each other {when}"
        yield invalid(f"{where}.completions", completions, why)
    yield from agent_problems(pod_spec(job), f"{where}.template.spec", prefix)
