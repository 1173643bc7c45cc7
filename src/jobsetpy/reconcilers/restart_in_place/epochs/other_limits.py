"""Other limits than the number of restarts: crashes in a closed barrier, runs without progress.

Crashes of containers that the JobSet names and that the barrier waits for are charged to the
budget: of the workers, of containers that have to run before them, and of the agent. Crashes of an
injected container (of a service mesh, for example) or of another sidecar do not count.
"""

from __future__ import annotations

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.annotations import read
from jobsetpy.api.jobset import InPlaceRestartStatus, JobSet
from jobsetpy.api.log_lines import LogRule
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import is_gathering, record_of
from jobsetpy.reconcilers.restart_in_place.epochs.budget import OVER_BUDGET, EpochCharge
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause, FailureKind
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import Crash, GroupCounts
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.agent_containers import strangers
from jobsetpy.reconcilers.rules.json_tree import child, objects, pod_notes, text


def worst_crash(jobset: JobSet, pods: GroupCounts) -> Crash:
    """Return the charged container that has crashed most since the barrier closed."""
    if not is_gathering(jobset, pods):
        return Crash(0, "", "")
    record = record_of(jobset)
    worst = Crash(record.crashes, record.crashing_pod, record.crashing_container)
    for (replicated_job, container), crash in pods.crashes.items():
        worse = crash.times > worst.times
        if worse and container in charged_containers(jobset, replicated_job):
            worst = crash
    return worst


def has_crashed(jobset: JobSet, pods: GroupCounts) -> bool:
    """Return True if there are crashes that the record does not have yet."""
    record, policy = record_of(jobset), jobset.spec.failure_policy
    if not pods.crashes and not record.crashes:
        return False
    allowed = 0 if policy is None else policy.max_restarts
    return worst_crash(jobset, pods).times > min(record.crashes, allowed)


def crash_loop(crash: Crash, epoch: int) -> cond.DesiredCondition:
    """Return the failure of a JobSet of which a container crashes before each epoch."""
    return cond.failed(
        keys.REACHED_MAX_RESTARTS_REASON,
        f"{OVER_BUDGET.message}: container {crash.container!r} of pod {crash.pod!r} was "
        f"restarted {crash.times} times before all pods had come to epoch {epoch}",
    )


def charged_containers(jobset: JobSet, replicated_job: str) -> frozenset[str]:
    """Return the names of the charged containers of a ReplicatedJob's pods."""
    for item in jobset.spec.replicated_jobs:
        if item.name == replicated_job:
            pod = child(item.template, "spec", "template", "spec")
            waited_for = [c for c in objects(pod, "initContainers") if c not in strangers(pod)]
            named = [*objects(pod, "containers"), *waited_for]
            return frozenset(text(container, "name") for _, container in named)
    return frozenset()


def failed_by_rule(
    jobset: JobSet, cause: Cause | None, opened: int
) -> cond.DesiredCondition | None:
    """Return the failure of a JobSet of which a rule on output says that it fails.

    An agent only reports the name of the rule: what the rule does, the JobSet says.
    """
    if cause is None or cause.kind is not FailureKind.LOG_RULE or cause.epoch != opened - 1:
        return None
    name = cause.reason.partition(":")[0]
    for item in jobset.spec.replicated_jobs:
        places = pod_notes({"template": item.template}), jobset.metadata.annotations
        rules: list[LogRule] = read(keys.LOG_RULES_ANNOTATION, *places, default=[])
        if any(rule.name == name and rule.then == "fail-jobset" for rule in rules):
            return cond.failed(keys.LOG_RULE_REASON, f"jobset failed due to {cause}")
    return None


# ---- progress, as pods report it -----------------------------------------------------------------


def no_progress(
    jobset: JobSet, charged: EpochCharge, pods: GroupCounts, digest: int
) -> tuple[InPlaceRestartStatus, cond.DesiredCondition] | None:
    """Return record and failure of a JobSet whose consecutive restarts led to no new step."""
    allowed = max_without_progress(jobset)
    record = with_progress(jobset, record_of(jobset), charged, pods, digest)
    without = record.restarts_without_progress
    if not allowed or without < allowed or not charged.counts:
        return None
    highest = record.highest_step
    reached = "no step was ever reached" if highest is None else f"step {highest} was the highest"
    restarts = f"{without} {'restart' if without == 1 else 'restarts'} in a row"
    message = f"jobset failed due to {restarts} without a new step: {reached}"
    return record, cond.failed(keys.NO_PROGRESS_REASON, message)


def with_progress(
    jobset: JobSet,
    record: InPlaceRestartStatus,
    charged: EpochCharge,
    pods: GroupCounts,
    digest: int,
) -> InPlaceRestartStatus:
    """Return the record to store with an epoch that is about to be synced, with its pods' progress.

    Touches count as progress until there has been a step: a program reports steps or it does not. A
    run counts as one without progress only if some pod has reported on it; without any reported
    step, only if no pod is new, as the one that reports steps may have been lost. A pod is new if
    the digest of all differs from that in the record. ``digest`` is that of the pods that will run:
    after a swap of seats others than those that have run.
    """
    (epoch, step), best = pods.progress, record.highest_step
    limited, shown = max_without_progress(jobset) > 0, epoch == charged.epoch
    complete = record_of(jobset).pods_digest in {0, pods.digest}
    known = shown or (pods.ended == charged.epoch and complete)
    if shown and (best is None or step > best):
        best = best if step < 0 else step
        record = evolve(record, highest_step=best, restarts_without_progress=0)
    elif known and charged.counts and (limited or best is not None):
        without = min(record.restarts_without_progress + 1, keys.INT32_MAX)
        record = evolve(record, restarts_without_progress=without)
    return evolve(record, pods_digest=digest) if limited or best is not None else record


def max_without_progress(jobset: JobSet) -> int:
    """Return the maximum number of consecutive restarts without a new step; 0 for no limit."""
    notes = jobset.metadata.annotations
    limit: int = read(keys.MAX_WITHOUT_PROGRESS_ANNOTATION, notes, default=0)
    return limit
