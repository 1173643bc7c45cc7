"""Reporter of the coscheduler's decisions: metrics, log lines and events.

Events are about the JobSet of a gang, or about one pod of a gang without a JobSet; repetitions are
counted in the same event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import attrs

from jobsetpy import runtime as rt
from jobsetpy.aio import Clock
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import KubeObject, ObjectMeta
from jobsetpy.coscheduler import metrics
from jobsetpy.coscheduler.engine.pods import GroupPod, attempt_of
from jobsetpy.coscheduler.gang_scheduler.gang import Observer, TrackedGang
from jobsetpy.coscheduler.gang_scheduler.state import Cause
from jobsetpy.observability.logging import get_logger
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey

SCHEDULED_REASON: Final = "PodGroupScheduled"
REJECTED_REASON: Final = "PodGroupRejected"
TIMED_OUT_REASON: Final = "PodGroupTimedOut"

_ACTION: Final = "Coscheduling"


@attrs.define
class _Course:
    """Progress of a gang between its first and its last bind, and its reports."""

    begun_at: float | None = None
    released_at: float = 0.0
    binding: int = 0
    refused: int = 0
    shown: str = ""


class Reporter(Observer):
    """Observer of the gang scheduler; the engine also reports its writes to it.

    Args:
        clock: clock for all times.
        pods: pods of gangs by UID.
        events: recorder of events; ``None`` for no events.
    """

    def __init__(
        self, clock: Clock, pods: Mapping[str, GroupPod], events: rt.EventRecorder | None = None
    ) -> None:
        self._clock = clock
        self._pods = pods
        self._events = events
        self._courses: defaultdict[PodGroupKey, _Course] = defaultdict(_Course)
        self._log = get_logger("coscheduler")

    def begun(self, gang: TrackedGang) -> None:
        """Handle ``Observer.begun``."""
        course = self._courses[gang.key]
        if course.begun_at is None:
            course.begun_at = self._clock.monotonic()
        self._log.info("group begun", **_about(gang))

    def released(self, gang: TrackedGang, pods: int) -> None:
        """Handle ``Observer.released``."""
        now = self._clock.monotonic()
        course = self._courses[gang.key]
        course.binding += pods
        course.released_at = now
        first, waited_s = course.begun_at is not None, None
        if course.begun_at is not None:
            waited_s = round(now - course.begun_at, 3)
            metrics.group_complete(now - course.begun_at)
            course.begun_at = None
        self._log.info(
            "group released", **_about(gang), pods=pods, waited_s=waited_s, refusals=course.refused
        )
        if first:
            wanted = gang.info().min_available
            message = f"{wanted} pods of the group {gang.key.name} have found nodes"
            self._notify(gang, "Normal", SCHEDULED_REASON, message)
        course.refused = 0

    def rejected(self, gang: TrackedGang, cause: Cause, why: str, pods: int) -> None:
        """Handle ``Observer.rejected``."""
        course = self._courses[gang.key]
        course.refused += 1
        metrics.group_rejected(cause)
        self._log.info(
            "group rejected",
            **_about(gang),
            pods=pods,
            cause=cause.value,
            why=why,
            refusals=course.refused,
        )
        reason = TIMED_OUT_REASON if cause is Cause.TIMEOUT else REJECTED_REASON
        message = f"no pod of the group {gang.key.name} is bound for now: {why}"
        self._notify(gang, "Warning", reason, message)

    def gone(self, gang: TrackedGang) -> None:
        """Handle ``Observer.gone``."""
        self._courses.pop(gang.key, None)

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

    def _notify(self, gang: TrackedGang, type_: str, reason: str, message: str) -> None:
        if self._events is None:
            return
        # The pod stays the same while it exists, so that repetitions are counted.
        course = self._courses[gang.key]
        pod = self._pods.get(course.shown)
        if pod is None or attempt_of(pod) != gang.key:
            pod = self._pods.get(gang.first.uid)
        if pod is None:
            return
        meta = pod.metadata
        course.shown, owner = meta.uid, meta.labels
        about: KubeObject = pod
        if owner.jobset and owner.jobset_uid:
            about = JobSet(
                metadata=ObjectMeta(
                    name=owner.jobset, namespace=meta.namespace, uid=owner.jobset_uid
                )
            )
        self._events.event(about, type_, reason, message, action=_ACTION)


def _about(gang: TrackedGang) -> dict[str, object]:
    group = gang.info()
    return {
        "group": str(group.key),
        "min_available": group.min_available,
        "priority": group.priority,
    }
