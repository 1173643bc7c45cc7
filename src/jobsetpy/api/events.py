"""Slice of events.k8s.io/v1: the few fields of an Event that are read back."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from jobsetpy.api._wire import wire
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource


@wire
class EventSeries:
    """Number of repetitions of an Event, and the time of the last one."""

    count: int = 0
    last_observed_time: datetime | None = None


@resource("events.k8s.io", "v1", "Event", "events")
@wire
class Event:
    """An Event about an object, for users."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    reason: str = ""
    note: str = ""
    event_time: datetime | None = None
    series: EventSeries | None = None
    deprecated_last_timestamp: datetime | None = None

    @property
    def last_seen(self) -> datetime | None:
        """Time of the last occurrence, for Events of either API."""
        repeated = None if self.series is None else self.series.last_observed_time
        return repeated or self.deprecated_last_timestamp or self.event_time
