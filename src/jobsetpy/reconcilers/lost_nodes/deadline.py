"""After which time a JobSet gives up its pods on an unreachable node, and how they are told.

Kubernetes waits for five minutes before it deletes the pods of such a node, and then for ever for
the kubelet to say that they have ended. With a deadline, pods are told to end so early that their
grace period is over when the deadline is, and are deleted by force then (``plan``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jobsetpy.api import keys
from jobsetpy.api.durations import parse_duration
from jobsetpy.reconcilers.rules.json_tree import Json, child, number, objects, text

SHORTEST_S: Final = 10.0
"""See ``plan.LEAVING_S``."""
LONGEST_S: Final = 86400.0

DEFAULT_GRACE_S: Final = 30
"""Kubernetes' ``terminationGracePeriodSeconds`` of a pod that names none."""

MOST_INDEXES: Final = 100_000
"""Of larger Jobs, the API server wants a limit of failed indexes together with one for each."""

_EVICTS: Final = "NoExecute"


def problem_of(seconds: float) -> str:
    """Why this cannot be a deadline; "" if it can. 0 stands for never."""
    if seconds == 0 or SHORTEST_S <= seconds <= LONGEST_S:
        return ""
    return f"must be 0 (never) or from {SHORTEST_S:g}s to {LONGEST_S / 3600:g}h"


def read_deadline(value: Any) -> float:
    """An annotation's value in seconds; 0 for never.

    Raises:
        ValueError: it is no deadline; the message says what is wrong with it.
    """
    seconds = parse_duration(value if isinstance(value, str) else "")
    if problem := problem_of(seconds):
        raise ValueError(problem)
    return seconds


def deadline_of(annotations: Mapping[str, str], default_s: float = 0.0) -> float:
    """The deadline of a JobSet in seconds; 0 for never.

    Args:
        annotations: of the JobSet. A value that admission would have refused counts for nothing.
        default_s: of JobSets that say nothing.
    """
    value = annotations.get(keys.LOST_NODE_DEADLINE_ANNOTATION)
    if value is None:
        return default_s
    try:
        return read_deadline(value)
    except ValueError:
        return default_s


def job_fields(job_spec: Json, deadline_s: float) -> dict[str, Any]:
    """What a Job's spec gets beside what the user wrote: back-off by index, where that is possible.

    The Job controller waits before it makes new pods: for 10 s after one has failed, doubled with
    each further one, to ten minutes. Of a Job with several pods on a node, all fail at once when it
    is lost; eight of them would cost ten minutes. By index, each costs 10 s. The limit is none, as
    that of the Job, which has to be none as well.

    Args:
        job_spec: of a template; not changed.
        deadline_s: of its JobSet; 0 for none.
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
    """The tolerations of a template's pods, with those of the deadline.

    Taints for which the user chose no time get one: an unreachable node is tolerated until only the
    grace period is left of the deadline; one that is not ready, whose kubelet may well end its
    pods, for as long as the deadline. Pods of GPU nodes usually tolerate all taints for ever, which
    is no choice about lost nodes. The first toleration that matches a taint decides when its pods
    are evicted, so those of the deadline come before such a one.

    Args:
        pod_spec: of a template; not changed.
        deadline_s: of its JobSet; 0 for none.
    """
    own = list(pod_spec.get("tolerations") or ())
    if not deadline_s:
        return own
    given = number(pod_spec, "terminationGracePeriodSeconds")
    grace_s = DEFAULT_GRACE_S if given is None else given
    seconds = {
        keys.NODE_NOT_READY_TAINT: int(deadline_s),
        keys.NODE_UNREACHABLE_TAINT: max(0, int(deadline_s) - grace_s),
    }
    chosen = {
        taint
        for taint in seconds
        for _, each in objects({"tolerations": own}, "tolerations")
        if _chosen(each, taint)
    }
    added = [
        {"key": taint, "operator": "Exists", "effect": _EVICTS, "tolerationSeconds": seconds[taint]}
        for taint in seconds
        if taint not in chosen
    ]
    if any(_is_blanket(each) for _, each in objects({"tolerations": own}, "tolerations")):
        return added + own
    return own + added


def tolerates_for_ever(pod_spec: Json) -> bool:
    """Whether a template tolerates unreachable nodes by name and without an end."""
    for _, each in objects(pod_spec, "tolerations"):
        if _chosen(each, keys.NODE_UNREACHABLE_TAINT):
            return each.get("tolerationSeconds") is None
    return False


def _chosen(toleration: Json, taint: str) -> bool:
    """Whether a user has chosen by this toleration when a taint evicts pods."""
    timed = not toleration.get("key") and toleration.get("tolerationSeconds") is not None
    return _evicts(toleration) and (timed or toleration.get("key") == taint)


def _is_blanket(toleration: Json) -> bool:
    """Whether a toleration is for all taints, and for ever."""
    endless = toleration.get("tolerationSeconds") is None
    return _evicts(toleration) and endless and not toleration.get("key")


def _evicts(toleration: Json) -> bool:
    """Whether a toleration is about evictions, as the API server's defaults see it."""
    return toleration.get("effect") in {None, "", _EVICTS}
