"""Condition applied to a pod before its deletion, so that its Job shows the reason."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from jobsetpy.api import keys
from jobsetpy.api.child_pod import ChildPodMeta
from jobsetpy.api.timestamps import seconds_text


def disruption(pod: ChildPodMeta, reason: str, message: str, at: datetime) -> dict[str, Any]:
    """Return a pod with the condition ``DisruptionTarget``, for a server-side apply.

    Args:
        pod: metadata of the pod.
        reason: reason of the deletion, as one word.
        message: the same for users.
        at: time since which that is known.
    """
    condition = {
        "type": keys.DISRUPTION_TARGET_CONDITION,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": seconds_text(at),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "status": {"conditions": [condition]},
    }
