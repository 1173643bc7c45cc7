"""Deadline for pods on an unreachable node, and the Job and pod fields that follow from it.

Kubernetes waits for five minutes before it deletes the pods of such a node, and then forever for
the kubelet to confirm that they have ended. With a deadline, pods are deleted early enough that
their grace period ends with the deadline, and are then deleted by force (``plan``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jobsetpy.api import keys
from jobsetpy.api.annotations import read
from jobsetpy.reconcilers.rules.json_tree import Json, child, number, objects, text

SHORTEST_S: Final = 10.0
"""Minimum deadline in seconds; equal to ``plan.LEAVING_S``."""
LONGEST_S: Final = 86400.0

DEFAULT_GRACE_S: Final = 30
"""Default ``terminationGracePeriodSeconds`` of Kubernetes, in seconds."""

MOST_INDEXES: Final = 100_000
"""Maximum completions with a back-off limit per index; more also need ``maxFailedIndexes``."""

_EVICTS: Final = "NoExecute"


def problem_of(seconds: float) -> str:
    """Return why this cannot be a deadline; "" if it can. 0 stands for never."""
    if seconds == 0 or SHORTEST_S <= seconds <= LONGEST_S:
        return ""
    return f"must be 0 (never) or from {SHORTEST_S:g}s to {LONGEST_S / 3600:g}h"


def deadline_of(annotations: Mapping[str, str], default_s: float = 0.0) -> float:
    """Return the deadline of a JobSet in seconds; 0 for never.

    Args:
        annotations: annotations of the JobSet. A value that admission would reject is ignored.
        default_s: deadline in seconds of JobSets without the annotation.
    """
    seconds: float = read(keys.LOST_NODE_DEADLINE_ANNOTATION, annotations, default=default_s)
    return seconds


def job_fields(job_spec: Json, deadline_s: float) -> dict[str, Any]:
    """Return the fields added to a Job's spec: a back-off limit per index, where possible.

    The Job controller waits before it creates new pods: for 10 s after a failure, doubled with each
    further one, up to ten minutes. If several pods of a Job run on a node, all fail together when
    it is lost; eight of them would cost ten minutes. With a limit per index, each costs 10 s. The
    limit is the maximum, and so has to be that of the Job.

    Args:
        job_spec: Job spec of a template; not changed.
        deadline_s: deadline of its JobSet in seconds; 0 for none.
    """
    possible = (
        text(job_spec, "completionMode") == "Indexed"
        and text(child(job_spec, "template", "spec"), "restartPolicy") == "Never"
        and number(job_spec, "backoffLimit") == keys.INT32_MAX
        and (number(job_spec, "completions") or 0) <= MOST_INDEXES
    )
    if not deadline_s or not possible or job_spec.get("backoffLimitPerIndex") is not None:
        return {}
    return {"backoffLimitPerIndex": keys.INT32_MAX}


def tolerations(pod_spec: Json, deadline_s: float) -> list[Any]:
    """Return the tolerations of a template's pods, including those of the deadline.

    Taints for which the user set no time get one: an unreachable node is tolerated until only the
    grace period is left of the deadline; a node that is not ready, whose kubelet may still end its
    pods, for the whole deadline. Pods of GPU nodes usually tolerate all taints forever, which is
    not taken as a decision about lost nodes. The first toleration that matches a taint decides when
    pods are evicted, so those of the deadline come before such a toleration.

    Args:
        pod_spec: pod spec of a template; not changed.
        deadline_s: deadline of its JobSet in seconds; 0 for none.
    """
    own = list(pod_spec.get("tolerations") or ())
    if not deadline_s:
        return own
    grace_s = number(pod_spec, "terminationGracePeriodSeconds")
    grace_s = DEFAULT_GRACE_S if grace_s is None else grace_s
    seconds = {
        keys.NODE_NOT_READY_TAINT: int(deadline_s),
        keys.NODE_UNREACHABLE_TAINT: max(0, int(deadline_s) - grace_s),
    }
    given = [each for _, each in objects({"tolerations": own}, "tolerations")]
    added = [
        {"key": taint, "operator": "Exists", "effect": _EVICTS, "tolerationSeconds": limit_s}
        for taint, limit_s in seconds.items()
        if not any(_chosen(each, taint) for each in given)
    ]
    return added + own if any(map(_is_blanket, given)) else own + added


def tolerates_for_ever(pod_spec: Json) -> bool:
    """Return whether a template tolerates unreachable nodes by name, without a time limit."""
    for _, each in objects(pod_spec, "tolerations"):
        if _chosen(each, keys.NODE_UNREACHABLE_TAINT):
            return each.get("tolerationSeconds") is None
    return False


def _chosen(toleration: Json, taint: str) -> bool:
    """Return whether a toleration explicitly sets when this taint evicts pods."""
    timed = not toleration.get("key") and toleration.get("tolerationSeconds") is not None
    return _evicts(toleration) and (timed or toleration.get("key") == taint)


def _is_blanket(toleration: Json) -> bool:
    """Return whether a toleration matches all taints, forever."""
    endless = toleration.get("tolerationSeconds") is None
    return _evicts(toleration) and endless and not toleration.get("key")


def _evicts(toleration: Json) -> bool:
    """Return whether a toleration applies to evictions, as in the API server's defaulting."""
    return toleration.get("effect") in {None, "", _EVICTS}
