"""Reporter of the coscheduler's decisions: metrics, log lines and events.

Events are about the JobSet of a gang, or about one pod of a gang without a JobSet; repetitions are
counted in the same event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock
from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import KubeObject, ResourceInfo
from jobsetpy.coscheduler import metrics
from jobsetpy.coscheduler._pods import GroupPod
from jobsetpy.coscheduler.gang_scheduler.gang import TrackedGang
from jobsetpy.coscheduler.gang_scheduler.state import Cause, Counts, Observer
from jobsetpy.coscheduler.gang_scheduler.timers import Timers
from jobsetpy.observability.logging import get_logger
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupInfo, PodGroupKey

SCHEDULED_REASON: Final = "PodGroupScheduled"
REJECTED_REASON: Final = "PodGroupRejected"
TIMED_OUT_REASON: Final = "PodGroupTimedOut"
INCOMPLETE_REASON: Final = "PodGroupIncomplete"
DISAGREE_REASON: Final = "PodGroupPodsDisagree"
PARTIAL_REASON: Final = "PodGroupBoundInPart"
TOO_LARGE_REASON: Final = "PodGroupTooLarge"

NO_ROOM_REASON: Final = "PodGroupWaitsForRoom"
MINIMUM_REASON: Final = "PodGroupMinimumInvalid"

INCOMPLETE_S: Final = 30.0
"""Time in seconds after which an incomplete gang is reported."""

_AT_ONCE: Final = 100
"""Maximum number of gangs reported or checked for capacity per count; the others follow later."""

_ACTION: Final = "Coscheduling"


@attrs.frozen
class _OwnerMeta:
    name: str
    namespace: str
    uid: str
    resource_version: str = ""


@attrs.frozen
class _Owner:
    """JobSet as the object of an event."""

    RESOURCE: ClassVar[ResourceInfo] = JobSet.RESOURCE
    metadata: _OwnerMeta


@attrs.define
class _Course:
    """Progress of a gang between its first removed gate and its last bind."""

    ungated_at: float | None = None
    released_at: float = 0.0
    binding: int = 0
    refused: int = 0


class Reporter(Observer):
    """Observer of the gang scheduler; the engine also reports its writes to it.

    Args:
        clock: clock for all times.
        pod_of: lookup of a pod by UID if it is in the gang, else of the gang's first pod.
        gang_of: lookup of a gang; ``None`` if it has no pods.
        events: recorder of events; ``None`` for no events.
        lacks_capacity: predicate for gangs that stay gated for lack of capacity.
    """

    def __init__(
        self,
        clock: Clock,
        pod_of: Callable[[PodGroupKey, str], GroupPod | None],
        gang_of: Callable[[PodGroupKey], TrackedGang | None],
        events: rt.EventRecorder | None = None,
        lacks_capacity: Callable[[PodGroupKey], bool] = lambda _: False,
    ) -> None:
        self._clock = clock
        self._pod_of = pod_of
        self._gang_of = gang_of
        self._lacks_capacity = lacks_capacity
        self._waiting: Timers[PodGroupKey] = Timers()
        self._lacking: set[PodGroupKey] = set()
        self._odd: set[PodGroupKey] = set()
        self._first: dict[PodGroupKey, str] = {}
        self._events = events
        self._courses: dict[PodGroupKey, _Course] = {}
        self._log = get_logger("coscheduler")

    def ungated(self, group: PodGroupInfo, pods: int) -> None:
        """Handle ``Observer.ungated``."""
        course = self._courses.setdefault(group.key, _Course())
        if course.ungated_at is None:
            course.ungated_at = self._clock.monotonic()
        what = "group ungated" if pods else "group came without gates"
        self._log.info(what, **_about(group), pods=pods)
        gang = self._gang_of(group.key)
        for each in [] if gang is None else gang.disagreements():
            message = f"pods of the group {group.key.name} have {each}"
            self._notify(group.key, "Warning", DISAGREE_REASON, message)

    def released(self, group: PodGroupInfo, pods: int) -> None:
        """Handle ``Observer.released``."""
        now = self._clock.monotonic()
        course = self._courses.setdefault(group.key, _Course())
        course.binding += pods
        course.released_at = now
        first, waited_s = course.ungated_at is not None, None
        if course.ungated_at is not None:
            waited_s = round(now - course.ungated_at, 3)
            metrics.group_complete(now - course.ungated_at)
            course.ungated_at = None
        self._log.info(
            "group released", **_about(group), pods=pods, waited_s=waited_s, refusals=course.refused
        )
        if first:
            message = f"{group.min_available} pods of the group {group.key.name} have found nodes"
            self._notify(group.key, "Normal", SCHEDULED_REASON, message)
        course.refused = 0

    def rejected(self, group: PodGroupInfo, cause: Cause, why: str, pods: int) -> None:
        """Handle ``Observer.rejected``."""
        course = self._courses.setdefault(group.key, _Course())
        course.refused += 1
        metrics.group_rejected(cause.value)
        self._log.info(
            "group rejected",
            **_about(group),
            pods=pods,
            cause=cause.value,
            why=why,
            refusals=course.refused,
        )
        reason = TIMED_OUT_REASON if cause is Cause.TIMEOUT else REJECTED_REASON
        message = f"no pod of the group {group.key.name} is bound for now: {why}"
        self._notify(group.key, "Warning", reason, message)

    def bound_in_part(self, group: PodGroupInfo, bound: int, *, deleted: bool) -> None:
        """Handle ``Observer.bound_in_part``."""
        what = "these are deleted" if deleted else "these keep their nodes"
        self._log.warning("group bound in part", **_about(group), bound=bound, deleted=deleted)
        message = (
            f"only {bound} of {group.min_available} pods of the group {group.key.name} could be "
            f"bound, since others took its capacity: {what}"
        )
        self._notify(group.key, "Warning", PARTIAL_REASON, message)

    def too_large(self, group: PodGroupInfo, held: int) -> None:
        """Handle ``Observer.too_large``."""
        self._log.warning("group too large", **_about(group), held_at_most=held)
        message = (
            f"the group {group.key.name} never starts: it needs {group.min_available} nodes held "
            f"at a time, and no more than {held} can be (50,000, or what the limit on open files "
            "allows)"
        )
        self._notify(group.key, "Warning", TOO_LARGE_REASON, message)

    def staged(self, key: PodGroupKey, stage: str) -> None:
        """Handle ``Observer.staged``."""
        self._lacking.discard(key)
        if stage == "incomplete":
            self._lacking.add(key)
        if stage in {"incomplete", "queued"}:
            self._waiting.set(key, self._clock.monotonic() + INCOMPLETE_S)
        else:
            self._waiting.drop(key)

    def counts(self, counts: Counts) -> None:
        """Set the gauges; report gangs that stay incomplete, or do not fit, once each."""
        metrics.counts(counts.groups, counts.pods)
        now = self._clock.monotonic()
        for _ in range(_AT_ONCE):
            key = self._waiting.pop(now)
            if key is None:
                return
            gang = self._gang_of(key)
            if gang is None:
                continue
            minimum = gang.info().min_available
            if key in self._lacking:
                have = gang.size
                message = f"the group {key.name} has {have} pods and waits for {minimum}"
                if blocked := have - gang.placeable:
                    message += f"; {blocked} of them have scheduling gates of other controllers"
                self._notify(key, "Warning", INCOMPLETE_REASON, message)
            elif self._lacks_capacity(key):
                opt_out = f'{keys.COSCHEDULING_CAPACITY_ANNOTATION}: "false"'
                message = (
                    f"there is no capacity for {minimum} pods of the group {key.name}: they stay "
                    "behind their gates, where cluster autoscalers do not see them. To have nodes "
                    f"added for it, annotate the JobSet with {opt_out}"
                )
                self._notify(key, "Normal", NO_ROOM_REASON, message)
            else:
                self._waiting.set(key, now + INCOMPLETE_S)  # it waits for its turn

    def minimum(self, key: PodGroupKey, given: str) -> None:
        """Report once for a gang that a pod's label has no valid minimum."""
        if key not in self._odd:
            self._odd.add(key)
            message = (
                f"label {keys.POD_GROUP_MIN_AVAILABLE} of pods of the group {key.name} is "
                f"{given!r}, not a number from 1 to {keys.INT32_MAX}: it counts as 1, so each of "
                "them is scheduled by itself"
            )
            self._notify(key, "Warning", MINIMUM_REASON, message)

    def forgotten(self, key: PodGroupKey) -> None:
        """Handle ``Observer.forgotten``."""
        self._courses.pop(key, None)
        self._odd.discard(key)
        self._first.pop(key, None)

    def bind_done(self, key: PodGroupKey | None, seconds: float, *, error: str) -> None:
        """Record the result of a bind; ``key`` is ``None`` for a pod without a gang."""
        metrics.bound(seconds, ok=not error)
        if error:
            self._log.warning("a bind failed", group=str(key or ""), error=error)
        self.bind_over(key)

    def bind_over(self, key: PodGroupKey | None) -> None:
        """Record the end of a pending bind of a complete gang, successful or not."""
        course = None if key is None else self._courses.get(key)
        if course is None or not course.binding:
            return
        course.binding -= 1
        if not course.binding:
            metrics.group_bound(self._clock.monotonic() - course.released_at)

    def write_failed(self, what: str, key: PodGroupKey, error: Exception, **more: str) -> None:
        """Log a failed write for a gang."""
        self._log.warning(what, group=str(key), error=str(error), **more)

    def _notify(self, key: PodGroupKey, type_: str, reason: str, message: str) -> None:
        if self._events is None:
            return
        # The pod stays the same while it exists, so that repetitions are counted.
        pod = self._pod_of(key, self._first.get(key, ""))
        if pod is None:
            return
        self._first[key] = pod.metadata.uid
        labels, meta = pod.metadata.labels, pod.metadata
        about: KubeObject = pod
        if labels.jobset and labels.jobset_uid:
            about = _Owner(_OwnerMeta(labels.jobset, meta.namespace, labels.jobset_uid))
        self._events.event(about, type_, reason, message, action=_ACTION)


def _about(group: PodGroupInfo) -> dict[str, object]:
    return {
        "group": str(group.key),
        "min_available": group.min_available,
        "priority": group.priority,
    }
