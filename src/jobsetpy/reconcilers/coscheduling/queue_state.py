"""State of the coscheduler's queue, published for managers in an annotation of a Lease.

A gate costs each pod a second write and is useful only while some gang waits. So pods of gangs are
created without gates while the queue is empty. The coscheduler still holds their binds: even if the
published state is old, no gang is bound in part. An error affects order only: a gang without gates
is tried immediately.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class QueueState:
    """Published state of the queue; a few bytes, however large the cluster is.

    Args:
        empty: no gang waits for its turn or for capacity.
        scheduler_name: name of the scheduler that calls the extender, if not the default one.
        member_resource: the scheduler calls it only for pods that request the member resource.
    """

    empty: bool = False
    scheduler_name: str = ""
    member_resource: bool = False

    def encoded(self) -> str:
        """Return the value of the annotation."""
        value = {
            "waiting": not self.empty,
            "schedulerName": self.scheduler_name,
            "memberResource": self.member_resource,
            # Required by managers of version 0.1, which gate all pods when they read these values.
            "holds": 0,
            "room": None,
        }
        return json.dumps(value, separators=(",", ":"))


def queue_state(text: str) -> QueueState | None:
    """Decode :meth:`QueueState.encoded`; ``None`` if the text is something else."""
    try:
        value: Mapping[str, Any] = json.loads(text)
        return QueueState(
            empty=value["waiting"] is False,
            scheduler_name=str(value["schedulerName"]),
            member_resource=value["memberResource"] is True,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
