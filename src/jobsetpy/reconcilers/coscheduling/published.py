"""Settings of the coscheduler, published for managers in an annotation of a Lease."""

from __future__ import annotations

from typing import Any

import msgspec


class CoschedulerState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Published settings of an installed coscheduler.

    Args:
        scheduler_name: name of the scheduler that calls the extender, if not the default one.
        member_resource: the scheduler calls it only for pods that request the member resource.
        waiting, holds, room: required by managers of version 0.2 and 0.1; False and the defaults
            let them create pods without gates, which this coscheduler would not remove.
    """

    scheduler_name: str = ""
    member_resource: bool = False
    waiting: bool = False
    holds: Any = 0
    room: Any = None

    def encoded(self) -> str:
        """Return the value of the annotation."""
        return msgspec.json.encode(self).decode()


def coscheduler_state(text: str) -> CoschedulerState | None:
    """Decode :meth:`CoschedulerState.encoded`; ``None`` if the text is something else."""
    try:
        return msgspec.json.decode(text, type=CoschedulerState)
    except (ValueError, RecursionError):
        return None
