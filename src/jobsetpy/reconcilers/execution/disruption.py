"""Condition applied to a pod before its deletion, so that its Job shows the reason."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from jobsetpy.api import keys
from jobsetpy.api.timestamps import seconds_text


def disruption(metadata: dict[str, Any], reason: str, message: str, at: datetime) -> dict[str, Any]:
    """Return a pod with the condition ``DisruptionTarget``, for a server-side apply.

    Args:
        metadata: name and namespace, and further preconditions.
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
        "metadata": metadata,
        "status": {"conditions": [condition]},
    }
