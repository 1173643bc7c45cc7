"""Failures detected before the failed pod's agent can report them (KEP-467, "Speed up detection").

The agent of a failed pod opens the next epoch once it runs again, seconds later. The kubelet shows
the end of a worker earlier than that, and for about 0.1 s only: then it restarts the pod and
replaces every exit code with 137. A manager that sees it in between can restart the others
immediately, and knows the cause.

Only a change from one state of a pod to the next counts, never a state by itself: a status may be
left over from the previous run. And only restarts that the agents would decide anyway are brought
forward: a container that restarts alone by its own rules, a pod that continues without it, a
failure that fails the whole Job, and pods that are no longer wanted are ignored.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod, FailedContainer
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.restart_in_place.reports import (
    EXIT_CODE,
    ReportedEnd,
    signal_name,
)
from jobsetpy.reconcilers.rules.agent_containers import (
    RESTART_ALL_ACTIONS,
    has_code,
    restart_action,
)
from jobsetpy.reconcilers.rules.json_tree import Json, child, items, objects, text
from jobsetpy.reconcilers.rules.membership import parse_count, replicated_job_of

STATUS_LAG_S: Final = 30.0
"""Maximum seconds by which a pod's status may lag behind the synced epoch."""

_ENDING: Final = frozenset({"FailureTarget", "SuccessCriteriaMet"})
"""Job conditions after which the Job controller removes the remaining pods."""


ENDING_ACTIONS: Final = frozenset({"FailJob", "FailIndex"})
"""Actions of a Job's pod failure policy that end the Job or a completion index of it."""


class FailureSignal(enum.Enum):
    """Possible failure of a pod."""

    CONTAINER_FAILED = "container_failed"
    POD_FAILED = "pod_failed"
    POD_DELETED = "pod_deleted"
    PODS_MISSING = "pods_missing"
    POD_LEAVING = "pod_leaving"
    NODE_LOST = "node_lost"
    REQUESTED = "requested"
    WORKER_FAILED = "worker_failed"
    WORKER_HUNG = "worker_hung"


_REASONS: Final[Mapping[FailureSignal | None, str]] = {
    FailureSignal.CONTAINER_FAILED: keys.CONTAINER_FAILED_REASON,
    FailureSignal.POD_FAILED: keys.POD_FAILED_REASON,
    FailureSignal.POD_DELETED: keys.POD_DELETED_REASON,
    FailureSignal.PODS_MISSING: keys.PODS_MISSING_REASON,
    FailureSignal.POD_LEAVING: keys.POD_LEAVING_REASON,
    FailureSignal.NODE_LOST: keys.NODE_LOST_REASON,
    FailureSignal.REQUESTED: keys.RESTART_REQUESTED_REASON,
    FailureSignal.WORKER_FAILED: keys.WORKER_FAILED_REASON,
    FailureSignal.WORKER_HUNG: keys.WORKER_HUNG_REASON,
    None: keys.JOB_REMADE_REASON,
}


@attrs.frozen
class Cause:
    """Cause for the end of an epoch.

    Args:
        epoch: epoch that is over.
        sign: detected failure, ``None`` if a Job is recreated on request.
        name: name of the pod, or of the Job.
        container: name of the failed container, if known.
        reason: reason of the pod's phase; for missing pods, their description; for a worker, how
            long it has hung, or its reported failure.
        counted: True if the restart counts towards ``maxRestarts``.
        node: node of the pod.
    """

    epoch: int
    sign: FailureSignal | None
    name: str
    container: FailedContainer | None = None
    reason: str = ""
    counted: bool = True
    node: str = ""

    @property
    def condition_reason(self) -> str:
        """Reason of the condition."""
        return _REASONS[self.sign]

    def __str__(self) -> str:
        """Return the cause as a clause for messages."""
        if self.sign is None:
            return f"job {self.name!r} is recreated"
        if self.sign is FailureSignal.POD_DELETED:
            return f"pod {self.name!r} is being deleted"
        if self.sign is FailureSignal.PODS_MISSING:
            return self.reason
        if self.sign is FailureSignal.REQUESTED:
            return "a restart is asked for"
        if self.sign is FailureSignal.POD_LEAVING:
            return f"pod {self.name!r} is asked to leave its node ({self.reason})"
        if self.sign is FailureSignal.NODE_LOST:
            return f"pod {self.name!r} is evicted from node {self.node!r}, which is not ready"
        if self.sign is FailureSignal.WORKER_HUNG:
            return f"pod {self.name!r}: {self.reason}"
        if self.sign is FailureSignal.WORKER_FAILED:
            code = 0 if self.container is None else self.container.exit_code
            killed = f" ({name})" if (name := signal_name(code)) else ""
            said = f": {self.reason}" if self.reason else ""
            return f"pod {self.name!r}: its worker ended with exit code {code}{killed}{said}"
        exited = ""
        if self.container is not None:
            one = self.container
            why = f" ({one.reason})" if one.reason else ""
            exited = f"container {one.name!r} exited with {one.exit_code}{why}"
        if self.sign is FailureSignal.CONTAINER_FAILED:
            return f"pod {self.name!r}, {exited}"
        details = ", ".join(filter(None, (self.reason, exited)))
        return f"pod {self.name!r} failed" + (f" ({details})" if details else "")


