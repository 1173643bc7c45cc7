"""Metrics of a process's tasks, cached objects and serving certificates.

A leak shows in one of these, or in ``process_resident_memory_bytes`` and ``process_open_fds``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobsetpy.observability._registry import REGISTRY

_certificate_end = REGISTRY.gauge(
    "server_certificate_expiration_timestamp_seconds",
    "When the certificate ends that a server of this process shows now, in Unix time",
    "server",
)


def certificate_ends(server: str, end: datetime) -> None:
    """Record that a server uses a certificate that expires at ``end``."""
    _certificate_end.labels(server).set(end.timestamp())


class _Held(Collector):
    """Gauges that are computed when scraped, at no cost in between."""

    def __init__(self) -> None:
        self.caches: list[Callable[[], Mapping[str, int]]] = []

    def describe(self) -> Iterator[Metric]:
        """Yield the metric families without samples."""
        yield from self._families()

    def collect(self) -> Iterator[Metric]:
        """Yield the tasks of the current event loop, and the objects of each kind in all caches."""
        tasks, objects = self._families()
        try:
            tasks.add_metric([], len(asyncio.all_tasks()))
        except RuntimeError:  # scraped outside of an event loop
            tasks.add_metric([], 0)
        counts: dict[str, int] = {}
        for sizes in self.caches:
            for kind, count in sizes().items():
                counts[kind] = counts.get(kind, 0) + count
        for kind, count in sorted(counts.items()):
            objects.add_metric([kind], count)
        yield from (tasks, objects)

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily("asyncio_tasks", "Tasks of the event loop that have not ended"),
            GaugeMetricFamily("informer_objects", "Objects in caches by kind", labels=["kind"]),
        )


_held: Final = _Held()
REGISTRY.register(_held)


@contextmanager
def cache_sizes(sizes: Callable[[], Mapping[str, int]]) -> Iterator[None]:
    """Export the number of objects in a cache within the block.

    Args:
        sizes: returns the number of objects by kind.
    """
    _held.caches.append(sizes)
    try:
        yield
    finally:
        _held.caches.remove(sizes)
