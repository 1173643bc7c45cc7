"""Pods and actions for tests of the gang scheduler, and members of gangs in a world."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jobsetpy.api import keys
from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import SeenPod
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey
from jobsetpy.testing import make_pod


def seen(
    uid: str, group: str = "", *, minimum: int = 2, created: float | None = None,
    bound: bool = False, ended: bool = False, prio: int = 0, **more: Any,
) -> SeenPod:  # fmt: skip
    """A pod of a gang, by default of the one that its UID begins with; gangs are created in order
    of their names.
    """
    group = group or uid[0]
    created = float(ord(group[0])) if created is None else created
    member = Member(created=created, min_available=minimum, bound=bound, priority=prio, **more)
    return SeenPod(group=PodGroupKey("ns", group), name=uid, uid=uid, member=member, ended=ended)


def shown(scheduler: GangScheduler, *uids: str, **marks: Any) -> list[Any]:
    """Show new or changed pods to a gang scheduler; return its actions."""
    return [action for uid in uids for action in scheduler.seen(seen(uid, **marks), 0.0)]


def short(actions: Iterable[Any]) -> list[tuple[str, str]]:
    """Kind and UID of each action."""
    return [(type(action).__name__, action.uid) for action in actions]


def member_pod(
    name: str, minimum: int, *gates: str, group: str = "", namespace: str = "default", **spec: Any
) -> dict[str, Any]:
    """Body of a pending pod of a gang, by default of the one before the last dash of its name."""
    group = group or name.rpartition("-")[0]
    pod = make_pod(name, namespace).labels(
        {keys.POD_GROUP_NAME: group, keys.POD_GROUP_MIN_AVAILABLE: str(minimum)}
    )
    named = [{"name": gate} for gate in gates]
    return pod.spec(schedulingGates=named, **spec).phase("Pending").build()
