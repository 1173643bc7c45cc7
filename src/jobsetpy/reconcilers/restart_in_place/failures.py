"""Failures seen before the failed pod's agent can tell of them (KEP-467, "Speed up detection").

The agent of a failed pod opens the next epoch once it runs again, seconds later. The kubelet shows
the end of a worker earlier than that, and for about 0.1 s only: then it restarts the pod and puts
137 in place of every exit code. Whoever sees it in between can have the others restart at once, and
knows what happened.

Only a change from one state of a pod to the next counts, never a state by itself: what a status
shows may be left from the run before. And only what the agents would come to anyway is brought
forward: a container that restarts alone by its own rules, a pod that lives on without it, a failure
that fails the whole Job, and pods that go because they are no longer wanted are left alone.
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
"""By then a pod's status is not older any more than the synced epoch that was seen before it."""

_ENDING: Final = frozenset({"FailureTarget", "SuccessCriteriaMet"})
"""Job conditions after which the Job controller removes what is left of the pods."""


class FailureSignal(enum.Enum):
    """What may have happened to a pod."""

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
    """Why an epoch is over, and for which pod.

    Args:
        epoch: that is over.
        sign: what was seen, ``None`` if a Job is made anew on request.
        name: of the pod, or of the Job.
        container: that failed, if that is known.
        reason: of the pod's phase; of missing pods, who they are; of a worker, for how long it
            has hung, or its last words.
        counted: whether the restart counts towards ``maxRestarts``.
        node: of the pod.
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
        """For the condition."""
        return _REASONS[self.sign]

    def __str__(self) -> str:
        """Half a sentence."""
        if self.sign is None:
            return f"job {self.name!r} is made anew"
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
    """What a supervisor says of its worker, as the cause of the end of the epoch before."""
    epoch, end = report.epoch - 1, report.end
    if end.kind == EXIT_CODE:
        container = FailedContainer(exit_code=end.number)
        return Cause(
            epoch, FailureSignal.WORKER_FAILED, report.pod, container, end.text, node=report.node
        )
    where = "" if report.step < 0 else f" at step {report.step}"
    reason = f"no progress for {end.number} s{where}"
    return Cause(epoch, FailureSignal.WORKER_HUNG, report.pod, reason=reason, node=report.node)


@attrs.frozen(eq=False)
class Failure:
    """A change of a pod that may mean a failure, noted for the next reconcile to judge.

    Args:
        sign: what ``sign_of`` made of the two.
        epoch: the pod's.
        old: the pod before.
        new: the pod after, ``None`` if it is gone.
        at: when it was seen, on the monotonic clock.
    """

    sign: FailureSignal
    epoch: int
    old: ChildPod
    new: ChildPod | None
    at: float


@attrs.frozen
class SyncedMark:
    """How far the pods' events had come when an epoch was seen synced.

    Args:
        epoch: that was synced.
        version: newest resourceVersion of a pod by then.
        at: when that was, on the monotonic clock.
    """

    epoch: int = 0
    version: int = 0
    at: float = 0.0

    def shows_run(self, epoch: int, version: int, now: float) -> bool:
        """Whether what a pod's status shows as running surely runs at ``epoch``.

        A status may be left from the run before: the agent's patch and the kubelet's reports are
        not in step. A worker of this epoch starts only after the epoch was synced, so a status that
        was in the cache by then shows none. One written later shows none of an older run, since by
        then every pod's kubelet had removed those; after a while, neither does any.

        Args:
            epoch: the pod's.
            version: the pod's resourceVersion.
            now: on the monotonic clock.
        """
        if epoch != self.epoch:
            return False
        return now - self.at >= STATUS_LAG_S or version > self.version


def sign_of(old: ChildPod, new: ChildPod | None) -> FailureSignal | None:
    """What a pod's change may mean; O(1) and cheap, since it is asked for every change.

    Args:
        old: the pod before.
        new: the pod now, ``None`` if it is gone.
    """
    before = old.status
    if (
        old.metadata.deletion_timestamp is not None  # that was told when its deletion began
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
    """Whether what was seen of a pod means that its epoch is over.

    Args:
        jobset: alive, whose group was complete at the pod's epoch.
        job: the pod's controller.
        failure: what was seen.
        node_ready: whether the node of a name is ready.
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
    """The first container to fail of those that ran before."""
    ran = old.status.running.split(" ")
    return next((failed for failed in new.status.failed if failed.name in ran), None)


def is_ending(job: Job) -> bool:
    """Whether the Job is about to lose its pods anyway."""
    return job.spec.suspend is True or is_over(job)


def is_over(job: Job) -> bool:
    """Tell if the Job replaces none of its pods any longer, not even once it is resumed."""
    return (
        job.metadata.deletion_timestamp is not None
        or job.status.finished is not None
        or any(c.type in _ENDING and c.status == "True" for c in job.status.conditions)
    )


def template_of(jobset: JobSet, job: Job, pod: ChildPod) -> Json | None:
    """The spec of the Job's template, if the JobSet still wants this Job and this pod."""
    name = replicated_job_of(job)
    job_index = parse_count(job.metadata.labels.get(keys.JOB_INDEX))
    for item in jobset.spec.replicated_jobs:
        if item.name != name:
            continue
        spec = child(item.template, "spec")
        wanted = spec.get("parallelism", 1)
        index = parse_count(pod.metadata.annotations.completion_index)
        if job_index is not None and job_index >= item.replicas:
            return None
        if index is not None and isinstance(wanted, int) and index >= wanted:
            return None
        return spec
    return None


def _ends_the_epoch(pod: Json, failed: FailedContainer) -> bool:
    """Whether the pod will restart in place, or is replaced, because this container ended so.

    Containers that the JobSet does not name (a service mesh's, perhaps) are nobody's workers.
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
            # Others of its pod may go on for hours; when the pod ends, that is seen.
            return len(containers) == 1
        # It restarts alone. Nobody else follows, unless the agent is in it.
        return any(word.rpartition("/")[2] == "supervise" for word in _command(container))
    return False


def _command(container: Json) -> Iterator[str]:
    for field in ("command", "args"):
        yield from (word for word in items(container, field) if isinstance(word, str))


def fails_the_job(template: Json, failed: tuple[FailedContainer, ...]) -> bool:
    """Whether the Job's pod failure policy makes the Job fail: the JobSet's policy decides then.

    The first rule that matches decides, as in the Job controller.
    """
    for _, rule in _failure_rules(template):
        codes = child(rule, "onExitCodes")
        only = codes.get("containerName")
        if any(only in {None, "", one.name} and has_code(codes, one.exit_code) for one in failed):
            return rule.get("action") in {"FailJob", "FailIndex"}
    return False


def may_fail_by_condition(template: Json) -> bool:
    """Whether some rule fails the Job for a condition of the pod; conditions are not cached."""
    return any(
        rule.get("action") in {"FailJob", "FailIndex"} and items(rule, "onPodConditions")
        for _, rule in _failure_rules(template)
    )


def _failure_rules(template: Json) -> list[tuple[int, Mapping[str, Any]]]:
    return objects(child(template, "podFailurePolicy"), "rules")
