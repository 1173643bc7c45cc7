"""State of the coscheduler's queue, published for managers in an annotation of a Lease.

A gate costs each pod a second write and is useful only while some gang waits. So pods of gangs are
created without gates while the queue is empty. The coscheduler still holds their binds: even if the
published state is old, no gang is bound in part. An error affects order only: a gang without gates
is tried immediately.
"""

from __future__ import annotations

from typing import Any

import msgspec


class QueueState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Published state of the queue; a few bytes, however large the cluster is.

    Args:
        waiting: some gang waits for its turn or for capacity.
        scheduler_name: name of the scheduler that calls the extender, if not the default one.
        member_resource: the scheduler calls it only for pods that request the member resource.
        holds, room: required by managers of version 0.1, which gate all pods when they read the
            defaults.
    """

    waiting: bool
    scheduler_name: str = ""
    member_resource: bool = False
    holds: Any = 0
    room: Any = None

    def encoded(self) -> str:
        """Return the value of the annotation."""
        return msgspec.json.encode(self).decode()


def queue_state(text: str) -> QueueState | None:
    """Decode :meth:`QueueState.encoded`; ``None`` if the text is something else."""
    try:
        return msgspec.json.decode(text, type=QueueState)
    except (ValueError, RecursionError):
        return None
