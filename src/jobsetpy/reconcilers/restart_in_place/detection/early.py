"""Detection of a restart's cause before the failed pod's agent reports it.

Only restarts that the agents would decide anyway are brought forward: a container that restarts
alone by its own rules, a pod that continues without it, a failure that fails the whole Job, and
pods that are no longer wanted are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jobsetpy.api import disruptions, keys
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod, FailedContainer
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.epochs.barrier import record_of, requested
from jobsetpy.reconcilers.restart_in_place.failures.cause import (
    Cause,
    FailureKind,
    reported_cause,
)
from jobsetpy.reconcilers.restart_in_place.failures.pod_changes import Failure, newly_failed
from jobsetpy.reconcilers.restart_in_place.job_controller import template_rules
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import Observations, ObservedEpochs
from jobsetpy.reconcilers.rules.agent_containers import RESTART_ALL_ACTIONS, restart_action
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, objects, text


def find_cause(
    observed: ObservedEpochs, *, left: bool, known: Cause | None, other: Cause | None = None
) -> Cause | None:
    """Return the failure that ended the synced epoch, if one was detected and none before.

    Args:
        observed: observed state of the JobSet.
        left: True if the JobSet was suspended at the previous plan.
        known: latest failure that a previous plan has found.
        other: restart for a silent pod, or to the full size, if there is no other failure.
    """
    jobset, notes = observed.jobset, observed.notes
    epoch = jobset.status.synced_epoch
    if left or epoch <= jobset.status.deprecated_epoch:
        return None
    if known is not None and known.epoch >= epoch:
        return None
    if notes.remade:
        return Cause(epoch, None, notes.remade, counted=False)
    seen = next(filter(None, (_judged(observed, one) for one in notes.failures)), None)
    return seen or reported_in(notes, epoch + 1) or _requested_cause(jobset) or other


def _requested_cause(jobset: JobSet) -> Cause | None:
    """Return a restart that a user has requested since the current workers were started."""
    asked = requested(jobset)
    if not asked or asked == record_of(jobset).served_request:
        return None
    return Cause(jobset.status.synced_epoch, FailureKind.REQUESTED, "", counted=False)


def reported_in(notes: Observations, opened: int) -> Cause | None:
    """Return the cause that the failed pod's agent has reported with the epoch that it opens."""
    cause = notes.reported
    return cause if cause is not None and cause.epoch == opened - 1 else None


def _judged(observed: ObservedEpochs, failure: Failure) -> Cause | None:
    jobset = observed.jobset
    if failure.epoch != jobset.status.synced_epoch:
        return None
    job = observed.job_of(failure.old)
    return None if job is None else judge(jobset, job, failure, observed.node_ready)


def judge(
    jobset: JobSet, job: Job, failure: Failure, node_ready: Callable[[str], bool] = lambda _: True
) -> Cause | None:
    """Return the cause if an observed change of a pod means that its epoch is over.

    Args:
        jobset: live JobSet whose group was complete at the pod's epoch.
        job: the pod's controller.
        failure: the observed change.
        node_ready: returns True if the node with a name is ready.
    """
    kind, epoch, old, new = failure.kind, failure.epoch, failure.old, failure.new
    template = template_rules.template_of(jobset, job, old)
    if template is None or template_rules.is_ending(job):
        return None
    pod = child(child(template, "template"), "spec")
    name, node = old.metadata.name, old.spec.node_name
    if kind is FailureKind.CONTAINER_FAILED:
        assert new is not None, f"pod {name} is gone: {kind.value} is reported of live pods only"
        failed = newly_failed(old, new)
        if failed is None or not _ends_the_epoch(pod, failed):
            return None
        if template_rules.fails_the_job(template, (failed,)):
            return None
        return _by_rule(new, epoch) or Cause(epoch, kind, name, failed, node=node)
    known = new.status.failed if new is not None else ()
    if template_rules.fails_the_job(template, known) or template_rules.may_fail_by_condition(
        template
    ):
        return None
    if kind is FailureKind.POD_LEAVING:
        assert new is not None, f"pod {name} is gone: {kind.value} is reported of live pods only"
        reason = new.status.leaving
        if reason == disruptions.TAINT and not node_ready(node):
            # Its taints are those of a failure, not of maintenance.
            return Cause(epoch, FailureKind.NODE_LOST, name, reason=reason, node=node)
        return Cause(epoch, kind, name, reason=reason, counted=False, node=node)
    if new is not None and (ended := _by_rule(new, epoch)) is not None:
        return ended
    return Cause(
        epoch,
        kind,
        name,
        known[0] if known else None,
        new.status.reason if new is not None else "",
        node=node,
    )


def _by_rule(pod: ChildPod, epoch: int) -> Cause | None:
    """Return the cause that an agent has reported before it ended its pod by a log rule."""
    ended = any(each.exit_code == keys.LOG_RULE_EXIT_CODE for each in pod.status.failed)
    return reported_cause(pod, epoch) if ended else None


def _ends_the_epoch(pod: Json, failed: FailedContainer) -> bool:
    """Return True if the pod restarts in place, or is replaced, because this container ended so.

    Containers that the JobSet does not name (of a service mesh, for example) are not workers.
    """
    containers = {container.get("name"): container for _, container in objects(pod, "containers")}
    container = containers.get(failed.name)
    if container is None:
        return False
    action = restart_action(container, failed.exit_code)
    if action in RESTART_ALL_ACTIONS:
        return True
    policy = text(container, "restartPolicy") or text(pod, "restartPolicy") or "Always"
    if action == "Terminate" or (not action and policy == "Never"):
        # Others of its pod may continue for hours; the end of the pod is detected.
        return len(containers) == 1
    # It restarts alone. No other restarts, unless the agent is in it.
    return any(word.rpartition("/")[2] == "supervise" for word in _command(container))


def _command(container: Json) -> Iterator[str]:
    for field in ("command", "args"):
        yield from (word for word in items(container, field) if isinstance(word, str))
