"""Rules of a Job's template, and the end of a Job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod, FailedContainer
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.rules.agent_containers import has_code
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, objects
from jobsetpy.reconcilers.rules.membership import parse_count, replicated_job_of

_ENDING: Final = frozenset({"FailureTarget", "SuccessCriteriaMet"})
"""Job conditions after which the Job controller removes the remaining pods."""

ENDING_ACTIONS: Final = frozenset({"FailJob", "FailIndex"})
"""Actions of a Job's pod failure policy that end the Job or a completion index of it."""


def is_ending(job: Job) -> bool:
    """Return True if the Job is about to lose its pods anyway."""
    return job.spec.suspend is True or is_over(job)


def is_over(job: Job) -> bool:
    """Return True if the Job no longer replaces any of its pods, not even once it is resumed."""
    return (
        job.metadata.deletion_timestamp is not None
        or job.status.finished is not None
        or any(c.type in _ENDING and c.status == "True" for c in job.status.conditions)
    )


def template_of(jobset: JobSet, job: Job, pod: ChildPod) -> Json | None:
    """Return the spec of the Job's template if the JobSet still needs this Job and this pod."""
    spec = job_template(jobset, job)
    index = parse_count(pod.metadata.annotations.completion_index)
    if spec is None or (index is not None and index >= pods_wanted(spec)):
        return None
    return spec


def job_template(jobset: JobSet, job: Job) -> Json | None:
    """Return the spec of the Job's template if the JobSet still needs this Job."""
    name = replicated_job_of(job)
    job_index = parse_count(job.metadata.labels.get(keys.JOB_INDEX))
    for item in jobset.spec.replicated_jobs:
        if item.name == name:
            gone = job_index is not None and job_index >= item.replicas
            return None if gone else child(item.template, "spec")
    return None


def pods_wanted(template: Json) -> int:
    """Return the parallelism of a Job's template; the API server's default is 1."""
    parallelism = template.get("parallelism")
    return parallelism if isinstance(parallelism, int) else 1


def fails_the_job(template: Json, failed: tuple[FailedContainer, ...]) -> bool:
    """Return True if the Job's pod failure policy fails the Job; the JobSet's policy then decides.

    The first rule that matches decides, as in the Job controller.
    """
    for _, rule in _failure_rules(template):
        codes = child(rule, "onExitCodes")
        only = codes.get("containerName")
        if any(only in {None, "", one.name} and has_code(codes, one.exit_code) for one in failed):
            return rule.get("action") in ENDING_ACTIONS
    return False


def may_fail_by_condition(template: Json) -> bool:
    """Return True if a rule fails the Job for a condition of the pod; conditions are not cached."""
    return any(
        rule.get("action") in ENDING_ACTIONS and items(rule, "onPodConditions")
        for _, rule in _failure_rules(template)
    )


def _failure_rules(template: Json) -> list[tuple[int, Mapping[str, Any]]]:
    return objects(child(template, "podFailurePolicy"), "rules")
