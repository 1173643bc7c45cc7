"""Pods, capacity and actions for tests of the gang scheduler, and members of gangs in a world."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jobsetpy.api import keys
from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import SeenPod
from jobsetpy.reconcilers.coscheduling.plugin import Member, PodGroupKey
from jobsetpy.testing import make_pod


def seen(
    uid: str, group: str = "", *, minimum: int = 2, gated: bool = True, created: float | None = None,
    bound: bool = False, ended: bool = False, prio: int = 0, **more: Any,
) -> SeenPod:  # fmt: skip
    """A pod of a gang, by default of the one that its UID begins with; gangs are created in order
    of their names.
    """
    group = group or uid[0]
    created = float(ord(group[0])) if created is None else created
    member = Member(created=created, min_available=minimum, bound=bound, priority=prio, **more)
    return SeenPod(
        group=PodGroupKey("ns", group), name=uid, uid=uid, member=member, gated=gated, ended=ended
    )


def shown(scheduler: GangScheduler, *uids: str, **marks: Any) -> list[Any]:
    """Show new or changed pods to a gang scheduler; return its actions."""
    return [action for uid in uids for action in scheduler.seen(seen(uid, **marks), 0.0)]


def short(actions: Iterable[Any]) -> list[tuple[str, str]]:
    """Kind and UID of each action."""
    return [(type(action).__name__, action.uid) for action in actions]


class FixedCapacity:
    """Capacity that the test sets, as a number of pods per gang; all gangs compete for it.

    Args:
        empty: whether gangs would not fit an empty cluster either.
        pods: number of pods by name of the gang.
    """

    scans = 0

    def __init__(self, *, empty: bool = False, **pods: int) -> None:
        self.empty = empty
        self.pods = pods

    def fits(self, group: PodGroupKey, wanted: int) -> bool:
        return wanted <= self.pods.get(group.name, 0)

    def ever_fits(self, group: PodGroupKey, wanted: int) -> bool:
        return not self.empty or self.fits(group, wanted)

    def compete(self, group: PodGroupKey, other: PodGroupKey) -> bool:
        return True


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
