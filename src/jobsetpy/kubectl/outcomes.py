"""Outcomes of each kind of failure, by a JobSet's settings: second table of ``explain``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.agent_containers import restarts_in_place
from jobsetpy.reconcilers.rules.json_tree import Json, child, job_spec, objects, pod_notes, text
from jobsetpy.reconcilers.rules.spares import spares_in

_RULES: Final = "of one failed Job, the first rule that matches decides"


class Outcome(NamedTuple):
    """A failure, and what follows from it.

    Args:
        failure: what happens.
        leads_to: what the manager, the agents or Kubernetes do then.
    """

    failure: str
    leads_to: str


def outcomes(jobset: Json) -> Iterator[Outcome]:
    """Yield the outcome of each kind of failure for an admitted JobSet."""
    spec = child(jobset, "spec")
    policy = child(spec, "failurePolicy")
    if restarts_in_place(spec):
        yield from _in_place(jobset)
    elif policy:
        yield Outcome("a Job fails", "all Jobs are created again, and with them all pods")
    else:
        yield Outcome("a Job fails", "the JobSet fails: it has no failurePolicy")
    for _, rule in objects(policy, "rules"):
        when = ", ".join(
            f"{name.removeprefix('on').removeprefix('target')} {', '.join(map(str, rule[name]))}"
            for name in (
                "onJobFailureReasons",
                "onJobFailureMessagePatterns",
                "targetReplicatedJobs",
            )
            if rule.get(name)
        )
        yield Outcome(f"a Job fails; {when or 'any reason'}", f"{text(rule, 'action')} ({_RULES})")
    if policy:
        count = policy.get("maxRestarts", 0)
        yield Outcome(f"more than {count} counted restarts", "the JobSet fails: ReachedMaxRestarts")


def _in_place(jobset: Json) -> Iterator[Outcome]:
    """Yield outcomes of failures below the Jobs, where the group restarts in place."""
    notes, jobs = (
        child(jobset, "metadata", "annotations"),
        [job for _, job in objects(child(jobset, "spec"), "replicatedJobs")],
    )

    def stated(name: str) -> str:
        """Return the values of an annotation, of the JobSet and of templates."""
        found = [each[name] for each in (notes, *map(pod_notes, jobs)) if name in each]
        return ", ".join(dict.fromkeys(map(str, found)))

    seat = (
        "a ready spare takes its seat, and the others restart in place"
        if any(any(spares_in(job, notes)[:2]) for job in jobs)
        else "its Job replaces the pod; the others restart in place and wait for it"
    )
    after = notes.get(keys.MIN_PODS_AFTER_ANNOTATION, "30")
    if least := stated(keys.MIN_PODS_ANNOTATION):
        seat += f"; after {after} s they continue without it, with {least} pods of a Job at least"
    if least := stated(keys.MIN_REPLICAS_ANNOTATION):
        seat += f"; after {after} s other Jobs continue without its own, {least} at least"
    yield Outcome("a worker ends with an error", "all workers restart in their pods")
    if codes := stated(keys.IN_PLACE_END_CODES_ANNOTATION):
        yield Outcome(f"a worker ends with {codes}", f"its pod ends; {seat}")
    if codes := stated(keys.IN_PLACE_UNFIT_CODES_ANNOTATION):
        yield Outcome(f"a worker ends with {codes}", f"its node counts as unfit; {seat}")
    for job in jobs:
        for _, rule in objects(child(job_spec(job), "podFailurePolicy"), "rules"):
            if text(rule, "action") == "FailJob" and (on := child(rule, "onExitCodes")):
                codes = f"{text(on, 'operator')} {on.get('values')}"
                yield Outcome(f"{text(job, 'name')}: exit code {codes}", "its Job fails")
    yield Outcome("a pod is deleted, evicted or drained", seat)
    if stated(keys.IN_PLACE_HEARTBEAT_ANNOTATION):
        yield Outcome("a node is lost", f"its agents' neighbours notice within seconds; {seat}")
    elif deadline := stated(keys.LOST_NODE_DEADLINE_ANNOTATION):
        yield Outcome("a node is lost", f"its pods are given up after {deadline}; {seat}")
    else:
        yield Outcome(
            "a node is lost",
            "the group waits until Kubernetes deletes its pods, or for the manager's "
            "lostNodes.deadline",
        )
    if hang := stated(keys.IN_PLACE_HANG_ANNOTATION):
        limit = "five times the longest step" if hang == "auto" else f"{hang} s"
        yield Outcome(
            f"no new step for {limit}",
            "the worker is killed, and all restart in their pods; not detected before the program "
            "has reported a step",
        )
    else:
        yield Outcome("a worker hangs", "not detected: no hang limit is set")
