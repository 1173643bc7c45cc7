"""Metrics of group scheduling; no label names an object."""

from __future__ import annotations

from typing import Final

from prometheus_client import Gauge, Histogram

from jobsetpy.observability._registry import REGISTRY

_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600)

_gather_seconds = Histogram(
    "jobset_group_gather_seconds",
    "From the first Job of a group's attempt until all its pods had started and were released",
    buckets=_BUCKETS,
    registry=REGISTRY,
)
_waiting = Gauge(
    "jobset_groups_waiting",
    "Groups of which some pod has not started, so that all others wait",
    registry=REGISTRY,
)


def group_released(seconds: float) -> None:
    """All pods of a group had started, and the group was released."""
    _gather_seconds.observe(seconds)


def groups_waiting(count: int) -> None:
    """Set how many groups gather."""
    _waiting.set(count)