def reported_cause(report: ReportedEnd) -> Cause:
    """Return a supervisor's report on its worker as the cause for the end of the previous epoch."""
    epoch, end = report.epoch - 1, report.end
    if end.kind == EXIT_CODE:
        container = FailedContainer(exit_code=end.number)
        return Cause(
            epoch, FailureSignal.WORKER_FAILED, report.pod, container, end.text, node=report.node
        )
    where = "" if report.step < 0 else f" at step {report.step}"
    said = f" ({end.text})" if end.text else ""
    reason = f"no progress for {end.number} s{where}{said}"
    return Cause(epoch, FailureSignal.WORKER_HUNG, report.pod, reason=reason, node=report.node)


@attrs.frozen(eq=False)
class Failure:
    """Change of a pod that may be a failure, recorded for the next reconcile to decide.

    Args:
        sign: result of ``sign_of``.
        epoch: epoch of the pod.
        old: the pod before.
        new: the pod after, ``None`` if it is deleted.
        at: monotonic time at which it was observed.
    """

    sign: FailureSignal
    epoch: int
    old: ChildPod
    new: ChildPod | None
    at: float


@attrs.frozen
class SyncedMark:
    """Position in the pods' events when an epoch was observed as synced.

    Args:
        epoch: epoch that was synced.
        version: newest resourceVersion of a pod at that time.
        at: that time on the monotonic clock.
    """

    epoch: int = 0
    version: int = 0
    at: float = 0.0

    def shows_run(self, epoch: int, version: int, now: float) -> bool:
        """Return True if containers that a pod's status shows as running surely run at ``epoch``.

        A status may be left over from the previous run: the agent's patch and the kubelet's reports
        are independent. A worker of this epoch starts only after the epoch was synced, so a status
        that was in the cache at that time shows none. One written later shows none of an older run,
        since every pod's kubelet had removed those; after a while, no status does.

        Args:
            epoch: epoch of the pod.
            version: resourceVersion of the pod.
            now: time on the monotonic clock, in seconds.
        """
        if epoch != self.epoch:
            return False
        return now - self.at >= STATUS_LAG_S or version > self.version


def sign_of(old: ChildPod, new: ChildPod | None) -> FailureSignal | None:
    """Return the failure that a pod's change may mean; O(1) and cheap, as it is called per change.

    Args:
        old: the pod before.
        new: the pod now, ``None`` if it is deleted.
    """
    before = old.status
    if (
        old.metadata.deletion_timestamp is not None  # reported when its deletion began
        or before.phase in {"Failed", "Succeeded"}
        or old.metadata.annotations.report is None
    ):
        return None
    if new is None:
        return FailureSignal.POD_DELETED
    if new.status.leaving and not before.leaving:
        return FailureSignal.POD_LEAVING
    if new.metadata.annotations.report != old.metadata.annotations.report:
        return None  # the agent was faster
    after = new.status
    if after.phase == "Failed":
        return FailureSignal.POD_FAILED
    if after.phase == "Succeeded":
        return None
    if new.metadata.deletion_timestamp is not None:
        return FailureSignal.POD_DELETED
    if after.failed and before.running and _newly_failed(old, new) is not None:
        return FailureSignal.CONTAINER_FAILED
    return None


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
    sign, epoch, old, new = failure.sign, failure.epoch, failure.old, failure.new
    template = template_of(jobset, job, old)
    if template is None or is_ending(job):
        return None
    pod = child(child(template, "template"), "spec")
    name, node = old.metadata.name, old.spec.node_name
    if sign is FailureSignal.CONTAINER_FAILED:
        assert new is not None
        failed = _newly_failed(old, new)
        if failed is None or not _ends_the_epoch(pod, failed):
            return None
        if fails_the_job(template, (failed,)):
            return None
        return Cause(epoch, sign, name, failed, node=node)
    known = new.status.failed if new is not None else ()
    if fails_the_job(template, known) or may_fail_by_condition(template):
        return None
    if sign is FailureSignal.POD_LEAVING:
        assert new is not None
        reason = new.status.leaving
        if reason == keys.TAINT_EVICTION_REASON and not node_ready(node):
            # Its taints are those of a failure, not of maintenance.
            return Cause(epoch, FailureSignal.NODE_LOST, name, reason=reason, node=node)
        return Cause(epoch, sign, name, reason=reason, counted=False, node=node)
    return Cause(
        epoch,
        sign,
        name,
        known[0] if known else None,
        new.status.reason if new is not None else "",
        node=node,
    )


def _newly_failed(old: ChildPod, new: ChildPod) -> FailedContainer | None:
    """Return the first container to fail of those that ran before."""
    ran = old.status.running.split(" ")
    return next((failed for failed in new.status.failed if failed.name in ran), None)


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


def _ends_the_epoch(pod: Json, failed: FailedContainer) -> bool:
    """Return True if the pod restarts in place, or is replaced, because this container ended so.

    Containers that the JobSet does not name (of a service mesh, for example) are not workers.
    """
    containers = [container for _, container in objects(pod, "containers")]
    for container in containers:
        if container.get("name") != failed.name:
            continue
        action = restart_action(container, failed.exit_code)
        if action in RESTART_ALL_ACTIONS:
            return True
        policy = text(container, "restartPolicy") or text(pod, "restartPolicy") or "Always"
        if action == "Terminate" or (not action and policy == "Never"):
            # Others of its pod may continue for hours; the end of the pod is detected.
            return len(containers) == 1
        # It restarts alone. No other restarts, unless the agent is in it.
        return any(word.rpartition("/")[2] == "supervise" for word in _command(container))
    return False


def _command(container: Json) -> Iterator[str]:
    for field in ("command", "args"):
        yield from (word for word in items(container, field) if isinstance(word, str))


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
