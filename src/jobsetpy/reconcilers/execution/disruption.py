"""What is applied to the status of a pod before it is taken away, so that its Job may tell why."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from jobsetpy.api import keys
from jobsetpy.api.timestamps import seconds_text


def disruption(metadata: dict[str, Any], reason: str, message: str, at: datetime) -> dict[str, Any]:
    """A pod with the condition ``DisruptionTarget``, for a server-side apply.

    Args:
        metadata: name and namespace, and what else has to be as it was.
        reason: why the pod goes, as one word.
        message: the same for people.
        at: since when that is known.
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
