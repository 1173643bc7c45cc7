"""Causes of restarts, as conditions, events and the history name them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.agent_reports import EndKind
from jobsetpy.api.child_pod import ChildPod, FailedContainer
from jobsetpy.api.worker_reports import (
    parse_cause,
    parse_progress,
    signal_name,
)


class FailureKind(enum.Enum):
    """Possible failure of a pod."""

    CONTAINER_FAILED = "container_failed"
    POD_FAILED = "pod_failed"
    POD_DELETED = "pod_deleted"
    PODS_MISSING = "pods_missing"
    POD_LEAVING = "pod_leaving"
    NODE_LOST = "node_lost"
    POD_SILENT = "pod_silent"
    REQUESTED = "requested"
    WORKER_FAILED = "worker_failed"
    WORKER_HUNG = "worker_hung"
    LOG_RULE = "log_rule"
    GROUP_GROWS = "group_grows"


_CLAUSES: Final[Mapping[FailureKind | None, tuple[str, str]]] = {
    FailureKind.CONTAINER_FAILED: (keys.CONTAINER_FAILED_REASON, "pod {name!r}, {exited}"),
    FailureKind.POD_FAILED: (keys.POD_FAILED_REASON, "pod {name!r} failed{details}"),
    FailureKind.POD_DELETED: (keys.POD_DELETED_REASON, "pod {name!r} is being deleted"),
    FailureKind.PODS_MISSING: (keys.PODS_MISSING_REASON, "{reason}"),
    FailureKind.POD_LEAVING: (
        keys.POD_LEAVING_REASON,
        "pod {name!r} is asked to leave its node ({reason})",
    ),
    FailureKind.NODE_LOST: (
        keys.NODE_LOST_REASON,
        "pod {name!r} is evicted from node {node!r}, which is not ready",
    ),
    FailureKind.POD_SILENT: (
        keys.POD_SILENT_REASON,
        "pod {name!r} on node {node!r} is silent, and no worker makes progress",
    ),
    FailureKind.REQUESTED: (keys.RESTART_REQUESTED_REASON, "a restart is asked for"),
    FailureKind.WORKER_FAILED: (keys.WORKER_FAILED_REASON, "pod {name!r}: {ended}"),
    FailureKind.WORKER_HUNG: (keys.WORKER_HUNG_REASON, "pod {name!r}: {reason}"),
    FailureKind.LOG_RULE: (keys.LOG_RULE_REASON, "pod {name!r}: log rule {reason}"),
    FailureKind.GROUP_GROWS: (keys.GROUP_GROWS_REASON, "pods that were missing are ready"),
    None: (keys.JOB_REMADE_REASON, "job {name!r} is recreated"),
}
"""Reason of the condition, and clause for messages."""


@attrs.frozen
class Cause:
    """Cause for the end of an epoch.

    Args:
        epoch: epoch that is over.
        kind: detected failure, ``None`` if a Job is recreated on request.
        name: name of the pod, or of the Job.
        container: name of the failed container, if known.
        reason: reason of the pod's phase; for missing pods, their description; for a worker, how
            long it has hung, its reported failure, or the rule on its output and a line.
        counted: True if the restart counts towards ``maxRestarts``.
        node: node of the pod.
    """

    epoch: int
    kind: FailureKind | None
    name: str
    container: FailedContainer | None = None
    reason: str = ""
    counted: bool = True
    node: str = ""

    @property
    def condition_reason(self) -> str:
        """Reason of the condition."""
        return _CLAUSES[self.kind][0]

    def __str__(self) -> str:
        """Return the cause as a clause for messages."""
        details = ", ".join(filter(None, (self.reason, self._exited)))
        return _CLAUSES[self.kind][1].format(
            name=self.name,
            node=self.node,
            reason=self.reason,
            exited=self._exited,
            details=f" ({details})" if details else "",
            ended=self._ended,
        )

    @property
    def _exited(self) -> str:
        """End of the container; "" if it is not known."""
        one = self.container
        if one is None:
            return ""
        why = f" ({one.reason})" if one.reason else ""
        return f"container {one.name!r} exited with {one.exit_code}{why}"

    @property
    def _ended(self) -> str:
        """End of a worker, as its supervisor reports it."""
        code = 0 if self.container is None else self.container.exit_code
        killed = f" ({name})" if (name := signal_name(code)) else ""
        said = f": {self.reason}" if self.reason else ""
        return f"its worker ended with exit code {code}{killed}{said}"


def reported_cause(pod: ChildPod, epoch: int) -> Cause | None:
    """Return a supervisor's report on its worker as the cause for the end of an epoch, if valid."""
    notes, name, node = pod.metadata.annotations, pod.metadata.name, pod.spec.node_name
    end = parse_cause(notes.restart_cause)
    if end is None:
        return None
    if end.kind is EndKind.EXIT_CODE:
        container = FailedContainer(exit_code=end.number)
        return Cause(epoch, FailureKind.WORKER_FAILED, name, container, end.text, node=node)
    if end.kind is EndKind.LOG_RULE:
        return Cause(epoch, FailureKind.LOG_RULE, name, reason=end.text, node=node)
    step = parse_progress(notes.progress)
    where = "" if step is None or step < 0 else f" at step {step}"
    said = f" ({end.text})" if end.text else ""
    reason = f"no progress for {end.number} s{where}{said}"
    return Cause(epoch, FailureKind.WORKER_HUNG, name, reason=reason, node=node)
