"""Registry of the framework's metrics, and the class for registries of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# A "_created" series for each counter would double their number for no reader.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class MetricRegistry(CollectorRegistry):
    """Metrics of one package; served by managers that were given it (``add_metrics``)."""

    def __init__(self) -> None:
        super().__init__(auto_describe=True)

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Declare a counter."""
        return Counter(name, text, labels, registry=self)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Declare a gauge."""
        return Gauge(name, text, labels, registry=self)

    def histogram(self, name: str, text: str, *labels: str, buckets: Sequence[float]) -> Histogram:
        """Declare a histogram."""
        return Histogram(name, text, labels, registry=self, buckets=buckets)


REGISTRY: Final = MetricRegistry()
"""Metrics of the framework, which every manager serves."""

prometheus_client.ProcessCollector(registry=REGISTRY)
prometheus_client.PlatformCollector(registry=REGISTRY)
prometheus_client.GCCollector(registry=REGISTRY)
